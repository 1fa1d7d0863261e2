"""The server's books: what arrives wrong, late, twice or not at all changes nothing but itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.messages import Arrived, Assignment, Event, Facts, Fault, Lost, Report, Timer
from polyrhythm.core import server, validation, versions
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.core.versions import Versions
from polyrhythm.methods.correction import ControlVariates, ModelContrast, VarianceReduction
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam, Sgd
from polyrhythm.methods.together import Releasing
from polyrhythm.methods.weighing import Sharing
from polyrhythm.simulation import simulator
from polyrhythm.simulation.simulator import InlineDriver
from polyrhythm.simulation.workers.executors import Clients, Done, VisitTask

from .law import Mutation, law, swap
from .mutants import FORGETS_WHAT_IT_ACCEPTS
from .trials import Misfortune, Trial, arrivals, misfortunes, shuffled, trials
from .world import Federation, Shard, alike, copied, near, play, run, same

# What mutants wrap.
_BEGIN, _RECEIVE = Server.begin, Server.receive
_BEFORE_USE, _ON_ARRIVAL, _UNASKED = server.before_use, server.on_arrival, server.unasked
_STEP = Versions.step

PARTS = (ControlVariates(), ModelContrast(layer="logits"), Adam())


def _in_order_of_arrival(reports: Any, key: Any) -> list[Report]:
    return list(reports)


@law(
    trial=trials(everybody=True),
    order=arrivals(),
    parts=st.sampled_from((PARTS, (VarianceReduction(),))),
    examples=12,
    broken_by={
        "summed in order of arrival": lambda patch: patch.setattr(
            versions, "sorted", _in_order_of_arrival, raising=False
        ),
    },
)
def test_reports_may_arrive_in_any_order(trial: Trial, order: int, parts: Any) -> None:
    recipe = trial.recipe(*parts)
    straight, mixed = (
        run(recipe, trial.federation),
        play(recipe, trial.federation, arrival=lambda invited: shuffled(order, invited)),
    )
    assert alike(straight, mixed)
    assert same(replace(straight.states[-1], began=0.0), mixed.states[-1])  # only the driver has a clock
    assert same(straight.clients, mixed.clients)


@law(
    trial=trials(travels=False),
    happening=misfortunes(),
    examples=12,
    broken_by={
        "states of refused visits kept": swap(
            Memory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
        "acceptance not written down": FORGETS_WHAT_IT_ACCEPTS,
    },
)
def test_a_refused_visit_leaves_nothing_at_its_client(trial: Trial, happening: Misfortune) -> None:
    trial = trial.but(steps=2, keep_state=True)
    story = play(trial.recipe(ModelContrast(layer="logits")), trial.federation, versions=5, happening=happening)
    last: dict[int, ClientState] = {}
    for dispatch, assignment in story.assignments.items():
        assert same(story.starts[dispatch], last.get(assignment.client, ClientState()))
        if story.accepted[dispatch]:
            last[assignment.client] = story.ends[dispatch]


Tell = Callable[[ServerDecision, Event], ServerDecision]


def begun(recipe: Recipe, federation: Federation, versions: int = 3) -> tuple[list[Report], ServerDecision, Tell]:
    """The honest reports of the first version, the first turn, and the server as a function of a turn and an event."""
    setup, engine, roster = federation.setup(versions), federation.engine(), federation.roster()
    initial, shards = engine.initial(), federation.shards()
    server = Server(recipe=recipe, setup=setup, layout=engine.layout)
    first = server.begin(initial.weights, initial.buffers, roster)
    reports = [work(recipe, setup, ClientState(), a, shards[a.client], engine)[1] for a in first.assignments]
    return reports, first, lambda turn, event: server.receive(turn.state, event, roster)


def tell_all(tell: Tell, turn: ServerDecision, events: Sequence[Event]) -> ServerDecision:
    for event in events:
        turn = tell(turn, event)
    return turn


def failure(action: Callable[[], object]) -> str:
    """The words of the RunFailed that an action ends with; empty if it does not."""
    try:
        action()
    except RunFailed as error:
        return str(error)
    return ""


def _spoil(tensor: Tensor | None, position: int, value: float) -> Tensor:
    assert tensor is not None
    other = tensor.clone()
    other.view(-1)[position] = value
    return other


Spoiler = Callable[[Report, float], Report]
BATCHNORM = Federation(net="batchnorm")
HEAD = next(s.offset for s in BATCHNORM.engine().layout.segments if s.name == "3.weight")
SPOILERS: dict[str, Spoiler] = {
    "the update of 3.weight": lambda r, value: replace(r, update=_spoil(r.update, HEAD + 2, value)),
    "the buffer 1.running_var": lambda r, value: replace(
        r, buffers=(r.buffers[0], _spoil(r.buffers[1], 0, value), *r.buffers[2:])
    ),
    "control_variates's change": lambda r, value: replace(
        r, extras={"control_variates": {"change": _spoil(r.extras["control_variates"]["change"], 3, value)}}
    ),
}
NOT_NUMBERS = st.sampled_from((float("nan"), float("inf"), -float("inf")))


def _nothing(extras: Mapping[str, Any]) -> dict[str, Any]:
    return {key: {what: torch.zeros_like(value) for what, value in extra.items()} for key, extra in extras.items()}


def _blind_to(**hidden: Any) -> Mutation:
    def blind(*given: Any) -> Fault | None:
        *rest, report, buffers = given
        return _BEFORE_USE(*rest, replace(report, **{k: make(report) for k, make in hidden.items()}), buffers)

    return swap(server, "before_use", blind)


BLIND = {
    "NaN updates": swap(validation, "first_non_finite", lambda layout, vector: None),
    "NaN buffers": _blind_to(buffers=lambda r: tuple(torch.zeros_like(b) for b in r.buffers)),
    "NaN extras": _blind_to(extras=lambda r: _nothing(r.extras)),
}


@law(
    where=st.sampled_from(list(SPOILERS)),
    value=NOT_NUMBERS,
    which=st.integers(0, 3),
    examples=12,
    broken_by=BLIND,
)
def test_what_is_no_number_is_dropped_by_name_and_the_rest_renormalised(where: str, value: float, which: int) -> None:
    recipe = fedavg(cohort=4, epochs=1) | ControlVariates()
    reports, first, tell = begun(recipe, BATCHNORM)
    bad = reports[which]
    others = [r for r in reports if r is not bad]
    turn = tell(first, SPOILERS[where](bad, value))
    assert turn.verdict is not None
    assert not turn.verdict.accepted
    assert where in turn.verdict.reason
    refused = tell_all(tell, turn, others)
    assert refused.released is not None
    assert refused.released.release is not None
    assert refused.released.refused == ((bad.client, turn.verdict.reason),)
    assert refused.released.release.reports == tuple(others)
    total = sum(r.num_samples for r in others)
    assert all(
        math.isclose(share, r.num_samples / total)
        for share, r in zip(refused.released.release.shares, others, strict=True)
    )
    lost = tell_all(tell, tell(first, Lost(dispatch=bad.dispatch, reason="away")), others)
    assert same(refused.state, lost.state)
    assert bool(torch.isfinite(refused.state.weights).all())


@law(
    where=st.sampled_from(list(SPOILERS)),
    value=NOT_NUMBERS,
    broken_by=BLIND | {"skipped in silence": swap(server, "before_use", lambda *given: Fault("shape", "something"))},
)
def test_if_all_are_bad_the_run_stops_with_the_last_good_model(where: str, value: float) -> None:
    recipe = fedavg(cohort=4, epochs=1) | ControlVariates()
    reports, first, tell = begun(recipe, BATCHNORM)
    *early, last = (SPOILERS[where](r, value) for r in reports)
    turn = tell_all(tell, first, early)
    kept = copied(turn.state)
    words = failure(lambda: tell(turn, last))
    assert "version 1" in words
    assert where in words
    assert f"client {reports[0].client}" in words
    assert same(turn.state, kept)
    assert same((turn.state.weights, turn.state.buffers), (first.state.weights, first.state.buffers))


def _lands_anyway(*given: Any) -> ServerDecision:
    turn = _RECEIVE(*given)
    if turn.verdict is None or turn.verdict.accepted:
        return turn
    return replace(turn, state=replace(turn.state, refused=(*turn.state.refused, (0, "?"))))


def _by_number(asked: Any, report: Report, dispatched: int) -> Fault | None:
    if asked is not None:
        report = replace(report, client=asked.client, kind=asked.kind, visit=asked.visit, version=asked.version)
    return _UNASKED(asked, report, dispatched)


def _of_any_recipe(recipe: Recipe, asked: Any, report: Report) -> Fault | None:
    return _ON_ARRIVAL(recipe, asked, replace(report, recipe=recipe.digest))


STRANGERS: dict[str, Callable[[Report], Event]] = {
    "twice": lambda r: r,
    "never asked for": lambda r: replace(r, dispatch=999),
    "from another client": lambda r: replace(r, dispatch=r.dispatch + 1),
    "lost after it came": lambda r: Lost(dispatch=r.dispatch, reason="too late"),
    "lost, never asked for": lambda r: Lost(dispatch=999, reason="?"),
}


@law(
    stranger=st.sampled_from(list(STRANGERS)),
    at=st.integers(1, 4),
    versions=st.integers(1, 2),
    examples=20,
    broken_by={
        "written down": swap(Server, "receive", _lands_anyway),
        "dispatch numbers are enough": swap(server, "unasked", _by_number),
    },
)
def test_a_report_that_nobody_waits_for_changes_nothing(stranger: str, at: int, versions: int) -> None:
    recipe = fedavg(cohort=4, epochs=1)
    reports, first, tell = begun(recipe, BATCHNORM, versions)
    turn = tell_all(tell, first, reports[:at])  # with all four, the version is released; with one version, the run over
    kept = copied(turn.state)
    after = tell(turn, STRANGERS[stranger](reports[at - 1]))
    assert same(turn.state, kept)
    assert same(after.state, kept)
    assert (after.assignments, after.released) == ((), None)
    assert after.verdict is not None
    assert not after.verdict.accepted
    rest = tell_all(tell, after, reports[at:])
    assert same(rest.state, tell_all(tell, first, reports).state)


def _of_any_kind(asked: Any, report: Report, dispatched: int) -> Fault | None:
    return _UNASKED(asked, report if asked is None else replace(report, kind=asked.kind), dispatched)


@law(
    which=st.integers(0, 3),
    broken_by={"training and measuring are one": swap(server, "unasked", _of_any_kind)},
)
def test_a_report_of_another_kind_answers_nothing(which: int) -> None:
    reports, first, tell = begun(fedavg(cohort=4, epochs=1), BATCHNORM)
    after = tell(first, replace(reports[which], kind="measure"))
    assert same(after.state, first.state)
    assert after.verdict is not None
    assert not after.verdict.accepted
    assert same(tell_all(tell, after, reports).state, tell_all(tell, first, reports).state)


def _taken_for_time(self: Server, state: Any, event: Event, roster: Any) -> ServerDecision:
    return _RECEIVE(self, state, Timer(time=event.time), roster)


def _taken_for_a_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server, "receive", _taken_for_time)
    patch.setattr(Readiness, "ready", lambda *given: True)


@law(
    stranger=st.sampled_from(list(STRANGERS)),
    examples=10,
    broken_by={"taken for news": _taken_for_a_round},
)
def test_a_report_that_nobody_waits_for_makes_no_version_while_nobody_is_there(stranger: str) -> None:
    recipe = fedavg(cohort=4, epochs=1)
    (report, *_), _, _ = begun(recipe, BATCHNORM)
    _, deserted, tell = begun(recipe, replace(BATCHNORM, eligible=()))
    assert deserted.assignments == ()
    after = tell(deserted, STRANGERS[stranger](report))
    assert same(after.state, deserted.state)
    assert (after.assignments, after.released) == ((), None)


FAULTY: dict[str, Callable[[Report], Report]] = {
    "another recipe": lambda r: replace(r, recipe="0" * 64),
    "too short": lambda r: replace(r, update=r.update[1:] if r.update is not None else None),
    "another dtype": lambda r: replace(r, update=r.update.double() if r.update is not None else None),
    "no update": lambda r: replace(r, update=None),
    "no buffers": lambda r: replace(r, buffers=()),
    "buffers of another shape": lambda r: replace(r, buffers=tuple(b.reshape(1, -1) for b in r.buffers)),
    "buffers of another dtype": lambda r: replace(r, buffers=tuple(b.double() for b in r.buffers)),
    "a negative number of samples": lambda r: replace(r, num_samples=-3),
    "no step": lambda r: replace(r, steps=0),
}


def _only_if(condition: Callable[[str], bool]) -> Mutation:
    def wrong(*given: Any) -> Fault | None:
        fault = _BEFORE_USE(*given)
        return fault if fault is not None and condition(fault.words) else None

    return swap(server, "before_use", wrong)


@law(
    fault=st.sampled_from(list(FAULTY)),
    which=st.integers(0, 3),
    examples=30,
    broken_by={
        "any recipe": swap(server, "on_arrival", _of_any_recipe),
        "no samples, less than none": _only_if(lambda words: "samples" not in words),
        "the update of another model": _only_if(lambda words: "layout" not in words),
    },
)
def test_a_faulty_report_is_as_good_as_lost(fault: str, which: int) -> None:
    recipe = fedavg(cohort=4, epochs=1)
    reports, first, tell = begun(recipe, BATCHNORM)
    turn = tell(first, FAULTY[fault](reports[which]))
    assert turn.verdict is not None
    assert turn.verdict.reason
    assert not turn.verdict.accepted
    lost = tell(first, Lost(dispatch=reports[which].dispatch, reason=turn.verdict.reason))
    assert same(turn.state, lost.state)
    assert turn.state.refused == ((reports[which].client, turn.verdict.reason),)
    rest = [r for i, r in enumerate(reports) if i != which]
    assert same(tell_all(tell, turn, rest).state, tell_all(tell, lost, rest).state)


@final
@dataclass(frozen=True, kw_only=True)
class Nobody(Sharing):
    """Gives no update any weight."""

    def claims(self, facts: Sequence[Facts]) -> list[float]:
        return [0.0 for _ in facts]


def _stands_still(*given: Any) -> Any:
    state, released = _STEP(*given)
    return replace(state, version=state.version - 1), released


@law(
    trial=trials(nets=("batchnorm",)),
    cause=st.sampled_from(("a storm", "no step was possible", "no report has any weight")),
    broken_by={
        "counts as no version": swap(Versions, "step", _stands_still),
        "shares of nothing": swap(versions, "shares", lambda claims: [1 / max(1, len(claims)) for _ in claims]),
        "what was accepted is forgotten": lambda patch: patch.setattr(Versions, "step", _forgets),
    },
)
def test_a_version_without_any_weight_is_skipped_and_said(trial: Trial, cause: str) -> None:
    recipe = trial.recipe(Adam(), ControlVariates(), *([Nobody()] if "weight" in cause else []))
    # BatchNorm cannot train on a single sample.
    federation = replace(trial.federation, sizes=(1, 1, 0)) if "step" in cause else trial.federation

    def happening(assignment: Assignment, report: Report) -> Event:
        return Lost(dispatch=report.dispatch, reason=cause) if cause == "a storm" else report

    story = play(recipe, federation, versions=2, happening=happening)
    assert [state.version for state in story.states] == [0, 1, 2]
    assert {a.version for a in story.assignments.values()} == {0, 1}
    before = story.states[0]
    for state, released in zip(story.states[1:], story.released, strict=True):
        assert released.release is None
        assert cause in released.note
        assert same((state.weights, state.buffers), (before.weights, before.buffers))
        assert same(state.parts[Adam.label()], before.parts[Adam.label()])
    own = [c.parts["control_variates"]["control"] for c in story.clients.values()] or [torch.zeros_like(before.weights)]
    mean = torch.stack(own).sum(0) / len(federation.sizes)
    assert near(story.states[-1].parts["control_variates"]["control"], mean)
    assert ("weight" in cause) == bool(story.clients)


def _forgets(*given: Any) -> Any:
    state, released = _STEP(*given)
    return (state if released.release is not None else replace(state, parts=given[1].parts)), released


def _saturates(self: Sgd, setup: Any, state: Any, weights: Tensor, mean: Tensor) -> Any:
    return state, weights.add(mean, alpha=self.lr).nan_to_num()


@law(
    net=st.sampled_from(("perceptron", "batchnorm")),
    broken_by={"saturates in silence": swap(Sgd, "step", _saturates)},
)
def test_a_server_step_without_a_finite_end_stops_the_run_by_name(net: str) -> None:
    federation = Federation(net=net)
    reports, first, tell = begun(fedavg(cohort=4, epochs=1) | Sgd(lr=3e38), federation)
    huge = [replace(r, update=r.update * 1e6) for r in reports if r.update is not None]
    turn = tell_all(tell, first, huge[:-1])
    kept = copied(turn.state)
    words = failure(lambda: tell(turn, huge[-1]))
    assert "server step" in words
    assert "0.weight" in words
    assert same(turn.state, kept)


@final
class Torn(Shard):
    """Samples that cannot be read."""

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        raise OSError("the disk is torn")


def _tight_lipped(self: Clients, task: VisitTask) -> Done:
    return work(self.recipe, self.setup, task.state, task.assignment, task.data, self.engine, task.plan)


@law(
    torn=st.integers(0, 3),
    broken_by={"the client is not named": swap(Clients, "visit", _tight_lipped)},
)
def test_an_error_at_a_client_names_the_client(torn: int) -> None:
    engine, shards = BATCHNORM.engine(), list(BATCHNORM.shards())
    shards[torn] = Torn(shards[torn].inputs, shards[torn].targets)
    driver = InlineDriver(fedavg(cohort=4), BATCHNORM.setup(2), engine, shards.__getitem__, BATCHNORM.world())
    notes: list[str] = []
    try:
        list(driver.moments(engine.initial()))
    except OSError as error:
        notes = getattr(error, "__notes__", [])
    assert f"client {torn} " in "".join(notes)


@law(
    population=st.integers(1, 4),
    broken_by={"ends in silence": swap(simulator, "RunFailed", StopAsyncIteration)},
)
def test_a_run_without_anybody_to_invite_fails_and_says_so(population: int) -> None:
    deserted = Federation(sizes=(5,) * population, eligible=())
    try:
        run(fedavg(cohort=2), deserted)
        words = ""
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
    assert words.startswith("RunFailed")
    assert f"0 of {population} clients hold data" in words


EVER_READY: Mutation = swap(Releasing, "ready", lambda self, context: True)


@law(
    event=st.sampled_from((Arrived(client=0), Timer(time=1.0))),
    broken_by={"every event may release": EVER_READY},
)
def test_nothing_is_released_before_everybody_is_heard_or_after_the_end(event: Event) -> None:
    reports, first, tell = begun(fedavg(cohort=4, epochs=1), BATCHNORM, versions=1)
    for at in range(4):
        turn = tell_all(tell, first, reports[:at])
        assert turn.released is None
        assert same(tell(turn, event).state, turn.state)
    end = tell_all(tell, first, reports)
    assert end.released is not None
    assert (end.state.version, end.assignments) == (1, ())
    assert same(tell(end, event), replace(end, released=None, verdict=None))


def _starts_over(*given: Any) -> ServerDecision:
    turn = _BEGIN(*given)
    return replace(turn, state=replace(turn.state, dispatched=0))


@law(
    trial=trials(),
    happening=misfortunes(),
    broken_by={
        "dispatch numbers start over": swap(Server, "begin", _starts_over),
        "acceptance not written down": FORGETS_WHAT_IT_ACCEPTS,
    },
)
def test_assignments_are_numbered_and_know_the_last_accepted_visit(trial: Trial, happening: Misfortune) -> None:
    story = play(trial.recipe(), trial.federation, versions=4, happening=happening)
    assert list(story.assignments) == list(range(len(story.assignments)))
    assert len(story.states) == 5
    visits, accepted = Counter[int](), dict[int, int]()
    for dispatch, assignment in story.assignments.items():
        assert assignment.visit == visits[assignment.client]
        assert assignment.accepted == accepted.get(assignment.client, -1)
        assert assignment.recipe == trial.recipe().digest
        assert same(assignment.weights, story.states[assignment.version].weights)
        visits[assignment.client] += 1
        if story.accepted[dispatch]:
            accepted[assignment.client] = assignment.visit
