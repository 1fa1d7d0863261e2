"""Where are updates clipped, if nobody knows how long they are?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt, Lt

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import NonNegative, Positive, Settings

_SHARE = 20
"""Clients of a version for one standard deviation of the noise on their count, where nobody says otherwise."""


@final
@dataclass(frozen=True, kw_only=True)
class Adaptive(Settings):
    """A clip that goes to where a quantile of the lengths lies, from one version to the next.

        b_i = 1 if |v_i| <= C, else 0                                                         not clipped
        b~ = (sum over the release of (b_i - 1/2) + Normal(0, count_noise^2)) / m + 1/2
        C <- C * exp(-rate * (b~ - quantile))                                                 for the next version

    One client moves the count by 1/2 at most. What hides it is taken from the noise z of `dp`, so that sum and count
    together are still one Gaussian mechanism of noise z: the sum has z_u = (z^-2 - (2 count_noise)^-2)^(-1/2) clips.

    Neutral value: rate = 0, with which the clip stays at its start; the sum's noise is z_u all the same. Without noise
    (z = 0) there is none on the count. State: the clip, and what was used last. One normal draw more for a version.

    Args:
        quantile: gamma, the share of updates that are not to be clipped.
        start: C of the first version, Euclidean, in units of the weights.
        rate: eta, how fast it goes: by at most e^(rate / 2) in a version where half are to be clipped, but for noise.
        count_noise: standard deviation of the noise on the count, in clients; None for m / 20. More than z / 2.

    Reference: Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS
    2021, Algorithm 1, and theorem 1 for z_u.
    """

    quantile: Annotated[float, Gt(0), Lt(1)] = 0.5
    start: Positive = 0.1
    rate: NonNegative = 0.2
    count_noise: Positive | None = None

    def spread(self, expected: float) -> float:
        """s_b, the standard deviation of the noise on the count.

        Args:
            expected: m, how many clients a version has on average.
        """
        return expected / _SHARE if self.count_noise is None else self.count_noise

    def remaining(self, noise: float, expected: float) -> float:
        """z_u, the noise on the sum in clips, so that sum and count together are one event of `noise`.

        Args:
            noise: z.
            expected: m, how many clients a version has on average.

        Raises:
            UserError: the count alone would tell as much as z allows.
        """
        spread = self.spread(expected)
        if noise >= 2 * spread:
            raise UserError(
                f"dp: noise = {noise:.4g} with an adaptive clip, where a version has {expected:g} clients on average "
                f"and the noise on their count is {spread:.4g}",
                expected=f"noise below {2 * spread:.4g}",
                why="the count of unclipped updates alone would tell as much as that noise allows, and nothing be left "
                "for their sum",
                fix=f"a larger cohort, or clip=adaptive(count_noise={noise:.3g}) or more, with which the clip is less "
                "steady",
            )
        return (noise**-2 - (2 * spread) ** -2) ** -0.5 if noise else 0.0

    def moved(self, clip: float, unclipped: float) -> float:
        """C of the next version.

        Args:
            clip: C of this one.
            unclipped: b~, the share that was not clipped, with noise.
        """
        return clip * math.exp(-self.rate * (unclipped - self.quantile))

    def told(self, noise: float, expected: float) -> str:
        """What is done to an update, as the end of "it is …".

        Args:
            noise: z.
            expected: m.
        """
        counted = f" and of {self.spread(expected):.4g} clients to the count of the shorter ones" if noise else ""
        return (
            f"clipped to a norm that adapts until a share of {self.quantile:g} is shorter, Gaussian noise of "
            f"{self.remaining(noise, expected):.4g} clips is added to the sum{counted}, together worth {noise:.4g}"
        )
