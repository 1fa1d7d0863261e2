"""Small files that stand for much: refused in words, and before memory is taken for what they say they hold."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.data.sources import cifar, files, idx
from polyrhythm.data.sources.files import content
from polyrhythm.data.sources.pickles import unpickled
from polyrhythm.models.weights import load_weights

MOST = 100 * 2**20
VAST = b'{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}'


@pytest.fixture
def little_memory() -> Iterator[None]:
    """What is allocated by Python and NumPy stays below what a small file may cost."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST


def zeros(size: int, before: bytes = b"") -> bytes:
    """`size` zero bytes as a gzip file, made without holding them."""
    pack = zlib.compressobj(9, wbits=31)
    block = bytes(2**20)
    parts = [pack.compress(before), *(pack.compress(block) for _ in range(size // len(block))), pack.flush()]
    return b"".join(parts)


def batch(**fields: Any) -> bytes:
    return pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.uint8), b"labels": [0, 1]} | fields, protocol=2)


def shared(make: Callable[[Any, Any], Any], depth: int = 40) -> Any:
    """A thing that holds one thing twice, and so on: a few hundred bytes, a trillion leaves."""
    inner: Any = make(0, 1)
    for _ in range(depth):
        inner = make(inner, inner)
    return inner


def cifar_folder(folder: Path, raw: bytes) -> Path:
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(raw)
    (folder / "test_batch").write_bytes(batch())
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"x"] * 10}))
    return folder


@pytest.mark.parametrize("field", ["labels", "data"])
@pytest.mark.parametrize("make", [lambda a, b: [a, b], lambda a, b: (a, b)])
def test_nested_and_shared_labels_are_no_list_of_numbers(
    tmp_path: Path, field: str, make: Any, little_memory: None
) -> None:
    fields = {b"data": np.zeros((2, 3072), dtype=np.uint8), b"labels": [0, 1]} | {field.encode(): shared(make)}
    raw = pickle.dumps(fields)
    with pytest.raises(UserError, match="data_batch_1"):
        data.cifar10(cifar_folder(tmp_path, raw))


def test_names_of_classes_are_a_plain_list(tmp_path: Path) -> None:
    folder = cifar_folder(tmp_path, batch())
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": shared(lambda a, b: [a, b])}))
    with pytest.raises(UserError, match="no plain list of text"):
        data.cifar10(folder)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"}N" + b"q\x00h\x00\x86" * 60 + b"Ns.", id="a key that takes for ever"),
        pytest.param(b"}N" + b"2\x86" * 60 + b"Ns.", id="the same, doubled"),
        pytest.param(b"}N\x85" + b"N0q\x00h\x00\x86" * 60 + b"Ns.", id="the same, remembered late"),
        pytest.param(b"]r" + struct.pack("<I", 2**31 - 1) + b".", id="a place for two billion things"),
        pytest.param(b"]p2000000000\n.", id="the same in text"),
        pytest.param(
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
            b"(I1\n(I1000000000\ntcnumpy\ndtype\n(S'O8'\nI0\nI1\ntRI00\n(ltb.",
            id="an array of a billion objects",
        ),
    ],
)
def test_pickles_that_would_fill_memory_or_never_end(raw: bytes, little_memory: None) -> None:
    with pytest.raises(UserError, match="cannot be read as a data pickle"):
        unpickled(raw, Path("x"))


def test_an_archives_members_are_not_read_unless_wanted(tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    info = tarfile.TarInfo("junk")
    info.size = 150_000_000
    header = info.tobuf()
    path.write_bytes(gzip.compress(header) + zeros(2**22))
    with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz"):
        data.cifar10(path)


def test_members_that_are_too_many_are_refused_by_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar, "LARGEST_ARCHIVE", 2_000)
    path = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number in range(3):
            info = tarfile.TarInfo(f"junk{number}")
            info.size = 900
            tar.addfile(info, io.BytesIO(bytes(900)))
    with pytest.raises(UserError, match="junk2 in it has with those before 2,700 bytes"):
        data.cifar10(path)


def test_a_name_of_an_archives_member_does_not_fill_memory(tmp_path: Path, little_memory: None) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**30
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(zeros(2**26, before=info.tobuf()))
    with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz"):
        data.cifar10(path)


@pytest.mark.parametrize("name", ["x.json.gz", "x.jsonl.gz", "x.csv.gz", "x.gz"])
def test_gzip_files_that_are_far_larger_inside(tmp_path: Path, name: str, little_memory: None) -> None:
    (tmp_path / name).write_bytes(zeros(2**26))
    read: dict[str, Callable[[Path], Any]] = {
        "x.json.gz": data.shakespeare,
        "x.jsonl.gz": data.stackoverflow_tags,
        "x.csv.gz": lambda path: data.table(path, target="y", encoding="latin-1"),
        "x.gz": content,
    }
    with pytest.raises(UserError, match=r"bytes that become|a line of"):
        read[name](tmp_path / name)


@pytest.mark.parametrize(
    "shape", [(10**9 // 784, 28, 28), (2**31, 2**31, 4), (2**31, 2**31, 1), (0, 2**31, 2**31), (2**32 - 1,) * 3]
)
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_that_claim_more_than_they_hold(
    tmp_path: Path, shape: tuple[int, ...], packed: bool, little_memory: None
) -> None:
    raw = b"\x00\x00\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(99)
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(UserError, match=r"bytes that become|has shape"):
        idx.read_idx(path)


def npy(shape: Any, dtype: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(npy((10**12, 4)), id="a trillion rows"),
        pytest.param(npy((2**31, 2**31, 4)), id="more than an int64"),
        pytest.param(npy((3, -1)), id="less than none"),
        pytest.param(npy((9,), "|V2147483647"), id="wide cells"),
        pytest.param(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), id="a header of two gigabytes"),
        pytest.param(b"\x93NUMPY\x01\x00\x09\x00" + b"(" * 9, id="a header of brackets"),
    ],
)
def test_npz_headers_that_claim_more_than_there_is(tmp_path: Path, header: bytes, little_memory: None) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x", "y"):
            archive.writestr(f"{name}.npy", header + bytes(99))
    for read in (data.npz, lambda p: data.cifar10(p), lambda p: data.tiny_imagenet(p)):
        with pytest.raises(UserError, match=r"x\.npz"):
            read(path)


def test_npz_files_that_unpack_to_far_more(tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        file.write(npy((2**26,)))
        for _ in range(2**6):
            file.write(bytes(2**20))
    with pytest.raises(UserError, match="bytes that become"):
        data.npz(path)
    with pytest.raises(UserError, match="bytes that become"):
        pr.fleet.BandwidthTrace(path=path)


def test_npz_arrays_that_do_not_go_together_are_not_unpacked(tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("y.npy", npy((10,)) + bytes(40))
        with archive.open("x.npy", "w") as file:
            file.write(npy((2**26,)))
            for _ in range(2**5):
                file.write(bytes(2**23))
    with pytest.raises(UserError, match="67,108,864 inputs and 10 targets"):
        data.npz(path)


def test_parquet_of_few_bytes_and_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    monkeypatch.setattr(files, "MOST_TIMES", 50)
    rows = {name: np.zeros(2**24, dtype=bool) for name in "ay"}
    parquet.write_table(arrow.table(rows), path, compression="zstd", row_group_size=2**24)
    with pytest.raises(UserError, match="bytes that become"):
        data.table(path, target="y")


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", len(VAST)) + VAST + bytes(8),
        struct.pack("<Q", 9) + b"{" * 9,
        b"",
    ],
)
def test_hostile_weights_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(raw)
    with pytest.raises(UserError, match="not readable"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "x.safetensors")
