"""Any module's trainable parameters as one contiguous vector, and back.

Rules of this file:

- Each parameter's segment starts on a 64-byte boundary and the gaps are zero: some BLAS calls give other bits for
  data off a 16-byte boundary, so padding is what makes "the same weights" mean the same bits.
- A parameter that the module holds twice (tied weights) has one segment.
- Frozen parameters are not in the vector; they stay in the module and never travel. Those of the copy lie
  where the module's do, so a large model of which little is trained is in memory once.
- Buffers (BatchNorm statistics, counters) travel beside the vector, each in its own dtype.
- Plain attributes that a pass changes do not travel: every visit begins with those of the module that was given.
- If all trainable parameters share one dtype, so does the vector and the parameters are views into it. If they do not,
  the vector has the smallest dtype that holds all of them exactly and the odd ones are copied at every step.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from polyrhythm.base.attributes import Attributes
from polyrhythm.base.errors import UserError
from polyrhythm.base.module_copies import copy_of, refuse_lazy
from polyrhythm.base.structure import Structure
from polyrhythm.base.tensor_names import frozen_in, joined, named_parts, state_of
from polyrhythm.base.vectors import CPU, Buffers, Layout, Segment, Slot, laid_out

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


@final
class FlatModel:
    """A private copy of a module whose trainable parameters are views into `weights` and grads into `gradient`.

    Args:
        module: any module with at least one trainable floating-point parameter. What learns is copied, never changed;
            frozen parameters share its memory.
        device: where the copy and its vectors lie.

    Raises:
        UserError: nothing to train, lazy or complex parameters, parameters that overlap in memory without being the
            same, hooks that would never run, or a module that cannot be copied.
    """

    def __init__(self, module: nn.Module, device: torch.device = CPU) -> None:
        _check(module)  # before the copy, which takes apart what shares memory
        self.module = copy_of(module, one_base=device)
        if device != CPU:
            self.module.to(device)
        self._base = frozenset(frozen_in(self.module))
        named = _trainable(self.module)
        self._parameters = [p for _, p in named]
        self.layout = _layout(self.module, named)
        self.weights = self.layout.zeros().to(device)  # [P]
        self.gradient = self.layout.zeros().to(device)  # [P]
        self._gradient_views = [s.of(self.gradient) for s in self.layout.segments]
        self._weight_views = [s.of(self.weights) for s in self.layout.segments]
        self._foreign: list[tuple[nn.Parameter, Tensor]] = []
        for parameter, segment in zip(self._parameters, self.layout.segments, strict=True):
            view = segment.of(self.weights)
            view.copy_(parameter.detach())
            if segment.dtype == self.layout.dtype:
                parameter.data = view
                parameter.grad = segment.of(self.gradient)
            else:
                parameter.data = parameter.detach().clone()  # leaves storage that a parameter might share
                self._foreign.append((parameter, view))
        places = list(_buffers(self.module))
        self._travelling = [p for p in places if p.travels]
        # What does not travel must not leak from one client's visit into the next.
        self._resident = [(p, p.tensor.detach().clone()) for p in places if not p.travels]
        self._unset = [(m, n) for m in self.module.modules() for n, buffer in m._buffers.items() if buffer is None]
        self._attributes = Attributes(self.module)
        self._thawed, self._evaluates = True, False
        foreign = {id(parameter) for parameter, _ in self._foreign}
        self.structure = Structure(self.module, [p for p in self._parameters if id(p) not in foreign])

    def frozen(self) -> FlatModel:
        """This model in evaluation mode, for good."""
        self._evaluates = True
        self.module.eval()
        self._attributes = Attributes(self.module)  # a module may note its mode in some
        return self

    def twin(self, device: torch.device = CPU) -> FlatModel:
        """Another private copy, with the first values of the buffers that do not travel; perhaps elsewhere.

        Only between passes: attributes are put back.
        """
        self._attributes.put_back()  # what a pass leaves behind is often nothing that can be copied
        other = FlatModel(self.module, device)
        firsts = [first.clone().to(device) for _, first in self._resident]
        other._resident = [(place, first) for (place, _), first in zip(other._resident, firsts, strict=True)]
        return other

    def fresh(self) -> FlatModel:
        """This model, with the first values of attributes, and of the buffers that do not travel."""
        self._attributes.put_back()
        for place, first in self._resident:
            place.put(first)
        for owner, name in self._unset:
            owner._buffers[name] = None
        if not self._thawed:
            self._thawed = True
            for parameter in self._parameters:
                parameter.requires_grad_()
        if self._evaluates and self._attributes:
            self.module.eval()  # which a pass of one's own may have changed
        return self

    def load(self, weights: Tensor, buffers: Buffers) -> None:
        """Copies weights [P] and buffers in; buffers that do not travel return to their first values."""
        self.weights.copy_(weights)
        for place, other in zip(self._travelling, buffers, strict=True):
            place.put(other)
        self.fresh()
        self.refresh()

    def refresh(self) -> None:
        """Writes the vector into parameters of another dtype; nothing to do where all share one."""
        for parameter, view in self._foreign:
            parameter.data.copy_(view)

    def buffers(self) -> Buffers:
        """A copy of the travelling buffers, in layout order.

        Raises:
            UserError: a pass has changed what is laid out once: other parameters, buffers of another shape, hooks.
        """
        self.structure.check()
        now = [p.now().detach() for p in self._travelling]
        for slot, buffer in zip(self.layout.buffers, now, strict=True):
            if buffer.shape != slot.shape or buffer.dtype != slot.dtype:
                raise _another_buffer(type(self.module).__name__, slot, buffer)
        return tuple(buffer.clone() for buffer in now)

    @property
    def plain(self) -> bool:
        """Whether the module surely has no state beside its parameters and buffers: it has layers of torch's only."""
        return not self._attributes

    def backward(self, loss: Tensor) -> tuple[Segment, ...]:
        """Fills `gradient` from a scalar loss; gives the segments that the loss does not depend on, left at zero."""
        gradients = self._gradients(loss)
        if all(g is not None and not g.is_sparse for g in gradients):
            torch._foreach_copy_(self._gradient_views, list(gradients))  # type: ignore[arg-type]
            return ()
        unused: list[Segment] = []
        for segment, view, gradient in zip(self.layout.segments, self._gradient_views, gradients, strict=True):
            if gradient is None:
                view.zero_()
                unused.append(segment)
            else:
                view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        return tuple(unused)

    def _gradients(self, loss: Tensor) -> Sequence[Tensor | None]:
        """The gradient of each parameter; None of those that the loss does not depend on."""
        try:
            return torch.autograd.grad(loss, self._parameters, allow_unused=True)
        except RuntimeError:
            if all(p.requires_grad for p in self._parameters):
                raise
            self._thawed = False  # a forward pass has frozen some of them
            some = iter(torch.autograd.grad(loss, [p for p in self._parameters if p.requires_grad], allow_unused=True))
            return [next(some) if p.requires_grad else None for p in self._parameters]

    @property
    def descends(self) -> bool:
        """Whether `descend` gives the bits of a step of the whole vector.

        Not in half precision, where kernels round otherwise at the end of a vector, nor for parameters of several
        types.
        """
        return not self._foreign and self.layout.dtype in (torch.float32, torch.float64)

    def descend(self, loss: Tensor, rate: float) -> tuple[Segment, ...]:
        """Steps `weights` by -rate * gradient; gives the segments that have no gradient.

        Leaves `gradient` as it was: a model-sized vector less is written and read than by `backward` and a step.
        """
        gradients = self._gradients(loss)
        segments = self.layout.segments
        used = [i for i, g in enumerate(gradients) if g is not None]
        steps = [g.to_dense() if g.is_sparse else g for g in gradients if g is not None]
        torch._foreach_add_([self._weight_views[i] for i in used], steps, alpha=-rate)
        return () if len(used) == len(segments) else tuple(s for i, s in enumerate(segments) if gradients[i] is None)

    def state(self) -> dict[str, Tensor]:
        """The module's whole state dict: trainable, frozen and tied parameters, and buffers.

        It is a copy but for what is frozen: of that it is the memory itself, which nobody changes.
        """
        return {n: t if n in self._base else t.clone() for n, t in state_of(self.module).items()}


def _another_buffer(module: str, slot: Slot, buffer: Tensor) -> UserError:
    kind = str(buffer.dtype).removeprefix("torch.")
    return UserError(
        f"{module}: buffer {slot.name!r} has shape {tuple(buffer.shape)} and type {kind} after a pass",
        expected=f"shape {slot.shape} and type {str(slot.dtype).removeprefix('torch.')}, as at first",
        why="buffers of clients are averaged one with the other, and have to have one shape",
        fix="give it its final shape in __init__; or register it with persistent=False: it then stays at the client, "
        "and begins every visit anew",
    )


def _trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Each parameter that learns under the first of its names."""
    found = dict[int, tuple[str, nn.Parameter]]()
    for prefix, part in named_parts(module):
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.requires_grad:
                found.setdefault(id(parameter), (joined(prefix, name), parameter))
    return list(found.values())


def _check(module: nn.Module) -> None:
    named = _trainable(module)
    where = type(module).__name__
    refuse_lazy(module)
    if not named:
        raise UserError(
            f"{where}: no parameter that requires a gradient",
            expected="at least one trainable parameter",
            why="there is nothing for the clients to learn",
            fix="unfreeze what should be trained: parameter.requires_grad_(True)",
        )
    odd = [(n, p.dtype) for n, p in named if not p.dtype.is_floating_point]
    if odd:
        raise UserError(
            f"{where}: parameter {odd[0][0]!r} has dtype {odd[0][1]}",
            expected="real floating-point parameters (float16, bfloat16, float32, float64)",
            why="updates are averaged and stepped as one real vector",
            fix="store such a parameter as two real ones, or freeze it",
        )
    late = next((n for n, p in named if getattr(p, "_post_accumulate_grad_hooks", None)), None)
    if late is not None:
        raise UserError(
            f"{where}: parameter {late!r} has a hook for when its gradient was accumulated",
            expected="hooks that look at the gradient itself: parameter.register_hook",
            why="gradients are computed here and never accumulated in .grad, so it would not run",
            fix="use parameter.register_hook, or a local optimiser of your own in place of a step inside a hook",
        )
    _refuse_overlap(where, named)


def _refuse_overlap(where: str, named: Sequence[tuple[str, nn.Parameter]]) -> None:
    spans = sorted((p.data_ptr(), p.data_ptr() + _reach(p), n) for n, p in named if p.numel())
    for (_, end, first), (start, _, second) in itertools.pairwise(spans):
        if start < end:
            raise UserError(
                f"{where}: parameters {first!r} and {second!r} share memory but are two Parameter objects",
                expected="tied weights that are one Parameter object under two names",
                why="two objects would be sent, stepped and decayed twice, and the tie would break",
                fix=f"assign the same object: module.{second} = module.{first}",
            )


def _reach(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last one in memory, whatever its strides."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _layout(module: nn.Module, named: Sequence[tuple[str, nn.Parameter]]) -> Layout:
    dtypes = [p.dtype for _, p in named]
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)  # float16 with bfloat16 gives float32: both fit exactly
    travelling = [place for place in _buffers(module) if place.travels]
    slots = [Slot(p.path, tuple(p.tensor.shape), p.tensor.dtype) for p in travelling]
    norms = {id(p) for part in module.modules() if isinstance(part, _NORMS) for p in part._parameters.values()}
    last = [part for part in module.modules() if isinstance(part, nn.Linear)][-1:]
    head = {id(p) for part in last for p in part._parameters.values()}
    of_norms = (
        *(name for name, p in named if id(p) in norms),
        *(place.path for place in travelling if isinstance(place.owner, _NORMS)),
    )
    return dataclasses.replace(
        laid_out([(name, tuple(p.shape), p.dtype) for name, p in named], slots, dtype),
        head=frozenset(name for name, p in named if id(p) in head),
        norms=frozenset(of_norms),
    )


@final
@dataclass(frozen=True)
class _Place:
    """Where a module keeps a buffer: a forward pass may change the tensor, or put another one in its place."""

    path: str
    owner: nn.Module
    name: str
    tensor: Tensor
    travels: bool

    def now(self) -> Tensor:
        return self.owner.get_buffer(self.name)

    def put(self, value: Tensor) -> None:
        if self.tensor.shape != value.shape:  # resized in a pass
            self.tensor.resize_(value.shape)
        self.tensor.copy_(value)
        self.owner._buffers[self.name] = self.tensor


def _buffers(module: nn.Module) -> Iterator[_Place]:
    """Every distinct buffer, once; persistent ones travel."""
    seen: set[int] = set()
    for prefix, child in named_parts(module):
        for name, buffer in child.named_buffers(recurse=False):
            if id(buffer) not in seen:
                seen.add(id(buffer))
                travels = name not in child._non_persistent_buffers_set
                yield _Place(joined(prefix, name), child, name, buffer, travels)
