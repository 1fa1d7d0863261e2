"""Loaders on small files made here: what they read, what they refuse, and that nothing runs out of a file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import sys
import tarfile
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data.samples import BagSamples
from polyrhythm.data.sources import cifar, files, idx


def random_bytes(*shape: int, name: int = 0) -> np.ndarray:
    return stream(0, "sample", name).integers(0, 256, shape, dtype=np.uint8)


def everything(samples: data.Samples) -> torch.Tensor:
    return samples.batch(torch.arange(len(samples)))[0]


# IDX.


def idx_bytes(array: np.ndarray) -> bytes:
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def idx_folder(tmp_path: Path) -> Path:
    labels = np.arange(20, dtype=np.uint8) % 10
    for name, array in zip(
        idx.FILES, (random_bytes(20, 28, 28), labels, random_bytes(10, 28, 28), labels[:10]), strict=True
    ):
        if "labels" in name:
            (tmp_path / name).write_bytes(idx_bytes(array))
        else:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return tmp_path


@pytest.mark.parametrize("source", [data.mnist, data.fashion_mnist])
def test_idx_files_are_read_plain_or_gzipped(source: Any, idx_folder: Path) -> None:
    found = source(folder=idx_folder, scaling="unit")
    assert (len(found.train), len(found.test), found.train.shape) == (20, 10, (1, 28, 28))
    torch.testing.assert_close(everything(found.train)[:, 0] * 255, torch.from_numpy(random_bytes(20, 28, 28)).float())
    assert found.train.targets.tolist() == [*range(10), *range(10)]


def test_scalings_are_named(idx_folder: Path) -> None:
    unit, half, standard = (everything(data.mnist(idx_folder, scaling=s).train) for s in ("unit", "half", "standard"))
    torch.testing.assert_close(half, (unit - 0.5) / 0.5)
    torch.testing.assert_close(standard, (unit - 0.1307) / 0.3081)
    with pytest.raises(UserError, match="did you mean 'half'"):
        data.mnist(idx_folder, scaling="halve")


def test_padding_is_black_whatever_the_scaling(idx_folder: Path) -> None:
    found = data.fashion_mnist(idx_folder, pad=2)
    assert found.train.shape == (1, 32, 32)
    assert (everything(found.train)[:, :, :2] == -1).all()


def test_images_are_augmented_in_training_only(idx_folder: Path) -> None:
    found = data.mnist(idx_folder, augment=True)
    assert found.train.augmented
    assert not found.test.augmented


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: gzip.compress(raw)[:-20], "gzip stream is damaged"),
        (lambda raw: b"not gzip at all", "gzip stream is damaged"),
        (lambda raw: gzip.compress(b"\x00\x00\x0d\x03" + raw[4:]), "begins with 00000d03"),
        (lambda raw: gzip.compress(b""), "begins with nothing"),
        (lambda raw: gzip.compress(raw[:9]), "inside its header"),
        (lambda raw: gzip.compress(raw[:-5]), r"for shape \(20, 28, 28\)"),
        (lambda raw: gzip.compress(idx_bytes(random_bytes(20, 3))), "shape"),
        (lambda raw: gzip.compress(idx_bytes(random_bytes(19, 28, 28))), "19 inputs and 20 targets"),
    ],
)
def test_damaged_idx_files_are_refused(idx_folder: Path, damage: Any, said: str) -> None:
    path = idx_folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with pytest.raises(UserError, match=said):
        data.mnist(idx_folder)


def test_a_missing_file_or_folder_is_named(idx_folder: Path) -> None:
    (idx_folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError, match="has no t10k-labels-idx1-ubyte"):
        data.mnist(idx_folder)
    with pytest.raises(UserError, match="no such file or folder"):
        data.mnist(idx_folder / "nowhere")


# Downloads, from file addresses.


def test_downloads_are_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYRHYTHM_CACHE", str(tmp_path / "cache"))
    origin = tmp_path / "origin.gz"
    origin.write_bytes(b"right")
    good = files.Download("x.gz", ("file:///nowhere/at/all", origin.as_uri()), hashlib.sha256(b"right").hexdigest())
    path = files.fetched(good, files.cache_folder("some"), data="some")
    assert path == tmp_path / "cache" / "some" / "x.gz"
    origin.unlink()
    assert files.fetched(good, files.cache_folder("some"), data="some").read_bytes() == b"right"


def test_a_download_with_other_bytes_is_thrown_away(tmp_path: Path) -> None:
    origin = tmp_path / "origin.gz"
    origin.write_bytes(b"wrong")
    bad = files.Download("x.gz", (origin.as_uri(),), hashlib.sha256(b"right").hexdigest())
    with pytest.raises(UserError, match="in place of") as error:
        files.fetched(bad, tmp_path / "cache", data="some")
    assert "folder=" in error.value.fix
    assert not (tmp_path / "cache").exists()


def test_the_cache_is_looked_into_before_downloading(idx_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYRHYTHM_CACHE", str(idx_folder))
    (idx_folder / "mnist").mkdir()
    for name in idx.FILES:
        for file in idx_folder.glob(f"{name}*"):
            file.rename(idx_folder / "mnist" / file.name)
    assert len(data.mnist().train) == 20


# CIFAR.


def cifar_batch(number: int, *, labels: str = "labels", name: int = 0) -> dict[bytes, Any]:
    return {
        b"data": random_bytes(number, 3072, name=name),
        labels.encode(): [i % 10 for i in range(number)],
        b"filenames": [b"a.png"] * number,
    }


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(pickle.dumps(cifar_batch(10, name=i), protocol=2))
    (folder / "test_batch").write_bytes(pickle.dumps(cifar_batch(10), protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [f"c{i}".encode() for i in range(10)]}))
    return folder


def test_cifar10_is_read_from_its_folder_and_from_its_archive(cifar_folder: Path) -> None:
    archive = cifar_folder.parent / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(cifar_folder, "cifar-10-batches-py")
    found = [data.cifar10(place, scaling="unit") for place in (cifar_folder, cifar_folder.parent, archive)]
    for one in found:
        assert (len(one.train), len(one.test), one.train.shape) == (50, 10, (3, 32, 32))
        assert one.classes[:2] == ("c0", "c1")
        assert torch.equal(everything(one.train), everything(found[0].train))
    second = torch.from_numpy(random_bytes(10, 3072, name=2)).float().reshape(10, 3, 32, 32)
    torch.testing.assert_close(everything(found[0].train)[10:20] * 255, second)


def test_a_packed_archive_is_held_to_its_checksum(cifar_folder: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(cifar_folder, "cifar-10-batches-py")
    raw = bytearray(gzip.compress(out.getvalue(), compresslevel=0))  # as it is, so that a flipped bit changes a pixel
    raw[len(raw) // 2] ^= 1
    (cifar_folder.parent / "cifar-10-python.tar.gz").write_bytes(raw)
    with pytest.raises(UserError, match="stream is damaged"):
        data.cifar10(cifar_folder.parent / "cifar-10-python.tar.gz")


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    for name in ("train", "test"):
        batch = cifar_batch(20, labels="fine_labels") | {b"coarse_labels": [0, 1] * 10}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    meta = {b"fine_label_names": [b"f"] * 100, b"coarse_label_names": [b"c"] * 20}
    (tmp_path / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    fine, coarse = data.cifar100(tmp_path), data.cifar100(tmp_path, labels="coarse")
    assert (len(fine.classes), len(coarse.classes)) == (100, 20)
    assert coarse.train.targets.tolist() == [0, 1] * 10
    with pytest.raises(UserError, match="coarse"):
        data.cifar100(tmp_path, labels="course")


def test_cifar_is_read_from_npz(tmp_path: Path) -> None:
    images = random_bytes(20, 32, 32, 3)
    labels = np.arange(20)[:, None] % 10
    np.savez(tmp_path / "c.npz", x_train=images, y_train=labels[:, 0], x_test=images[:10], y_test=labels[:10, 0])
    found = data.cifar10(tmp_path / "c.npz", scaling="unit")
    torch.testing.assert_close(everything(found.train) * 255, torch.from_numpy(images).permute(0, 3, 1, 2).float())
    assert found.classes == cifar.CLASSES10


class Malicious:
    """What its pickle asks for runs when an ordinary reader loads it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_malicious_pickle_runs_nothing(cifar_folder: Path, protocol: int) -> None:
    touched = cifar_folder / "touched"
    raw = pickle.dumps({b"data": Malicious(touched), b"labels": [1]}, protocol=protocol)
    (cifar_folder / "data_batch_3").write_bytes(raw)
    with pytest.raises(UserError, match="not admitted"):
        data.cifar10(cifar_folder)
    assert not touched.exists()
    pickle.loads(raw)
    assert touched.exists()  # the file really was dangerous


@pytest.mark.parametrize(
    "raw",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.uint8)})[:-30],
        pickle.dumps({b"data": np.zeros((2, 9), dtype=np.uint8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}),
        pickle.dumps([1, 2]),
        b"",
    ],
)
def test_other_pickles_are_refused(cifar_folder: Path, raw: bytes) -> None:
    (cifar_folder / "data_batch_1").write_bytes(raw)
    with pytest.raises(UserError, match="data_batch_1"):
        data.cifar10(cifar_folder)


def test_a_truncated_archive_is_refused(cifar_folder: Path) -> None:
    archive = cifar_folder.parent / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(cifar_folder, "cifar-10-batches-py")
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(UserError, match="stream is damaged"):
        data.cifar10(archive)
    with pytest.raises(UserError, match="holds neither"):
        data.cifar10(Path(__file__).parent)


# Tiny-ImageNet.


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for wnid, mode in (("n01", "RGB"), ("n02", "L")):
        (tmp_path / "train" / wnid / "images").mkdir(parents=True)
        for i in range(3):
            picture = image.new(mode, (8, 8), 40 * i if mode == "L" else (40 * i, 0, 0))
            picture.save(tmp_path / "train" / wnid / "images" / f"{wnid}_{i}.JPEG")
    (tmp_path / "val" / "images").mkdir(parents=True)
    image.new("RGB", (8, 8)).save(tmp_path / "val" / "images" / "val_0.JPEG")
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn77\t0\t0\t1\t1\n")
    (tmp_path / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbee\n")
    return tmp_path


def test_tiny_imagenet_is_read_as_it_is_distributed(tiny_folder: Path) -> None:
    found = data.tiny_imagenet(tiny_folder, scaling="unit")
    assert (len(found.train), len(found.test), found.train.shape) == (6, 1, (3, 8, 8))
    assert found.classes == ("goldfish", "bee")
    assert found.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.test.targets.tolist() == [1]
    grey = everything(found.train)[5]
    assert (grey == grey[0]).all()
    assert abs(float(grey.mean()) * 255 - 80) < 2


def test_a_damaged_picture_is_named(tiny_folder: Path) -> None:
    path = tiny_folder / "train" / "n01" / "images" / "n01_1.JPEG"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="n01_1"):
        data.tiny_imagenet(tiny_folder)
    with pytest.raises(UserError, match="val_annotations"):
        data.tiny_imagenet(tiny_folder / "train")


def test_a_subset_of_tiny_imagenet_as_npz(tmp_path: Path) -> None:
    images = random_bytes(4, 64, 64, 3)
    np.savez(tmp_path / "t.npz", x_train=images, y_train=[0, 0, 1, 1], x_val=images[:2], y_val=[1, 0])
    found = data.tiny_imagenet(tmp_path / "t.npz")
    assert (found.train.shape, found.classes) == ((3, 64, 64), ("0", "1"))


# Shakespeare.

ROLES = {
    "play:A": {"train": ["to be or not", "to be"], "test": ["that is it"]},
    "play:B": {"train": ["short"], "test": ["the question"]},
}


def test_speeches_become_windows_of_their_role(tmp_path: Path) -> None:
    path = tmp_path / "s.json.gz"
    path.write_bytes(gzip.compress(json.dumps(ROLES).encode()))
    found = data.shakespeare(path, length=6)
    assert found.task == "next_character"
    inputs, targets = found.train.batch(torch.arange(len(found.train)))
    text = "to be or not to be"
    windows = ["".join(found.classes[i] for i in row) for row in inputs.tolist()]
    assert windows == [text[i : i + 6] for i in range(len(text) - 6)]
    assert [found.classes[i] for i in targets.tolist()] == list(text[6:])
    made = data.federate(found, data.ByColumn(column="role"), None, 0, local_test="natural")
    assert made.names == ("play:A",)  # B has no window to train on
    assert made.local_tests is not None
    assert made.local_tests.sizes.tolist() == [len("that is it") - 6]
    assert len(found.classes) == 80


def test_strides_and_symbols_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"x": {"train": ["aéaéaéa"], "test": ["éaéa"]}}))
    found = data.shakespeare(path, length=2, stride=2)
    assert found.classes == ("a", "é")
    assert everything(found.train).tolist() == [[0, 1], [0, 1], [0, 1]]


def test_leaf_files_keep_their_windows(tmp_path: Path) -> None:
    for part, users in (("train", {"b": "xyz", "a": "uv"}), ("test", {"a": "w"})):
        (tmp_path / part).mkdir()
        rows = {u: {"x": [c * 5 for c in text], "y": list(text)} for u, text in users.items()}
        (tmp_path / part / "data.json").write_text(json.dumps({"users": list(users), "user_data": rows}))
    found = data.shakespeare(tmp_path, length=5)
    letters = [found.classes[i] for i in found.train.targets.tolist()]
    assert letters == ["u", "v", "x", "y", "z"]
    assert [found.classes[row[0]] for row in everything(found.train).tolist()] == letters
    made = data.federate(found, data.ByColumn(column="role"), None, 0)
    assert (made.names, made.sizes.tolist()) == (("a", "b"), [2, 3])
    with pytest.raises(UserError, match="windows of other lengths"):
        data.shakespeare(tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '{"a": {"train": []}}', '{"a": {"train": ["x"], "test": ["y"]}}'])
def test_files_that_are_no_plays_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UserError, match=r"s\.json"):
        data.shakespeare(tmp_path / "s.json", length=5)


# Tags.

QUESTIONS = [
    {"title": "How to sort in C++?", "tags": ["c++", "sorting"], "user": 1},
    {"title": "sort sort a list", "tags": ["python", "sorting"], "user": 2},
    {"title": "Answer without tags", "user": 3},
    {"title": "Read a file", "text": "in Python", "tags": "python|io", "user": 1},
]


def tag_file(path: Path, lines: list[dict[str, Any]] = QUESTIONS) -> Path:
    raw = "\n".join(json.dumps(line) for line in lines).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def test_questions_become_bags_and_tags(tmp_path: Path) -> None:
    path = tag_file(tmp_path / "q.jsonl.gz")
    found = data.stackoverflow_tags(path, words=4, tags=2, test=path)
    assert found.task == "multilabel"
    assert found.classes == ("python", "sorting")
    # Words by frequency, then by the alphabet: sort 3, a 2, in 2, c++ 1.
    expected = [[1 / 3, 0, 1 / 3, 1 / 3], [2 / 3, 1 / 3, 0, 0], [0, 0.5, 0.5, 0]]
    torch.testing.assert_close(everything(found.train), torch.tensor(expected))
    assert found.train.targets.tolist() == [[0, 1], [1, 1], [1, 0]]
    made = data.federate(found, data.ByColumn(column="user"), None, 0)
    assert (made.names, made.sizes.tolist()) == (("1", "2"), [2, 1])
    assert made.histogram().tolist() == [[1, 1], [1, 1]]
    assert isinstance(found.train, BagSamples)


def test_clients_can_be_made_from_the_first_tag(tmp_path: Path) -> None:
    lines = [{"title": f"t{i}", "tags": [f"tag{i % 4}", "rare"]} for i in range(200)]
    found = data.stackoverflow_tags(tag_file(tmp_path / "q.jsonl", lines), tags=5)
    assert list(found.columns) == ["first_tag"]
    assert data.federate(found, data.Dirichlet(alpha=0.5, by="first_tag"), 4, 0).sizes.sum() == 160
    with pytest.raises(UserError, match=r"dirichlet\(by='first_tag'\)"):
        data.federate(found, data.Dirichlet(alpha=0.5), 4, 0)


def test_words_and_tags_are_those_of_the_training_lines(tmp_path: Path) -> None:
    train, test = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    tag_file(train, QUESTIONS[:2])
    tag_file(test, [{"title": "zebra sort", "tags": ["zoo", "python"]}])
    found = data.stackoverflow_tags(train, test=test)
    assert "zoo" not in found.classes
    assert found.test.targets.sum() == 1
    assert everything(found.test).sum() == 1  # zebra is unknown, the mean is over known words


@pytest.mark.parametrize(
    "form", ["c#|winforms", "|c#|winforms|", "<c#><winforms>", "&lt;c#&gt;&lt;winforms&gt;", ["c#", " winforms", ""]]
)
def test_tags_are_read_as_the_public_dumps_write_them(tmp_path: Path, form: Any) -> None:
    path = tag_file(tmp_path / "q.jsonl", [{"title": "x", "tags": form}, {"title": "y", "tags": "||"}] * 5)
    assert set(data.stackoverflow_tags(path).classes) == {"c#", "winforms"}


@pytest.mark.parametrize("raw", [b"{", b'{"title": "x"}\n', b'{"title": "x", "tags": "||"}\n', b""])
def test_files_without_tags_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "q.jsonl").write_bytes(raw)
    with pytest.raises(UserError, match=r"q\.jsonl"):
        data.stackoverflow_tags(tmp_path / "q.jsonl")


# Tables.


def patients(rows: int = 60) -> pd.DataFrame:
    random = stream(0, "sample", "patients")
    return pd.DataFrame(
        {
            "site": np.array(["east", "north", "west"])[np.arange(rows) % 3],
            "age": random.normal(60, 10, rows),
            "flat": 3.0,
            "kind": np.array(["u", "v"])[np.arange(rows) % 2],
            "ill": np.arange(rows) // 3 % 4,
        }
    )


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_tables_are_read_in_every_form(tmp_path: Path, suffix: str) -> None:
    path, frame = tmp_path / f"heart{suffix}", patients()
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    found = data.table(path, target="ill", client="site")
    assert found.name == "heart"
    assert found.classes == ("0", "1", "2", "3")
    assert found.train.shape == (4,)  # age, flat, and two for kind
    made = data.federate(found, data.ByColumn(column="site"), None, 0)
    assert made.names == ("east", "north", "west")
    assert made.sizes.tolist() == [16] * 3  # each site gave its fifth to the test


def test_scaling_uses_training_rows_only_and_survives_constant_features(tmp_path: Path) -> None:
    patients().to_csv(tmp_path / "t.csv", index=False)
    scaled, plain = (data.table(tmp_path / "t.csv", target="ill", client="site", scaling=s) for s in ("train", "none"))
    inputs = everything(scaled.train)
    assert torch.isfinite(inputs).all()
    torch.testing.assert_close(inputs.mean(dim=0), torch.zeros(4), atol=1e-5, rtol=0)
    assert inputs[:, 1].tolist() == [0.0] * 48
    assert any("scaled" in note for note in scaled.notes)
    train = everything(plain.train)[:, 0]
    expected = (everything(plain.test)[:, 0] - train.mean()) / train.std(correction=0)
    torch.testing.assert_close(everything(scaled.test)[:, 0], expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match="scaling"):
        data.table(tmp_path / "t.csv", target="ill", scaling="all")


def test_a_threshold_makes_two_classes_and_fractions_are_regression(tmp_path: Path) -> None:
    patients().to_csv(tmp_path / "t.csv", index=False)
    two = data.table(tmp_path / "t.csv", target="ill", threshold=0)
    assert two.classes == ("0", "1")
    age = data.table(tmp_path / "t.csv", target="age", client="site")
    assert (age.task, age.classes, age.train.targets.dtype) == ("regression", (), torch.float32)
    assert data.federate(age, data.Dirichlet(alpha=1.0, by="target_band", min_size=0), 4, 0).sizes.sum() == 48
    kind = data.table(tmp_path / "t.csv", target="kind")
    assert kind.classes == ("u", "v")


def test_a_test_table_of_its_own(tmp_path: Path) -> None:
    patients().to_csv(tmp_path / "a.csv", index=False)
    patients(9).assign(kind="w").to_csv(tmp_path / "b.csv", index=False)
    found = data.table(tmp_path / "a.csv", target="ill", test=tmp_path / "b.csv")
    assert (len(found.train), len(found.test)) == (60, 9)
    assert found.train.shape == found.test.shape
    patients(9).drop(columns="age").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(UserError, match="age are in one table only"):
        data.table(tmp_path / "a.csv", target="ill", test=tmp_path / "b.csv")


def test_empty_cells_are_counted_by_column(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[3:5, "age"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match=r"empty cells in age \(3\)"):
        data.table(tmp_path / "t.csv", target="ill")
    assert len(data.table(tmp_path / "t.csv", target="ill", drop=["age"]).train) == 48
    dropped = data.table(tmp_path / "t.csv", target="ill", missing="drop")
    assert len(dropped.train) + len(dropped.test) == 57


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": "il"}, "did you mean 'ill'"),
        ({"target": "ill", "client": "hospital"}, "unknown column 'hospital'"),
        ({"target": "ill", "drop": ["sex"]}, "unknown column 'sex'"),
        ({"target": "ill", "missing": "guess"}, "missing"),
        ({"target": "kind", "threshold": 1.0}, "threshold"),
        ({"target": "kind", "task": "regression"}, "regression"),
        ({"target": "ill", "test": 1.5}, "test = 1.5"),
    ],
)
def test_wrong_table_settings_are_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    patients().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match=said):
        data.table(tmp_path / "t.csv", **settings)


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    (tmp_path / "t.csv").write_text("")
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(UserError, match="cannot be read as a table"):
            data.table(tmp_path / name, target="ill")


# npz and arrays.


def test_npz_columns_become_natural_clients(tmp_path: Path) -> None:
    images = random_bytes(20, 9, 9)
    np.savez(
        tmp_path / "m.npz",
        x_train=images,
        y_train=np.arange(20) % 5,
        writer_train=np.arange(20) // 4,
        x_test=images[:5],
        y_test=np.arange(5),
        writer_test=[7, 7, 8, 8, 8],
        other=np.zeros(3),
    )
    found = data.npz(tmp_path / "m.npz")
    assert (found.name, found.train.shape, list(found.columns)) == ("m", (1, 9, 9), ["writer"])
    torch.testing.assert_close(everything(found.train)[:, 0] * 255, torch.from_numpy(images).float())
    assert data.federate(found, data.ByColumn(column="writer"), None, 0).sizes.tolist() == [4] * 5


def test_npz_without_tests_holds_a_share_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", x=np.zeros((20, 3)), y=np.arange(20) % 2, w_train=np.arange(20))
    found = data.npz(tmp_path / "m.npz", test=0.25)
    assert (len(found.train), len(found.test)) == (15, 5)
    both = {*found.columns["w"].codes.tolist(), *found.test_columns["w"].codes.tolist()}
    assert both == set(range(20))


def test_npz_files_that_lost_an_array_are_refused(tmp_path: Path) -> None:
    path, arrays = tmp_path / "m.npz", {"x_train": np.zeros((20, 3)), "y_train": np.arange(20) % 2}
    for part in ("test", "val"):
        np.savez(path, **arrays, **{f"x_{part}": np.zeros((5, 3))})
        with pytest.raises(UserError, match=f"has x_{part} alone"):
            data.npz(path)
    np.savez(path, **arrays, x_test=np.zeros((5, 3)), y_test=np.arange(5) % 2)
    whole = path.read_bytes()
    for name in (b"x_test.npy", b"y_train.npy"):
        place = whole.rindex(name)  # in the list at the end
        for changed in (len(name) - 1, 0):
            raw = bytearray(whole)
            raw[place + changed] ^= 1
            path.write_bytes(raw)
            with pytest.raises(UserError, match="cannot be read"):
                data.npz(path)
    raw = bytearray(whole)
    raw[whole.rindex(b"PK\x01\x02") + 8] |= 1  # says that there is a password
    path.write_bytes(raw)
    with pytest.raises(UserError, match="cannot be read"):
        data.npz(path)


def test_npz_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, x_train=np.array([{}, {}], dtype=object), y_train=np.zeros(2))
    with pytest.raises(UserError, match="cannot be read"):
        data.npz(path)  # objects are pickles
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, of the name that is there already
        with zipfile.ZipFile(path, "w") as archive:
            for value in (0.0, 1.0):
                with archive.open("x_train.npy", "w") as file:
                    np.save(file, np.full((2, 3), value))
    with pytest.raises(UserError, match=r"'x_train.npy' is in it more than once"):
        data.npz(path)
    np.savez(path, a=np.zeros(2))
    with pytest.raises(UserError, match="has no x_train"):
        data.npz(path)
    np.savez(path, x=np.zeros((400, 9)), y=np.zeros(400))
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UserError, match="cannot be read"):
        data.npz(path)
    path.write_bytes(b"no zip")
    with pytest.raises(UserError, match="cannot be read"):
        data.npz(path)


def test_arrays_find_their_task() -> None:
    x = np.ones((10, 3))
    multi = np.tile([[1, 1, 0], [0, 0, 0]], (5, 1))
    cases = [
        (np.arange(10) % 2, "classification", torch.int64),
        (np.arange(10) % 2 == 0, "classification", torch.int64),
        ([f"c{i % 3}" for i in range(10)], "classification", torch.int64),
        (np.linspace(0, 1, 10), "regression", torch.float32),
        (np.linspace(0, 1, 20).reshape(10, 2), "regression", torch.float32),
        (multi, "multilabel", torch.float32),
    ]
    for targets, task, dtype in cases:
        found = data.arrays(x, targets)
        assert (found.task, found.train.targets.dtype) == (task, dtype)
    assert data.arrays(x, np.linspace(0, 1, 20).reshape(10, 2)).outputs == 2
    assert data.arrays(x, np.arange(10.0), task="classification").classes == tuple(map(str, range(10)))


def test_one_hot_rows_are_ambiguous() -> None:
    rows = np.eye(3)[np.arange(9) % 3]
    with pytest.raises(UserError, match="exactly one 1 in every row") as error:
        data.arrays(np.ones((9, 2)), rows)
    assert "argmax" in error.value.fix
    assert data.arrays(np.ones((9, 2)), rows, task="multilabel").task == "multilabel"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (np.array([[1.0], [np.nan]] * 5), "NaN or infinite"),
        (np.array(["a"] * 10), "inputs of"),
        (np.ones((9, 1)), "9 inputs and 10 targets"),
    ],
)
def test_inputs_that_cannot_be_used(inputs: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        data.arrays(inputs, np.arange(10) % 2)


def test_any_dataset_becomes_a_collection() -> None:
    train = [({"x": torch.full((2,), float(i))}, f"c{i % 3}") for i in range(9)]
    found = data.dataset(train, train[:3], adapt=lambda item: (item[0]["x"], item[1]), columns={"w": list("aabbccddd")})
    assert found.classes == ("c0", "c1", "c2")
    assert data.federate(found, data.ByColumn(column="w"), None, 0).sizes.tolist() == [2, 2, 2, 3]
    assert found.train.batch(torch.tensor([4]))[0].tolist() == [[4.0, 4.0]]


# The hub, through a stand-in for its package.


def hub_package(splits: dict[str, dict[str, Any]]) -> types.ModuleType:
    class Split:
        def __init__(self, columns: dict[str, Any]) -> None:
            self.columns, self.column_names = columns, list(columns)

        def __getitem__(self, name: str) -> list[Any]:
            rows: list[Any] = self.columns[name]
            return rows

    module = types.ModuleType("datasets")

    def load_dataset(name: str, config: str | None = None, revision: str | None = None) -> dict[str, Split]:
        if name == "no/where":
            raise ConnectionError("offline")
        return {key: Split(columns) for key, columns in splits.items()}

    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    return module


def test_the_hub_gives_images_and_natural_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [random_bytes(6, 6, name=i) for i in range(8)]
    rows = {"image": images, "label": [0, 1] * 4, "writer": ["a", "b"] * 4}
    monkeypatch.setitem(sys.modules, "datasets", hub_package({"train": rows, "test": rows}))
    found = data.hub("some/digits", client="writer")
    assert (found.name, found.train.shape, len(found.test)) == ("digits", (1, 6, 6), 8)
    torch.testing.assert_close(everything(found.train)[3, 0] * 255, torch.from_numpy(images[3]).float())
    assert data.federate(found, data.ByColumn(column="writer"), None, 0).names == ("a", "b")
    assert any("no revision" in note for note in found.notes)
    with pytest.raises(UserError, match="unknown split 'test2'"):
        data.hub("some/digits", test="test2")
    with pytest.raises(UserError, match="unknown column 'picture'"):
        data.hub("some/digits", inputs="picture")
    with pytest.raises(UserError, match="cannot be loaded"):
        data.hub("no/where")


def test_the_hub_gives_columns_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": [0.0] * 5, "y": ["u", "v", "u", "v", "u"]}
    monkeypatch.setitem(sys.modules, "datasets", hub_package({"train": rows}))
    found = data.hub("t", inputs=["a", "b"], target="y", test=0.4, revision="1")
    assert (found.train.shape, len(found.test), found.notes) == ((2,), 2, ())


def test_without_the_extra_the_hub_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="datasets is not installed") as error:
        data.hub("some/digits")
    assert "polyrhythm[hub]" in error.value.fix


# What the command line lists.


@pytest.mark.parametrize("name", list(data.SOURCES))
def test_every_source_has_one_line_and_a_reference(name: str) -> None:
    doc = data.SOURCES[name].__doc__ or ""
    assert doc.split("\n")[0].endswith(".")
    assert "Reference: " in doc


@pytest.mark.parametrize("name", list(data.PARTITIONS))
def test_every_partition_has_one_line_and_a_reference(name: str) -> None:
    doc = data.PARTITIONS[name].__doc__ or ""
    assert doc.split("\n")[0].endswith(".")
    assert "Reference: " in doc


def test_gzip_members_are_read_whole(tmp_path: Path) -> None:
    stream_of = io.BytesIO()
    for part in (b"one ", b"two"):
        stream_of.write(gzip.compress(part))
    (tmp_path / "x.gz").write_bytes(stream_of.getvalue())
    assert files.content(tmp_path / "x.gz") == b"one two"


def test_what_is_at_hand_is_where_the_loader_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYRHYTHM_CACHE", str(tmp_path))
    assert not cifar.at_hand("cifar10")
    assert not cifar.at_hand("cifar100")
    assert not idx.at_hand("mnist")
    (tmp_path / "cifar" / "cifar-10-batches-py").mkdir(parents=True)
    assert not cifar.at_hand("cifar10")  # an empty folder is no data set
    (tmp_path / "cifar" / "cifar-10-batches-py" / "test_batch").touch()
    (tmp_path / "cifar" / "cifar-100-python.tar.gz").touch()
    assert cifar.at_hand("cifar10")
    assert cifar.at_hand("cifar100")
    (tmp_path / "mnist").mkdir()
    for name in idx.FILES:
        assert not idx.at_hand("mnist")
        (tmp_path / "mnist" / f"{name}.gz").touch()
    assert idx.at_hand("mnist")
