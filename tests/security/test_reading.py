"""Files from elsewhere: nothing in them runs, nothing is written where they say, nothing grows without bound."""

from __future__ import annotations

import io
import pickle
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.data.sources import cifar
from polyrhythm.data.sources.pickles import unpickled
from polyrhythm.models.weights import load_weights
from polyrhythm.results import Run
from polyrhythm.runs import run_lock
from small import experiment, prepared

NAMES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


class Calls:
    """A value whose pickle calls something when an ordinary reader loads it."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def batch(rows: int = 4) -> dict[bytes, Any]:
    return {b"data": np.zeros((rows, 3072), dtype=np.uint8), b"labels": list(range(rows))}


def archive(folder: Path, members: dict[str, bytes]) -> Path:
    """An archive as it could be handed on, with these members beside the official ones."""
    whole = {f"cifar-10-batches-py/{name}": pickle.dumps(batch(), protocol=2) for name in NAMES}
    whole["cifar-10-batches-py/batches.meta"] = pickle.dumps({b"label_names": [b"x"] * 10})
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (whole | members).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_in_order_is_read(tmp_path: Path) -> None:
    assert len(data.cifar10(archive(tmp_path, {})).train) == 20


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_malicious_archive_runs_nothing(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "touched"
    raw = pickle.dumps(batch() | {b"extra": Calls(Path.touch, touched)}, protocol=protocol)
    path = archive(tmp_path, {"cifar-10-batches-py/data_batch_3": raw})
    with pytest.raises(UserError, match="not admitted"):
        data.cifar10(path)
    assert not touched.exists()
    pickle.loads(raw)
    assert touched.exists()  # the archive really was dangerous


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"cos\nsystem\n(S'true'\ntR.", id="a command"),
        pytest.param(b"cbuiltins\neval\n(S'1'\ntR.", id="an expression"),
        pytest.param(b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'__class__'\ntR.", id="attributes"),
        pytest.param(b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.", id="a dotted name"),
        pytest.param(b"cnumpy\nload\n(S'x'\ntR.", id="numpy's own reader"),
        pytest.param(b"cnumpy.core.multiarray\nscalar\n(tR.", id="something else of numpy's"),
        pytest.param(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00zipR.", id="another codec"),
        pytest.param(b"c_codecs\nencode\n(N}X\x03\x00\x00\x00abcNstb.", id="attributes of what is admitted"),
        pytest.param(b"cnumpy\nndarray\n((I1000000000\nI1000000000\nttR.", id="more memory than there is"),
        pytest.param(b"P1\n.", id="something outside the file"),
        pytest.param(b"\x82\x01.", id="a registered extension"),
    ],
)
def test_what_a_pickle_may_not_ask_for(raw: bytes) -> None:
    with pytest.raises(UserError, match="cannot be read as a data pickle"):
        unpickled(raw, Path("data_batch_1"))


def test_a_pickle_leaves_no_trace_in_the_next_one() -> None:
    """It cannot change what reads it."""
    changing = b"c_codecs\nencode\n(N}X\x0c\x00\x00\x00__defaults__(X\x06\x00\x00\x00rot_13tstb."
    with pytest.raises(UserError):
        unpickled(changing, Path("x"))
    assert unpickled(pickle.dumps(b"\xff", protocol=2), Path("x")) == b"\xff"


@pytest.mark.parametrize("name", ["../outside", "/elsewhere/outside", "cifar-10-batches-py/../../outside"])
def test_members_are_read_and_never_unpacked(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    path = archive(tmp_path / "in", {name: b"x"})
    before = sorted(tmp_path.rglob("*"))
    assert len(data.cifar10(path).train) == 20
    assert sorted(tmp_path.rglob("*")) == before


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(pickle.dumps(batch(9)))
    path = archive(tmp_path, {})
    plain = path.with_name("plain.tar")
    with tarfile.open(path) as old, tarfile.open(plain, "w") as new:
        for member in old:
            if member.name.endswith("data_batch_3"):
                member.type, member.linkname, member.size = tarfile.SYMTYPE, str(tmp_path / "secret"), 0
            new.addfile(member, old.extractfile(member.name) if member.isreg() else None)
    with pytest.raises(UserError, match="has no data_batch_3"):
        data.cifar10(plain)


def test_a_member_larger_than_any_official_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "LARGEST", 20_000)
    assert len(data.cifar10(archive(tmp_path, {})).train) == 20
    with pytest.raises(UserError, match="bomb in it has 20,001 bytes"):
        data.cifar10(archive(tmp_path, {"bomb": b"\0" * 20_001}))


def test_objects_in_npz_files_are_refused(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), y=np.array([Calls(Path.touch, touched)] * 4, dtype=object))
    with pytest.raises(UserError, match=r"x\.npz"):
        data.npz(tmp_path / "x.npz")
    with pytest.raises(UserError, match=r"x\.npz"):
        pr.fleet.BandwidthTrace(path=tmp_path / "x.npz")
    assert not touched.exists()


def test_weights_that_are_a_pickle_are_refused(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    (tmp_path / "x.safetensors").write_bytes(pickle.dumps(Calls(Path.touch, touched)))
    module = prepared().chosen.engine.module
    with pytest.raises(UserError, match="not readable"):
        load_weights(module, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="not readable"):
        prepared(initial=tmp_path / "x.safetensors")
    assert not touched.exists()


# The run database.

HOSTILE = "x'); DROP TABLE runs; --\" \\ \n%s ?1 :name"


def test_hostile_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    made = pr.run(experiment(name=HOSTILE), out=tmp_path)
    assert made.name == HOSTILE
    assert Run.open(HOSTILE, tmp_path).id == made.id
    for reference in ("' OR '1'='1", "x' UNION SELECT * FROM runs --", "%", "_", "*"):
        with pytest.raises(UserError, match="unknown run"):
            Run.open(reference, tmp_path)
    assert len(Run.open(HOSTILE, tmp_path).history) == 4


@pytest.mark.parametrize("run_id", ["../outside", "/tmp", "..", ".", "", "a/b", "a\0b"])
def test_a_database_cannot_send_a_reader_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    made = pr.run(experiment(name="mine"), out=tmp_path)
    with sqlite3.connect(tmp_path / "runs.sqlite") as database:
        database.execute("UPDATE runs SET run_id = ? WHERE run_id = ?", (run_id, made.id))
    database.close()
    tampered = Run.open("mine", tmp_path)
    for look in (lambda: tampered.path, tampered.weights):
        with pytest.raises(UserError, match="the name of a folder in it"):
            look()
    assert tampered.status == "finished"  # as its row says: no other folder was asked
    asked: list[Path] = []
    monkeypatch.setattr(run_lock, "is_alive", lambda folder: bool(asked.append(folder)) or True)
    with sqlite3.connect(tmp_path / "runs.sqlite") as database:
        database.execute("UPDATE runs SET status = 'running'")
    database.close()
    assert Run.open("mine", tmp_path).status == "killed"
    assert not asked
