"""How far does the server step on late updates?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Release
from polyrhythm.methods.privacy.effects import timed
from polyrhythm.methods.release.base import ReleaseModifier


@final
@dataclass(frozen=True, kw_only=True)
class DelayAdaptiveStep(ReleaseModifier):
    """The server steps less far with a version in which an update is very late, whatever its rule.

    x + f * (x' - x), with x' where the server's step would go: f = 1 if no update of the release is more than `delay`
    versions late, else 1 over the delay of the latest. So it also slows adaptive steps, whose length does not follow
    that of the mean; moments are kept as they are. Neutral situation: nothing later than `delay`: exactly nothing.

    Args:
        delay: versions up to which an update is not late.

    Departures: this is the rule of the authors' code, lr / delay; the paper is quoted with min(lr, 1 / delay), which
    changes nothing at rates as small as its own.

    Reference: Wang, Wang, Lu, Chen, "FADAS: Towards Federated Adaptive Asynchronous Optimization", ICML 2024.
    """

    delay: Count = 1

    decides = "how far a late version goes"
    of_a_release = True
    privacy = timed("steps less far by the delay of whoever is in the version, which tells of coins")

    def stride(self, release: Release) -> float:
        latest = max((release.version - report.version for report in release.reports), default=0)
        return 1.0 if latest <= self.delay else 1 / latest
