"""Readiness of the server: when a version is made, how long anybody is waited for, and when nobody is any more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from polyrhythm.base.frozen import new_unchecked, persistent, replace_unchecked
from polyrhythm.base.messages import Event, Roster, Timer
from polyrhythm.core.server_state import Flight, ServerState
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import ReleaseContext


@final
@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Rules of a recipe for what the server waits for.

    Args:
        recipe: the method.
    """

    recipe: Recipe

    def ready(self, state: ServerState, event: Event, *, refills: bool = True) -> bool:
        """Whether a version is made of what has arrived."""
        if not (state.invited or state.training or state.waiting or state.refused or state.resting):
            # Nobody has been invited yet, or everybody's answer went into the last version; or nobody was drawn for it.
            return self.recipe.participation.may_be_empty and isinstance(event, Timer)
        due, elapsed = self.recipe.due, event.time - state.began
        if due is not None:
            # began + due - began may be a hair more or less than due.
            over = passed(state.began + due, event)
            elapsed = max(elapsed, due) if over else min(elapsed, math.nextafter(due, 0.0))
        in_flight = state.training + state.measuring
        if refills and self.recipe.fills_places:
            in_flight = max(in_flight, 1)  # the place that has just become free is about to be filled
        context = new_unchecked(
            ReleaseContext, waiting=len(state.waiting), in_flight=in_flight, invited=state.invited, elapsed=elapsed
        )
        return self.recipe.releasing.ready(context)

    def stuck(self, state: ServerState, event: Event, roster: Roster) -> bool:
        """Whether a version must go on with what there is: nobody is at work, and no place could be filled.

        Where the server invites nobody, somebody may still come, until as many visits as there are clients came to
        nothing.
        """
        if not self.recipe.fills_places or state.training or state.measuring:
            return False
        may_come = not self.recipe.participation.invites and state.invited - len(state.waiting) < roster.eligible
        return not may_come and self.ready(state, event, refills=False)

    def hopeless(self, state: ServerState, roster: Roster) -> bool:
        """Whether so many visits were lost or refused, by as many as there are clients more than arrived, that it may
        last.

        Where places are refilled, there is always somebody at work to wait for.
        """
        lost = len(state.refused) - len(state.waiting)
        return self.recipe.fills_places and lost >= max(1, roster.eligible)

    def wanting(self, state: ServerState) -> bool:
        """Whether a client that comes while others are at work is of any use."""
        return self.recipe.fills_places and state.training < self.recipe.cohort

    def wake_up(self, state: ServerState, event: Event) -> float | None:
        """When the server must look again although nothing happens. A moment that is over wakes nobody again."""
        due, patience = self.recipe.due, self.recipe.patience
        if (due is None and patience is None) or not (state.training or state.measuring):
            return None
        moments = [] if due is None else [state.began + due]
        moments += [] if patience is None else [_oldest(state) + patience]
        return min((m for m in moments if not passed(m, event)), default=None)

    def give_up(self, state: ServerState, event: Event) -> ServerState:
        """Waits no longer for visits that have taken too long."""
        patience = self.recipe.patience
        if patience is None or not passed(_oldest(state) + patience, event):
            return state
        late = {d: f for d, f in state.flights.items() if not f.given_up and passed(f.sent + patience, event)}
        return given_up(state, late, f"no answer within {patience:g} s")


def passed(moment: float, event: Event) -> bool:
    """Whether a moment is over. Of all that arrives at that very moment, nothing is late: only the timer ends it."""
    return event.time > moment or (event.time == moment and isinstance(event, Timer))


def _oldest(state: ServerState) -> float:
    """When the visit was sent that somebody has waited for longest."""
    return min((f.sent for f in state.flights.values() if not f.given_up), default=math.inf)


def given_up(state: ServerState, late: Mapping[int, Flight], reason: str) -> ServerState:
    """The state in which nobody waits for some visits any more."""
    training = sum(f.kind == "train" for f in late.values())
    return replace_unchecked(
        state,
        flights=persistent(state.flights).update({d: replace_unchecked(f, given_up=reason) for d, f in late.items()}),
        training=state.training - training,
        measuring=state.measuring - (len(late) - training),
        refused=(*state.refused, *((f.client, reason) for _, f in sorted(late.items()))),
    )
