"""What clients remember in files: every driver, checkpoints that name it, and what is refused."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.runstate import last_kept
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.local.optimisers import LocalAdam
from polyrhythm.runs.observer import Enough, Observer
from polyrhythm.simulation.client_store.amount import budget
from polyrhythm.simulation.client_store.budget import VECTORS
from polyrhythm.simulation.client_store.vector_files import StoredTensor, vectors
from small import federation, ready

QUICK: dict[str, Any] = {"cohort": 4, "epochs": 1, "batch": 5}
RECIPES = {
    "scaffold": pr.scaffold(**QUICK),
    "vrl_sgd": pr.vrl_sgd(**QUICK),
    "ccfl at the client": pr.ccfl(**QUICK, storage="client"),
    "ccfl at the server": pr.ccfl(**QUICK, storage="server"),
    "ccfl at either end": pr.ccfl(**QUICK, storage="mixed"),
    "alt": pr.alt(**QUICK, representation="logits"),
    "moon": pr.moon(**QUICK, layer="logits"),
    "adam": pr.local_only(epochs=1, batch=5) | LocalAdam(keep_state=True),
}
VECTOR = 167_212  # bytes of the model's


def experiment(recipe: pr.Recipe = RECIPES["scaffold"], **changes: Any) -> Prepared:
    values: dict[str, Any] = {"federation": federation(clients=8), "model": "mlp", "recipe": recipe, "rounds": 6}
    return ready(pr.Experiment, **values | {"evaluation": pr.Evaluation(every=3)} | changes)


class Stops(Observer):
    """An observer that has seen enough after some versions."""

    def __init__(self, after: int) -> None:
        self.after = after

    def version(self, record: Any, model: object) -> None:
        if record.version == self.after:
            raise Enough


@pytest.mark.parametrize("driver", ["inline", pytest.param("threads", marks=pytest.mark.slow), "processes"])
def test_every_driver_gives_the_same_run_for_any_memory(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = "native" if driver == "threads" else "torch"
    if driver == "threads":
        pytest.importorskip("polyrhythm.base._native", reason="the native engine was not built")
    how: dict[str, Any] = {"driver": driver, "engine": engine, "workers": None if driver == "inline" else 2}
    there = set(Path(tempfile.gettempdir()).glob("polyrhythm-*"))
    for name, recipe in RECIPES.items():
        digest = carry_out(experiment(recipe, engine=engine, driver="inline"), [])["digest"]
        for memory in ("0 B", f"{3 * VECTOR} B"):
            assert carry_out(experiment(recipe, client_memory=memory, **how), [])["digest"] == digest, (name, memory)
    assert set(Path(tempfile.gettempdir()).glob("polyrhythm-*")) <= there


def stopped(out: Path, **changes: Any) -> pr.Run:
    settings: dict[str, Any] = {"client_memory": f"{2 * VECTOR} B", "checkpoint": pr.Checkpoint(every=1, keep=2)}
    return small.run(experiment(**settings | changes), out=out, observers=[Stops(4)])


def test_a_checkpoint_is_as_small_as_without_clients(tmp_path: Path) -> None:
    sizes = {}
    for memory in ("all", "1 MB"):
        run = stopped(tmp_path / memory, client_memory=memory)
        sizes[memory] = max(path.stat().st_size for path in run.path.glob("checkpoint-*"))
    assert sizes["1 MB"] + 6 * VECTOR < sizes["all"]


@pytest.mark.parametrize("memory", ["all", "0 B", "1 GiB"])
def test_a_run_goes_on_with_any_other_memory(tmp_path: Path, memory: str) -> None:
    whole = carry_out(experiment(), [])
    run = stopped(tmp_path)
    gone_on = small.resume(experiment(client_memory=memory), run.id, out=tmp_path)
    assert gone_on.summary["digest"] == whole["digest"]
    assert any("its checkpoint of version 3" in notice for notice in gone_on.notices)


def spoil(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "torn":
        path.write_bytes(content[: len(content) // 2])
    else:
        newest, before = ({place.offset for place in places(path.parents[1], v)} for v in (None, 3))
        offset = min(newest - before)
        content[offset] ^= 1
        path.write_bytes(content)


def places(folder: Path, before: int | None = None) -> list[StoredTensor]:
    """What the newest checkpoint needs, or the one before."""
    kept, _ = last_kept(folder, before=before)
    assert kept is not None
    return [place for place in vectors(kept.run.driver.clients) if isinstance(place, StoredTensor)]


@pytest.mark.parametrize("how", ["changed", "torn", "gone"])
def test_a_damaged_file_of_clients_gives_way_to_the_checkpoint_before(tmp_path: Path, how: str) -> None:
    whole = carry_out(experiment(), [])
    run = stopped(tmp_path, client_memory="0 B")
    (file,) = (run.path / VECTORS).iterdir()
    spoil(file, how)
    gone_on = small.resume(experiment(client_memory="0 B"), run.id, out=tmp_path)
    assert gone_on.summary["digest"] == whole["digest"]
    said = [notice for notice in gone_on.notices if "is damaged" in notice]
    assert all("what clients remember" in notice for notice in said)
    assert len(said) == (1 if how == "changed" else 2)
    assert any(("its checkpoint of version 2" if how == "changed" else "begins anew") in n for n in gone_on.notices)


def test_verifying_from_a_checkpoint_leaves_its_files_alone(tmp_path: Path) -> None:
    whole = small.run(experiment(client_memory="0 B", checkpoint=pr.Checkpoint(every=2)), out=tmp_path)
    before = {path: path.read_bytes() for path in (whole.path / VECTORS).iterdir()}
    assert before
    for memory in ("0 B", "all"):
        assert small.verify(whole, experiment(client_memory=memory), from_checkpoint=True, versions=2).equal
    assert {path: path.read_bytes() for path in (whole.path / VECTORS).iterdir()} == before


def test_without_checkpoints_nothing_is_left(tmp_path: Path) -> None:
    run = small.run(experiment(client_memory="0 B", checkpoint=pr.Checkpoint(every="never")), out=tmp_path)
    assert not (run.path / VECTORS).exists()


@pytest.mark.parametrize(
    ("text", "count"),
    [("1 GiB", 2**30), ("1GiB", 2**30), ("0.5 KB", 500), ("0 B", 0), ("2 TB", 2 * 10**12), ("all", None)],
)
def test_amounts_of_memory(text: str, count: int | None) -> None:
    assert budget(text) == count


@pytest.mark.parametrize("memory", ["", "1", "1 gib", "-1 GiB", "much", "1 GiB of it", 5, None, "1e9 B", "nan B"])
def test_other_amounts_are_refused(memory: Any) -> None:
    with pytest.raises(UserError, match="client_memory ="):
        experiment(client_memory=memory)


@pytest.mark.parametrize("name", ["scaffold", "ccfl at the server"])
def test_a_disk_without_room_is_refused_before_round_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 9 * VECTOR, 9 * VECTOR))
    small.run(experiment(RECIPES[name], client_memory="0 B"), out=tmp_path / "enough")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 7 * VECTOR, 7 * VECTOR))
    with pytest.raises(UserError, match="bytes are free"):
        small.run(experiment(RECIPES[name], client_memory="0 B"), out=tmp_path / "not enough")
    assert not (tmp_path / "not enough").exists()
    small.run(experiment(client_memory="all"), out=tmp_path / "in memory")
