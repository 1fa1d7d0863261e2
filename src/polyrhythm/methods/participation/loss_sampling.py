"""Clients with large losses first: the power of choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.frozen import persistent
from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import (
    Either,
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
    to_train,
)
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single
from polyrhythm.methods.work.budgets import EPSILON


@final
@dataclass(frozen=True, kw_only=True)
class LossSampling(Participation):
    """Draws d candidates, and invites those of them whose loss is largest.

        candidates: d clients, drawn one after the other with probability n_k / sum of n, without replacement
        invited:    the `cohort` of them with the largest F_k(x)

    n_k is what client k declared when it joined (`Roster.draw_by_samples`); nobody checks it. d is per cohort: where
    fewer or more places are free, as with `rolling`, `over_select` or `critical_periods`, it shrinks and grows with
    them. Candidates of the same loss come in the order of their draw, and after them those without one: they did not
    answer, or what they answered is no number.

    - "pow": F_k is the mean loss on all samples of the client, under the current model, from measuring visits to the
      candidates. If the server steps meanwhile (`buffer`), it is that of the model before.
    - "cpow": the same on `batch` of its samples, drawn by client and version.
    - "rpow": the mean loss of the client's last training visit, whatever its version. Costs nothing. A client that was
      never heard counts as infinite.

    d = cohort is exactly the draw by n_k, and measures nobody; d = population has no chance in it: the largest losses
    of all. O(d log N) for an invitation. Server state: the candidates that are being measured; for "rpow" a loss per
    client heard. "pow" and "cpow" send the model to d clients for each version.

    Args:
        cohort: clients per version; None for that of the participation it takes the place of.
        d: candidates for each cohort, at least as many; None for twice as many.
        variant: "pow", "cpow" or "rpow".
        batch: samples per measurement, for "cpow".

    Raises:
        UserError: fewer candidates than places.

    Reference: Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies", 2020, section 4; at AISTATS 2022 as "Towards Understanding Biased Client Selection in
    Federated Learning".
    """

    cohort: Count | None = None
    d: Count | None = None
    variant: Literal["pow", "cpow", "rpow"] = "pow"
    batch: Count = 32

    privacy = refused(
        "who is invited follows from losses that clients report without noise, so that one of them would change who "
        "else takes part",
        "take poisson or uniform",
    )
    in_sums = needs_single("clients tell their own losses", "take uniform")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d is not None and self.cohort is not None and self.d < self.cohort:
            raise UserError(
                f"power_of_choice: d={self.d} candidates for a cohort of {self.cohort}",
                expected="d at least as large as the cohort",
                why="the cohort is chosen from the candidates",
                fix=f"set d={self.cohort} (no choice at all) or more, or lower cohort",
            )

    @property
    def guesses(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"candidates": [], "losses": {}, "drawn": [-1, 0]}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        if not places:
            return state, ()
        chosen: tuple[int, ...] = ()
        if state["candidates"]:
            chosen = context.there(self._ranked(state["candidates"], state["losses"]), places)
            state = {**state, "candidates": [], "losses": {}}
        left = places - len(chosen)
        if not left:
            return state, to_train(chosen)
        state, candidates = self._draw(setup, state, context, left, chosen)
        if len(candidates) <= left:
            return state, to_train((*chosen, *candidates))
        if self.variant == "rpow":
            return state, to_train((*chosen, *self._ranked(candidates, state["losses"], unheard=math.inf)[:left]))
        samples = self.batch if self.variant == "cpow" else None
        asked = tuple(Invitation(client=c, kind="measure", samples=samples) for c in candidates)
        return {**state, "candidates": list(candidates)}, (*to_train(chosen), *asked)

    def _draw(
        self, setup: Setup, state: State, context: InvitationContext, places: int, chosen: tuple[int, ...]
    ) -> tuple[State, tuple[int, ...]]:
        version, times = state["drawn"]
        times = times + 1 if version == context.version else 0  # a version may draw more than once, and anew each time
        count = max(places, math.ceil(places * (self.d or 2 * self.size) / self.size - EPSILON))
        named = context.stream(setup, "candidates", times)
        drawn = context.roster.draw_by_samples(count, named, Either(context.busy, chosen))
        return {**state, "drawn": [context.version, times]}, drawn

    @staticmethod
    def _ranked(candidates: Sequence[int], losses: Mapping[int, float], unheard: float = -math.inf) -> list[int]:
        """By falling loss; equal ones stay in the order of their draw."""
        return sorted(candidates, key=lambda client: -losses.get(client, unheard))

    def measured(self, setup: Setup, state: State, report: Report) -> State:
        return _heard(state, report.client, report.measures["loss"])

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        if self.variant != "rpow" or not report.fresh or report.loss is None:
            return state
        return _heard(state, report.client, report.loss)


def _heard(state: State, client: int, loss: float) -> State:
    if not math.isfinite(loss):
        return state
    return {**state, "losses": persistent(state["losses"]).set(client, loss)}
