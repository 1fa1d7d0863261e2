"""Oort: by utility alone where nothing else counts, unheard clients in their share, and no bit of training changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Report, State
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation.base import InvitationContext
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, RandomResize
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.participation.utility_sampling import UtilitySampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, OverSelect
from polyrhythm.methods.work.stop_on_drift import StopOnDrift
from polyrhythm.models.tasks import Classification

from .law import law, swap
from .rolling import roll
from .selecting import Present, call, most, report, setup, told, who
from .world import Federation, run, same

# What mutants wrap.
_INVITE, _ACCEPT = UtilitySampling.invite, UtilitySampling.accept
_STEP, _LOSSES = TorchEngine.step, Classification.losses

ALONE = UtilitySampling(alpha=0, bonus=0, exploration=0, cut_off=1.0, clip=1.0)
"""By utility alone."""


def heard(policy: UtilitySampling, losses: Sequence[float], seconds: Sequence[float], names: Sequence[int]) -> State:
    """The state when everybody has been heard once; client i goes by names[i]."""
    reports = [
        report(names[i], num_samples=i + 1, duration=seconds[i], measures={"squared_loss": loss})
        for i, loss in enumerate(losses)
    ]
    return told(policy, policy.server_start(setup(len(losses))), 0, reports)


def _by_speed(
    self: UtilitySampling, utility: Any, duration: np.ndarray, last: Any, coming: int, quantile: float
) -> np.ndarray:
    return np.asarray(1 / (1 + duration))


def _mean_loss(self: UtilitySampling, fixed: Setup, state: State, heard: Report) -> State:
    return _ACCEPT(self, fixed, state, replace(heard, num_samples=1))


def _busy_too(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, state, replace(asked, busy=frozenset()))


def _cut_off_at_all(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(replace(self, cut_off=0.0), fixed, state, asked)


LOSSES = st.permutations([0.011, 0.31, 0.73, 1.03, 2.1, 5.2, 8.7])  # no two clients are of equal utility
SECONDS = st.permutations([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0])


@law(
    losses=LOSSES,
    seconds=SECONDS,
    cohort=st.integers(1, 9),
    busy=st.frozensets(st.integers(0, 6), max_size=3),
    away=st.frozensets(st.integers(0, 6), max_size=3),
    occasion=st.sampled_from(((), ("dispatch", 4))),
    examples=40,
    broken_by={
        "the fast ones": swap(UtilitySampling, "scores", _by_speed),
        "whatever they hold": swap(UtilitySampling, "accept", _mean_loss),
        "anybody known": swap(UtilitySampling, "invite", _cut_off_at_all),
        "busy clients are invited": swap(UtilitySampling, "invite", _busy_too),
    },
)
def test_by_utility_alone_where_nothing_else_counts(
    losses: list[float],
    seconds: list[float],
    cohort: int,
    busy: frozenset[int],
    away: frozenset[int],
    occasion: Any,
) -> None:
    policy = replace(ALONE, cohort=cohort)
    state = heard(policy, losses, seconds, range(7))
    utility = [(i + 1) * math.sqrt(loss) for i, loss in enumerate(losses)]
    free = [c for c in range(7) if c not in busy | away]
    _, invited = policy.invite(setup(7), state, call(Present([1] * 7, away), 1, busy=busy, occasion=occasion))
    assert len(who(invited)) == len(set(who(invited)))
    assert set(who(invited)) == set(sorted(free, key=lambda c: -utility[c])[:cohort])


def _by_number(self: UtilitySampling, utility: np.ndarray, *given: Any) -> np.ndarray:
    return 1.0 + np.arange(len(utility))


@law(
    losses=LOSSES,
    seconds=SECONDS,
    renamed=st.permutations(list(range(7))),
    cohort=st.integers(1, 6),
    alpha=st.sampled_from((0.0, 1.0, 2.0)),
    bonus=st.sampled_from((0.0, 0.1)),
    examples=30,
    broken_by={"by number": swap(UtilitySampling, "scores", _by_number)},
)
def test_other_numbers_for_the_clients_are_other_numbers_for_the_chosen(
    losses: list[float], seconds: list[float], renamed: list[int], cohort: int, alpha: float, bonus: float
) -> None:
    # A cut-off of 1 admits as many as are wanted, so that nothing is left to chance.
    policy = UtilitySampling(cohort=cohort, alpha=alpha, bonus=bonus, exploration=0, cut_off=1.0, clip=1.0)
    chosen = []
    for names in (range(7), renamed):
        state = heard(policy, losses, seconds, names)
        chosen.append(set(who(policy.invite(setup(7), state, call(Present([1] * 7), 1))[1])))
    assert {renamed[c] for c in chosen[0]} == chosen[1]


def _rounded_down(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    places = asked.places(self.size)
    whole = math.floor(places * max(self.least, self.exploration * self.decay**asked.version)) / places
    return _INVITE(replace(self, exploration=whole, decay=1.0), fixed, state, asked)


def _never_less(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(replace(self, decay=1.0), fixed, state, asked)


@law(
    places=st.integers(1, 4),
    version=st.integers(0, 40),
    examples=8,
    broken_by={
        "rounded down": swap(UtilitySampling, "invite", _rounded_down),
        "no decay": swap(UtilitySampling, "invite", _never_less),
    },
)
def test_unheard_clients_have_their_share_however_few_places_there_are(places: int, version: int) -> None:
    policy, known, draws = UtilitySampling(cohort=places), 30, 600
    state = heard(policy, [1.0 + i for i in range(known)], [1.0] * known, range(known))
    roster, fresh = Present([1] * 60), 0
    for number in range(draws):
        asked = call(roster, version, occasion=("dispatch", number))
        fresh += sum(client >= known for client in who(policy.invite(setup(60), state, asked)[1]))
    share = max(0.2, 0.9 * 0.95**version)
    # Each draw is off its mean by chance of at most one place: five standard deviations.
    assert abs(fresh - draws * places * share) <= 5 * 0.5 * math.sqrt(draws)


def _explores_for_ever(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    after, invited = _INVITE(self, fixed, state, asked)
    return after, invited[: math.ceil(len(invited) / 2)]


@law(
    share=st.sampled_from((0.0, 0.5, 1.0)),
    known=st.integers(0, 6),
    cohort=st.integers(2, 6),
    away=st.frozensets(st.integers(0, 5), max_size=4),
    examples=40,
    broken_by={"places stay empty": swap(UtilitySampling, "invite", _explores_for_ever)},
)
def test_whoever_is_free_fills_the_places(share: float, known: int, cohort: int, away: frozenset[int]) -> None:
    """All explored, nobody explored, or too few there: no place stays empty while anybody is free."""
    policy = UtilitySampling(cohort=cohort, exploration=share, least=share, decay=1.0)
    state = heard(policy, [2.0] * known, [1.0] * known, range(known))
    _, invited = policy.invite(setup(6), state, call(Present([1] * 6, away), 1))
    assert len(set(who(invited))) == len(invited) == min(cohort, 6 - len(away))
    if share == 1.0:
        unheard = set(range(known, 6)) - away
        assert len(unheard & set(who(invited))) == min(cohort, len(unheard))


def _another_pass(self: TorchEngine, inputs: Tensor, targets: Tensor, positions: Any, rule: Any, rate: float) -> Any:
    if rule.squared_losses:
        self.module(inputs)  # draws again, and moves the statistics
    return _STEP(self, inputs, targets, positions, rule, rate)


def _in_the_graph(self: Classification, outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.requires_grad:
        outputs.register_hook(lambda gradient: gradient * 2)
    return _LOSSES(self, outputs, targets)


@law(
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    parts=st.sampled_from(((), (Prox(mu=0.1),), (StopOnDrift(a=0.5, b=0, representation="logits"),))),
    examples=12,
    broken_by={
        "one more pass in training mode": swap(TorchEngine, "step", _another_pass),
        "something in the graph": swap(Classification, "losses", _in_the_graph),
    },
)
def test_squared_losses_change_no_bit_of_training(net: str, parts: Any) -> None:
    federation = Federation(net=net)
    plain = fedavg(cohort=2, epochs=2, batch=4)
    for part in parts:
        plain = plain | part
    story, engine, shards = (
        run(plain | UtilitySampling(), federation, versions=2),
        federation.engine(),
        federation.shards(),
    )
    for dispatch, assignment in story.assignments.items():
        if assignment.visit == 0:
            again = replace(assignment, recipe=plain.digest)
            shard = shards[assignment.client]
            _, report = work(plain, federation.setup(2), ClientState(), again, shard, engine)
            one, other = report, story.reports[dispatch]
            assert same((one.update, one.buffers, one.loss), (other.update, other.buffers, other.loss))
            assert one.measures.keys() ^ other.measures.keys() == {"squared_loss"}
            assert other.measures["squared_loss"] >= (other.loss or 0.0) ** 2


def _any_report(self: UtilitySampling, fixed: Setup, state: State, heard: Report) -> State:
    return _ACCEPT(self, fixed, state, replace(heard, substitute=""))


@law(
    skipped=st.sampled_from(("movement", "model")),
    examples=4,
    broken_by={"visits that skipped": swap(UtilitySampling, "accept", _any_report)},
)
def test_a_visit_that_did_not_train_teaches_nothing(skipped: Any) -> None:
    policy = UtilitySampling()
    state = told(policy, policy.server_start(setup(5)), 0, [report(2, duration=4.0)])
    after = told(policy, state, 1, [report(c, 1, substitute=skipped) for c in (2, 3)])
    assert dict(after["heard"]) == {2: [10.0, 4.0, 1, 1]}


COMBINED: tuple[Callable[[Recipe], Recipe], ...] = (
    lambda recipe: recipe,
    lambda recipe: recipe | Buffer(size=2),
    lambda recipe: recipe | Rolling() | Buffer(size=2),
    lambda recipe: recipe | Rolling(once_per_buffer=True) | SampledStaleness(max_delay=3) | Buffer(size=2),
    lambda recipe: recipe | CriticalPeriods(delta=1e9) | Buffer(size=1),
    lambda recipe: recipe | RandomResize(up=0.0, down=0.5),
    lambda recipe: recipe | OverSelect(factor=1.4),
)


def _keeps_to_itself(self: UtilitySampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, state, replace(asked, in_flight=0, count=None))


def _never_learns(self: UtilitySampling, fixed: Setup, state: State, heard: Report) -> State:
    return state


@law(
    combine=st.sampled_from(COMBINED),
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    loses=st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates]),
    examples=40,
    broken_by={
        "who is under way takes no place": swap(UtilitySampling, "invite", _keeps_to_itself),
        "it never learns": swap(UtilitySampling, "accept", _never_learns),
    },
)
def test_it_goes_on_under_every_release_and_other_policies(
    combine: Callable[[Recipe], Recipe], next_one: Sequence[int], loses: Sequence[bool]
) -> None:
    recipe = combine(fedavg(**Common(cohort=3, epochs=0.5, batch=4)) | UtilitySampling())
    story = roll(recipe, Federation(sizes=(5, 12, 7, 9, 3, 8, 4)), versions=6, next_one=next_one, loses=loses)
    last = story.turns[-1].state
    assert last.version == 6
    for turn in story.turns:
        assert turn.state.training <= most(recipe)
        busy = [flight.client for flight in turn.state.flights.values()]
        assert len(busy) == len(set(busy))
    state = last.parts[recipe.key_of(recipe.participation)]
    assert set(state["heard"]) == {c for c, record in last.clients.items() if record.accepted >= 0}
