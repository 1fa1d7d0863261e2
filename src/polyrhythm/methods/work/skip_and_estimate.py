"""CCFL: clients that cannot afford every visit skip some, and what is then sent or kept in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, final

from annotated_types import Ge, Le

from polyrhythm.base.messages import Report, State, SubstituteKind
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Need, Outcome, Setup, Visit
from polyrhythm.methods.privacy.effects import INSIDE, inside
from polyrhythm.methods.secure_sum.effects import SumEffect, needs_single, works_in_sums
from polyrhythm.methods.work.base import Plan, Substitute, WorkModifier
from polyrhythm.methods.work.budgets import EPSILON, Budgets, Levels, part_of

_REMEMBERED = ("steps", "travel", "pull", "rate")
Schedule = Literal["ad_hoc", "round_robin", "exhaust"]


@dataclass(frozen=True, kw_only=True)
class Skipping(WorkModifier):
    """Base of what a client does with a budget p_i below 1.

    Args:
        budgets: p_i; None for the fleet's, else the paper's four levels.
        schedule: "ad_hoc": trains with probability p_i, an independent coin per visit; "round_robin": once every
            1 / p_i turns; "exhaust": in all versions up to p_i * R, then never again.
        turns: what round_robin counts: "versions" (the paper's rounds) or the client's own "visits".
        phases: "synchronised": all clients count from the same turn (appendix A.7); "staggered": each client i starts
            i turns into its period.
    """

    budgets: Budgets | None = None
    schedule: Schedule = "ad_hoc"
    turns: Literal["versions", "visits"] = "versions"
    phases: Literal["synchronised", "staggered"] = "synchronised"

    of_a_release = True

    @property
    def by_versions(self) -> bool:
        """Whether clients skip by the version that they are sent."""
        return self.schedule == "round_robin" and self.turns == "versions"

    def needs(self) -> frozenset[Need]:
        return frozenset({"total_rounds"}) if self.schedule == "exhaust" else frozenset()

    def share(self, setup: Setup, client: int) -> float:
        """p_i."""
        budgets = self.budgets or setup.budgets or Levels()
        return budgets.share(client, setup.population, setup.seed)

    def trains(self, setup: Setup, visit: Visit) -> bool:
        """Whether the schedule lets the client train in this visit."""
        share = self.share(setup, visit.client)
        if self.schedule == "ad_hoc":
            return bool(stream(visit.seed, "work", "coin", visit.client, visit.visit).random() < share)
        if self.schedule == "exhaust":
            return visit.version <= part_of(visit.total_rounds or 0, share)
        turn = visit.version if self.turns == "versions" else visit.visit
        turn += visit.client if self.phases == "staggered" else 0
        return part_of(turn, share) > part_of(turn - 1, share)


@final
@dataclass(frozen=True, kw_only=True)
class SkipAndEstimate(Skipping):
    """CCFL, Strategy 3: a client that skips sends its last movement again.

    Trains by its schedule; otherwise its update is that of its last accepted visit that trained. The movement is kept
    by the client (Algorithm 1), by the server, which then hears no more than that the client skips (Algorithm 2), or by
    one or the other, client by client (Algorithm 3): the same models, other bytes and memory.

    Neutral value: budgets of 1, with which every visit trains and no plan changes. One vector per client that has
    trained, where `storage` says; a skipped visit takes no local FLOPs, and sends a vector only from the client's own
    storage. Steps, travel and rate are remembered with the movement; buffers are not, a substitute carries none.

    Args:
        storage: "client", "server", or "mixed".
        server_share: with "mixed", the share of clients, the first ones, whose movement the server keeps.
        cold_start: what a client does that is to skip and has no movement yet: "train" for real (the code), "zero" (a
            movement of nothing), or "exclude" (silence).
        expire: trains for real once the movement would be older than so many versions; None for never.

    Reference: "CCFL: Computationally Customized Federated Learning", Algorithms 1, 2 and 3.
    """

    storage: Literal["client", "server", "mixed"] = "client"
    server_share: Annotated[float, Ge(0), Le(1)] = 0.5
    cold_start: Literal["train", "zero", "exclude"] = "train"
    expire: Count | None = None

    privacy = inside("puts one vector of the client's own in the place of its update, before it is clipped")

    def under_secagg(self) -> SumEffect:
        if self.storage == "client":
            return works_in_sums("sends a vector that a client keeps itself")
        return needs_single("the server keeps the movements of clients", 'storage="client"')

    @property
    def substitutes(self) -> frozenset[SubstituteKind]:
        return frozenset({"movement", "silence"})

    @property
    def sends_alike(self) -> bool:
        return True

    def at_server(self, setup: Setup, client: int) -> bool:
        if self.storage == "mixed":
            return client < part_of(setup.population, self.server_share)
        return self.storage == "server"

    def server_start(self, setup: Setup) -> State:
        return {"movements": setup.table()}

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        if self.trains(setup, visit):
            return plan
        if "version" not in state:
            return self._cold(setup, visit, plan)
        age = _age(visit, state)
        if self.expire is not None and age > self.expire:
            return plan
        kept = {name: state[name] for name in ("update", "packed", *_REMEMBERED) if name in state}
        return replace(plan, substitute=Substitute(kind="movement", age=age, **kept))

    def _cold(self, setup: Setup, visit: Visit, plan: Plan) -> Plan:
        if self.cold_start == "train":
            return plan
        if self.cold_start == "exclude":
            return replace(plan, substitute=Substitute(kind="silence"))
        nothing = None if self.at_server(setup, visit.client) else setup.zeros()
        return replace(plan, substitute=Substitute(kind="movement", update=nothing, steps=1))

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        if brief.get("at_server"):
            return {**state, **_remembered(outcome)}, {}
        # What was sent is what counts, at either end, where updates travel compressed.
        return {**state, **_remembered(outcome), "update": outcome.sent, "packed": outcome.packed}, {}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {"at_server": True} if self.at_server(setup, client) else {}

    def fill(self, setup: Setup, state: State, report: Report) -> Report:
        if report.substitute != "movement" or report.update is not None:
            return report
        kept = state["movements"].get(report.client)
        return replace(report, update=setup.zeros() if kept is None else kept)

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        if not report.fresh or not self.at_server(setup, report.client):
            return state
        return {**state, "movements": state["movements"].set(report.client, report.update)}


@final
@dataclass(frozen=True, kw_only=True)
class SkipAndResendModel(Skipping):
    """CCFL's Strategy 2: a client that skips sends its last local model again.

    A model from long ago drags the mean back to where it was, which is what the paper holds against it. A client
    without a last model trains for real.

    Neutral value: budgets of 1, which change no plan. Client state: its last model; a skipped visit takes no local
    FLOPs and sends a whole vector.

    Reference: CCFL, section 4, Strategy 2.
    """

    privacy = inside("puts one vector of the client's own in the place of its update, before it is clipped")
    in_sums = works_in_sums("sends a vector that a client keeps itself")

    @property
    def substitutes(self) -> frozenset[SubstituteKind]:
        return frozenset({"model"})

    def needs(self) -> frozenset[Need]:
        return super().needs() | {"previous"}

    @property
    def sends_alike(self) -> bool:
        return True

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        if self.trains(setup, visit) or "version" not in state:
            return plan
        kept = {name: state[name] for name in _REMEMBERED}
        return replace(plan, substitute=Substitute(kind="model", age=_age(visit, state), **kept))

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        return {**state, **_remembered(outcome)}, {}


@final
@dataclass(frozen=True, kw_only=True)
class SkipSilently(Skipping):
    """CCFL's Strategy 1: a client that skips is left out of the version.

    If everybody skips, the model stays as it is. Neutral value: budgets of 1, which change no plan. No state; a
    skipped visit takes no FLOPs and sends nothing.

    Reference: CCFL, section 4, Strategy 1.
    """

    privacy = inside("puts one vector of the client's own in the place of its update, before it is clipped")

    @property
    def substitutes(self) -> frozenset[SubstituteKind]:
        return frozenset({"silence"})

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return plan if self.trains(setup, visit) else replace(plan, substitute=Substitute(kind="silence"))


@final
@dataclass(frozen=True, kw_only=True)
class BudgetSteps(WorkModifier):
    """The equal-compute baseline: a client with budget p_i takes ceil(p_i * K) of its K steps in every visit.

    Neutral value: budgets of 1, which change no plan. No state.

    Args:
        budgets: as for `SkipAndEstimate`.

    Reference: the reduced-step baseline of CCFL's code.
    """

    budgets: Budgets | None = None

    decides = "by how much steps are cut"
    privacy = INSIDE

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        share = (self.budgets or setup.budgets or Levels()).share(visit.client, setup.population, setup.seed)
        return replace(plan, steps=max(1, math.ceil(share * plan.steps - EPSILON)))


def _remembered(outcome: Outcome) -> dict[str, Any]:
    """What weighings will want to know of this visit when its movement or model is sent again."""
    return {"version": outcome.version, **{name: getattr(outcome, name) for name in _REMEMBERED}}


def _age(visit: Visit, state: State) -> int:
    """Versions since the visit that is remembered; 0 where a client works on an older version than it did then."""
    return max(0, int(visit.version - state["version"]))
