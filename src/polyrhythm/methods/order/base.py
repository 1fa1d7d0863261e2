"""Which samples does a client use, in which order?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, final

import numpy as np
from annotated_types import Ge

from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Mechanism, Need, Visit
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.privacy.effects import INSIDE


class Lens(Protocol):
    """A client's samples under frozen models, in eval mode. Everything is computed when asked for, once per visit."""

    @property
    def has_previous(self) -> bool:
        """Whether this client has a last local model."""

    def losses(self, which: Literal["received", "previous"]) -> np.ndarray:
        """Loss of each sample, float [n]."""

    def predictions(self, which: Literal["received", "previous"]) -> np.ndarray:
        """Predicted class of each sample, int [n]."""

    def targets(self) -> np.ndarray:
        """Class of each sample, int [n]."""

    def fixed(self, name: str) -> np.ndarray:
        """A score that the experiment holds for each sample, float [n]."""


@final
@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a visit stands when a pass begins: steps done, and steps in all, in this visit."""

    step: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Order(Mechanism):
    """Base: the order of one pass over a client's samples."""

    def rank(self, visit: Visit, lens: Lens) -> np.ndarray | None:
        """A ranking of the samples, int64 [n], made once when a training visit begins; None if there is none."""
        return None

    def looks(self, has_previous: bool) -> int:
        """How many frozen models `rank` runs over all samples, at most."""
        return 0

    @property
    def complete(self) -> bool:
        """Whether each pass is of all samples."""
        return False

    @property
    def predicts(self) -> str:
        """The score for which it asks whether a sample's class is predicted right; empty if it does not ask."""
        return ""

    def one_pass(
        self, visit: Visit, name: tuple[int | str, ...], ranking: np.ndarray | None, progress: Progress
    ) -> np.ndarray:
        """Positions into the client's own samples, in the order of use.

        Args:
            visit: the visit in which the pass begins.
            name: names the pass: ("visit", visit, pass), or ("pass", number) where passes go on over visits.
            ranking: what `rank` gave.
            progress: where the visit stands.

        Returns:
            int64 [m], m >= 1, each between 0 and n_i - 1.
        """
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Shuffled(Order):
    """Every sample once, in a fresh uniform order for every pass. No state."""

    privacy = INSIDE

    @property
    def complete(self) -> bool:
        return True

    def one_pass(
        self, visit: Visit, name: tuple[int | str, ...], ranking: np.ndarray | None, progress: Progress
    ) -> np.ndarray:
        return stream(visit.seed, "order", visit.client, *name).permutation(visit.num_samples)


Score = Literal["global", "local", "both", "global_pred", "local_pred", "both_pred", "expert"]


@final
@dataclass(frozen=True, kw_only=True)
class Curriculum(Order):
    """Easy samples first: each pass shuffles the first g(s) samples of a ranking.

    Once per visit the samples are ranked by a score; g is the pacing function over the visit's own steps, read again
    after each pass (or each step). A visit takes as many steps as without a curriculum, on fewer distinct samples.
    Equal scores are ordered by chance.

    Neutral value: order="vanilla": exactly `Shuffled`, whatever the pacing. order="random" is not neutral: it keeps the
    pacing, so it uses few samples at first. No state of its own; "local" scores need the client's last model. One
    forward pass over the client's samples per visit and model.

    Args:
        score: what is easy. "global": low loss under the received model; "local": under the client's last model (the
            received one until there is one); "both": the sum; "..._pred": whether the prediction is right, and
            "both_pred": whether the two models agree, without labels; "expert": low loss under a model trained before,
            see `polyrhythm expert`.
        pacing: g.
        order: "curriculum" (easy first), "anti" (hard first), "random", "vanilla".
        refresh: "pass" reads g after each pass (the code), "step" after each step (Algorithm 1).
        least: fewest samples in use; 32 in the code. Algorithm 1 has 1.
        restart: "visit": pacing starts afresh with every visit (the paper); "training": it runs over the whole run.

    Reference: "When do curricula work in federated learning?", ICCV 2023, Algorithm 1 and section 3.1.
    """

    score: Score = "global"
    pacing: Pacing = field(default_factory=Pacing)
    order: Literal["curriculum", "anti", "random", "vanilla"] = "curriculum"
    refresh: Literal["pass", "step"] = "pass"
    least: Annotated[int, Ge(1)] = 32
    restart: Literal["visit", "training"] = "visit"

    privacy = INSIDE

    @property
    def complete(self) -> bool:
        return self.order == "vanilla"

    @property
    def predicts(self) -> str:
        return self.score if self.order in ("curriculum", "anti") and self.score.endswith("_pred") else ""

    def needs(self) -> frozenset[Need]:
        asked: set[Need] = set()
        ranked = self.order in ("curriculum", "anti")
        if ranked and self.score in ("local", "both", "local_pred", "both_pred"):
            asked.add("previous")
        if ranked and self.score == "expert":
            asked.add("expert")
        if self.restart == "training":
            asked.add("total_rounds")
        return frozenset(asked)

    def rank(self, visit: Visit, lens: Lens) -> np.ndarray | None:
        if self.order == "vanilla":
            return None
        chance = stream(visit.seed, "order", visit.client, "ties", visit.visit).permutation(visit.num_samples)
        if self.order == "random":
            return chance
        hardness = self._hardness(lens)[chance]
        order = np.argsort(hardness if self.order == "curriculum" else -hardness, kind="stable")
        return chance[order]

    def looks(self, has_previous: bool) -> int:
        if self.order not in ("curriculum", "anti") or self.score == "expert":
            return 0
        return 2 if has_previous and self.score in ("both", "both_pred") else 1

    def _hardness(self, lens: Lens) -> np.ndarray:
        local: Literal["received", "previous"] = "previous" if lens.has_previous else "received"
        if self.score == "expert":
            return lens.fixed("expert")
        if self.score == "global":
            return lens.losses("received")
        if self.score == "local":
            return lens.losses(local)
        if self.score == "both":
            total: np.ndarray = lens.losses("received") + lens.losses(local)
            return total
        if self.score == "both_pred":
            return _differ(lens.predictions("received"), lens.predictions(local))
        predicted = lens.predictions("received" if self.score == "global_pred" else local)
        return _differ(predicted, lens.targets())

    def in_use(self, visit: Visit, progress: Progress) -> int:
        """How many samples the next pass draws from."""
        step, steps = progress.step, progress.steps
        if self.restart == "training":
            step, steps = visit.version * steps + step, (visit.total_rounds or 1) * steps
        return min(visit.num_samples, max(self.pacing.count(visit.num_samples, step, steps), self.least, visit.least))

    def one_pass(
        self, visit: Visit, name: tuple[int | str, ...], ranking: np.ndarray | None, progress: Progress
    ) -> np.ndarray:
        generator = stream(visit.seed, "order", visit.client, *name)
        if ranking is None:
            return generator.permutation(visit.num_samples)
        count = self.in_use(visit, progress)
        shuffled: np.ndarray = ranking[:count][generator.permutation(count)]
        return shuffled[: visit.batch] if self.refresh == "step" else shuffled


def _differ(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1.0 where two arrays differ, 0.0 where they agree."""
    different: np.ndarray = np.not_equal(first, second)
    return different.astype(np.float64)
