"""Low-rank adapters in a vector: which parameters are the factors of which adapted layer.

An adapted layer computes with W + R + s B A in place of its weights W. They are known by their names, which are those
of peft: `….lora_A`, `….lora_B`, perhaps with more behind a dot; R, which the server alone changes, is
`….lora_residual`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from polyrhythm.base.vectors import RESIDUAL, Layout, Segment

Factor = Literal["A", "B"]
_NAMED = re.compile(rf"^(?:(.*)\.)?(lora_(?:embedding_)?([AB])|{RESIDUAL})(?:\..*)?$")


@final
@dataclass(frozen=True)
class Adapter:
    """Adapter of one layer: where the factors of W + R + s B A lie in a vector.

    Args:
        name: of the layer.
        a: A, [r, k].
        b: B, [d, r].
        residual: R, [d, k]; None where nothing is ever added to W.
        scale: s = alpha / r.
    """

    name: str
    a: Segment
    b: Segment
    residual: Segment | None = None
    scale: float = 1.0

    @property
    def rank(self) -> int:
        """r."""
        return self.a.shape[0]

    def factor(self, which: Factor) -> Segment:
        """Where A or B lies."""
        return self.a if which == "A" else self.b

    def product(self, vector: Tensor) -> Tensor:
        """s B A of a vector [P], float64 [d, k]."""
        return self.scale * (self.b.of(vector).double() @ self.a.of(vector).double())


def part_of_adapter(name: str) -> tuple[str, str] | None:
    """The adapted layer and "A", "B" or "R", if a parameter of such a name is part of an adapter."""
    found = _NAMED.match(name)
    return None if found is None else ((found[1] or "").removesuffix(".base_layer"), found[3] or "R")


@functools.lru_cache(maxsize=64)
def of_factor(layout: Layout, factor: Factor) -> tuple[Segment, ...]:
    """The parameters of a layout that are a factor of an adapter."""
    return tuple(s for s in layout.segments if (part := part_of_adapter(s.name)) is not None and part[1] == factor)


def adapters_in(layout: Layout, scales: dict[str, float]) -> tuple[Adapter, ...]:
    """The adapters of which both factors are in a layout, in order.

    Args:
        layout: of the vectors.
        scales: s of each adapted layer, by its name.
    """
    found: dict[str, dict[str, Segment]] = {}
    for segment in layout.segments:
        if (part := part_of_adapter(segment.name)) is not None:
            found.setdefault(part[0], {})[part[1]] = segment
    return tuple(
        Adapter(name=name, a=of["A"], b=of["B"], residual=of.get("R"), scale=scales.get(name, 1.0))
        for name, of in found.items()
        if "A" in of and "B" in of
    )
