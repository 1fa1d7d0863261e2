"""Small runs of every kind of visit, and whether two of them are the same: for tests of those who carry visits out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import polyrhythm as pr
from polyrhythm.core.client_state import ClientState
from polyrhythm.data import Collection
from polyrhythm.engines.selection import Chosen
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.participation.critical_periods import FisherTrace
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.simulation.workers import choosing as crews
from polyrhythm.simulation.workers.drivers import Asked
from polyrhythm.simulation.workers.executors import Done, VisitFuture, VisitTask
from small import Explodes, Log, collection, dealt, prepared
from worker_models import Fussy, Halves, Hazy

TIERS = pr.Fleet(devices=pr.fleet.Tiers())
SIZES = [7, 15, 4, 11, 9, 14]
COMMON: dict[str, Any] = {"cohort": 4, "epochs": 2, "batch": 4}


def made(**changes: Any) -> Prepared:
    """Six unequal clients."""
    values: dict[str, Any] = {"federation": dealt(collection(), SIZES), "recipe": pr.fedavg(**COMMON), "rounds": 4}
    return prepared(**values | changes)


def halves() -> Collection:
    """The blobs, with the features of a sample in two arrays."""
    whole = collection()
    (train, labels), (test, of_test) = (part.batch(torch.arange(len(part))) for part in (whole.train, whole.test))
    inputs, tests = ({"left": part[:, :1], "right": part[:, 1:]} for part in (train, test))
    return pr.data.arrays(inputs, labels, test=(tests, of_test))


def of_halves() -> dict[str, Any]:
    """A model of two arrays, and clients who hold such samples."""
    data = halves()
    return {"federation": dealt(data, SIZES, structure=data.structure), "model": Halves(4, 3)}


FISHER = pr.parts.critical_periods(act=False, detector=FisherTrace(), watch=(FisherTrace(labels="model"),))
FAMILIES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "scaffold": {"recipe": pr.scaffold(**COMMON)},
    "several arrays": of_halves(),
    "feddyn with momentum that is kept": {"recipe": pr.feddyn(**COMMON, momentum=0.9, keep_state=True)},
    "adam that is kept": {"recipe": pr.fedavg(**COMMON, optimiser="adam", keep_state=True)},
    "ccfl": {"recipe": pr.ccfl(cohort=4, steps=3, batch=4), "rounds": 6},
    "moon": {"recipe": pr.moon(**COMMON, layer="logits"), "model": "mlp"},
    "alt": {"recipe": pr.alt(**COMMON, representation="logits", a=0.999, b=0.0), "model": "mlp"},
    "curriculum": {"recipe": pr.curriculum_fl(**COMMON, score="local")},
    "curriculum of clients": {"recipe": pr.fedavg(**COMMON) | pr.parts.client_curriculum()},
    "critical periods": {"recipe": pr.fedcl(**COMMON)},
    "compressed": {"recipe": pr.fedavg(**COMMON) | pr.parts.compress_top_k(share=0.3)},
    "partial work": {"recipe": pr.fedavg(**COMMON) | pr.parts.partial_work(seconds=0.05), "fleet": TIERS},
    "buffered and rolling": {
        "recipe": pr.fedavg(**COMMON) | pr.parts.rolling(concurrency=4) | pr.parts.buffer(size=2),
        "fleet": TIERS,
        "rounds": 8,
    },
    "nobody exchanges anything": {"recipe": pr.local_only(cohort=4, batch=4)},
    "a fussy model": {"model": Fussy(4, 3), "recipe": pr.fedavg(cohort=4, batch=5) | pr.parts.server_adam()},
    "a model that draws whenever it is looked at": {
        "model": Hazy(4, 3),
        "recipe": pr.curriculum_fl(**COMMON, score="both") | FISHER,
    },
}

ROLLS = pr.parts.rolling(concurrency=4)
HARD = TIERS | pr.fleet.Faults(dropout=0.2, crash=0.1, downtime=0.05, slow=0.2, slowdown=3.0, lost=0.1)
ROLLING: dict[str, dict[str, Any]] = {
    "fedbuff": {"recipe": pr.fedbuff(concurrency=4, buffer=2, epochs=2, batch=4)},
    "fedasync": {"recipe": pr.fedasync(concurrency=4, epochs=2, batch=4), "rounds": 12},
    "cc_fedadam": {"recipe": pr.cc_fedadam(clock="event", cohort=4, batch=4)},
    "afl": {"recipe": pr.afl(concurrency=4, buffer=2, batch=4)},
    "afl for silos": {"recipe": pr.afl(variant="cs", concurrency=4, buffer=2, batch=4)},
    "afl of whoever comes": {
        "recipe": pr.afl(participation="on_arrival", concurrency=4, buffer=2, batch=4),
        "fleet": TIERS | pr.fleet.Poisson(rate=100.0),
    },
    "mifa": {"recipe": pr.mifa(cohort=4, batch=4) | ROLLS | pr.parts.buffer(size=2)},
    "scaffold": {"recipe": pr.scaffold(**COMMON) | ROLLS | pr.parts.buffer(size=2)},
    "feddyn with momentum": {"recipe": pr.feddyn(**COMMON, momentum=0.9) | ROLLS | pr.parts.buffer(size=3)},
    "ccfl": {"recipe": pr.ccfl(cohort=4, steps=3, batch=4) | ROLLS | pr.parts.buffer(size=2)},
    "quantised": {"recipe": pr.fedbuff(concurrency=4, buffer=2, **{"batch": 4}) | pr.parts.compress_int8()},
    "fisher traces": {"recipe": pr.fedavg(**COMMON) | ROLLS | pr.parts.buffer(size=2) | FISHER},
    "batches left over": {"recipe": pr.fedbuff(concurrency=4, buffer=2, batch=4, drop_last=True, steps=5)},
    "partial work": {
        "recipe": pr.fedbuff(concurrency=4, buffer=2, epochs=4, batch=4) | pr.parts.partial_work(seconds=0.05)
    },
    "a fussy model": {"recipe": pr.fedbuff(concurrency=4, buffer=2, epochs=2, batch=5), "model": Fussy(4, 3)},
    "visits that go wrong": {"recipe": pr.fedbuff(concurrency=4, buffer=2, epochs=2, batch=4), "fleet": HARD},
    "clients that come and go": {
        "recipe": pr.scaffold(**COMMON) | ROLLS | pr.parts.buffer(size=2) | pr.parts.time_out(seconds=0.5),
        "fleet": HARD | pr.fleet.Markov(),
    },
    "rounds whose stragglers are late": {
        "recipe": pr.fedavg(**COMMON) | pr.parts.over_select(factor=1.5),
        "fleet": HARD,
    },
    "rounds with a deadline": {"recipe": pr.scaffold(**COMMON) | pr.parts.deadline(seconds=0.1), "fleet": HARD},
}
"""Whatever is under way from one version to the next, and can be foreseen."""
WAITING: dict[str, dict[str, Any]] = {
    "alt": {"recipe": FAMILIES["alt"]["recipe"] | ROLLS | pr.parts.buffer(size=2), "model": "mlp"},
    "moon": {"recipe": FAMILIES["moon"]["recipe"] | ROLLS | pr.parts.buffer(size=2), "model": "mlp"},
    "curriculum": {"recipe": FAMILIES["curriculum"]["recipe"] | ROLLS | pr.parts.buffer(size=2)},
    "sparse": {"recipe": FAMILIES["compressed"]["recipe"] | ROLLS | pr.parts.buffer(size=2)},
    "reports that are spoiled": {
        "recipe": pr.fedbuff(concurrency=4, buffer=2, batch=4),
        "fleet": TIERS | pr.fleet.Faults(inflate=0.1, malformed=0.1, duplicate=0.2, stray=0.2),
    },
}
"""What cannot be foreseen, and is waited for."""
for _family in (*ROLLING.values(), *WAITING.values()):
    _family.setdefault("fleet", TIERS)
    _family.setdefault("rounds", 6)


def without_wall(record: VersionRecord | VisitRecord) -> object:
    return replace(record, wall=0.0) if isinstance(record, VersionRecord) else record


def told(log: Log) -> list[object]:
    """All that a run tells, but for how long it really took."""
    return [without_wall(record) for record in (*log.visits, *log.versions)]


def assert_same(one: tuple[dict[str, Any], Log], other: tuple[dict[str, Any], Log]) -> None:
    timed = ("wall_seconds", "driver", "workers", "worker_deaths")
    first, second = ({k: v for k, v in summary.items() if k not in timed} for summary, _ in (one, other))
    assert first == second
    assert told(one[1]) == told(other[1])
    for a, b in zip(one[1].states, other[1].states, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def run(**changes: Any) -> tuple[dict[str, Any], Log]:
    log = Log()
    return carry_out(made(**changes), [log]), log


def assert_same_error(driver: Asked) -> None:
    """What goes wrong in a visit is told in the same words as in line, with where it happened there."""
    mark = float(collection().train.batch(torch.tensor([30]))[0][0, 0])
    words = []
    for who in ("inline", driver):
        with pytest.raises(ValueError, match="a sensor is broken") as caught:
            run(driver=who, model=Explodes(4, 3, mark, "raise"))
        words.append((str(caught.value), caught.value.__notes__))
    assert words[0] == words[1]
    assert "in forward" in str(caught.value.__cause__)  # the worker's traceback


class Letting:
    """A torch engine that claims to let go of the lock."""

    releases_lock = True

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine

    def twin(self) -> Letting:
        make, arguments = self._engine.__reduce__()
        return Letting(make(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def letting(**changes: Any) -> Prepared:
    """The experiment with three threads, on such an engine."""
    of = made(**changes)
    chosen = Chosen(engine=Letting(of.chosen.engine), kind="torch")  # type: ignore[arg-type]
    crew = crews.ExecutionPlan(driver="threads", workers=3, chosen=False)
    return replace(of, chosen=chosen, crew=crew)


# Mutants of those who carry visits out.


def mixed_up(patch: pytest.MonkeyPatch, pool: type[Any]) -> None:
    """A client goes on from what became of another one."""
    whole, before = pool.done, list[Done]()

    def mixed(self: Any, future: VisitFuture) -> Done:
        before.append(whole(self, future))
        return before[max(len(before) - 2, 0)][0], before[-1][1]

    patch.setattr(pool, "done", mixed)


def forgotten(patch: pytest.MonkeyPatch, pool: type[Any]) -> None:
    """A visit goes on from nothing."""
    whole = pool.start
    patch.setattr(pool, "start", lambda self, tasks: whole(self, [replace(t, state=ClientState()) for t in tasks]))


def old_weights(patch: pytest.MonkeyPatch, pool: type[Any]) -> None:
    """All visits start from the weights that came first."""
    whole, first = pool.start, list[torch.Tensor]()

    def start(self: Any, tasks: Sequence[VisitTask]) -> Any:
        first.extend(task.assignment.weights for task in tasks)
        old = [replace(task.assignment, weights=first[0]) for task in tasks]
        return whole(self, [replace(task, assignment=a) for task, a in zip(tasks, old, strict=True)])

    patch.setattr(pool, "start", start)


MUTANTS = (mixed_up, forgotten, old_weights)


def first_only(mutants: Iterable[Any]) -> list[Any]:
    """Parameters of a test, of which the default suite tries the first one, as it does of laws."""
    return [pytest.param(mutant, marks=pytest.mark.slow if number else ()) for number, mutant in enumerate(mutants)]
