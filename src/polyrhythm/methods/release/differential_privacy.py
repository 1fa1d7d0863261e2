"""How is what a single client says hidden in a version of the model?"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final

import torch
from annotated_types import Gt, Lt
from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count, NonNegative, Positive
from polyrhythm.base.streams import HiddenDraws, kept_from_others, normals
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Spans
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.privacy import accounting, correlated
from polyrhythm.methods.privacy.account import Account, counted
from polyrhythm.methods.privacy.accounting import Accountant, Sampling
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.privacy.effects import PrivacyEffect
from polyrhythm.methods.release.base import Hidden, ReleaseModifier
from polyrhythm.methods.release.lengths import length_of, lengths_of, surely_within
from polyrhythm.methods.secure_sum.effects import works_in_sums


@final
@dataclass(frozen=True, kw_only=True)
class Dp(ReleaseModifier):
    """Differential privacy of clients: clips what each of them adds to a version, and adds noise to the sum.

        D = (sum over the release of v_i * min(1, clip / |v_i|) + Normal(0, (noise * clip)^2)) / m,
        v_i = w_i * scale_i * update_i

    with w_i = 1, or min(n_i / cap, 1) with a `cap`, and m fixed: how many a version has on average (rate * N under
    `poisson`, else the cohort, or the size of a buffer), or as many as the version was to have, where a part decides
    that for each (`random_resize`, `critical_periods`). So m is no secret, and a version is made whatever came: of
    nobody, too, of noise alone. A report of which nothing can be used counts as zero. Noise is on every weight, also on
    those that no client moved. Several updates of one client in one version are added before they are clipped.

    With `secagg` each client clips its own v_i, to 1 - sqrt(P) / (2 s) clips: rounded to s steps a clip it is no longer
    than one, so that the account is the same. The server reads their sum, and adds noise to it. A sum that cannot be
    read makes a version of noise alone.

    Neutral situation: noise = 0, nothing longer than clip, equal clients and everybody of a cohort heard: the plain
    mean, to rounding. Server state: three numbers; where nobody's chances are known, how many versions each client was
    in. No extra bytes; one norm for each update, P normal draws for each version.

    What the noise is worth in epsilon follows from who takes part (`poisson`, `uniform`, any other schedule), by the
    library dp-accounting (`pip install "polyrhythm[privacy]"`). Parts that look at single updates in another way are
    refused. A simulation only shows what a guarantee would be: its noise follows from the seed, and floating-point
    numbers are not real ones.

    Args:
        noise: z, the standard deviation of the noise on the sum, in clips; 0 adds none, and guarantees nothing. None
            for 1, or for what `epsilon` takes.
        epsilon: what all rounds together may cost: the noise is found before the first one.
        delta: the probability that epsilon may not hold; less than 1 / N.
        clip: the most by which one client moves the sum, Euclidean, in units of the weights; or `adaptive(…)`, which
            finds it.
        bands: b, over how many versions noise is correlated (`methods/privacy/correlated.py`): later draws take back a
            part of earlier ones, so that less is left of it in the end. With `cycle`, in rounds, and a fixed clip; at
            most N // cohort. The server keeps b - 1 vectors. None, or 1, for independent noise.
        cap: samples beyond which a client counts no more, where clients count by samples.
        accountant: of the final statement: "pld" (privacy loss distributions), or "rdp" (Renyi), which is quicker and
            says more. During the run it is always "rdp".

    Raises:
        UserError: noise and epsilon; before the first version, more noise than an adaptive clip can share.

    Departures: the paper divides by the expected sum of weights; here by that of clients, and weights are at most 1.

    Reference: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
    Algorithm 1 with flat clipping and the estimator f_f.
    """

    noise: NonNegative | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    clip: Positive | Adaptive = 1.0
    bands: Count | None = None
    cap: Count | None = None
    accountant: Accountant = "pld"

    decides = "how clients are hidden"
    of_a_release = True
    privacy = PrivacyEffect(words="clips what each client adds, and adds noise to the sum")
    in_sums = works_in_sums("has each client clip its own update, and adds noise to the sum")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is not None and self.epsilon is not None:
            raise UserError(
                f"dp: noise = {self.noise:g} and epsilon = {self.epsilon:g}",
                expected="one of them",
                why="each follows from the other, with the rounds and who takes part",
                fix="leave noise out to have it found, or epsilon to have it told",
            )

    def describe(self) -> dict[str, Any]:
        """As plain data; without bands where noise is independent, as before there were any: so digests stay."""
        described = super().describe()
        if not self.correlates:
            del described["bands"]
        return described

    @property
    def private(self) -> bool:
        return True

    def needs(self) -> frozenset[Need]:
        return frozenset() if self.epsilon is None and not self.correlates else frozenset({"total_rounds"})

    @property
    def correlates(self) -> bool:
        """Whether noise of one version has to do with that of another."""
        return self.bands is not None and self.bands > 1

    def server_start(self, setup: Setup) -> State:
        sampling = setup.sampling
        assert sampling is not None, "a recipe asks for its own sampling"
        found = self.multiplier(sampling, setup.total_rounds)
        state: dict[str, Any] = {
            "law": sampling.law,
            "population": sampling.population,
            "cohort": sampling.cohort,
            "rate": sampling.rate,
            "noise": found,
            "clip": self.clip,
            "versions": 0,
            "visits": Map(),
        }
        if sampling.adapts:
            state |= {"adapts": True, "most": sampling.most}
        if isinstance(self.clip, Adaptive):
            return {
                **state,
                "clip": self.clip.start,
                "of_sum": self.clip.remaining(found, sampling.cohort),
                "of_count": self.clip.spread(sampling.cohort),
                "used": self.clip.start,
                "unclipped": self.clip.quantile,
            }
        if self.correlates:
            assert setup.total_rounds is not None, "a part that needs total_rounds"
            return {**state, "bands": self.bands, "of": setup.total_rounds, "earlier": ()}
        return state

    def multiplier(self, sampling: Sampling, total_rounds: int | None) -> float:
        """z, found where it is not given.

        Args:
            sampling: how clients come into versions.
            total_rounds: versions of the run; needed where epsilon is given.

        Raises:
            UserError: it cannot be found before the first round, or dp-accounting is not installed.
        """
        if self.epsilon is None:
            return 1.0 if self.noise is None else self.noise
        assert total_rounds is not None, "a part that needs total_rounds"
        if sampling.law == "bounded":
            if sampling.most is None:
                raise UserError(
                    f"dp: epsilon = {self.epsilon:g}, where nobody knows in how many versions a client will be",
                    expected="noise, or clients drawn by poisson, or by uniform where everybody is always there",
                    why="the noise that it takes follows from that number",
                    fix="dp(noise=…) with until={epsilon=…}, or pipe at_most(visits=…), or poisson(rate=…), onto the "
                    "recipe",
                )
            total_rounds = min(total_rounds, sampling.most)
        return accounting.calibrated(sampling, self.epsilon, total_rounds, self.delta, self.accountant)

    def private_mean(self, setup: Setup, state: State, release: Release) -> tuple[State, Tensor]:
        expected = _expected(state, release)
        if release.total is not None:
            mean = (release.total * (state["clip"] / expected)).to(setup.zeros(wide=True).dtype)
            count = release.tally
        else:
            updates, weights, unclipped = self.clipped(release, state["clip"])
            shares = [weight / expected for weight in weights]
            mean, count = (
                weighted_sum(updates, shares) if updates else setup.zeros(wide=True),
                unclipped - len(updates) / 2,
            )
        if spread := self.spread(state, release):
            drawn = noise(setup, release.version, mean.dtype)
            if self.correlates:
                state, drawn = _correlated(state, drawn)
            mean = mean.add_(drawn.mul_(spread))
        visits = state["visits"]
        if state["law"] == "bounded":
            for client in {report.client for report in release.reports}:
                visits = visits.set(client, visits.get(client, 0) + 1)
        found = {**state, "versions": state["versions"] + 1, "visits": visits}
        return self._adapted(setup, found, release, count), mean

    def spread(self, state: State, release: Release) -> float:
        return float(state.get("of_sum", state["noise"]) * state["clip"] / _expected(state, release))

    def _adapted(self, setup: Setup, state: State, release: Release, count: float) -> State:
        """The state with the clip of the next version, where it adapts.

        Args:
            count: the sum of b_i - 1/2 over clients.
        """
        if not isinstance(self.clip, Adaptive):
            return state
        expected = _expected(state, release)
        if state["noise"]:
            draw = kept_from_others(setup.seed, setup.secret, "noise", release.version, "count")
            count += state["of_count"] * float(draw.standard_normal(1)[0])
        unclipped = count / expected + 0.5
        clip = self.clip.moved(state["clip"], unclipped)
        return {**state, "used": state["clip"], "unclipped": unclipped, "clip": clip}

    def weight(self, num_samples: int) -> float:
        """w_i, of a client with so many samples."""
        return 1.0 if self.cap is None else min(num_samples / self.cap, 1.0)

    @property
    def takes_back(self) -> bool:
        return self.correlates

    def charged(self, state: State, versions: Sequence[Collection[int]]) -> State:
        visits = Counter(client for clients in versions for client in clients)
        known = Map(visits) if state["law"] == "bounded" else state["visits"]
        return {**state, "versions": len(versions), "visits": known}

    def clip_in_sums(self, state: State) -> float | None:
        return float(state["clip"])

    @property
    def tallies(self) -> int:
        return int(isinstance(self.clip, Adaptive))

    def clipped_alone(self, update: Tensor, num_samples: int, scale: float, clip: float, longest: float) -> Hidden:
        """What a client adds to a sum that hides it.

        Args:
            update: [P].
            num_samples: n_i.
            scale: of its update.
            clip: C.
            longest: how long it may be, in clips, so that it is no longer than one once it is rounded.
        """
        weight = self.weight(num_samples) * scale / clip
        length = abs(weight) * length_of(update)
        if not math.isfinite(length):  # which cannot be used, and counts as zero
            return Hidden(factor=0.0, tally=0.5)
        return Hidden(
            factor=weight * min(1.0, longest / length) if length else weight, tally=0.5 if length <= 1 else -0.5
        )

    def clipped(self, release: Release, clip: float) -> tuple[list[Tensor], list[float], int]:
        """One vector [P] for each client, by what it counts so that it is no longer than the clip; how many are not."""
        of_clients: dict[int, list[tuple[Report, Tensor, float]]] = {}
        for report, scale in zip(release.reports, release.scales, strict=True):
            if report.update is not None:
                said = (report, report.update, self.weight(report.num_samples) * scale)
                of_clients.setdefault(report.client, []).append(said)
        updates, weights, unclipped = list[Tensor](), list[float](), 0
        unsure = list[int]()
        for visits in of_clients.values():
            report, update, weight = visits[0]
            if len(visits) > 1:
                update, weight = weighted_sum([u for _, u, _ in visits], [w for *_, w in visits]), 1.0
            if len(visits) == 1 and surely_within(report, weight, clip):
                unclipped += 1
            else:
                unsure.append(len(updates))
            updates.append(update)
            weights.append(weight)
        for place, bare in zip(unsure, lengths_of([updates[place] for place in unsure]), strict=True):
            if (length := abs(weights[place]) * bare) > clip:
                weights[place] *= clip / length
            unclipped += length <= clip
        return updates, weights, unclipped

    def account(self, key: str, sampling: Sampling, total_rounds: int | None, *, sums_only: bool = False) -> Account:
        """The account of a run.

        Args:
            key: under which this part's state is.
            sampling: how clients come into versions.
            total_rounds: versions of the run; needed where epsilon is given.
            sums_only: whether clients clip their own updates, of which the server reads the sum.

        Raises:
            UserError: the noise cannot be found before the first round, or dp-accounting is not installed.
        """
        found = self.multiplier(sampling, total_rounds)
        weighed = "" if self.cap is None else f", weighed by its samples up to {self.cap:,},"
        if isinstance(self.clip, Adaptive):
            told = self.clip.told(found, sampling.cohort)
        else:
            of = f", correlated over {self.bands} versions," if self.correlates else ""
            told = f"clipped to {self.clip:g}, Gaussian noise of {found:.4g} clips{of} is added to the sum"
        divides = "as many as the version was to have" if sampling.resized else f"{sampling.cohort:g}"
        return Account(
            key=key,
            sampling=sampling,
            noise=found,
            wanted=self.epsilon,
            delta=self.delta,
            accountant=self.accountant,
            mechanism=f"each client's update{weighed} is {told}, and {divides} divides it, whoever came"
            + (
                ", where each client clips its own, rounding included, and the server reads sums alone"
                if sums_only
                else ""
            ),
        )

    def spent(self, state: State, accountant: Accountant = "rdp") -> float:
        """Epsilon of the versions so far; infinite without noise."""
        return accounting.epsilon(sampling_in(state), state["noise"], counted(state), self.delta, accountant)

    def measures(self, state: State) -> Mapping[str, float]:
        cost = {"epsilon": self.spent(state)} if state["noise"] else {}
        if isinstance(self.clip, Adaptive):
            return {**cost, "clip_norm": float(state["used"]), "unclipped_share": float(state["unclipped"])}
        return {**cost, "clip_norm": float(state["clip"])}


def _expected(state: State, release: Release) -> float:
    """m of a version: as many as it was to have, where that changes, else as many as they have on average."""
    known: float = state["cohort"]
    return known if release.wanted is None else float(min(release.wanted, state["population"]))


def _correlated(state: State, drawn: Tensor) -> tuple[State, Tensor]:
    """The noise of a version, in clips, from a fresh draw that is changed; and the state with what later ones need."""
    bands, version = state["bands"], state["versions"]
    found = correlated.after(drawn, state["earlier"], bands)
    earlier = (found, *state["earlier"])[: bands - 1]
    return {**state, "earlier": earlier}, found * correlated.length(bands, version, state["of"])


def sampling_in(state: State) -> Sampling:
    """How clients come into versions, from the state of `Dp`."""
    return Sampling(
        law=state["law"],
        population=state["population"],
        cohort=state["cohort"],
        rate=state["rate"],
        bands=state.get("bands", 1),
    )


def noise(setup: Setup, version: int, dtype: torch.dtype) -> Tensor:
    """Standard normal noise [P] of the version after `version`; zero where no parameter lies."""
    if setup.secret is None:
        vector = normals(setup.size, dtype, setup.seed, "noise", version)
    else:
        hidden = HiddenDraws(setup.secret, "noise", version)
        vector = torch.from_numpy(hidden.standard_normal(setup.size)).to(dtype, copy=True)
    for begin, end in _padding(setup.places, setup.size):
        vector[begin:end] = 0.0
    return vector


@functools.lru_cache(maxsize=16)
def _padding(places: Spans, size: int) -> list[tuple[int, int]]:
    """Where no parameter lies, from and to."""
    found, end = [], 0
    for offset, length in (*places, (size, 0)) if places else ():
        if offset > end:
            found.append((end, offset))
        end = offset + length
    return found
