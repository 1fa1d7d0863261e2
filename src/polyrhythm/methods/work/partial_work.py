"""Clients that cannot do all of their work in time do a part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Positive
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.privacy.effects import INSIDE
from polyrhythm.methods.work.base import Plan, WorkModifier


@final
@dataclass(frozen=True, kw_only=True)
class PartialWork(WorkModifier):
    """A client takes as many of its steps as fit into `seconds` on its device, and sends what it has then.

    The largest K' <= K with links + computing(K' steps) <= seconds, and at least one step. With a deadline of the same
    seconds nobody is late whose links and one step take no longer than that. Time is counted with the batches
    that come (full ones under a curriculum), and with what else a visit computes: the forward passes of frozen models,
    scores, Fisher traces.

    Neutral value: seconds that nobody needs: exactly the plan as it was. It is so too where nobody knows how fast a
    client is: a simulated fleet knows, and a node that measures its own pace. No state, no bytes.

    Args:
        seconds: from the invitation to the report, on the fleet's clock.

    Departures: the paper's experiments draw for each straggler how many of its epochs it does; here that follows from
    its device, and it may stop after any step.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, section 3.2 and Algorithm 2.
    """

    seconds: Positive = 60.0

    decides = "by when a client sends what it has"
    privacy = INSIDE

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return replace(plan, within=self.seconds)
