"""The loaders on the real files, where a machine has them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from polyrhythm import data
from polyrhythm.data.sources.idx import DEBIAN_FASHION

REAL = Path(os.environ.get("POLYRHYTHM_TEST_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def real(name: str) -> Path:
    if not (REAL / name).exists():
        pytest.skip(f"{name} is not under POLYRHYTHM_TEST_DATA ({REAL})")
    return REAL / name


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="the Debian package dataset-fashion-mnist is not installed")
def test_fashion_mnist() -> None:
    found = data.fashion_mnist()
    assert (len(found.train), len(found.test), found.train.shape) == (60_000, 10_000, (1, 28, 28))
    assert np.bincount(found.train.targets.numpy()).tolist() == [6000] * 10
    inputs, _ = found.train.batch(torch.arange(60_000))
    assert float(inputs.mean() / 2 + 0.5) == pytest.approx(0.2860, abs=1e-4)
    assert float(inputs.std() / 2) == pytest.approx(0.3530, abs=1e-4)
    # Each class has exactly 6,000 samples, so 200 shards of 300 are class-pure (CCFL's Table 2).
    made = data.federate(found, data.Shards(), 100, 0)
    assert made.sizes.tolist() == [600] * 100
    assert set(np.unique(made.histogram()).tolist()) == {0, 300, 600}


def test_mnist_by_writer() -> None:
    found = data.npz(real("mnist_by_writer.npz"))
    made = data.federate(found, data.ByColumn(column="writer"), None, 0, local_test=0.2)
    assert made.clients == 539
    assert made.local_tests is not None
    assert made.sizes.sum() + made.local_tests.sizes.sum() == 60_000


def test_shakespeare_by_role() -> None:
    found = data.shakespeare(real("shakespeare/shakespeare_by_role.json.gz"))
    made = data.federate(found, data.ByColumn(column="role", min_size=2), 100, 0, validation=0.1, local_test="natural")
    assert made.clients == 100
    inputs, target = found.train.batch(torch.tensor([0, 1]))
    assert inputs.shape == (2, 80)
    assert inputs[1, -1] == target[0]


def test_stack_overflow_titles_and_posts_by_user() -> None:
    found = data.stackoverflow_tags(real("stackexchange_tags/stackoverflow_titles_30k.jsonl.gz"))
    assert (len(found.classes), found.train.shape) == (100, (10_000,))
    assert float(found.train.targets.sum(dim=1).mean()) == pytest.approx(1.95, abs=0.02)
    assert data.federate(found, data.Dirichlet(alpha=0.3, by="first_tag"), 100, 0).sizes.min() >= 10
    posts = data.stackoverflow_tags(real("stackexchange_tags/stackexchange_5sites.jsonl.gz"))
    assert data.federate(posts, data.ByColumn(column="site"), None, 0).clients == 5


def test_heart_disease_by_hospital() -> None:
    found = data.table(
        real("heart_disease/heart_disease_4sites.csv"),
        target="num",
        client="site",
        threshold=0,
        drop=["slope", "ca", "thal"],
        missing="drop",
        test=0.34,
    )
    made = data.federate(found, data.ByColumn(column="site"), None, 0, local_test="natural")
    assert made.names == ("cleveland", "hungarian", "switzerland", "va")
    assert made.local_tests is not None
    assert (made.sizes + made.local_tests.sizes).tolist() == [303, 261, 46, 130]
    ill = made.histogram()[:, 1].sum() + int(found.test.targets.sum())
    assert ill == 139 + 98 + 45 + 101


def test_cifar10(tmp_path: Path) -> None:
    # Kept there as differences of neighbouring pixels.
    stored = np.load(real("cifar10_delta.npz"))
    images = np.cumsum(np.cumsum(stored["d_test"], axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
    images[:, 0] += images[:, 1]
    images[:, 2] += images[:, 1]
    np.savez(tmp_path / "c.npz", x_train=images, y_train=stored["y_test"], x_test=images, y_test=stored["y_test"])
    found = data.cifar10(tmp_path / "c.npz")
    inputs, _ = found.train.batch(torch.arange(10_000))
    assert inputs.mean(dim=(0, 2, 3)).abs().max() < 0.05
    assert (inputs.std(dim=(0, 2, 3)) - 1).abs().max() < 0.05
    assert found.classes == tuple(stored["label_names"].tolist())


def test_wearers() -> None:
    found = data.hapt(real("activity_hapt.npz"))
    made = data.federate(found, data.ByColumn(column="wearer"), None, 0, local_test="natural")
    assert (made.clients, len(found.train), len(found.test), len(found.classes)) == (30, 2776, 2674, 6)
    assert made.local_tests is not None
    assert made.local_tests.sizes.min() > 50


def test_speakers() -> None:
    found = data.spoken_digits(real("spoken_digits.npz"))
    made = data.federate(found, data.ByColumn(column="speaker"), None, 0, local_test="natural")
    assert made.names == ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    assert made.sizes.tolist() == [450] * 6
    assert made.local_tests is not None
    assert made.local_tests.sizes.tolist() == [50] * 6


@pytest.mark.slow
def test_stations() -> None:
    found = data.beijing_air(real("beijing_air.npz"), stride=24)
    made = data.federate(found, data.ByColumn(column="station"), None, 0, local_test="natural")
    assert made.clients == 12
    assert len(found.train) == 12_713


def test_hospitals() -> None:
    found = data.heart_disease(real("heart_disease/heart_disease_4sites.csv"))
    made = data.federate(found, data.ByColumn(column="hospital"), None, 0, local_test="natural")
    assert made.local_tests is not None
    assert (made.sizes + made.local_tests.sizes).tolist() == [303, 261, 46, 130]
    assert found.train.shape == (13,)
    ill = int(found.train.targets.sum() + found.test.targets.sum())
    assert ill == 139 + 98 + 45 + 101


@pytest.mark.slow
def test_writers() -> None:
    found = data.mnist_by_writer(real("mnist_by_writer.npz"))
    made = data.federate(found, data.ByColumn(column="writer"), None, 0, local_test="natural")
    assert (made.clients, len(found.train), len(found.test)) == (539, 48_001, 11_999)


def test_regions() -> None:
    found = data.tcga_brca(real("tcga_brca.csv").parent)
    made = data.federate(found, data.ByColumn(column="region"), None, 0, local_test="natural")
    assert made.local_tests is not None
    assert (made.sizes.sum(), made.local_tests.sizes.sum(), made.clients) == (866, 222, 6)
    assert found.train.shape == (39,)
