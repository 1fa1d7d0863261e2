"""The summary's numbers and the label picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from polyrhythm.base.errors import UserError
from polyrhythm.data import (
    Dirichlet,
    Federation,
    Iid,
    QuantitySkew,
    Shards,
    arrays,
    federate,
    summary,
    summary_table,
)
from polyrhythm.data.partitions import Partition
from polyrhythm.figures.labels import draw_labels, label_chart


def made(partition: Partition, clients: int, classes: int = 4, samples: int = 400) -> Federation:
    test = (np.zeros((4, 1)), np.arange(4) % classes)
    data = arrays(np.zeros((samples, 1)), np.arange(samples) % classes, test=test)
    return federate(data, partition, clients, 0)


def drawn(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows in a chart."""
    (rows,) = chart["datasets"].values()
    return list(rows)


def test_one_class_a_client_has_no_entropy_and_the_largest_distance() -> None:
    found = summary(made(Shards(per_client=1), 4))
    assert found.held == (1, 1.0, 1)
    assert found.entropy == (0.0, 0.0, 0.0)
    assert found.entropy_all == pytest.approx(2.0)
    assert found.distance == pytest.approx(0.75)
    assert found.sizes == (100, 100.0, 100)


def test_one_client_is_iid() -> None:
    found = summary(made(Iid(), 1))
    assert found.distance == pytest.approx(0.0)
    assert found.entropy[0] == pytest.approx(2.0)
    assert (found.train, found.test, found.validation, found.empty) == (400, 4, 0, 0)


def test_empty_clients_are_counted_but_not_measured() -> None:
    found = summary(made(QuantitySkew(alpha=0.05, min_size=0), 30))
    assert found.empty > 0
    assert found.sizes[0] > 0
    assert any("hold no samples" in note for note in found.notes)


def test_the_table_says_it_all() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(summary_table(summary(made(Dirichlet(alpha=0.3), 8))))
    text = console.export_text()
    for part in ("dirichlet(alpha=0.3)", "8 clients", "400 train", "classes a client (of 4)", "distance from IID"):
        assert part in text


def test_the_picture_has_a_bubble_for_each_client_and_class() -> None:
    federation = made(Dirichlet(alpha=0.3), 8)
    rows = drawn(label_chart(federation).to_dict())
    counts = np.zeros((8, 4), dtype=int)
    for row in rows:
        counts[int(row["client"]), int(row["class"])] = row["samples"]
    assert counts.tolist() == federation.histogram().tolist()


def test_many_clients_and_classes_are_thinned_and_the_title_says_so() -> None:
    chart = label_chart(made(Iid(), 500, classes=90, samples=9000)).to_dict()
    assert len({row["client"] for row in drawn(chart)}) == 100
    assert "100 of 500 clients" in chart["title"]
    assert "the 40 most frequent of 90 classes" in chart["title"]


def test_regression_is_drawn_as_sizes() -> None:
    data = arrays(np.zeros((50, 1)), np.linspace(0, 1, 50))
    federation = federate(data, QuantitySkew(alpha=2.0, min_size=0), 5, 0)
    assert federation.histogram().shape == (5, 0)
    assert summary(federation).classes == 0
    rows = drawn(label_chart(federation).to_dict())
    assert [row["samples"] for row in rows] == federation.sizes.tolist()


def test_pictures_are_written_for_reading_offline(tmp_path: Path) -> None:
    federation = made(Dirichlet(alpha=0.3), 8)
    assert draw_labels(federation, tmp_path / "new" / "labels.png").read_bytes()[:4] == b"\x89PNG"
    page = draw_labels(federation, tmp_path / "labels.html").read_text()
    assert "<script src=" not in page
    assert "dirichlet(alpha=0.3)" in page
    with pytest.raises(UserError, match=r"labels\.bmp"):
        draw_labels(federation, tmp_path / "labels.bmp")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        draw_labels(federation, tmp_path / "file" / "labels.png")
