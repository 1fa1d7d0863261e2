"""Easy clients first: who is scored when, who makes the next pool, and that no silence stops the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st

from polyrhythm.base.messages import Assignment, Event, Lost, Report, State
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.server_state import ServerState
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.order.base import Curriculum
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.methods.participation.critical_periods import CriticalPeriods
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.models.tasks import task
from polyrhythm.simulation.roster import OpenRoster

from .hand import loaded
from .law import law, swap
from .rolling import roll
from .world import Federation, Run, near, play, run

# What mutants wrap.
_MEASURED, _AFTER = ClientCurriculum.measured, ClientCurriculum.after_step
_INVITE, _COUNT = ClientCurriculum.invite, Pacing.count

PART = "client_curriculum"
KINDS: st.SearchStrategy[Literal["curriculum", "anti"]] = st.sampled_from(("curriculum", "anti"))
SIZES = (5, 12, 7, 9, 3, 8, 4)


def pools(story: Run) -> list[tuple[int, list[int], list[int]]]:
    """Of each pool: the version of its refill, who was measured for it, and who was then invited, in order."""
    found: list[tuple[int, list[int], list[int]]] = []
    refills = 0
    for turn in story.turns:
        measured = [a.client for a in turn.assignments if a.kind == "measure"]
        invited = [a.client for a in turn.assignments if a.kind == "train"]
        if measured:
            assert not invited
            found.append((turn.state.version, measured, []))
        elif invited:
            if turn.state.parts[PART]["refills"] > refills and not (found and not found[-1][2]):
                found.append((turn.state.version, [], []))
            refills = turn.state.parts[PART]["refills"]
            found[-1][2].extend(invited)
    return found


def losses(federation: Federation, story: Run, version: int) -> Mapping[int, float]:
    """Every client's mean loss under the model of a version, by hand."""
    engine, state = federation.engine(), story.states[version]
    module = loaded(federation, engine.layout, state).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        return {
            client: float(task("classification").loss(module(shard.inputs), shard.targets))
            for client, shard in enumerate(federation.shards())
        }


def _the_other_way_round(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    return _INVITE(replace(self, order="anti" if self.order == "curriculum" else "curriculum"), fixed, state, context)


def _never_counts(self: ClientCurriculum, fixed: Setup, state: State, what: Release) -> State:
    return {**_AFTER(self, fixed, state, what), "updates": 0}


def _the_first_verdict_stands(self: ClientCurriculum, fixed: Setup, state: State, report: Report) -> State:
    return state if report.client in state["scores"] else _MEASURED(self, fixed, state, report)


@law(
    order=KINDS,
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    cohort=st.integers(1, 4),
    a=st.sampled_from((0.3, 0.8)),
    b=st.sampled_from((0.2, 0.5, 1.0)),
    examples=12,
    broken_by={
        "the other way round": swap(ClientCurriculum, "invite", _the_other_way_round),
        "the pool never grows": swap(ClientCurriculum, "after_step", _never_counts),
        "scored once and for all": swap(ClientCurriculum, "measured", _the_first_verdict_stands),
    },
)
def test_pools_are_the_easiest_of_all_under_the_current_model(
    order: Literal["curriculum", "anti"], net: str, cohort: int, a: float, b: float
) -> None:
    federation, versions, pacing = Federation(sizes=SIZES, net=net), 8, Pacing(a=a, b=b)
    recipe = fedavg(cohort=cohort, epochs=1, batch=4, lr=0.3) | ClientCurriculum(order=order, pacing=pacing)
    story = run(recipe, federation, versions=versions)
    sign, updates, found = (1 if order == "curriculum" else -1), 0, pools(story)
    assert recipe.participation.size == cohort
    for version, measured, invited in found:
        assert measured == list(range(len(SIZES)))
        scores = losses(federation, story, version)
        size = pacing.count(len(SIZES), updates, cohort * versions)
        easiest = sorted(scores, key=lambda c: sign * scores[c])[:size]
        if found[-1][2] is not invited:
            assert len(invited) == size
        assert set(invited) <= set(easiest)
        assert len(set(invited)) == len(invited)
        updates += len(invited)
    for dispatch, assignment in story.assignments.items():
        if assignment.kind == "measure":
            report = story.reports[dispatch]
            assert (report.forward_samples, report.steps, report.update) == (SIZES[assignment.client], 0, None)
            assert near(
                torch.tensor(report.measures["loss"]),
                torch.tensor(losses(federation, story, assignment.version)[assignment.client]),
                1e-5,
            )


def _only_the_newest(self: ClientCurriculum, fixed: Setup, state: State, report: Report) -> State:
    after = _MEASURED(self, fixed, state, report)
    return {**after, "scores": {report.client: after["scores"][report.client]}}


def _only_the_known(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    after, invited = _INVITE(self, fixed, state, context)
    return after, tuple(i for i in invited if i.kind == "measure" or i.client in state["scores"])


def _asks_until_it_hears(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    after, invited = _INVITE(self, fixed, state, context)
    return {**after, "asked": False}, invited


@law(
    order=KINDS,
    deaf=st.lists(st.booleans(), min_size=1, max_size=9),
    cohort=st.integers(1, 4),
    examples=20,
    broken_by={
        "scores are forgotten": swap(ClientCurriculum, "measured", _only_the_newest),
        "the unheard are left out": swap(ClientCurriculum, "invite", _only_the_known),
        "asks again and again": swap(ClientCurriculum, "invite", _asks_until_it_hears),
    },
)
def test_who_does_not_answer_keeps_its_score_and_stops_nobody(order: Any, deaf: list[bool], cohort: int) -> None:
    def happening(assignment: Assignment, report: Report) -> Event:
        if assignment.kind == "measure" and deaf[assignment.dispatch % len(deaf)]:
            return Lost(dispatch=assignment.dispatch, reason="out of reach")
        if assignment.kind == "measure":
            heard[assignment.client] = report.measures["loss"]
        return report

    heard: dict[int, float] = {}
    recipe = fedavg(cohort=cohort, epochs=0.5, batch=4) | ClientCurriculum(order=order, pacing=Pacing(b=1.0))
    story = play(recipe, Federation(sizes=SIZES), versions=6, happening=happening)
    assert story.states[-1].version == 6
    assert story.states[-1].parts[PART]["scores"] == heard
    found = pools(story)
    for _, measured, invited in found[:-1]:
        assert sorted(measured) == list(range(len(SIZES)))
        assert sorted(invited) == list(range(len(SIZES)))


def call_of(population: int) -> InvitationContext:
    return InvitationContext(
        version=0, weights=torch.zeros(1), buffers=(), roster=OpenRoster(population, range(population))
    )


def setup(population: int, total_rounds: int, seed: int = 0) -> Setup:
    return Setup(size=1, dtype=torch.float32, population=population, total_rounds=total_rounds, seed=seed)


def _by_chance(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    return _INVITE(replace(self, order="random"), fixed, state, context)


def _unknown_is_zero(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    known = {c: state["scores"].get(c, 0.0) for c in context.roster.all()}
    return _INVITE(self, fixed, {**state, "scores": known}, context)


@law(
    order=KINDS,
    scores=st.lists(st.one_of(st.none(), st.floats(0.1, 10)), min_size=1, max_size=12),
    share=st.integers(1, 100).map(lambda k: k / 100),
    examples=30,
    broken_by={
        "unknown is easy": swap(ClientCurriculum, "invite", _unknown_is_zero),
        "by chance": swap(ClientCurriculum, "invite", _by_chance),
    },
)
def test_who_was_never_scored_counts_as_hardest(order: Any, scores: list[float | None], share: float) -> None:
    policy, population = (
        ClientCurriculum(cohort=99, order=order, scores="reported", pacing=Pacing(b=share)),
        len(scores),
    )
    known = {c: score for c, score in enumerate(scores) if score is not None}
    state = {**policy.server_start(setup(population, 5)), "scores": known}
    after, invited = policy.invite(setup(population, 5), state, call_of(population))
    hardness = sorted((known.get(c, math.inf) for c in range(population)), reverse=order == "anti")
    assert sorted(known.get(i.client, math.inf) for i in invited) == sorted(hardness[: len(invited)])
    assert len(invited) == Pacing(b=share).count(population, 0, 5)
    assert after["pool"] == []


def _some_twice(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    after, invited = _INVITE(self, fixed, state, context)
    return after, (*invited[:-1], invited[0])


def _one_order(self: ClientCurriculum, fixed: Setup, state: State, context: InvitationContext) -> Any:
    return _INVITE(self, fixed, {**state, "refills": 0}, context)


@law(
    population=st.integers(1, 15),
    cohort=st.integers(1, 6),
    seed=st.integers(0, 9),
    examples=30,
    broken_by={
        "some twice": swap(ClientCurriculum, "invite", _some_twice),
        "every pool the same": swap(ClientCurriculum, "invite", _one_order),
        "a smaller pool": swap(
            Pacing, "count", lambda self, total, step, steps: max(1, _COUNT(self, total, step, steps) - 1)
        ),
    },
)
def test_random_pools_of_everybody_are_sweeps(population: int, cohort: int, seed: int) -> None:
    policy, fixed = ClientCurriculum(cohort=cohort, order="random", pacing=Pacing(b=1.0)), setup(population, 9, seed)
    state, sweeps = policy.server_start(fixed), []
    for _ in range(3):
        order: list[int] = []
        while len(order) < population:
            state, invited = policy.invite(fixed, state, call_of(population))
            assert {i.kind for i in invited} == {"train"}
            assert len(invited) == min(cohort, population - len(order))
            order += [i.client for i in invited]
        assert sorted(order) == list(range(population))
        sweeps.append(order)
    if population > 8:
        assert sweeps[0] != sweeps[1] != sweeps[2]


COMBINED: tuple[Callable[[Recipe], Recipe], ...] = (
    lambda recipe: recipe,
    lambda recipe: recipe | Buffer(size=2),
    lambda recipe: recipe | CriticalPeriods(delta=-1e9),
    lambda recipe: recipe | CriticalPeriods(delta=1e9) | Buffer(size=1),
    lambda recipe: recipe | SampledStaleness(max_delay=3) | Buffer(size=2),
    lambda recipe: recipe | Curriculum(least=2, score="both"),
)


def _measures_old_models(
    self: SampledStaleness, fixed: Setup, state: State, context: InvitationContext, invited: Any
) -> Any:
    state, invited = _DELAYED(self, fixed, state, context, invited)
    return state, tuple(replace(i, version=max(0, context.version - 1)) if i.kind == "measure" else i for i in invited)


_DELAYED = SampledStaleness.invited


@law(
    combine=st.sampled_from(COMBINED),
    scores=st.sampled_from(("measured", "reported")),
    order=KINDS,
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    loses=st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates]),
    examples=40,
    broken_by={
        "asks again and again": swap(ClientCurriculum, "invite", _asks_until_it_hears),
        "old models are measured": swap(SampledStaleness, "invited", _measures_old_models),
        "who is under way takes no place": swap(
            InvitationContext, "places", lambda self, size: size if self.count is None else self.count
        ),
    },
)
def test_it_goes_on_under_every_release_and_other_policies(
    combine: Callable[[Recipe], Recipe], scores: Any, order: Any, next_one: Sequence[int], loses: Sequence[bool]
) -> None:
    common = Common(cohort=3, epochs=0.5, batch=4)
    recipe = combine(fedavg(**common) | ClientCurriculum(scores=scores, order=order, pacing=Pacing(b=0.3)))
    story = roll(recipe, Federation(sizes=SIZES), versions=6, next_one=next_one, loses=loses)
    assert story.turns[-1].state.version == 6
    size = 3
    for turn in story.turns:
        if not any(isinstance(part, CriticalPeriods) for part in recipe.parts()):
            assert sum(flight.kind == "train" for flight in turn.state.flights.values()) <= size
        busy = [flight.client for flight in turn.state.flights.values()]
        assert len(busy) == len(set(busy))
        measured = [a for a in turn.assignments if a.kind == "measure"]
        assert all(a.version == turn.state.version for a in measured)
        assert not measured or scores == "measured"
        assert not measured or len(measured) == len(turn.assignments)


def _holds_updates_up(self: Readiness, state: ServerState, event: Event) -> bool:
    return not state.measuring and _IS_READY(self, state, event)


_IS_READY = Readiness.ready


@law(
    wrap=st.sampled_from((lambda recipe: recipe, lambda recipe: recipe | SampledStaleness(max_delay=2))),
    order=KINDS,
    cohort=st.integers(2, 5),
    size=st.integers(1, 3),
    next_one=st.lists(st.integers(0, 9), min_size=2, max_size=8),
    examples=40,
    broken_by={
        "updates wait for measurements": swap(Readiness, "ready", _holds_updates_up),
        "any model ever sent is a recent one": swap(
            SampledStaleness,
            "invited",
            lambda self, *given: _DELAYED(replace(self, max_delay=9), *given),
        ),
    },
)
def test_a_buffer_steps_on_time_while_clients_are_measured(
    wrap: Callable[[Recipe], Recipe], order: Any, cohort: int, size: int, next_one: Sequence[int]
) -> None:
    common = Common(cohort=cohort, epochs=0.5, batch=4)
    recipe = wrap(fedavg(**common) | ClientCurriculum(order=order, pacing=Pacing(b=0.9)) | Buffer(size=size))
    story = roll(recipe, Federation(sizes=SIZES), versions=8, next_one=next_one)
    assert story.turns[-1].state.version == 8
    for before, turn in zip(story.turns, story.turns[1:], strict=False):
        assert all(turn.state.version - a.version < 2 for a in turn.assignments)
        if any(flight.kind == "measure" for flight in before.state.flights.values()) and turn.assignments:
            assert not any(flight.kind == "measure" for flight in turn.state.flights.values())
        if turn.released is not None and turn.released.release is not None:
            waited = len(turn.released.release.reports)
            assert waited == size or (waited < size and len(before.state.flights) == 1)
