"""The first units of every width: HeteroFL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.methods.capacity.base import Widths


@final
@dataclass(frozen=True, kw_only=True)
class WidthPrefix(Widths):
    """Every client holds the first k = ⌈r · n⌉ units of each width, so a narrow model is a part of every wider one.

    ratio = 1 is exactly `whole`. No state; bytes, operations and memory are those of the narrower model.

    Reference: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for
    Heterogeneous Clients", ICLR 2021, section 3.
    """

    @property
    def _alike(self) -> bool:
        return True
