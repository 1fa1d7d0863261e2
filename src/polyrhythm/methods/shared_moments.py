"""With which moments does a client's optimiser begin, if clients share them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.mechanism import Outcome, Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single

SHARED: Mapping[str, tuple[str, ...]] = {"first": ("first",), "largest": ("second", "largest")}
"""What is shared, and what of the local optimiser begins with it."""


@final
@dataclass(frozen=True, kw_only=True)
class SharedMoments(Correction):
    """FedLALR: clients begin with the mean of the moments that the last ones ended with.

    At the client m, v and h of `local_amsgrad` begin with the server's m, h and h. After the visit the client sends m
    and h; at the server each becomes the mean of those in the release, by their shares: m = sum_i share_i * m_i.

    Neutral situation: the first version, which is local AMSGrad. There is no neutral value. Two vectors of server
    state; two extra vectors down and two up.

    Departure: a report in whose moments something is not a number, or h below 0, is refused.

    Reference: Sun, Shen, Chen, Sun, Li, Sun, Tao, "FedLALR: Client-Specific Adaptive Learning Rates Achieve Linear
    Speedup for Non-IID Data", 2023. Of the paper only the abstract was found; the algorithm is that of fedbrew.
    """

    decides = "with which moments a client's optimiser begins"
    of_a_release = True
    past_the_mean = True
    why_whole = "sends moments to begin with, and of a coordinate that nobody of a version has held there are none"
    privacy = refused("each client sends more than its update, which would go into everybody's steps without noise")
    in_sums = needs_single("each client sends its moments beside the update, bare")

    @property
    def extra_vectors(self) -> int:
        return len(SHARED)

    @property
    def sends_alike(self) -> bool:
        return True

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {name: vector.to(setup.dtype) for name, vector in state.items()}

    def moments(self, brief: State) -> Mapping[str, Tensor]:
        return {name: brief[source] for source, names in SHARED.items() if source in brief for name in names}

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        if outcome.steps == 0:
            return state, {}
        return state, {name: vector.clone() for name in SHARED if isinstance(vector := outcome.moments[name], Tensor)}

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        sent = report.extras.get(self.label(), {})
        for name in SHARED if report.fresh and report.steps else ():
            vector = sent.get(name)
            if vector is None:
                return Fault("missing", f"its optimiser's {name} moment is missing")
            if not isinstance(vector, Tensor) or vector.shape != (setup.size,) or vector.dtype != setup.dtype:
                return Fault("shape", f"its optimiser's {name} moment does not have the model's layout")
            if name == "largest" and bool((vector < 0).any()):
                return Fault("not_finite", "a second moment below 0, of which there is no root")
        return None

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        sent = [(e, s) for e, s in zip(release.extras(self.label()), release.shares, strict=True) if e]
        total = sum(share for _, share in sent)
        if not total:
            return state
        shares = [share / total for _, share in sent]
        return {name: weighted_sum([extra[name] for extra, _ in sent], shares) for name in SHARED}
