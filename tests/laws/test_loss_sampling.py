"""The power of choice: d = cohort is the draw by samples, d = population the largest losses of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st

from polyrhythm.base.messages import Report, State
from polyrhythm.base.streams import stream
from polyrhythm.core import client as core
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation.base import InvitationContext, Uniform
from polyrhythm.methods.participation.critical_periods import CriticalPeriods
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, OverSelect
from polyrhythm.models.tasks import task
from polyrhythm.simulation.roster import OpenRoster

from .hand import loaded
from .law import Mutation, law, swap
from .rolling import roll
from .selecting import Present, call, most, report, setup, told, who
from .world import Federation, Run, run

Variant = Literal["pow", "cpow", "rpow"]
VARIANTS: st.SearchStrategy[Variant] = st.sampled_from(("pow", "cpow", "rpow"))
SIZES = (5, 12, 7, 9, 3, 8, 4)

# What mutants wrap.
_INVITE, _MEASURED = LossSampling.invite, LossSampling.measured


def _uniformly(self: OpenRoster, count: int, generator: np.random.Generator, exclude: Any) -> Any:
    return self.draw(count, generator, exclude)


def _one_more(self: LossSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(replace(self, d=self.size + 1), fixed, state, asked)


def _the_same_every_time(self: InvitationContext, fixed: Setup, *names: Any) -> Any:
    return stream(fixed.seed, "cohort", *names)


def _busy_too(self: LossSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, state, replace(asked, busy=frozenset()))


@law(
    variant=VARIANTS,
    held=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    cohort=st.integers(1, 12),
    busy=st.frozensets(st.integers(0, 11), max_size=4),
    away=st.frozensets(st.integers(0, 11), max_size=4),
    occasion=st.sampled_from(((), ("dispatch", 7))),
    version=st.integers(0, 9),
    examples=60,
    broken_by={
        "uniform candidates": swap(OpenRoster, "draw_by_samples", _uniformly),
        "one candidate too many": swap(LossSampling, "invite", _one_more),
        "every version the same": swap(InvitationContext, "stream", _the_same_every_time),
        "busy clients are invited": swap(LossSampling, "invite", _busy_too),
    },
)
def test_as_many_candidates_as_places_are_the_draw_by_samples(
    variant: Variant,
    held: list[int],
    cohort: int,
    busy: frozenset[int],
    away: frozenset[int],
    occasion: Any,
    version: int,
) -> None:
    policy, fixed, roster = (
        LossSampling(cohort=cohort, d=cohort, variant=variant),
        setup(len(held)),
        Present(held, away),
    )
    asked = call(roster, version, busy=busy, occasion=occasion)
    _, invited = policy.invite(fixed, policy.server_start(fixed), asked)
    named = stream(0, "cohort", *(occasion or (version,)), "candidates", 0)
    free = [c for c in range(len(held)) if c not in busy | away]
    expected = []
    while len(expected) < min(cohort, len(free)):  # drawn by hand: one after the other, by what is left
        point = float(named.random()) * sum(held)
        client = next(c for c in range(len(held)) if sum(held[: c + 1]) > point)
        if client in free and client not in expected:
            expected.append(client)
        if len(free) - len(expected) < len(held) / 2:
            break  # where much is passed over, the rest is a race, which `test_streams` looks at
    assert who(invited)[: len(expected)] == expected
    assert sorted(who(invited)) == sorted(set(who(invited)) & set(free))
    assert len(invited) == min(cohort, len(free))


def losses(federation: Federation, story: Run, version: int) -> Mapping[int, float]:
    """Every client's mean loss under the model of a version, by hand."""
    engine, state = federation.engine(), story.states[version]
    module = loaded(federation, engine.layout, state).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        return {
            client: float(task("classification").loss(module(shard.inputs), shard.targets))
            for client, shard in enumerate(federation.shards())
        }


def _as_if(loss: Callable[[Report], float]) -> Mutation:
    """Measured is another loss than the client reports."""
    return swap(
        LossSampling,
        "measured",
        lambda self, fixed, state, heard: _MEASURED(self, fixed, state, replace(heard, measures={"loss": loss(heard)})),
    )


def _first_verdicts_stand(self: LossSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    after, invited = _INVITE(self, fixed, state, asked)
    return {**after, "losses": {**after["losses"], **state["losses"]}}, invited


def _only_once(self: LossSampling, fixed: Setup, state: State, heard: Report) -> State:
    return state if heard.client in state["losses"] else _MEASURED(self, fixed, state, heard)


@law(
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    cohort=st.integers(1, 4),
    examples=12,
    broken_by={
        "the smallest losses": _as_if(lambda heard: -heard.measures["loss"]),
        "as drawn": _as_if(lambda heard: 1.0),
        "measured once and for all": lambda patch: [
            patch.setattr(LossSampling, "invite", _first_verdicts_stand),
            patch.setattr(LossSampling, "measured", _only_once),
        ],
    },
)
def test_with_everybody_a_candidate_the_largest_losses_are_invited(net: str, cohort: int) -> None:
    federation = Federation(sizes=SIZES, net=net)
    recipe = fedavg(cohort=cohort, epochs=1, batch=4, lr=0.3) | LossSampling(d=len(SIZES))
    story = run(recipe, federation, versions=5)
    for version in range(5):
        scores = losses(federation, story, version)
        at = [a for a in story.assignments.values() if a.version == version]
        assert sorted(a.client for a in at if a.kind == "measure") == list(range(len(SIZES)))
        assert [a.client for a in at if a.kind == "train"] == sorted(scores, key=lambda c: -scores[c])[:cohort]


def _all_of_them(self: Any, *rest: Any) -> Any:
    return np.arange(10_000)


def _by_visit(recipe: Recipe, assignment: Any, data: Any, engine: Any, plan: VisitPlan) -> Report:
    visit = replace(plan.visit, seed=plan.visit.seed + assignment.dispatch)
    return _MEASURE(recipe, assignment, data, engine, replace(plan, visit=visit))


def _on_all(recipe: Recipe, assignment: Any, data: Any, engine: Any, plan: VisitPlan) -> Report:
    return _MEASURE(recipe, assignment, data, engine, replace(plan, forward_samples=len(data)))


_MEASURE = core.measured


@law(
    batch=st.integers(1, 12),
    seed=st.integers(0, 3),
    examples=12,
    broken_by={
        "on all samples": swap(core, "measured", _on_all),
        "another draw for every assignment": swap(core, "measured", _by_visit),
    },
)
def test_cpow_measures_on_a_few_samples_drawn_by_client_and_version(batch: int, seed: int) -> None:
    federation = Federation(sizes=SIZES, seed=seed)
    recipe = fedavg(cohort=2, epochs=1, batch=4) | LossSampling(d=5, variant="cpow", batch=batch)
    story, shards = run(recipe, federation, versions=3), federation.shards()
    measured = [d for d, a in story.assignments.items() if a.kind == "measure"]
    assert len(measured) == 15
    for dispatch in measured:
        assignment, heard = story.assignments[dispatch], story.reports[dispatch]
        client, held = assignment.client, SIZES[assignment.client]
        named = stream(seed, "sample", "measure", client, assignment.version)
        some = named.permutation(held)[:batch] if batch < held else np.arange(held)
        module = loaded(federation, federation.engine().layout, story.states[assignment.version]).eval()  # type: ignore[arg-type]
        with torch.no_grad():
            inputs, targets = shards[client].batch(some, None)
            loss = float(task("classification").loss(module(inputs), targets))
        assert math.isclose(heard.measures["loss"], loss, rel_tol=1e-5)
        assert (heard.forward_samples, heard.num_samples) == (min(batch, held), held)


def _unheard_last(self: LossSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    unheard = dict.fromkeys(asked.roster.all(), 0.0)
    return _INVITE(self, fixed, {**state, "losses": {**unheard, **state["losses"]}}, asked)


def _any_report(self: LossSampling, fixed: Setup, state: State, heard: Report) -> State:
    return _ACCEPT(self, fixed, state, replace(heard, substitute=""))


_ACCEPT = LossSampling.accept


@law(
    known=st.dictionaries(st.integers(0, 7), st.integers(1, 40), max_size=8),
    stale=st.dictionaries(st.integers(0, 7), st.integers(41, 90), max_size=8),
    cohort=st.integers(1, 7),
    examples=40,
    broken_by={
        "unheard clients last": swap(LossSampling, "invite", _unheard_last),
        "losses of visits that skipped": swap(LossSampling, "accept", _any_report),
    },
)
def test_rpow_knows_the_last_fresh_loss_and_takes_the_unheard_first(
    known: dict[int, int], stale: dict[int, int], cohort: int
) -> None:
    policy, fixed = LossSampling(cohort=cohort, d=8, variant="rpow"), setup(8)
    state = told(policy, policy.server_start(fixed), 0, [report(c, loss=99.0) for c in known])
    state = told(policy, state, 1, [report(c, 1, loss=float(loss)) for c, loss in known.items()])
    state = told(policy, state, 2, [report(c, 2, loss=float(x), substitute="movement") for c, x in stale.items()])
    _, invited = policy.invite(fixed, state, call(Present([3] * 8), 3))
    assert who(invited, "measure") == []
    values = [known.get(c, math.inf) for c in who(invited)]
    assert values == sorted((known.get(c, math.inf) for c in range(8)), reverse=True)[:cohort]


@law(
    scores=st.permutations([0.1, 0.5, 1.0, 1.5, 2.0, 3.0]),
    renamed=st.permutations(list(range(6))),
    cohort=st.integers(1, 5),
    away=st.frozensets(st.integers(0, 5), max_size=2),
    examples=30,
    broken_by={
        "as drawn": _as_if(lambda heard: 1.0),
        "by number": _as_if(lambda heard: -heard.client),
    },
)
def test_other_numbers_for_the_clients_are_other_numbers_for_the_chosen(
    scores: list[float], renamed: list[int], cohort: int, away: frozenset[int]
) -> None:
    def chosen(names: Sequence[int]) -> list[int]:
        policy, fixed = LossSampling(cohort=cohort, d=6), setup(6)
        state, asked = policy.invite(fixed, policy.server_start(fixed), call(Present([4] * 6)))
        assert sorted(who(asked, "measure")) == list(range(6))
        for client, loss in enumerate(scores):
            heard = report(names[client], kind="measure", measures={"loss": loss})
            state = policy.measured(fixed, state, heard)
        return who(policy.invite(fixed, state, call(Present([4] * 6, [names[c] for c in away])))[1])

    assert [renamed[c] for c in chosen(range(6))] == chosen(renamed)


COMBINED: tuple[Callable[[Recipe], Recipe], ...] = (
    lambda recipe: recipe,
    lambda recipe: recipe | Buffer(size=2),
    lambda recipe: recipe | Rolling() | Buffer(size=2),
    lambda recipe: recipe | Rolling() | SampledStaleness(max_delay=3) | Buffer(size=2),
    lambda recipe: recipe | CriticalPeriods(delta=1e9) | Buffer(size=1),
    lambda recipe: recipe | OverSelect(factor=1.4),
)


def _never_measures(self: LossSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return Uniform(cohort=self.size).invite(fixed, state, asked)


# Not every third answer: under rolling, two measurements and a visit take turns, and all training would be lost.
FATES = st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates] + [False] * (len(fates) % 3 == 2))


@law(
    combine=st.sampled_from(COMBINED),
    variant=VARIANTS,
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    loses=FATES,
    examples=40,
    broken_by={
        "who is under way takes no place": swap(
            InvitationContext, "places", lambda self, size: size if self.count is None else self.count
        ),
        "nobody is measured": swap(LossSampling, "invite", _never_measures),
    },
)
def test_it_goes_on_under_every_release_and_other_policies(
    combine: Callable[[Recipe], Recipe], variant: Variant, next_one: Sequence[int], loses: Sequence[bool]
) -> None:
    recipe = combine(fedavg(**Common(cohort=3, epochs=0.5, batch=4)) | LossSampling(variant=variant, batch=2))
    story = roll(recipe, Federation(sizes=SIZES), versions=5, next_one=next_one, loses=loses)
    assert story.turns[-1].state.version == 5
    for turn in story.turns:
        assert turn.state.training <= most(recipe)
        busy = [flight.client for flight in turn.state.flights.values()]
        assert len(busy) == len(set(busy))
    measured = sum(a.kind == "measure" for a in story.assignments.values())
    assert (measured > 0) == (variant != "rpow")
