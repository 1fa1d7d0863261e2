"""Answers of nodes, spoiled by the thousand over the real wire: the server lives, and nothing that is wrong counts."""

from __future__ import annotations

import collections
import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from torch import nn

import polyrhythm as pr
from mutations import Mutator, assignment_in, same
from polyrhythm.base.vectors import spans_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.wire import Parcel
from polyrhythm.experiments.prepared import prepare
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 6
SHARE = 0.6
"""Of the answers that are spoiled."""
MEMORY = 400
"""MB by which the process may grow."""
RECIPES: dict[str, Callable[[], pr.Recipe]] = {
    "scaffold": lambda: pr.scaffold(cohort=3, epochs=1, batch=5),
    "compressed": lambda: pr.fedavg(cohort=3, epochs=1, batch=5) | pr.parts.compress_int8(),
    "measured": lambda: pr.power_of_choice(cohort=2, batch=5),
    "skipping": lambda: pr.ccfl(cohort=3, epochs=1, batch=5, storage="mixed"),
    "parts": lambda: pr.scaffold(cohort=3, epochs=1, batch=5) | pr.parts.width_prefix(ratio=(0.5, 0.25)),
}


def narrow(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 6), nn.ReLU(), nn.Linear(6, outputs))


MODELS: dict[str, Any] = {"parts": narrow}


def experiment(name: str, rounds: int) -> pr.Experiment:
    return pr.Experiment(
        federation=federation(clients=CLIENTS),
        model=MODELS.get(name, "logistic"),
        recipe=RECIPES[name](),
        rounds=rounds,
        evaluation=pr.Evaluation(every=1000),
    )


class Spoilt:
    """What becomes of the answer to a message; of those to visits alone."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Parcel]] = []

    def get(self, number: int, default: Any) -> Any:
        value = json.loads(self.sent[number][1].text)["value"]
        if "Order" not in value:
            return default
        return self.of(assignment_in(value["Order"])[0]) or default

    def of(self, dispatch: int) -> Callable[[Parcel], Parcel] | None:
        raise NotImplementedError


@final
class Spoiling(Spoilt):
    """Spoils some answers, until there are enough; remembers what was done, what was right and what was sent."""

    def __init__(self, mutator: Mutator, most: int) -> None:
        super().__init__()
        self.mutator, self.most = mutator, most
        self.done: dict[int, tuple[str, Parcel, Parcel]] = {}

    def of(self, dispatch: int) -> Callable[[Parcel], Parcel] | None:
        def spoiled(parcel: Parcel) -> Parcel:
            how, made = self.mutator(parcel)
            self.done[dispatch] = how, parcel, made
            return made

        return spoiled if len(self.done) < self.most and self.mutator.draws.random() < SHARE else None


@final
class Failing(Spoilt):
    """Fails in these visits."""

    def __init__(self, lost: set[int]) -> None:
        super().__init__()
        self.lost = lost

    def of(self, dispatch: int) -> Callable[[Parcel], Parcel] | None:
        def fails(parcel: Parcel) -> Parcel:
            raise ValueError("the node has failed")

        return fails if dispatch in self.lost else None


def served(folder: Path, name: str, rounds: int, spoilt: Spoilt) -> dict[str, Any]:
    clock = JumpingClock()
    line = PretendTransport(
        clock, nodes_of(lambda: experiment(name, rounds), folder / "nodes", CLIENTS, clock=clock.now), spoilt=spoilt
    )  # type: ignore[arg-type]
    spoilt.sent = line.sent
    summary = serve(
        experiment(name, rounds), line, Serving(out=folder / "runs", wait=20.0), clock=clock, tell=lambda text: None
    )
    assert (summary["status"], summary["rounds"]) == ("finished", rounds)
    # No visit was waited for whose answer had come.
    assert clock.time - 1000.0 < 3.0 * rounds + 50.0
    return {**summary, "run": pr.Run.open(summary["run_id"], folder / "runs")}


def fuzzed(folder: Path, name: str, rounds: int, most: int, seed: int) -> collections.Counter[str]:
    """Spoils so many answers of a federation; gives how many of them were refused, by reason, or harmless."""
    draws = np.random.Generator(np.random.PCG64(seed))
    spoiling = Spoiling(Mutator(draws, spans_of(prepare(experiment(name, 1)).chosen.engine.layout)), most)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = served(folder / "spoiled", name, rounds, spoiling)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024 * MEMORY
    visits = done["run"].visits
    tally, lost = collections.Counter[str](), set[int]()
    for dispatch, (how, right, spoiled) in spoiling.done.items():
        row = visits.loc[dispatch]
        if row["status"] in ("lost", "dropped"):
            assert row["reason"], how
            assert row["bytes_down"] > 0
            lost.add(dispatch)
            tally[kind_of(row["reason"])] += 1
        else:
            assert same(right, spoiled), f"{how} was taken: {spoiled.text[:2000]}"
            tally["harmless: exactly what was right"] += 1
    # Whoever was honest counts.
    assert set(visits[~visits.index.isin(spoiling.done)]["status"]) <= {"trained", "skipped", "measured"}
    reference = served(folder / "lost", name, rounds, Failing(lost))
    assert reference["digest"] == done["digest"]
    assert reference["lost_visits"] == len(lost)
    return tally


def kind_of(reason: str) -> str:
    """A reason without what is of that answer alone."""
    first = re.sub(r"'[^']*'|\"[^\"]*\"|[-\d.,e+]*\d[-\d.,e+]*", "…", reason)
    return next((words for start, words in KINDS.items() if re.match(start, first)), first[:60])


KINDS = {
    r"it has refused|it has sent a \w+, where a A": "another kind of message",
    r"it has sent a .* with.*where a message": "of another version, or a class that nobody knows",
    r"it has sent a (message|report) that was damaged": "a checksum that does not fit",
    r"it has sent (a message that cannot|no message|…, which is)": "no JSON, or no message",
    r"it has sent a (message|text)": "names twice, unknown or left out; a text that is too long",
    r"it has sent (fewer|more a|(a )?tensor|arrays|the same|an array|… numbers|a place|a \w+ code)": (
        "other tensors than were announced"
    ),
    r"it has sent .* of a (Report|Answer) (is|holds)|it has sent what …": "a field of another type, or far too large",
    r"it has sent a report (of (the run|dispatch|client|visit|version|kind)|from)": "of another visit, run or recipe",
    r"it has sent what does not fit": "an update of another shape or dtype",
    r"it has sent an update whose|not a finite": "an update that is no number, or endless",
    r"it has sent (a report|an update packed)": "numbers that cannot be",
    r"it has sent (measures|a measure|no measure)": "measures that nobody asked for, missing, or no numbers",
    r"it has sent (more|an update|a \w+ instead|training|what belongs|idle|… idle|buffers)": "more than was asked",
    r"the change of its control variate": "a control variate's change that is none",
}


@pytest.mark.parametrize("name", RECIPES)
def test_spoiled_answers_are_lost_visits_and_nothing_else(tmp_path: Path, name: str) -> None:
    tally = fuzzed(tmp_path, name, rounds=35, most=50, seed=1)
    assert sum(tally.values()) >= 40
    assert len(tally) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_ten_thousand_spoiled_answers(tmp_path: Path, name: str) -> None:
    tally = fuzzed(tmp_path, name, rounds=1600, most=2500, seed=10)
    assert sum(tally.values()) == 2500
    print("", *(f"{count:,} {words}" for words, count in tally.most_common()), sep="\n")
