"""One line that says how a run went."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.metric_names import NAN_OUTPUTS
from polyrhythm.runs.costs import TOTALS
from polyrhythm.runs.records import VersionRecord

if TYPE_CHECKING:
    from torch import Tensor

_WINDOW = 20


@final
@dataclass
class Best:
    """Keeps the best version so far: by validation data if there are any, and only without them by the test set.

    A version chosen by the test set is no fair estimate of anything (it is the maximum of many noisy numbers), so
    `chosen_by` goes wherever the choice goes. Of equal scores the earliest wins; a score that is not finite never does,
    and neither does a version into which no client's training has gone, such as the initial model.

    Args:
        headline: the metric that decides.
        falling: whether less of it is better.
        score: of the best version; where less is better, with its sign turned.
    """

    headline: str
    falling: bool = False
    score: float = -math.inf
    chosen_by: Literal["validation", "test"] | None = None
    version: int | None = None
    test: float | None = None

    def improves(self, record: VersionRecord) -> bool:
        """Takes a version into account and says whether it is the new best."""
        judge: Literal["validation", "test"] = "test" if record.validation is None else "validation"
        if (self.chosen_by == "validation" and judge == "test") or not record.client_updates:
            return False
        score = _score(record.test if judge == "test" else record.validation, self.headline)
        if score is not None and self.falling:
            score = -score
        if score is None or (judge == self.chosen_by and score <= self.score):
            return False
        self.score, self.chosen_by, self.version = score, judge, record.version
        self.test = _score(record.test, self.headline)
        return True


@final
@dataclass
class Summary:
    """Adds up the records of one run into the fields of its `--json` line.

    Args:
        best: its best version, which it keeps.
        watched: likewise by the metric that patience goes by, if there is any.
    """

    best: Best
    watched: Best | None = None
    _scores: list[float] = field(default_factory=list)
    _final: float | None = None
    _last: VersionRecord | None = None
    _skipped: int = 0
    _why: str = ""
    _spread: Mapping[str, float] = field(default_factory=dict)

    def add(self, record: VersionRecord) -> None:
        """Takes one version into account. Versions come in order."""
        self._last = record
        self.best.improves(record)
        if self.watched is not None:
            self.watched.improves(record)
        if record.version > 0 and record.note:
            self._skipped += 1
            self._why = self._why or record.note
        self._spread = record.spread or self._spread
        if record.test is None:
            return
        self._final = _score(record.test, self.best.headline)
        if record.version > 0:  # the initial model is no result of the method
            self._scores = [*self._scores, math.nan if self._final is None else self._final][-_WINDOW:]

    def ending(self, reason: str, *, moved: bool) -> str:
        """Why a run ended, with what it did not achieve.

        Args:
            reason: why it made no more versions.
            moved: whether the model is another one than at the beginning.

        Raises:
            RunFailed: it achieved nothing: no update was accepted.
        """
        made = self._last.version if self._last else 0
        if made and self._last is not None and not self._last.client_updates:
            why = f"; the first: {self._why}" if self._why else ""
            raise RunFailed(f"the model never moved: no update was accepted in {made:,} versions{why}")
        skipped = f"; {self._skipped:,} of {made:,} versions changed nothing, the first: {self._why}"
        return reason + (skipped if self._skipped else "") + ("" if moved or not made else "; the model never moved")

    @property
    def digest(self) -> str:
        """Of the last version's model, as its record has it."""
        return "" if self._last is None else self._last.digest

    def fields(self, *, digest: str, wall_seconds: float) -> dict[str, Any]:
        """The summary so far.

        Returns:
            `final_accuracy`: the last evaluated version on the test set. `best_accuracy`: the test result of the
            version that `best_by` chose ("validation", or "test": then it is no headline). `last20_mean`, `last20_sd`:
            mean and population standard deviation over the last 20 evaluated versions, or as many as there are, the
            initial model apart. "Accuracy" is the metric named in `headline`. `global_mean` and what follows from
            clients' own tests, of the last evaluated version, as in `VersionRecord.spread`. Then the totals, and
            `digest`; `nan_outputs`, where the last version gave NaN for test samples, is for how many.
        """
        last, scores = self._last, self._scores
        mean = math.fsum(scores) / len(scores) if scores else None
        spread = None if mean is None else math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / len(scores))
        return {
            "rounds": last.version if last else 0,
            "headline": self.best.headline,
            "final_accuracy": self._final,
            "best_accuracy": self.best.test,
            "best_by": self.best.chosen_by,
            "best_version": self.best.version,
            "last20_mean": mean,
            "last20_sd": spread,
            **self._spread,
            **{cost.name: getattr(last, cost.column or cost.name) if last else 0 for cost in TOTALS},
            "faults": dict(last.faults) if last else {},
            **({NAN_OUTPUTS: int(broken)} if (broken := ((last and last.test) or {}).get(NAN_OUTPUTS)) else {}),
            "skipped": self._skipped,
            "wall_seconds": wall_seconds,
            "digest": digest,
        }


def model_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of a model: names, types, shapes and every bit of its weights and buffers, in order of name.

    Equal digests mean bit-equal models; -0.0 and 0.0 are not bit-equal.
    """
    from polyrhythm.base.vectors import content_of

    total = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu()
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        total.update(content_of(tensor))
    return total.hexdigest()


def _score(metrics: Mapping[str, float] | None, headline: str) -> float | None:
    value = None if metrics is None else metrics.get(headline)
    return value if value is not None and math.isfinite(value) else None
