"""Clients that will be away soon come first: those that are often there can be asked later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge
from immutables import Map

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.privacy.effects import drawing


@final
@dataclass(frozen=True, kw_only=True)
class AvailabilitySampling(Participation):
    """REFL's selection: of the clients that are there, those come first that are least likely to be there next time.

    p_i = (1 + s_i) / (1 + t_i): t_i how often client i was there when a version began, s_i how often it was still there
    at the next one. Equal ones come in the order of a uniform draw. Who was invited rests for `rest` versions: before
    these are over it comes after all others, the longest rested first. Places are those of the cohort that visits under
    way leave free, so that a version is the smaller, the more late updates are still to come.

    Where nobody ever leaves, and with rest = 0, it is exactly the uniform draw. Server state: three numbers per client
    seen; O(N log N) per version, since all are asked whether they are there.

    Departure: in the paper a client predicts whether it will be there in the next slot, by a model of its past, and the
    authors' program reads it from the trace of the simulation; here the server learns how often a client stays, on
    nodes as well.

    Args:
        cohort: clients per version; None for the cohort of the participation it takes the place of.
        rest: versions for which a client is not invited again.

    Reference: Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023,
    intelligent participant selection, and the authors' program, which has rest = 5.
    """

    cohort: Count | None = None
    rest: Annotated[int, Ge(0)] = 5

    privacy = drawing("bounded", "whoever is rarest there comes first")

    @property
    def of_rounds(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"version": -1, "there": [], "stays": Map(), "invited": Map()}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        everybody = context.roster.all()
        if context.version != state["version"]:
            present = context.roster.present(everybody)
            stays = self._learned(state, present)
            state = {**state, "stays": stays, "there": list(present), "version": context.version}
        stays, invited, places = state["stays"], state["invited"], context.places(self.size)
        drawn = context.roster.draw(len(everybody), context.draws(setup), context.busy) if places else ()

        def wanted(client: int) -> tuple[int, float]:
            rested = context.version - invited.get(client, -1 - self.rest)
            stayed, times = stays.get(client, (0, 0))
            return (0, (1 + stayed) / (1 + times)) if rested > self.rest else (1, -rested)

        chosen = sorted(drawn, key=wanted)[:places]
        return {**state, "invited": invited.update(dict.fromkeys(chosen, context.version))}, to_train(chosen)

    @staticmethod
    def _learned(state: State, present: tuple[int, ...]) -> Map[int, tuple[int, int]]:
        """How often each stayed, of how many times, now that another version begins."""
        now, stays = frozenset(present), state["stays"]
        known = {client: stays.get(client, (0, 0)) for client in state["there"]}
        found: Map[int, tuple[int, int]]
        found = stays.update({c: (stayed + (c in now), times + 1) for c, (stayed, times) in known.items()})
        return found
