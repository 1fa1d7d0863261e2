"""The ranks of a model's adapters, as axes along which it is cut."""

from __future__ import annotations

from torch import nn

from polyrhythm.base.adapters import Adapter, adapters_in
from polyrhythm.base.axes import Along, Axes, Axis, Dim
from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import Layout
from polyrhythm.models.low_rank import scales_of


def adapters_of(module: nn.Module, layout: Layout) -> tuple[Adapter, ...]:
    """The adapters of a module of which both factors learn, and where they lie in its vector."""
    return adapters_in(layout, scales_of(module)) if any("lora_" in s.name for s in layout.segments) else ()


def ranks_of(module: nn.Module, layout: Layout) -> Axes:
    """Axes that are the ranks of a module's adapters: the rows of A and the columns of B. All else is whole.

    Raises:
        UserError: no adapter of which both factors learn.
    """
    axes, cut = list[Axis](), dict[str, tuple[Dim, ...]]()
    for adapter in adapters_of(module, layout):
        (rank, inputs), outputs = adapter.a.shape, adapter.b.shape[0]
        along = Along(len(axes))
        axes.append(Axis(adapter.a.name, rank))
        cut |= {adapter.a.name: ((along,), (inputs,)), adapter.b.name: ((outputs,), (along,))}
    if not axes:
        raise UserError(
            f"{type(module).__name__} has no adapter of which A and B learn",
            expected="a model with low-rank adapters, of which no factor is frozen",
            why="a client of a smaller rank has fewer rows of A and columns of B",
            fix="put adapters on it: with_lora(mlp, rank=8), or hf(path=…, rank=8)",
        )
    parameters = tuple(cut.get(s.name) or tuple((side,) for side in s.shape) for s in layout.segments)
    buffers = tuple(tuple((side,) for side in slot.shape) for slot in layout.buffers)
    return Axes(tuple(axes), layout, parameters, buffers)
