"""A run's model says of new rows what it has learned: they are read as the training rows were, in the user's labels."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.cli.app import app
from polyrhythm.data.labels import ClassLabels
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.results.using import USE, Use

DRAWN = np.random.default_rng(0)
NUMBERS = 1e4 + DRAWN.normal(size=(120, 3))


def carried(data: Any, folder: Path, model: Any = "logistic", **changes: Any) -> pr.Run:
    federation = pr.federate(data, pr.data.Iid(), clients=3, seed=0)
    recipe = pr.fedavg(cohort=3, epochs=2, lr=0.3)
    return pr.run(pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=4, **changes), out=folder)


def again(run: pr.Run) -> pr.Run:
    """The same from the record."""
    return pr.Run.open(run.id, run.folder)


TABLE = pd.DataFrame(
    {
        "size": NUMBERS[:, 0],
        "colour": np.where(NUMBERS[:, 1] > 1e4, "red", "blue"),
        "site": DRAWN.integers(0, 3, 120),
        "kind": np.where(NUMBERS[:, 1] > 1e4, "yes", "no"),
    }
)


@pytest.fixture(scope="module")
def of_table(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    folder = tmp_path_factory.mktemp("table")
    TABLE.to_csv(folder / "t.csv", index=False)
    return carried(pr.data.table(folder / "t.csv", target="kind", client="site", test=0.2), folder / "runs")


def test_rows_of_a_table_are_read_as_the_training_rows_were(of_table: pr.Run) -> None:
    expected = TABLE["kind"].to_numpy()
    for run in (of_table, again(of_table)):
        assert run.predict(TABLE).tolist() == expected.tolist()
        other = TABLE[["kind", "colour", "size"]].sample(frac=1.0, random_state=0)  # another order, other columns
        assert run.predict(other).tolist() == other["kind"].tolist()
        assert run.predict({"size": [1e4], "colour": ["red"]}).tolist() == ["yes"]
        assert run.evaluate(TABLE)["accuracy"] == 1.0
        assert run.predict(TABLE, probabilities=True).sum(axis=1) == pytest.approx(1.0)


def test_what_a_table_becomes_is_what_was_trained_on(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    data = pr.data.table(tmp_path / "t.csv", target="kind", client="site", test=tmp_path / "t.csv")
    assert data.preprocessing is not None
    inputs, _ = data.train.batch(torch.arange(120))
    kept = Preprocessing.of(json.loads(json.dumps(data.preprocessing.plain())))
    assert kept == data.preprocessing
    assert torch.allclose(kept.apply(pd.read_csv(tmp_path / "t.csv")), inputs, atol=2e-3)  # float32 of numbers near 1e4


def test_categories_that_nobody_had_are_told(of_table: pr.Run) -> None:
    with pytest.warns(UserWarning, match="2 rows have values of 'colour' that no training row had, 'green'"):
        assert len(of_table.predict({"size": [1e4] * 3, "colour": ["green", "red", "green"]})) == 3


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"size": [1.0]}, "colour"),
        ({"size": ["large"], "colour": ["red"]}, "text in the column 'size'"),
        ({"size": [np.nan], "colour": ["red"]}, "empty or infinite cells in 'size'"),
        (np.zeros((2, 9)), r"rows of float64 and shape \(2, 9\)"),
    ],
)
def test_other_rows_are_refused_in_words(of_table: pr.Run, rows: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        of_table.predict(rows)


LABELS: dict[str, list[Any]] = {
    "text": ["cat", "dog"],
    "numbers": [7, 3],
    "truth": [True, False],
    "bytes": [b"cat", b"dog"],
    "bytes that are no text": [b"\xff", b"\xfe"],
}
TYPES = {"numbers": [np.int64, np.int8, np.uint16, np.float32, np.float64]}


@pytest.mark.parametrize("how", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("labels", "kind"), [(labels, kind) for labels in LABELS for kind in TYPES.get(labels, [None])], ids=str
)
def test_labels_come_back_as_they_were_given(labels: str, kind: Any, how: str, tmp_path: Path) -> None:
    targets = np.where(NUMBERS[:, 0] > 1e4, *(np.array(value, dtype=kind) for value in LABELS[labels]))
    scaled = ((NUMBERS - NUMBERS.mean(axis=0)) / NUMBERS.std(axis=0)).astype(np.float32)
    items = list(zip(scaled, targets, strict=True))
    data = pr.data.arrays(NUMBERS, targets, scaling="train") if how == "arrays" else pr.data.dataset(items, items)
    rows = NUMBERS if how == "arrays" else scaled
    run = carried(data, tmp_path)
    found = again(run).predict(torch.tensor(rows))
    assert found.dtype == targets.dtype
    assert (found == targets).mean() > 0.9
    assert run.evaluate((rows, targets))["accuracy"] == pytest.approx((found == targets).mean())


def test_fractions_and_classes_without_samples_are_labels_too(tmp_path: Path) -> None:
    tenths = np.where(NUMBERS[:, 0] > 1e4, 0.1, 0.7).astype(np.float32)
    run = carried(pr.data.arrays(NUMBERS, tenths, scaling="train", task="classification"), tmp_path / "a")
    assert (run.predict(NUMBERS) == tenths).mean() > 0.9
    assert run.evaluate((NUMBERS, tenths))["accuracy"] > 0.9
    small = np.where(NUMBERS[:, 0] > 1e4, 1, 2).astype(np.int8)
    wide = carried(pr.data.arrays(NUMBERS, small, scaling="train", classes=[1, 2, 300]), tmp_path / "b")
    assert (wide.predict(NUMBERS).dtype, Use.read(wide.path).labels) == (
        np.dtype(np.int64),
        ClassLabels(values=(1, 2, 300), kind="int64"),
    )


def test_digits_are_read_as_one_has_them(tmp_path: Path) -> None:
    """With an axis for the one channel, without it or flat; in bytes, such bytes held as floats, or shares of white."""
    digits = pr.data.digits()
    shares, numbers = digits.test.batch(torch.arange(90))
    raw = (shares * 16).to(torch.uint8).numpy()
    run = carried(digits, tmp_path, model="mlp")
    expected = run.predict(raw)
    assert (expected == numbers.numpy()).mean() > 0.5
    for rows in (raw, raw[:, 0], raw.reshape(90, 64), raw[:, 0, :, :, None]):
        for given in (rows, rows.astype(np.int64), rows.astype(np.float64), torch.tensor(rows / 16)):
            assert run.predict(given).tolist() == expected.tolist()
    for odd, words in (
        (raw.reshape(90, 16, 4), r"rows of uint8 and shape \(90, 16, 4\)\n.*uint8 \[n, 1, 8, 8\].*0 to 16"),
        (raw * 15, "rows of uint8 from 0 to 240\n.*0 to 16, as the .*; or floats in 0 to 1"),
        (raw / 16 - 0.5, r"rows of float64 from -0\.5 to 0\.5"),
        ((raw > 8).astype(float), "floats that are all 0 or 1"),
        (np.full((1, 64), np.nan), "rows of float64 from nan to nan"),
        (raw[0, 0, 0], "reshape them"),
    ):
        with pytest.raises(UserError, match=words):
            run.predict(odd)


def test_bytes_tokens_numbers_and_tags(tmp_path: Path) -> None:
    bytes_ = DRAWN.integers(0, 256, (60, 1, 4, 4)).astype(np.uint8)
    run = carried(pr.data.arrays(bytes_, (bytes_.mean((1, 2, 3)) > 128).astype(int), scaling="train"), tmp_path / "a")
    assert run.predict(bytes_.astype(int)).tolist() == run.predict(bytes_).tolist()
    assert run.predict(bytes_ / 255).tolist() == run.predict(bytes_).tolist()
    assert run.predict(bytes_[0]).tolist() == run.predict(bytes_[:1]).tolist()
    with pytest.raises(UserError, match="rows of int64"):
        run.predict(bytes_.astype(int) + 200)
    line = carried(pr.data.arrays(NUMBERS, NUMBERS[:, 0] / 3e4, scaling="train"), tmp_path / "b")
    assert line.predict(NUMBERS).shape == (120,) or line.predict(NUMBERS).shape == (120, 1)
    with pytest.raises(UserError, match="probabilities of a regression"):
        line.predict(NUMBERS, probabilities=True)
    tags = (NUMBERS > 1e4).astype(int)
    tagged = carried(pr.data.arrays(NUMBERS, tags, scaling="train", task="multilabel"), tmp_path / "c")
    assert tagged.predict(NUMBERS).shape == (120, 3)
    assert set(tagged.evaluate((NUMBERS, tags))) == {"loss", "recall_at_5"}


class Own(nn.Linear):
    """A model of one's own."""


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    truth = (NUMBERS[:, 0] > 1e4).astype(int)
    data = pr.data.arrays(NUMBERS, truth, scaling="train")
    given = Own(3, 2)
    run = carried(data, tmp_path, model=given)
    made = run.model()
    assert not made.training
    assert made is not given
    assert torch.equal(made.get_parameter("weight"), run.weights()["weight"])
    assert not torch.equal(given.weight, run.weights()["weight"])
    assert run.evaluate(data)["accuracy"] == pytest.approx(run.summary["final_accuracy"])
    opened = again(run)
    with pytest.raises(UserError, match="made in Python and has no name"):
        opened.model()
    assert opened.predict(NUMBERS, model=Own(3, 2)).tolist() == run.predict(NUMBERS).tolist()
    with pytest.raises(UserError, match="not weights of this model"):
        opened.model(model=Own(3, 5))
    with pytest.raises(UserError, match="label '5'"):
        run.evaluate((NUMBERS, truth + 4))
    (opened.path / USE).write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        opened.predict(NUMBERS)
    (opened.path / USE).unlink()
    with pytest.raises(UserError, match="does not exist"):
        opened.model()


def test_code_of_ones_own_is_imported_only_where_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_mine.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n"
        "    def __init__(self, shape, outputs): super().__init__(shape[0], outputs)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = pr.data.arrays(NUMBERS, (NUMBERS[:, 0] > 1e4).astype(int), scaling="train")
    run = carried(data, tmp_path / "runs", model="nets_of_mine:Net")
    with pytest.raises(UserError, match="nets_of_mine"):
        again(run).model()
    assert again(run).predict(NUMBERS, trust=["nets_of_mine"]).tolist() == run.predict(NUMBERS).tolist()


def test_warnings_are_only_of_what_is_new(of_table: pr.Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_table.predict(TABLE)


def test_on_the_command_line(of_table: pr.Run, tmp_path: Path) -> None:
    rows = TABLE.copy()
    rows.loc[0, "colour"] = "green"
    rows.to_csv(tmp_path / "new.csv", index=False)
    where = ["--out", str(of_table.folder)]
    given = ["predict", of_table.id, "--data", str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv"), *where]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 0, found.output
    assert "no training row had, 'green'" in " ".join(found.stderr.split())
    assert pd.read_csv(tmp_path / "out.csv")["prediction"][1:].tolist() == TABLE["kind"][1:].tolist()
    absent = CliRunner().invoke(app, [*given[:3], str(tmp_path / "no.csv"), *given[4:]])
    assert absent.exit_code == 2
