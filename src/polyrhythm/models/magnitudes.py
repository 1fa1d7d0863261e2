"""Which weights of a module are ranked by their size: those of linear layers and convolutions."""

from __future__ import annotations

from torch import nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.magnitudes import Magnitudes
from polyrhythm.base.tensor_names import joined, named_parts
from polyrhythm.base.vectors import Layout

_RANKED = (nn.Linear, nn.modules.conv._ConvNd)


def magnitudes_of(module: nn.Module, layout: Layout) -> Magnitudes:
    """The weights of a module that are ranked.

    Args:
        module: the model.
        layout: of its vector.

    Raises:
        UserError: it has neither a linear layer nor a convolution.
    """
    named = named_parts(module)
    names = {joined(prefix, name) for prefix, part in named if isinstance(part, _RANKED) for name in part._parameters}
    spans = tuple((s.offset, s.size) for s in layout.segments if s.name in names)
    if not spans:
        raise UserError(
            f"{type(module).__name__} has no weights to rank",
            expected="a model with linear layers or convolutions whose weights learn",
            why="a client that holds the largest weights needs some that may be left out",
            fix="use such a model, or a recipe in which every client trains all of it",
        )
    return Magnitudes(layout, spans)
