"""On what does the server step: on what has arrived, or on the last that was heard of everybody?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from immutables import Map
from torch import Tensor

from polyrhythm.base.messages import Report, State
from polyrhythm.base.portions import over_held, share_held
from polyrhythm.base.settings import Whole
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import needs_single


def remembered(state: State, release: Release, dtype: torch.dtype) -> State:
    """A state with what a release says of its clients: `last`, scale_i * update_i / rate_i by client, and its `total`.

    Of a client that is heard twice the later dispatch counts.
    """
    last, newest = state["last"], dict[int, Tensor]()
    for report, scale in zip(release.reports, release.scales, strict=True):  # in dispatch order
        if report.update is not None and _says_something(report):
            newest[report.client] = report.update.to(dtype) * (scale / report.rate)
    changes = [g.double() - last[client] if client in last else g.double() for client, g in newest.items()]
    for client, g in newest.items():
        last = last.set(client, g)
    total = state["total"] + weighted_sum(changes, [1.0] * len(changes)) if changes else state["total"]
    return {**state, "last": last, "total": total}


def _says_something(report: Report) -> bool:
    """Without a rate nothing was learned, and nothing can be divided by it."""
    return report.update is not None and report.rate > 0


@final
@dataclass(frozen=True, kw_only=True)
class LastUpdates(ReleaseModifier):
    """The server keeps the last update of every client, and steps on the mean over all of them.

    G_i <- scale_i * update_i / rate_i for every update of the release, and D = rate * 1/N * sum over all i of G_i, with
    rate_i the local learning rate of the visit, and rate that of a visit to the server's version, so that what was
    learned at a higher rate does not count for more. N are the clients that hold data. Who is heard rarely counts as
    much as who is heard often, by what it said last.

    Neutral situation: everybody in every release, where it is the plain mean to rounding. A client heard twice in one
    release counts by its later dispatch; what a client sends that skips is what it said last, at its age.

    Server state: one vector per client heard, N * P in the end, and their sum in double precision, which makes a step
    cost as much as its release is large. Where clients hold fixed parts of the model, N is, of each coordinate, the
    clients that hold it. No extra bytes. BatchNorm's statistics are those of the release.

    Args:
        unheard: "zero": who was not heard yet has said nothing, G_i = 0; "wait": no step until everybody was heard.
        within: the mean is over those updates alone that were begun from a model at most so many versions old, each
            counting as much; without any, no step is taken. None for all of them, over all N. Then a step costs as much
            as there are clients.

    Departures: the papers have every client at one rate and one number of steps; divide by them (`per_step`) for
    AFA-CS.

    Reference (`within`): Chang et al., "Mitigating Participation Imbalance Bias in Asynchronous Federated Learning",
    2025, arXiv 2511.19066 (ACED); without it, on a buffer of one, this is its ACE.

    Reference: Gu, Huang, Zhang, Huang, "Fast Federated Learning in the Presence of Arbitrary Device Unavailability",
    NeurIPS 2021, Algorithm 1 (MIFA); Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022, Algorithm 2
    (AFA-CS).
    """

    unheard: Literal["zero", "wait"] = "zero"
    within: Whole | None = None

    decides = "which updates the server steps on"
    of_a_release = True
    past_the_mean = True
    by_coordinate = "fixed"
    of_all_clients = True
    privacy = refused("what every client said last is in every version, so that no noise on one of them hides it")
    in_sums = needs_single("it keeps what each client said last")

    def server_start(self, setup: Setup) -> State:
        total = torch.zeros(setup.size, dtype=torch.float64)
        start = {"last": setup.table(), "total": total, "missing": setup.holders}
        return start if self.within is None else {**start, "begun": Map(), "counted": 0}

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        state = remembered(state, release, mean.dtype)
        last = state["last"]
        state = {**state, "missing": setup.holders - len(last)}
        if self.within is None:
            parts = setup.fixed_parts
            if parts is not None:
                return state, (state["total"] * release.rate / parts.holders).to(mean.dtype)
            return state, (state["total"] * (release.rate / setup.holders)).to(mean.dtype)
        begun = state["begun"]
        for report in filter(_says_something, release.reports):
            begun = begun.set(report.client, report.version)
        clients = [client for client in sorted(begun) if release.version - begun[client] <= self.within]
        recent = [last[client] for client in clients]
        mean = weighted_sum(recent, [release.rate / len(recent)] * len(recent)) if recent else mean
        if recent and (parts := setup.fixed_parts) is not None:
            counts = [1 / len(recent)] * len(recent)
            mean = over_held(mean, share_held([parts.part(client) for client in clients], counts, len(mean)))
        return {**state, "begun": begun, "counted": len(recent)}, mean.to(release.weights.dtype)

    def holds_back(self, setup: Setup, state: State) -> str:
        if self.unheard == "wait" and state["missing"] > 0:
            return f"{state['missing']} of {setup.holders} clients were not heard yet"
        if state.get("counted", 1) == 0:
            return f"no update that is remembered is at most {self.within} versions old"
        return ""

    def measures(self, state: State) -> Mapping[str, float]:
        return {"remembered": float(len(state["last"]))}
