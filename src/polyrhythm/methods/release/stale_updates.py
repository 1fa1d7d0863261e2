"""What do those count who are not heard in a version: nothing, or what they said last?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, final

import torch
from annotated_types import Ge, Le
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.portions import over_held, share_held
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.release.last_updates import remembered
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class StaleUpdates(ReleaseModifier):
    """Corrects the mean of a version by what was remembered of its clients and of all clients.

    D + beta * (1/N * sum over all i of h_i - sum over the release of share_i * h_i), with h_i what client i said last,
    as it was before this version: scale_i * update_i / rate_i, times the rate of a visit to the server's version, and 0
    for who was not heard yet. N are the clients that hold data. The bracket is zero on average where clients are drawn
    evenly, so beta trades the variance of who happens to be heard against the age of what the others said.

    beta = 0 is exactly no correction, and so is the first version. Everybody in every release is the plain mean to
    rounding. A client heard twice in one release is corrected twice by the same h_i, and its later dispatch is kept.

    Server state: one vector per client heard, N * P in the end, and their sum in double precision. No extra bytes.
    Where clients hold fixed parts of the model, N and the shares of a release are, of each coordinate, those of the
    clients that hold it.

    Args:
        beta: 0 to 1. FedVARP and CA2FL have 1, FedStale tunes it.

    Departures: the papers have every client at one rate. FedVARP's paper steps on the mean of all h_i also in a round
    in which nobody came; here that version is skipped, as in its authors' code.

    Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi, "FedVARP: Tackling the Variance Due to Partial Client
    Participation in Federated Learning", UAI 2022, Algorithm 1; Rodio, Neglia, "FedStale: Leveraging Stale Client
    Updates in Federated Learning", ECAI 2024; Wang, Cao, Wu, Chen, Chen, "Tackling the Data Heterogeneity in
    Asynchronous Federated Learning with Cached Update Calibration", ICLR 2024 (CA2FL, on a buffer).
    """

    beta: Annotated[float, Ge(0), Le(1)] = 1.0

    decides = "which updates the server steps on"
    of_a_release = True
    past_the_mean = True
    by_coordinate = "fixed"
    of_all_clients = True
    privacy = refused("it adds what clients said in earlier versions, past the clipped sum")
    in_sums = needs_single("it keeps what each client said last")

    def server_start(self, setup: Setup) -> State:
        if not self.beta:
            return {}
        return {"last": setup.table(), "total": torch.zeros(setup.size, dtype=torch.float64)}

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        if not self.beta:
            return state, mean
        last = state["last"]
        heard = [(last[r.client], s) for r, s in zip(release.reports, release.shares, strict=True) if r.client in last]
        if len(last):  # else there is nothing to correct by, and 0 is not added
            known = weighted_sum([h.double() for h, _ in heard], [s for _, s in heard]) if heard else torch.zeros(())
            if (parts := setup.fixed_parts) is not None:
                if heard and release.portions:
                    known = over_held(known, share_held(release.portions, release.shares, len(mean)))
                bracket = state["total"] / parts.holders - known
            else:
                bracket = state["total"] / setup.holders - known
            mean = torch.add(mean, bracket.to(mean.dtype), alpha=self.beta * release.rate)
        return remembered(state, release, mean.dtype), mean

    def measures(self, state: State) -> Mapping[str, float]:
        return {"remembered": float(len(state["last"]))} if state else {}
