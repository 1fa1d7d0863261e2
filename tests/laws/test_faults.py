"""After any plan of faults the books are right: c is the mean of all c_i, and nothing counts at one end only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import strategies as st
from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.faults import IGNORED, WORDS
from polyrhythm.base.messages import Report
from polyrhythm.base.settings import Settings
from polyrhythm.core import server
from polyrhythm.core.client_state import Memory
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision, Verdict
from polyrhythm.core.versions import Versions
from polyrhythm.fleet import Faults, Fleet, FleetState
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, Deadline, MinReports
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.simulation import transit
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep
from polyrhythm.simulation.transit import Transit

from .fleets import Hours, Paces
from .law import law, swap
from .mutants import FORGETS_WHAT_IT_ACCEPTS
from .world import Federation, same

# What mutants wrap.
_RECEIVE, _STEP = Server.receive, Versions.step
_ARRIVES, _UNASKED, _ON_ARRIVAL = Transit.arrives, server.unasked, server.on_arrival

OFTEN = ("dropout", "crash", "slow", "nan", "malformed", "lost", "duplicate", "stray", "corrupt")
SIZES = (5, 12, 7, 9)
UNEQUAL = Fleet(devices=Paces(seconds=(0.01, 0.0271828, 0.1414213, 0.5772156)))


@st.composite
def plans(draw: st.DrawFn, *, known: bool = True) -> Faults:
    """Plans of faults on devices and on the way; nothing or a lot of each.

    Args:
        known: whether whatever has become of an update can be known, so that none is taken for what it is not.
    """
    often = {name: draw(st.sampled_from((0.0, 0.1, 0.3))) for name in OFTEN}
    if known:
        return Faults(**often, downtime=0.5)
    return Faults(**often, downtime=0.5, inflate=draw(st.sampled_from((0.0, 0.2))), inflation=3.0, checksum=False)


def moments(
    recipe: Recipe, federation: Federation, versions: int, look: Callable[[InlineDriver, SimulationStep], object]
) -> list[SimulationStep]:
    """All that happens in a run, until its total_rounds or until it has to stop; `look` sees everything."""
    engine, shards = federation.engine(), federation.shards()
    driver = InlineDriver(recipe, federation.setup(versions), engine, shards.__getitem__, federation.world())
    story: list[SimulationStep] = []
    try:
        for moment in driver.moments(engine.initial()):
            assert len(story) <= 200 * versions * len(federation.sizes)  # a mutant may never come to its total_rounds
            story.append(moment)
            look(driver, moment)
    except RunFailed:
        assert story
    except KeyError as unknown:
        raise AssertionError("the server was told of a visit that it does not know") from unknown
    return story


RELEASES: dict[str, tuple[Settings, ...]] = {
    "rounds": (),
    "at least three": (MinReports(count=3),),
    "a deadline": (Deadline(seconds=1.0),),
    "a buffer": (Buffer(size=2),),
    "rolling": (Rolling(concurrency=3), Buffer(size=2)),
}
# The mean that the server keeps, and what each client keeps of it, by mechanism.
KEPT: dict[Settings, tuple[str, str]] = {
    ControlVariates(): ("control", "control"),
    DynamicRegularisation(): ("h", "dual"),
}


def _forgets_what_it_skips(*given: Any) -> Any:
    state, released = _STEP(*given)
    return (state if released.release is not None else replace(state, parts=given[1].parts)), released


@law(
    plan=plans(),
    wild=plans(known=False),
    part=st.sampled_from(list(KEPT)),
    release=st.sampled_from(list(RELEASES)),
    seed=st.integers(0, 5),
    examples=25,
    broken_by={
        "states of refused visits kept": swap(
            Memory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
        "acceptance not written down": FORGETS_WHAT_IT_ACCEPTS,
        "a skipped version forgets": swap(Versions, "step", _forgets_what_it_skips),
    },
)
def test_the_servers_mean_is_that_of_what_clients_keep_at_every_version(
    plan: Faults, wild: Faults, part: Settings, release: str, seed: int
) -> None:
    """Of FedDyn, where what is heard is what was sent; of control variates, which travel beside it, in any case."""
    recipe = fedavg(cohort=4, epochs=1, batch=4) | part
    plan = wild if isinstance(part, ControlVariates) and seed % 2 else plan
    for policy in RELEASES[release]:
        recipe = recipe | policy
    federation = Federation(sizes=SIZES, seed=seed, fleet=UNEQUAL | plan, dtype=torch.float64)
    at_server, at_client = KEPT[part]

    def look(driver: InlineDriver, moment: SimulationStep) -> None:
        if moment.turn.released is None:
            return
        own: list[Tensor] = []
        for client, record in moment.turn.state.clients.items():
            kept = driver.state_of(client, record.accepted).parts.get(part.label(), {})
            own += [kept[at_client]] if at_client in kept else []
        mean = torch.stack(own).sum(0) / len(SIZES) if own else driver.server.setup.zeros()
        found = moment.turn.state.parts[part.label()][at_server]
        # Flipped bits may leave any finite number, against which rounding is measured.
        slack = 1e-9 * max([1.0, *(float(o.abs().max()) for o in own)])
        assert bool(((found - mean).abs() <= slack).all()) or not bool(torch.isfinite(found - mean).all())

    moments(recipe, federation, 5, look)


def _at_one_end(*given: Any) -> ServerDecision:
    """What the client sent before is forgotten at the server, and at the client it is not."""
    turn = _RECEIVE(*given)
    if turn.verdict is None or turn.verdict.accepted:
        return turn
    parts = {k: ({**p, "movements": Map()} if "movements" in p else p) for k, p in turn.state.parts.items()}
    return replace(turn, state=replace(turn.state, parts=parts))


@law(
    plan=plans(),
    storage=st.sampled_from(("server", "mixed")),
    count=st.sampled_from((1, 3)),
    seed=st.integers(0, 5),
    examples=25,
    broken_by={
        "states of refused visits kept": swap(
            Memory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
        "a refused visit clears what the server keeps": swap(Server, "receive", _at_one_end),
    },
)
def test_wherever_movements_are_kept_the_models_are_the_same(
    plan: Faults, storage: Literal["server", "mixed"], count: int, seed: int
) -> None:
    budgets = Listed(shares=(1.0, 0.5, 0.4, 0.3))
    federation = Federation(sizes=SIZES, seed=seed, fleet=Fleet() | plan)

    def weights(storage: Literal["client", "server", "mixed"]) -> list[Tensor]:
        recipe = fedavg(cohort=4, epochs=1, batch=4) | SkipAndEstimate(budgets=budgets, storage=storage)
        recipe = recipe | MinReports(count=count)
        story = moments(recipe, federation, 6, lambda driver, moment: None)
        return [m.turn.state.weights for m in story if m.turn.released is not None]

    assert same(weights("client"), weights(storage))


def _taken_for_the_honest_one(asked: Any, report: Report, dispatched: int) -> Any:
    if asked is not None:
        report = replace(report, client=asked.client, version=asked.version, visit=asked.visit)
    return _UNASKED(asked, report, dispatched)


@law(
    release=st.sampled_from(list(RELEASES)),
    comes_and_goes=st.booleans(),
    examples=10,
    broken_by={"taken for the one that was asked for": swap(server, "unasked", _taken_for_the_honest_one)},
)
def test_what_nobody_asked_for_and_what_comes_twice_changes_no_bit(release: str, comes_and_goes: bool) -> None:
    recipe = fedavg(cohort=3, epochs=1, batch=4) | ControlVariates()
    for policy in RELEASES[release]:
        recipe = recipe | policy
    spans = tuple(((0.0, 1.0 + i), (2.0 + i, 9.0), (9.5, 1e12)) for i in range(4))
    fleet = UNEQUAL | Hours(spans=spans) if comes_and_goes else UNEQUAL
    plain, noisy = (
        moments(recipe, Federation(sizes=SIZES, fleet=f), 5, lambda *given: None)
        for f in (fleet, fleet | Faults(duplicate=1.0, stray=1.0))
    )
    heard = [m for m in noisy if not isinstance(m.event, Report) or m.assignment is not None]
    assert [m.time for m in heard] == [m.time for m in plain]
    assert all(same(a.turn.state, b.turn.state) for a, b in zip(heard, plain, strict=True))
    strays = [m.turn.verdict for m in noisy if isinstance(m.event, Report) and m.assignment is None]
    assert strays
    assert all(v is not None and v.fault in IGNORED for v in strays)


def _of_one_stream(self: Transit, what: str, share: float, report: Report) -> Any:
    draws = transit.stream(self._seed, "fault", report.dispatch)
    draws.random(sum(map(bool, dataclasses.astuple(self._faults))))
    return draws if draws.random() < share else None


SINGLE: dict[str, Callable[[SimulationStep], bool]] = {
    "dropout": lambda m: _fault(m) == "dropout",
    "crash": lambda m: _fault(m) == "crash",
    "lost": lambda m: _fault(m) == "transit",
    "slow": lambda m: m.spent.compute > 0.2,
    "nan": lambda m: _fault(m) == "not_finite",
    "inflate": lambda m: isinstance(m.event, Report) and m.event is not m.report,
    "malformed": lambda m: _fault(m) in ("shape", "dtype", "recipe", "samples"),
    "corrupt": lambda m: _fault(m) == "damaged",
    "duplicate": lambda m: m.assignment is None and _fault(m) == "duplicate",
    "stray": lambda m: m.assignment is None and _fault(m) in ("not_asked", "other_version"),
}


def _fault(moment: SimulationStep) -> str | None:
    return None if moment.turn.verdict is None else moment.turn.verdict.fault


@law(
    what=st.sampled_from(list(SINGLE)),
    seed=st.integers(0, 4),  # with 5, all of a version are NaN, which ends the run early
    examples=20,
    broken_by={
        "nothing on the way": swap(Transit, "happens", lambda *given: None),
        "no checksum": swap(
            server, "on_arrival", lambda *given: _ON_ARRIVAL(*given[:-1], replace(given[-1], checksum=None))
        ),
        "nothing on devices": swap(FleetState, "happens", lambda *given: False),
    },
)
def test_each_fault_happens_about_as_often_as_the_plan_says(what: str, seed: int) -> None:
    plan = Faults(**{what: 0.4}, downtime=0.0)
    federation = Federation(sizes=SIZES, seed=seed, fleet=Fleet(devices=Paces(seconds=(0.01,))) | plan)
    story = moments(fedavg(cohort=4, epochs=1, batch=4), federation, 15, lambda *given: None)
    visits = sum(m.assignment is not None for m in story)
    happened = sum(SINGLE[what](m) for m in story)
    assert 0.2 * visits < happened < 0.6 * visits
    assert all(m.turn.verdict is None or m.turn.verdict.accepted or SINGLE[what](m) for m in story)


@law(
    what=st.sampled_from(("nan", "malformed", "lost", "slow", "corrupt")),
    other=st.sampled_from(("duplicate", "stray", "inflate", "malformed", "nan", "lost")),
    seed=st.integers(0, 5),
    examples=15,
    broken_by={"one stream for all": swap(Transit, "happens", _of_one_stream)},
)
def test_one_more_fault_moves_none_of_the_others(what: str, other: str, seed: int) -> None:
    if other == what:
        return

    def hit(plan: Faults) -> set[int]:
        """The visits to which it happens, told by what the transit and the world draw."""
        engine = Federation().engine()
        way, world = Transit(plan, seed, engine.layout), FleetState(Fleet() | plan, 4, seed, range(4))
        reports = [
            Report(dispatch=d, client=0, visit=0, version=0, kind="train", recipe="", num_samples=1, update=None)
            for d in range(60)
        ]
        share = getattr(plan, what)
        return {
            r.dispatch
            for r in reports
            if (world.happens(what, share, r.dispatch) if what in ("lost", "slow") else way.happens(what, share, r))
        }

    alone = hit(Faults(**{what: 0.3}))
    assert alone
    assert hit(Faults(**{what: 0.3, other: 0.5})) == alone


def _counted_as_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server, "refusal", lambda report, wrong: Verdict(dispatch=report.dispatch, accepted=False))


@law(
    plan=plans(known=False),
    release=st.sampled_from(list(RELEASES)),
    seed=st.integers(0, 5),
    examples=15,
    broken_by={"in silence": _counted_as_nothing},
)
def test_nothing_is_left_out_without_a_kind_and_words(plan: Faults, release: str, seed: int) -> None:
    recipe = fedavg(cohort=4, epochs=1, batch=4)
    for policy in RELEASES[release]:
        recipe = recipe | policy
    federation = Federation(sizes=SIZES, seed=seed, fleet=UNEQUAL | plan)
    story = moments(recipe, federation, 5, lambda *given: None)
    for moment in story:
        verdict = moment.turn.verdict
        if verdict is not None and not verdict.accepted and "every update had to be dropped" not in verdict.reason:
            assert verdict.reason
            assert verdict.fault in WORDS
        assert bool(torch.isfinite(moment.turn.state.weights).all())
