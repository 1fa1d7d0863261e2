"""Every reader of files from elsewhere, by the module that opens them; and hostile files of each kind.

`READERS` says how each is called. A module that opens files and stands in neither table fails a test.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.cli.predicting import _rows
from polyrhythm.config.configuration import configure
from polyrhythm.dashboard.live import live_of
from polyrhythm.dashboard.studies import StudyFiles
from polyrhythm.data.published import PUBLISHED, compared
from polyrhythm.data.sources import idx, writers
from polyrhythm.data.sources.text_files import texts_in
from polyrhythm.data.sources.tokenizers import tokenizer_of
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.experiments.difficulty import expert_about
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.models.adapter_files import load_adapter
from polyrhythm.models.weights import load_weights
from polyrhythm.results import Run
from polyrhythm.results.using import Use
from polyrhythm.runs import live, portrait, stored
from polyrhythm.runs.charges import Charges
from polyrhythm.runs.checkpoints import reached
from polyrhythm.runs.deleting import delete
from polyrhythm.runs.labelling import label
from polyrhythm.runs.labels import Change
from polyrhythm.runs.run_lock import _FILE as LOCK
from polyrhythm.runs.run_lock import is_alive
from polyrhythm.studies.files import reading
from polyrhythm.studies.running import trials


class Reader(NamedTuple):
    """A reader: the modules that open its files, how it is called, and the names that its file may have.

    `lenient` readers give nothing where a file is damaged, in place of refusing it.
    """

    modules: tuple[str, ...]
    read: Callable[[Path], Any]
    names: tuple[str, ...]
    lenient: bool = False
    pipes: bool = False  # whether it may be a pipe, as of `<(…)` in a shell


def _in_folder(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda path: read(path.parent)


def _regions(folder: Path) -> Any:
    (folder / "train_test_split.csv").write_text("pid,fold,fold2\nP0,train,train_0\n")
    return data.tcga_brca(folder)


def _pace(folder: Path) -> Any:
    store = NodeStore(folder / "store", "20260101-000000-abcd", 0)
    place = store._folder
    shutil.move(folder / "pace.json", place / "pace.json")
    return store.pace()


def _weights(path: Path) -> Any:
    return Run.weights(SimpleNamespace(path=path.parent, status="finished"), "final")  # type: ignore[arg-type]


FILES = "data/sources/files.py"
READERS: dict[str, Reader] = {
    "table": Reader(
        (FILES, "data/sources/table_files.py"),
        lambda path: data.table(path, target="y"),
        ("x.csv", "x.tsv", "x.csv.gz", "x.parquet", "x.feather"),
    ),
    "tiny imagenet": Reader(("data/sources/tiny_imagenet.py",), data.tiny_imagenet, ("x.npz",)),
    "npz": Reader(("data/sources/npz.py",), data.npz, ("x.npz",)),
    "idx": Reader(("data/sources/idx.py",), idx.read_idx, ("train-images-idx3-ubyte", "x.gz")),
    "cifar": Reader(("data/sources/cifar.py",), data.cifar10, ("cifar-10-python.tar.gz", "cifar-10-python.tar")),
    "shakespeare": Reader(("data/sources/shakespeare.py",), data.shakespeare, ("x.json", "x.json.gz")),
    "plays": Reader(
        ("data/sources/plays.py",),
        lambda path: data.roles(path if path.suffix in (".zip", ".json", ".gz") else path.parent),
        ("x.zip", "x.json", "x.json.gz", "hamlet_gut.txt"),
    ),
    "posts": Reader(
        ("data/sources/posts.py",),
        lambda path: data.sites(path.parent if path.suffix == ".xml" else path),
        ("beer/Posts.xml", "x.jsonl", "x.jsonl.gz"),
    ),
    "tags": Reader((), data.stackoverflow_tags, ("x.jsonl", "x.jsonl.gz")),
    "wearers": Reader(
        ("data/sources/members.py", "data/sources/wearers.py"),
        lambda path: data.hapt(path if path.suffix in (".zip", ".npz") else path.parent),
        ("x.zip", "x.npz", "labels.txt", "acc_exp01_user01.txt"),
    ),
    "stations": Reader(
        ("data/sources/stations.py",),
        lambda path: data.beijing_air(path if path.suffix in (".zip", ".npz") else path.parent),
        ("x.zip", "x.npz", "PRSA_Data_Dongsi_20130301-20170228.csv"),
    ),
    "speakers": Reader(
        ("data/sources/speakers.py",),
        lambda path: data.spoken_digits(path if path.suffix in (".zip", ".npz") else path.parent),
        ("x.zip", "x.npz", "0_ann_0.wav"),
    ),
    "hospitals": Reader(
        ("data/sources/hospitals.py",),
        lambda path: data.heart_disease(path if path.suffix in (".zip", ".csv") else path.parent),
        ("x.zip", "x.csv", "processed.va.data"),
    ),
    "texts": Reader((), data.text, ("x.jsonl", "x.jsonl.gz", "x.csv")),
    "new texts": Reader(("data/sources/text_files.py",), texts_in, ("x.txt", "x.txt.gz", "x.jsonl", "x.json", "x.csv")),
    "tokenizer": Reader(
        ("data/sources/tokenizers.py",),
        lambda path: tokenizer_of(str(path.parent), ()),
        ("tokenizer.json",),
    ),
    "regions": Reader((), lambda path: _regions(path.parent), ("brca.csv",)),
    "writers": Reader(("data/sources/writers.py",), writers.read_integers, ("x-idx2-int", "x.gz")),
    "published copies": Reader(
        ("data/published.py",),
        lambda path: list(compared(PUBLISHED["heart-disease"], path)),
        ("x.zip",),
    ),
    "pictures": Reader(
        ("data/sources/pictures.py",),
        lambda path: data.image_folder(path.parents[2], size=8),
        ("train/a/x.png", "train/a/x.jpg"),
    ),
    "weights of a run": Reader(("runs/recorded.py",), _weights, ("final.safetensors",)),
    "weights": Reader(
        ("models/weights.py",), lambda path: load_weights(torch.nn.Linear(1, 1), path), ("x.safetensors", "x.pt")
    ),
    "pretrained model": Reader(
        ("models/pretrained.py",), lambda path: pr.models.Pretrained(path=str(path.parent))(2), ("config.json",)
    ),
    "adapter": Reader(
        ("models/adapter_files.py",),
        lambda path: load_adapter(nn.Linear(2, 2), path.parent),
        ("adapter_model.safetensors",),
    ),
    "about an expert": Reader(("experiments/difficulty.py",), expert_about, ("x.safetensors",), lenient=True),
    "experiment": Reader(("config/layers.py",), lambda path: configure(path, {}, []), ("x.toml",), pipes=True),
    "study": Reader(("studies/files/reading.py",), reading.read, ("x.toml",), pipes=True),
    "bandwidth": Reader(
        ("fleet/files.py", "fleet/bandwidth.py"),
        lambda path: pr.fleet.BandwidthTrace(path=path),
        ("x.npz", "x.csv", "x.csv.gz"),
    ),
    "arrivals": Reader(
        ("fleet/files.py", "fleet/arrivals.py"), lambda path: pr.fleet.ArrivalTrace(path=path), ("x.csv", "x.csv.gz")
    ),
    "capacities": Reader(
        ("fleet/files.py", "fleet/capacity.py"), lambda path: pr.fleet.DeviceTrace(path=path), ("x.csv", "x.json")
    ),
    "behaviour": Reader(
        ("fleet/files.py", "fleet/behaviour.py"), lambda path: pr.fleet.AvailabilityTrace(path=path), ("x.json",)
    ),
    "links": Reader(("fleet/links.py",), lambda path: pr.fleet.UserSpeeds(path=path), ("x.csv",)),
    "devices": Reader(
        ("fleet/files.py", "fleet/listed.py"), lambda path: pr.fleet.ListedDevices(path=path), ("x.json",)
    ),
    "runs": Reader(("runs/database.py",), _in_folder(Run.all), ("runs.sqlite",)),
    "model of a run": Reader(("results/using.py",), _in_folder(Use.read), ("model.json",)),
    "portrait": Reader(("runs/portrait.py",), _in_folder(portrait.labels_of), ("labels.json",), lenient=True),
    "reached": Reader(("runs/checkpoints.py",), _in_folder(reached), ("checkpoint-1.safetensors",), lenient=True),
    "lock": Reader(("runs/run_lock.py",), _in_folder(is_alive), (LOCK,), lenient=True),
    "checkpoint": Reader(("runs/stored.py",), lambda path: stored.load(path, CODEC), ("x.safetensors",)),
    "labels": Reader(
        ("runs/labelling.py",), lambda path: label(path.parent, ["x"], Change(note="x")), ("runs.sqlite",)
    ),
    "runs that are deleted": Reader(("runs/deleting.py",), lambda path: delete(path.parent, ["x"]), ("runs.sqlite",)),
    "charges": Reader(("runs/charges.py",), lambda path: Charges(lambda: path.parent).all(), ("charges.jsonl",)),
    "load of a run": Reader(("runs/live.py",), live._earlier, ("now.json",), lenient=True),
    "how a run goes": Reader(
        ("dashboard/live.py",),
        lambda path: live_of(path.parents[1], path.parent.name, going_on=True, start=None),
        ("x/log.txt", "x/now.json"),
        lenient=True,
    ),
    "trials in the dashboard": Reader(
        ("dashboard/studies.py",),
        lambda path: StudyFiles(path.parents[2], path.parent.name),
        ("studies/t/record.json",),
    ),
    "trials": Reader(("studies/running/trials.py",), _in_folder(trials.read), (trials.FILE,)),
    "rows to predict": Reader(("cli/predicting.py",), lambda path: _rows(path, of_texts=False), ("x.npy", "x.csv")),
    "pace": Reader(("deployment/node_store.py",), _in_folder(_pace), ("pace.json",), lenient=True),
}

_OURS, _MACHINE, _WRITES, _NO_FILE, _FOLDER = (
    "its own files",
    "what the machine says of itself",
    "what it writes",
    "no file",
    "a folder of its own",
)
NOT_FROM_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("data/sources/digits.py", "dashboard/application.py", "report/page.py", "figures/page.py"), _OURS),
    **dict.fromkeys(("bench/bare.py", "bench/duel.py", "studies/page/pictures.py"), _OURS),
    "studies/advice/evidence.py": _OURS,
    "studies/files/needs.py": _OURS,
    **dict.fromkeys(("deployment/local/folder.py", "deployment/local/keys.py"), _FOLDER),
    **dict.fromkeys(("deployment/local/loopback.py", "deployment/local/processes.py"), _FOLDER),
    "deployment/node_sums.py": _FOLDER,
    **dict.fromkeys(("runs/environment.py", "runs/load.py"), _MACHINE),
    **dict.fromkeys(("runs/files.py", "runs/database_writer.py", "cli/encoding.py"), _WRITES),
    **dict.fromkeys(("cli/guard.py",), _WRITES),
    **dict.fromkeys(
        (
            "core/training.py",
            "core/personal.py",
            "core/versions.py",
            "engines/around.py",
            "engines/proof.py",
            "engines/repeating.py",
            "engines/selection.py",
            "engines/sparse.py",
        ),
        _NO_FILE,
    ),
    "runs/kept_weights.py": "what this run has written; of a checkpoint it gets bytes",
    "base/origin.py": "what the build has written",
    "base/consent.py": "what installers have written",
    "base/input_file.py": "what the other readers read by",
    "simulation/client_store/vector_files.py": "what this run has written, or one that it goes on from",
    "deployment/local/project.py": "whether a folder is as it would write it",
    "cli/flowering.py": "the file that was typed, which the experiment's reader reads first",
}
"""Modules that open files, and why nobody else chooses which."""


def packed_zeros(size: int, before: bytes = b"") -> bytes:
    pack, block = zlib.compressobj(9, wbits=31), bytes(2**20)
    parts = [pack.compress(before), *(pack.compress(block) for _ in range(size // len(block))), pack.flush()]
    return b"".join(parts)


def _npy(shape: Any, dtype: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(64)


def _npz(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x", "y", "x_train", "y_train", "time_s", "mbps", "offset"):
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _zip(name: str, member: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, member)
    return file.getvalue()


def _tar(member: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in ("../../data_batch_1", "data_batch_1", "batches.meta"):
            info = tarfile.TarInfo(name)
            info.size = len(member)
            tar.addfile(info, io.BytesIO(member))
    return file.getvalue()


def _database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n"
    )
    connection.execute("PRAGMA application_id = 1347375178")
    return connection.serialize()


DEEP = 200_000
CONTENTS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "NULs": lambda: bytes(2**20),
    "noise": lambda: np.random.Generator(np.random.PCG64(0)).bytes(2**18),
    "brackets": lambda: b"[" * DEEP + b"]" * DEEP,
    "objects": lambda: b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a key of brackets": lambda: b"model = " + b"[" * DEEP + b"]" * DEEP,
    "inline tables": lambda: b"a = " + b"{b = " * 20_000 + b"1" + b"}" * 20_000,
    "dotted keys": lambda: b".".join([b"a"] * 50_000) + b" = 1",
    "one long line": lambda: b"x" * 2**23,
    "a long cell": lambda: b"time,client,trace,time_s,mbps,y\n" + b"9" * 2**21 + b",1,a,1,1,1\n",
    "a number of many digits": lambda: b"[" + b"9" * 10**6 + b"]",
    "many columns": lambda: b",".join(b"c%d" % i for i in range(200_000)) + b"\n" + b"1," * 200_000,
    "terminal codes": lambda: b"\x1b[2J\x1b]0;x\x07,y\n\x1b[31m,1\n",
    "zeros, packed": lambda: packed_zeros(2**27),
    "a header of a trillion": lambda: _npy((10**12, 4)),
    "a header of negatives": lambda: _npy((-1, 4)),
    "a header of brackets": lambda: b"\x93NUMPY\x01\x00\xf0\xff" + b"(" * 65520,
    "arrays of a trillion": lambda: _npz(_npy((10**12,))),
    "arrays of objects": lambda: _npz(_npy((8,), "|O")),
    "idx of a billion": lambda: b"\x00\x00\x08\x03" + struct.pack(">3I", 2**31, 2**31, 4) + bytes(64),
    "tensors of a quintillion": lambda: _tensors(
        {"weight": {"dtype": "F32", "shape": [2**61, 4], "data_offsets": [0, 8]}}
    ),
    "tensors that overlap": lambda: _tensors({n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}),
    "a long header": lambda: struct.pack("<Q", 2**62) + b"{}",
    "an archive of nothing": lambda: _tar(b""),
    "an archive of NULs": lambda: _tar(bytes(2**20)),
    "an archive in itself": lambda: _zip("inside.zip", _zip("inside.zip", b"PK")),
    "a zip of zeros": lambda: _zip("labels.txt", bytes(2**27)),
    "a sound of a billion": lambda: b"RIFF" + struct.pack("<I", 2**31) + b"WAVEfmt \x10\0\0\0\1\0\1\0" + bytes(12),
    "a database without end": _database,
    "a picture of a billion pixels": lambda: _png(2**15, 2**15),
    "parquet's name alone": lambda: b"PAR1" + bytes(100) + struct.pack("<I", 2**31 - 1) + b"PAR1",
    "XML": lambda: (
        b'<!DOCTYPE l [<!ENTITY a "a">'
        + b"".join(b'<!ENTITY a%d "%s">' % (i, b"&a%d;" % (i - 1) * 10) for i in range(1, 10))
        + b"]><l>&a9;</l>"
    ),
}


ANYWHERE = ("nothing", "NULs", "brackets", "one long line")
"""Contents that any file may have; the others belong to formats, by the ends of names."""
FORMATS: dict[str, tuple[str, ...]] = {
    ".toml": ("a key of brackets", "inline tables", "dotted keys", "XML"),
    ".csv": ("a long cell", "many columns", "terminal codes", "noise"),
    ".tsv": ("many columns", "noise"),
    ".json": ("objects", "a number of many digits", "XML"),
    ".jsonl": ("objects", "a number of many digits"),
    ".gz": ("zeros, packed", "an archive of NULs"),
    ".npy": ("a header of a trillion", "a header of negatives", "a header of brackets"),
    ".npz": ("arrays of a trillion", "arrays of objects", "noise"),
    "ubyte": ("idx of a billion",),
    ".safetensors": ("tensors of a quintillion", "tensors that overlap", "a long header"),
    ".pt": ("noise", "tensors of a quintillion"),
    ".zip": ("arrays of a trillion", "an archive in itself", "a zip of zeros", "noise"),
    ".wav": ("noise", "a sound of a billion"),
    ".data": ("a long cell", "many columns", "noise"),
    ".tar": ("noise",),
    ".tar.gz": ("an archive of nothing",),
    ".sqlite": ("a database without end", "noise"),
    ".png": ("a picture of a billion pixels", "noise"),
    ".jpg": ("a picture of a billion pixels", "noise"),
    ".parquet": ("parquet's name alone", "noise"),
    ".feather": ("parquet's name alone",),
}


def contents_of(name: str) -> list[str]:
    """The hostile contents of a file, by its name."""
    return [*ANYWHERE, *(what for end, whats in FORMATS.items() if name.endswith(end) for what in whats)]


def _tensors(header: dict[str, Any]) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(64)


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(2**20))) + chunk(b"IEND", b"")
    )


def _fifo(path: Path) -> None:
    os.mkfifo(path)


PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe that nobody writes into": _fifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a folder": lambda path: path.mkdir(),
    "a socket": lambda path: _socket(path),
}


def _socket(path: Path) -> None:
    import socket

    there = os.getcwd()
    os.chdir(path.parent)  # its whole path may be too long for one
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(there)
