"""What laws are tried on: recipes with every local setting, over small federations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast, final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from polyrhythm.base.messages import Assignment, Event, Lost, Report
from polyrhythm.base.settings import Settings
from polyrhythm.methods.local.schedules import Constant, Cosine, Exponential, Power, StepDecay
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.recipe import Recipe

from .world import NETS, Federation

SCHEDULES = (
    Constant(),
    StepDecay(every=1, gamma=0.5),
    Exponential(gamma=0.8),
    Exponential(gamma=0.9, unit="step"),
    Cosine(floor=0.1),
    Cosine(unit="step"),
    Power(alpha=0.1),
)
# Ragged last batches, less than a batch, and (for BatchNorm) a last batch of one sample.
SIZES = ((5, 12, 7, 9), (3, 13, 6), (8, 4, 11, 2, 6))


@final
@dataclass(frozen=True, kw_only=True)
class Trial:
    """A federation, and the settings that FedAvg and its variants share."""

    federation: Federation
    common: Common

    def but(self, **common: Unpack[Common]) -> Trial:
        """The trial with some settings changed; steps take the place of epochs."""
        kept = {k: v for k, v in self.common.items() if k != "epochs" or "steps" not in common}
        return replace(self, common=cast(Common, kept) | common)

    def recipe(self, *parts: Settings) -> Recipe:
        """FedAvg with these settings, and parts piped onto it."""
        whole = fedavg(**self.common)
        for part in parts:
            whole = whole | part
        return whole


@st.composite
def trials(
    draw: st.DrawFn,
    *,
    nets: Sequence[str] = tuple(NETS),
    everybody: bool = False,
    equal_steps: bool = False,
    plain: bool = False,
    travels: bool = True,
) -> Trial:
    """Trials.

    Args:
        nets: names to choose from.
        everybody: full participation.
        equal_steps: every client takes the same number of steps.
        plain: SGD at one rate, without momentum, weight decay and clipping.
        travels: only local optimisers that a travel is defined for, so no Adam and no momentum kept over visits.
    """
    federation = Federation(sizes=draw(st.sampled_from(SIZES)), net=draw(st.sampled_from(nets)), seed=draw(_SEEDS))
    clients = len(federation.sizes)
    common = Common(
        cohort=clients if everybody else draw(st.integers(1, clients)),
        batch=draw(st.sampled_from((None, 2, 3, 4, 30))),
        drop_last=draw(st.booleans()),
        lr=draw(st.sampled_from((0.01, 0.1, 0.3))),
    )
    if equal_steps or draw(st.booleans()):
        common["steps"] = draw(st.integers(1, 5))
    else:
        common["epochs"] = draw(st.sampled_from((0.5, 1.0, 2.0)))
    if plain:
        return Trial(federation=federation, common=common)
    common["weight_decay"] = draw(st.sampled_from((0.0, 0.01)))
    common["clip"] = draw(st.sampled_from((None, 0.5)))
    common["schedule"] = draw(st.sampled_from(SCHEDULES))
    if not travels and draw(st.booleans()):
        common["optimiser"] = draw(st.sampled_from(("adam", "adamw")))
        common["lr"] = 0.01
    else:
        common["momentum"] = draw(st.sampled_from((0.0, 0.9)))
        common["nesterov"] = common["momentum"] > 0 and draw(st.booleans())
    common["keep_state"] = not travels and draw(st.booleans())
    return Trial(federation=federation, common=common)


_SEEDS = st.integers(0, 3)


@final
class Misfortune:
    """Loses reports, or fills them with NaN, by dispatch number; the first of each version always arrives whole."""

    def __init__(self, fates: Sequence[str]) -> None:
        self.fates = fates
        self.first: dict[int, int] = {}

    def __call__(self, assignment: Assignment, report: Report) -> Event:
        if self.first.setdefault(assignment.version, assignment.dispatch) == assignment.dispatch:
            return report
        outcome = self.fates[assignment.dispatch % len(self.fates)]
        if outcome == "lost":
            return Lost(dispatch=report.dispatch, reason="the line is dead")
        return spoiled(report) if outcome == "spoiled" else report


def spoiled(report: Report, value: float = float("nan")) -> Report:
    """The report with one weight that is no number."""
    assert report.update is not None
    update = report.update.clone()
    update[0] = value
    return replace(report, update=update)


def misfortunes() -> SearchStrategy[Misfortune]:
    """Ways in which reports go astray."""
    return st.lists(st.sampled_from(("fine", "lost", "spoiled")), min_size=1, max_size=5).map(Misfortune)


def arrivals() -> SearchStrategy[int]:
    """Numbers that name an order of arrival, see `shuffled`."""
    return st.integers(1, 5)


def shuffled(number: int, invited: Sequence[Assignment]) -> Sequence[Assignment]:
    """One of the orders in which a cohort may answer; 0 is the order of dispatch, 1 its reverse."""
    if number == 1:
        return invited[::-1]
    return next(itertools.islice(itertools.permutations(invited), number, None), invited)
