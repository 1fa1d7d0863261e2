"""Local steps in less memory: a batch in pieces, and activations that are computed anew for the gradient."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polyrhythm.base.errors import UserError
from polyrhythm.base.tensor_names import named_parts
from polyrhythm.base.vectors import Segment
from polyrhythm.core.local_step import Batch, Computed


@final
@dataclass(frozen=True, kw_only=True)
class Frugal:
    """What is spared of memory in a step of the torch engine, for more time.

    Args:
        micro_batch: samples that are in memory at once; the gradient of a batch is the mean of those of its pieces,
            each weighed by what its mean is over: samples, or answer tokens. None for whole batches.
        recompute: whether the activations inside of repeated blocks are computed anew when the gradient needs them.
            Changes no number: dropout draws the same again.
    """

    micro_batch: int | None = None
    recompute: bool = False

    def cuts(self, samples: int) -> bool:
        """Whether a batch of so many samples is taken in pieces."""
        return self.micro_batch is not None and samples > self.micro_batch

    def in_pieces(
        self, gradient: Tensor, batch: Batch, computed: Callable[..., tuple[Computed, Sequence[Tensor]]]
    ) -> Computed:
        """What a batch gives, piece by piece.

        Args:
            gradient: into which that of a piece is written, and at the end that of the batch, [P].
            batch: it.
            computed: computes a piece, and says what the means in it are over.
        """
        pieces, size = Pieces(gradient), self.micro_batch or len(batch[0])
        for i in range(0, len(batch[0]), size):
            found, amounts = computed(*(part[i : i + size] for part in batch))
            pieces.add(found, *(float(amount.sum()) for amount in amounts))
        return pieces.whole()

    @contextlib.contextmanager
    def around(self, module: nn.Module) -> Iterator[None]:
        """A block in which passes keep nothing of what is inside of repeated blocks but their inputs."""
        parts = blocks(module) if self.recompute else []
        try:
            for part in parts:
                vars(part)["forward"] = functools.partial(checkpoint, part.forward, use_reentrant=False)
            yield
        finally:
            for part in parts:
                vars(part).pop("forward", None)


PLAIN = Frugal()


def blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost repeated blocks of a model: two or more of one class in a list of modules."""
    found, inside = list[nn.Module](), set[int]()
    for _, part in named_parts(module):
        if id(part) in inside or not isinstance(part, nn.ModuleList) or len(part) < 2:
            continue
        if len({type(block) for block in part}) == 1 and not any("forward" in vars(block) for block in part):
            found += [block for block in part if not isinstance(block, nn.ModuleList)]
            inside |= {id(below) for block in part for below in block.modules()}
    return found


@final
class Pieces:
    """The gradients of a batch's pieces as they come.

    Args:
        gradient: into which each of them is written, and at the end that of the batch, [P].
    """

    def __init__(self, gradient: Tensor) -> None:
        self._gradient, self._sum = gradient, gradient.new_zeros(gradient.shape)
        self._unused: set[Segment] | None = None
        self._loss: Tensor | float = 0.0
        self._squares: Tensor | None = None
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._of_loss = self._of_objective = 0.0

    def add(self, found: Computed, of_loss: float, of_objective: float) -> None:
        """Takes a piece up, whose gradient is there: what its loss and its objective are means over."""
        for segment in found.unused:
            segment.of(self._gradient).zero_()
        self._sum.add_(self._gradient, alpha=of_objective)
        self._unused = set(found.unused) if self._unused is None else self._unused & set(found.unused)
        self._loss = self._loss + found.loss * of_loss
        self._of_loss, self._of_objective = self._of_loss + of_loss, self._of_objective + of_objective
        if found.squares is not None:
            self._squares = found.squares if self._squares is None else self._squares + found.squares
        if found.pair is not None:
            self._pairs.append(found.pair)

    def whole(self) -> Computed:
        """What the whole batch gives."""
        self._gradient.copy_(self._sum).div_(self._of_objective or 1.0)
        pair = None
        if self._pairs:
            current, received = zip(*self._pairs, strict=True)
            pair = torch.cat(current), torch.cat(received)
        loss: Any = self._loss / (self._of_loss or 1.0)
        return Computed(loss, tuple(self._unused or ()), pair, self._squares)


def refuse(frugal: Frugal, module: nn.Module, *, mixes: bool, buffers: bool, mean: bool, others: Sequence[str]) -> None:
    """Goes on if steps can be taken like that.

    Args:
        frugal: how.
        module: the model.
        mixes: whether it surely computes a sample from others of its batch in training.
        buffers: whether passes may change buffers of it.
        mean: whether the task's loss is a mean over samples or their parts.
        others: the parts of the recipe that look at whole batches, in words.

    Raises:
        UserError: they cannot.
    """
    if frugal.micro_batch is not None:
        whys = ["BatchNorm computes a sample from all others of its batch"] if mixes else []
        whys += [] if mean else ["the loss may be no mean over samples"]
        whys += [f"{other} looks at whole batches" for other in others]
        if whys:
            raise mixes_samples(frugal.micro_batch, whys[0])
    if frugal.recompute and (buffers or not blocks(module)):
        raise UserError(
            "recompute=true: " + ("its passes may change its buffers" if buffers else "it has no repeated blocks"),
            expected="a model with a list of blocks of one class (nn.ModuleList) and no running statistics",
            why="activations inside of such blocks are computed twice, from what was kept at their beginnings",
            fix="leave recompute out, or put the blocks into a ModuleList",
        )


def mixes_samples(micro_batch: int, found: str) -> UserError:
    """What is wrong with pieces of a batch."""
    return UserError(
        f"micro_batch={micro_batch}: {found}",
        expected="steps whose gradient is the mean of those of a batch's pieces",
        why="pieces of a batch would come to another gradient than the batch",
        fix="leave micro_batch out, with a smaller batch if memory is short; or a model with GroupNorm",
    )
