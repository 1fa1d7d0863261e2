"""On what does the server step: on updates, or on how far each client's model is from the one that it sent last?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class LastModels(ReleaseModifier):
    """The server adds up by how much the models of clients differ from the ones that they sent last.

    D = 1/N * sum over the release of (w_i - y_i), then y_i <- w_i: w_i = w0_i + scale_i * update_i is the model that
    client i sends, y_i the one that it sent before, at first the initial model, and N are the clients that hold data.
    With plain averaging at the server its model is the mean of all y_i at all times, whoever comes how often: a client
    that is slow counts as much as one that is quick, without any knowledge of how often each comes.

    Neutral situation: everybody in every release, where it is the plain mean to rounding. A client heard twice in one
    release counts by its later dispatch. With another server step the mean is no longer kept.

    Where clients hold fixed parts of the model, N is, of each coordinate, the clients that hold it.

    Server state: one model per client heard, N * P in the end, and the initial one; and the models that somebody under
    way was sent: one vector per version in use. No extra bytes: the paper's client sends w_i - y_i, which the server
    makes of the update.

    Reference: Iakovidou, Kim, "Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under
    Arbitrary Delays", 2024, Algorithm 1 (AREA).
    """

    decides = "which updates the server steps on"
    of_a_release = True
    past_the_mean = True
    by_coordinate = "fixed"
    of_all_clients = True
    privacy = refused("it adds up what clients said in earlier versions, past the clipped sum")
    in_sums = needs_single("it keeps what each client said last")

    def needs(self) -> frozenset[Need]:
        return frozenset({"base"})

    def server_start(self, setup: Setup) -> State:
        return {"last": setup.table(), "first": None}

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        last = state["last"]
        first = release.weights.clone() if state["first"] is None else state["first"]
        newest = {
            report.client: base.to(mean.dtype) + report.update.to(mean.dtype) * scale
            for report, base, scale in zip(release.reports, release.bases, release.scales, strict=True)
            if report.update is not None
        }
        moves = [model.double() - last.get(client, first) for client, model in newest.items()]
        if (parts := setup.fixed_parts) is not None:  # what a client does not hold stays as it was
            moves = [parts.held(client, move) for client, move in zip(newest, moves, strict=True)]
            newest = {c: (last.get(c, first) + move).to(mean.dtype) for c, move in zip(newest, moves, strict=True)}
        for client, model in newest.items():
            last = last.set(client, model)
        if parts is not None and moves:
            total = (weighted_sum(moves, [1.0] * len(moves)) / parts.holders).to(mean.dtype)
            return {"last": last, "first": first}, total
        total = weighted_sum(moves, [1 / setup.holders] * len(moves)).to(mean.dtype) if moves else mean * 0
        return {"last": last, "first": first}, total

    def measures(self, state: State) -> Mapping[str, float]:
        return {"remembered": float(len(state["last"]))}
