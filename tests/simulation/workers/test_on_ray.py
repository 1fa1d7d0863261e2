"""Visits on Ray: the numbers of the in-line driver, to the last bit, whatever happens to the actors."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from crews import FAMILIES, MUTANTS, ROLLING, assert_same, assert_same_error, made, run
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.simulation.workers.on_ray import OnRay, actors
from worker_models import Dies, Greedy

QUICK = {"scaffold"}
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra [ray]")
pytestmark = [needs_ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]  # of Ray's own logs


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """One cluster for all tests: each of them would take seconds to start its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = actors.imported()
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


@pytest.mark.parametrize("family", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES])
def test_numbers_are_those_of_the_in_line_driver(family: str) -> None:
    crew = run(driver="ray", workers=2, **FAMILIES[family])
    assert (crew[0]["driver"], crew[0]["workers"]) == ("ray", 2)
    assert_same(run(driver="inline", **FAMILIES[family]), crew)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["cc_fedadam", "scaffold", "partial work", "visits that go wrong"])
def test_visits_that_go_on_from_version_to_version_give_the_same_numbers(family: str) -> None:
    assert_same(run(driver="inline", **ROLLING[family]), run(driver="ray", workers=2, **ROLLING[family]))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_actors_changes_nothing(workers: int) -> None:
    family = FAMILIES["scaffold"]
    assert_same(run(driver="inline", **family), run(driver="ray", workers=workers, **family))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_laws_above_can_fail(
    mutant: Callable[[pytest.MonkeyPatch, type[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(driver="inline", **FAMILIES["scaffold"])
    mutant(monkeypatch, OnRay)
    with pytest.raises((AssertionError, KeyError)):
        assert_same(alone, run(driver="ray", workers=2, **FAMILIES["scaffold"]))


@pytest.mark.slow
def test_a_killed_actor_changes_nothing(tmp_path: Path) -> None:
    model = Dies(4, 3, tmp_path)
    alone = run(driver="inline", model=model)
    for name in ("once", "twice"):
        (tmp_path / name).touch()
    hurt = run(driver="ray", workers=2, model=model)
    assert_same(alone, hurt)
    assert hurt[0]["worker_deaths"] == 2


@pytest.mark.slow
def test_idle_actors_that_are_lost_are_no_fault_of_a_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    family: dict[str, Any] = {"recipe": pr.fedavg(cohort=1, epochs=2, batch=4)}
    whole = OnRay.start

    def start(pool: OnRay, tasks: Any) -> Any:
        if not pool.deaths:
            for actor in pool._idle[1:]:
                ray.kill(actor)
                with contextlib.suppress(ray.exceptions.RayError):
                    while True:  # until it has gone
                        ray.get(actor.problem.remote())
        return whole(pool, tasks)

    monkeypatch.setattr(OnRay, "start", start)
    monkeypatch.setattr(actors, "DEATHS", 2)
    hurt = run(driver="ray", workers=3, **family)
    assert hurt[0]["worker_deaths"] == 1
    monkeypatch.undo()
    assert_same(run(driver="inline", **family), hurt)


@pytest.mark.slow
def test_an_actor_without_memory_is_replaced_and_changes_nothing(tmp_path: Path) -> None:
    model = Greedy(4, 3, tmp_path)
    alone = run(driver="inline", model=model)
    (tmp_path / "once").touch()
    hurt = run(driver="ray", workers=2, model=model)
    assert_same(alone, hurt)
    assert hurt[0]["worker_deaths"] == 1


@pytest.mark.slow
def test_a_visit_that_kills_every_actor_ends_the_run(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / str(i)).touch()
    with pytest.raises(RunFailed, match="3 worker processes died on the same visit"):
        run(driver="ray", workers=2, model=Dies(4, 3, tmp_path))


@pytest.mark.slow
def test_an_error_in_an_actor_is_the_error_of_the_run() -> None:
    assert_same_error("ray")


@pytest.mark.slow
def test_a_model_of_the_users_own_script_travels() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.layer(inputs)
            return outputs

    torch.manual_seed(0)
    model = Own()
    assert_same(run(driver="inline", model=model), run(driver="ray", workers=2, model=model))


def test_more_workers_than_processors_are_refused() -> None:
    with pytest.raises(UserError, match="workers=4 on a Ray cluster with 3 processors"):
        run(driver="ray", workers=4)


@pytest.mark.slow
def test_another_version_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "__version__", "0.0")
    with pytest.raises(UserError, match=r"polyrhythm 0\.0 sends visits to a machine with polyrhythm"):
        run(driver="ray", workers=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"driver": "processes", "address": "auto"}, "address='auto' with driver=processes"),
        ({"driver": "ray", "address": "auto"}, "address='auto' without workers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        made(**changes)


@pytest.mark.slow
def test_no_cluster_is_a_clear_error() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from polyrhythm.cli import main\n"
        "sys.argv = ['polyrhythm', 'run', '--driver', 'ray', '--rounds', '1']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'polyrhythm[ray]'" in done.stderr
    assert "Traceback" not in done.stderr
