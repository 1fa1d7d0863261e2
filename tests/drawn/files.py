"""Files of every source, spoiled: cut off, flipped, swapped, under other names; and what may still come out of each.

What has a checksum must come out as it was written or be refused; of other files it is known at least that they were
cut off, and of IDX and safetensors files, which are plain, what they say now.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import math
import pickle
import struct
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from drawn.case import Case, Draw, Rows, apart, rows_of
from drawn.spoils import SPOILS
from polyrhythm import data
from polyrhythm.cli.deployed import experiment_of
from polyrhythm.fleet.bandwidth import BandwidthTrace
from polyrhythm.fleet.behaviour import AvailabilityTrace
from polyrhythm.fleet.capacity import DeviceTrace
from polyrhythm.models.weights import load_weights

EXPERIMENT = """data = "digits"
clients = 4
model = "logistic"
method = ["fedavg(cohort=2, epochs=1)", "prox(mu=0.01)"]
rounds = 2
seed = 3
evaluation = {every = 2}
"""


class Kind(NamedTuple):
    """A kind of file.

    Args:
        write: writes it; returns what is spoiled.
        read: reads it.
        judge: what is wrong of what came out, if it was not spoiled or has checksums.
        sure: whether what was spoiled can be known from the file.
        says: what the file itself says now, by a reader of its own; None for "nothing that can be".
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    judge: Callable[[Any], str]
    sure: bool
    says: Callable[[bytes, Any], str] | None = None


X = np.arange(60, dtype=np.float32).reshape(20, 3) * np.float32(1.37)
Y = np.arange(20) % 3
PIXELS = (np.arange(20 * 16) * 7 % 251).astype(np.uint8).reshape(20, 4, 4)
CIFAR = (np.arange(8 * 3072) % 253).astype(np.uint8).reshape(8, 3072)


def _gzip(raw: bytes) -> bytes:
    return gzip.compress(raw, mtime=0)


def _is(x: np.ndarray, labels: list[str]) -> Callable[[Any], str]:
    """Whether training and test samples are both these."""
    right = Rows(x, labels)
    return lambda found: next((w for part in ("train", "test") if (w := apart(rows_of(found, part), right, 1e-6))), "")  # type: ignore[arg-type]


def write_npz(folder: Path, pack: Callable[..., None] = np.savez) -> Path:
    pack(folder / "d.npz", x_train=X, y_train=Y, x_test=X, y_test=Y, who_train=Y)
    return folder / "d.npz"


def write_idx(folder: Path, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Path:
    images = b"\0\0\x08\x03" + struct.pack(">3I", *PIXELS.shape) + PIXELS.tobytes()
    labels = b"\0\0\x08\x01" + struct.pack(">I", 20) + Y.astype(np.uint8).tobytes()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte{end}").write_bytes(pack(images))
        (folder / f"{part}-labels-idx1-ubyte{end}").write_bytes(pack(labels))
    return folder / f"train-images-idx3-ubyte{end}"


def idx_says(raw: bytes, found: Any) -> str:
    """What plain images in IDX form are now."""
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    axes = raw[3]
    shape = struct.unpack(f">{axes}I", raw[4 : 4 + 4 * axes])
    body = np.frombuffer(raw[4 + 4 * axes :], dtype=np.uint8)
    if raw[:3] != b"\0\0\x08" or axes != 3 or body.size != math.prod(shape):
        return "this is no IDX file of images"
    right = (body.reshape(shape[0], 1, *shape[1:]) / np.float32(255)).astype(np.float32)
    return apart(rows_of(found, "train"), Rows(right, [str(i) for i in Y]), 1e-6)


def write_table(folder: Path, end: str = ".csv") -> Path:
    path = folder / f"t{end}"
    rows = [f"{a!r},{b!r},{c!r},{'uvw'[y]}" for (a, b, c), y in zip(X.tolist(), Y, strict=True)]
    raw = "\n".join(["a,b,c,y", *rows, ""]).encode()
    if end == ".parquet":
        import pandas as pd

        pd.DataFrame({**dict(zip("abc", X.T, strict=True)), "y": ["uvw"[y] for y in Y]}).to_parquet(path)
        return path
    path.write_bytes({".gz": _gzip, ".bz2": bz2.compress}.get(path.suffix, bytes)(raw))
    return path


def read_table(path: Path) -> Any:
    return data.table(path, target="y", test=path, scaling="none")


def _cifar_parts() -> Mapping[str, Any]:
    batch = {"data": CIFAR, "labels": [int(i) for i in np.arange(8) % 10]}
    names = [f"data_batch_{i}" for i in range(1, 6)]
    return {
        **dict.fromkeys([*names, "test_batch"], batch),
        "batches.meta": {"label_names": [f"k{i}" for i in range(10)]},
    }


def write_cifar(folder: Path) -> Path:
    for name, part in _cifar_parts().items():
        (folder / name).write_bytes(pickle.dumps(part, protocol=2))
    return folder / "data_batch_1"


def write_cifar_tar(folder: Path) -> Path:
    path = folder / "cifar-10-python.tar.gz"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, part in _cifar_parts().items():
            raw = pickle.dumps(part, protocol=2)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    path.write_bytes(_gzip(packed.getvalue()))
    return path


def is_cifar(found: Any) -> str:
    pixels = CIFAR.reshape(-1, 3, 32, 32) / np.float32(255)
    labels = [f"k{i}" for i in range(8)]
    if wrong := apart(rows_of(found, "test"), Rows(pixels, labels), 1e-6):
        return wrong
    return apart(rows_of(found, "train"), Rows(np.concatenate([pixels] * 5), labels * 5), 1e-6)


def write_tags(folder: Path) -> Path:
    lines = [{"title": f"w{i % 4} v{i % 3}", "tags": [f"t{i % 3}"], "user": f"u{i}"} for i in range(30)]
    (folder / "tags.jsonl.gz").write_bytes(_gzip("\n".join(map(json.dumps, lines)).encode()))
    return folder / "tags.jsonl.gz"


def is_tags(found: Any) -> str:
    sizes = len(found.train), len(found.test), tuple(sorted(found.classes)), len(found.features)
    return "" if sizes == (24, 6, ("t0", "t1", "t2"), 7) else f"{sizes}"


def write_plays(folder: Path, end: str = ".json.gz") -> Path:
    raw = json.dumps({r: {"train": [r * 9, "abc def"], "test": ["to be or not"]} for r in ("Romeo", "Julia")}).encode()
    (folder / f"plays{end}").write_bytes(_gzip(raw) if end.endswith("gz") else raw)
    return folder / f"plays{end}"


def is_plays(found: Any) -> str:
    sizes = len(found.train), len(found.test), len(found.classes)
    return "" if sizes == (2 * (5 * 9 + 8 - 4), 16, 80) else f"{sizes}"


def write_pictures(folder: Path) -> Path:
    for number, pixels in enumerate(PIXELS):
        place = folder / "pets" / f"class {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return folder / "pets" / "class 0" / "4.png"


def is_pictures(found: Any) -> str:
    rows = sorted(row[0].ravel().tolist() for part in ("train", "test") for row in rows_of(found, part).inputs)  # type: ignore[arg-type]
    right = sorted((p / np.float32(255)).ravel().tolist() for p in PIXELS)
    return "" if len(rows) == 20 and np.allclose(rows, right, atol=1e-6) else f"{len(rows)} other pictures"


def _model() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def write_weights(folder: Path, end: str = ".safetensors") -> Path:
    state = _model().state_dict()
    save_file(state, folder / f"w{end}") if end == ".safetensors" else torch.save(state, folder / f"w{end}")
    return folder / f"w{end}"


def read_weights(path: Path) -> Any:
    return load_weights(
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)), path
    )


def is_model(found: Any) -> str:
    return _differing(found.state_dict(), {n: t.numpy() for n, t in _model().state_dict().items()})


def _differing(state: Mapping[str, torch.Tensor], right: Mapping[str, np.ndarray]) -> str:
    if state.keys() != right.keys():
        return f"{sorted(right)}"
    wrong = [n for n in right if state[n].numpy().tobytes() != np.ascontiguousarray(right[n]).tobytes()]
    return f"{wrong} are others" if wrong else ""


def safetensors_say(raw: bytes, found: Any) -> str:
    """What a safetensors file holds now."""
    size = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8"}
    right = {
        name: np.frombuffer(body[slice(*told["data_offsets"])], dtype=kinds[told["dtype"]]).reshape(told["shape"])
        for name, told in header.items()
    }
    return _differing(found.state_dict(), right)


def write_links(folder: Path, end: str = ".csv") -> Path:
    path = folder / f"links{end}"
    if end == ".npz":
        np.savez(path, time_s=np.arange(6.0), mbps=np.arange(6.0) + 1, offset=np.array([0, 3, 6]))
        return path
    raw = ("trace,time_s,mbps\n" + "".join(f"{i // 3},{i % 3},{i + 1.5}\n" for i in range(6))).encode()
    path.write_bytes(_gzip(raw) if end.endswith("gz") else raw)
    return path


def is_links(found: Any) -> str:
    sums = [(trace.period, trace.bytes / 1e6 * 8) for trace in found.traces]
    right = ([(2, 6), (2, 12)], [(2, 5), (2, 11)])  # of the text file and of the .npz file
    return "" if sums in right else f"{sums}"


def write_phones(folder: Path, end: str = ".json") -> Path:
    told = {str(i): {"computation": 90.5 + i, "communication": 800.0 + i} for i in range(4)}
    raw = json.dumps(told).encode()
    if end == ".csv":
        raw = (
            "computation_ms_per_sample,communication_kbps\n" + "".join(f"{90.5 + i},{800.0 + i}\n" for i in range(4))
        ).encode()
    (folder / f"phones{end}").write_bytes(_gzip(raw) if end.endswith("gz") else raw)
    return folder / f"phones{end}"


def is_phones(found: Any) -> str:
    return "" if found.table.tolist() == [[90.5 + i, 800.0 + i] for i in range(4)] else f"{found.table}"


def write_comings(folder: Path, end: str = ".json") -> Path:
    told = {str(i): {"active": [1, 20 + i], "inactive": [9, 30], "finish_time": 99, "model": "x"} for i in range(3)}
    raw = json.dumps(told).encode()
    (folder / f"comings{end}").write_bytes(_gzip(raw) if end.endswith("gz") else raw)
    return folder / f"comings{end}"


def is_comings(found: Any) -> str:
    entries = [(list(e.came), list(e.went), e.length) for e in found._entries]
    return "" if entries == [([1, 20 + i], [9, 30], 99) for i in range(3)] else f"{entries}"


def write_experiment(folder: Path) -> Path:
    (folder / "e.toml").write_text(EXPERIMENT)
    return folder / "e.toml"


def toml_says(raw: bytes, found: Any) -> str:
    """Whether the file is still TOML, and the run as long and as seeded as it says."""
    said = tomllib.loads(raw.decode("utf-8-sig").replace("\r", "\n"))
    experiment = found[0]
    now = (said.get("rounds", 30), said.get("seed", 0))
    return "" if (experiment.rounds, experiment.seed) == now else f"{experiment.rounds}, {experiment.seed}, not {now}"


def _nothing(found: Any) -> str:
    return ""


LABELS = [str(i) for i in Y]
SIXTEENTH = PIXELS[:, None] / np.float32(255)
_mnist = Kind(write_idx, lambda path: data.mnist(path.parent, scaling="unit"), _is(SIXTEENTH, LABELS), False, idx_says)
_in_npz = Kind(write_npz, data.npz, _is(X, LABELS), True)
_in_table = Kind(write_table, read_table, _is(X, ["uvw"[y] for y in Y]), False)
_in_tar = Kind(write_cifar_tar, lambda path: data.cifar10(path, scaling="unit"), is_cifar, True)
_weights = Kind(write_weights, read_weights, is_model, False, safetensors_say)
_links = Kind(write_links, lambda path: BandwidthTrace(path=path), is_links, False)
_phones = Kind(write_phones, lambda path: DeviceTrace(path=path), is_phones, False)
_comings = Kind(write_comings, lambda path: AvailabilityTrace(path=path), is_comings, False)
KINDS: Mapping[str, Kind] = {
    "npz": _in_npz,
    "packed npz": _in_npz._replace(write=lambda folder: write_npz(folder, np.savez_compressed)),
    "IDX": _mnist,
    "IDX.gz": _mnist._replace(write=lambda folder: write_idx(folder, _gzip, ".gz"), sure=True, says=None),
    "CSV": _in_table,
    "CSV.gz": _in_table._replace(write=lambda folder: write_table(folder, ".csv.gz"), sure=True),
    "CSV.bz2": _in_table._replace(write=lambda folder: write_table(folder, ".csv.bz2"), sure=True),
    "Parquet": _in_table._replace(write=lambda folder: write_table(folder, ".parquet")),
    "pickle": Kind(write_cifar, lambda path: data.cifar10(path.parent, scaling="unit"), is_cifar, False),
    "tar.gz": _in_tar,
    "tags": Kind(write_tags, data.stackoverflow_tags, is_tags, True),
    "plays": Kind(write_plays, lambda path: data.shakespeare(path, length=4), is_plays, True),
    "plain plays": Kind(
        lambda folder: write_plays(folder, ".json"), lambda path: data.shakespeare(path, length=4), is_plays, False
    ),
    "pictures": Kind(write_pictures, lambda path: data.image_folder(path.parent.parent), is_pictures, False),
    "safetensors": _weights,
    "torch.save": _weights._replace(write=lambda folder: write_weights(folder, ".pt"), sure=True, says=None),
    "links": _links,
    "links.gz": _links._replace(write=lambda folder: write_links(folder, ".csv.gz"), sure=True),
    "links.npz": _links._replace(write=lambda folder: write_links(folder, ".npz"), sure=True),
    "phones": _phones,
    "phones.csv": _phones._replace(write=lambda folder: write_phones(folder, ".csv")),
    "phones.gz": _phones._replace(write=lambda folder: write_phones(folder, ".json.gz"), sure=True),
    "comings": _comings,
    "comings.gz": _comings._replace(write=lambda folder: write_comings(folder, ".json.gz"), sure=True),
    "TOML": Kind(write_experiment, lambda path: experiment_of(path, {}), _nothing, False, toml_says),
}


def drawn_file(draw: Draw, folder: Path) -> Case:
    """A file, spoiled."""
    name, how = draw.choice(list(KINDS)), draw.choice(list(SPOILS))
    kind = KINDS[name]
    path = kind.write(folder)
    raw = path.read_bytes()
    spoiled = SPOILS[how](draw, raw)
    path.write_bytes(spoiled)

    def judge(found: Any) -> str:
        if spoiled == raw or kind.sure:
            return kind.judge(found)
        if kind.says is None:
            return ""
        try:
            return kind.says(spoiled, found)
        except Exception as error:
            return f"taken, and another reader says {type(error).__name__}: {error}"

    told = f"{name}, {how}: {len(raw)} bytes, now {len(spoiled)}: {spoiled[:80]!r}"
    return Case(told=told, read=lambda: kind.read(path), judge=judge, must="take" if spoiled == raw else "")
