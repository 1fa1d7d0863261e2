"""The account of a run's privacy: with what noise clients are hidden, and what that has cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.methods.privacy import accounting
from polyrhythm.methods.privacy.accounting import Accountant, Sampling
from polyrhythm.methods.privacy.statement import Statement, bound, relation, sampling_words


@final
@dataclass(frozen=True, kw_only=True)
class Account:
    """Account of a recipe that hides clients.

    Args:
        key: of the part that hides them, under which its state is.
        sampling: how clients come into versions.
        noise: z, given or found.
        wanted: the epsilon for which it was found; None if it was given.
        delta: at which epsilon is told.
        accountant: of the final statement.
        mechanism: what is done to what clients say, in words.
    """

    key: str
    sampling: Sampling
    noise: float
    wanted: float | None
    delta: float
    accountant: Accountant
    mechanism: str

    def epsilon(self, count: int) -> float:
        """What so many versions cost by the final accountant, or visits of one client where these are counted."""
        return accounting.epsilon(self.sampling, self.noise, count, self.delta, self.accountant)

    def within(self, limit: float) -> int:
        """How many versions, or visits of one client, cost no more."""
        if not self.noise:
            return 0
        return accounting.versions_within(self.sampling, self.noise, limit, self.delta, self.accountant)

    def counted(self, parts: Mapping[str, State]) -> int:
        """How many there were so far, from the server's states of mechanisms."""
        return counted(parts[self.key]) if self.key in parts else 0

    def statement(self, parts: Mapping[str, State], guarantee: str, outside: tuple[str, ...]) -> Statement:
        """The privacy statement of the versions so far.

        Args:
            parts: the server's states of mechanisms; empty before there is one.
            guarantee: of which kind it is.
            outside: what it does not cover.
        """
        count, versions = self.counted(parts), int(parts[self.key]["versions"]) if self.key in parts else 0
        return Statement(
            epsilon=self.epsilon(count) if self.noise else None,
            delta=self.delta,
            unit="one client with all its data",
            relation=relation(self.sampling.law),
            sampling=sampling_words(self.sampling, count),
            mechanism=self.mechanism,
            released=f"the models of {versions:,} version{'' if versions == 1 else 's'}",
            accountant=bound(self.sampling.law, self.accountant),
            guarantee=guarantee,
            outside=outside,
        )


def counted(state: State) -> int:
    """What a law counts, from the state of `dp`: versions, or those that the busiest client was in.

    Where the schedule follows released models it is those that anybody may have been in by now.
    """
    if state["law"] != "bounded":
        return int(state["versions"])
    busiest = int(max(state["visits"].values(), default=0))
    if not state.get("adapts"):
        return busiest
    return int(state["versions"]) if state["most"] is None else min(state["versions"], max(state["most"], busiest))
