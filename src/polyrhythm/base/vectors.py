"""Any module's trainable parameters as one contiguous vector, and back.

Every model-sized thing (weights, gradient, update, control variate, moment) is one 1-D tensor with a shared `Layout`.
Rules of this file:

- Each parameter's segment starts on a 64-byte boundary and the gaps are zero: some BLAS calls give other bits for
  data off a 16-byte boundary, so padding is what makes "the same weights" mean the same bits.
- A parameter that the module holds twice (tied weights) has one segment.
- Frozen parameters are not in the vector; they stay in the module and never travel.
- Hooks on parameters (`register_hook`) change gradients here as in the module that was given: copies have them, too.
- Buffers (BatchNorm statistics, counters) travel beside the vector, each in its own dtype.
- Plain attributes that a pass changes do not travel: every visit begins with those of the module that was given.
- If all trainable parameters share one dtype, so does the vector and the parameters are views into it. If they do not,
  the vector has the smallest dtype that holds all of them exactly and the odd ones are copied at every step.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from polyrhythm.base.attributes import Attributes
from polyrhythm.base.compiled import extension
from polyrhythm.base.errors import UserError
from polyrhythm.base.tensor_names import joined, named_parts, state_of

ALIGNMENT = 64  # bytes
CPU = torch.device("cpu")

Buffers = tuple[Tensor, ...]


@final
@dataclass(frozen=True)
class Segment:
    """Where one parameter lies in the vector. Offset and size count elements; dtype is the module's own."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int
    dtype: torch.dtype

    def of(self, vector: Tensor) -> Tensor:
        """This parameter's part of a vector [..., P], as a view [..., *shape]."""
        part = vector.narrow(-1, self.offset, self.size)
        return part.view((*vector.shape[:-1], *self.shape))


@final
@dataclass(frozen=True)
class Slot:
    """One buffer that travels beside the vector."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@final
@dataclass(frozen=True)
class Layout:
    """The map between a module's names and one vector of `size` elements, padding included."""

    segments: tuple[Segment, ...]
    buffers: tuple[Slot, ...]
    dtype: torch.dtype
    size: int

    @functools.cached_property
    def parameters(self) -> int:
        """How many trainable numbers there are, without padding."""
        return sum(s.size for s in self.segments)

    @functools.cached_property
    def vector_bytes(self) -> int:
        """What one vector costs on the wire: its elements in the vector's dtype, without padding."""
        return self.parameters * self.dtype.itemsize

    def zeros(self) -> Tensor:
        """A zero vector [P]."""
        return torch.zeros(self.size, dtype=self.dtype)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The vector's parts by parameter name, as views in the vector's dtype."""
        return {s.name: s.of(vector) for s in self.segments}

    def name_at(self, position: int) -> str:
        """The name of the parameter that element `position` belongs to."""
        for segment in self.segments:
            if segment.offset <= position < segment.offset + segment.size:
                return segment.name
        return "padding"


@final
class FlatModel:
    """A private copy of a module whose trainable parameters are views into `weights` and grads into `gradient`.

    Args:
        module: any module with at least one trainable floating-point parameter. It is copied, never changed.
        device: where the copy and its vectors lie.

    Raises:
        UserError: nothing to train, lazy or complex parameters, parameters that overlap in memory without being the
            same, hooks that would never run, or a module that cannot be copied.
    """

    def __init__(self, module: nn.Module, device: torch.device = CPU) -> None:
        _check(module)  # before the copy, which takes apart what shares memory
        self.module = copy_of(module)
        if device != CPU:
            self.module.to(device)
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
        """A copy of the travelling buffers, in layout order."""
        return tuple(p.now().detach().clone() for p in self._travelling)

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
        """A copy of the module's whole state dict: trainable, frozen and tied parameters, and buffers."""
        return {name: tensor.clone() for name, tensor in state_of(self.module).items()}


def _trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Each parameter that learns under the first of its names."""
    found = dict[int, tuple[str, nn.Parameter]]()
    for prefix, part in named_parts(module):
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.requires_grad:
                found.setdefault(id(parameter), (joined(prefix, name), parameter))
    return list(found.values())


Hooks = Mapping[str, tuple[Callable[[Tensor], Tensor | None], ...]]


def hooks_of(module: nn.Module) -> Hooks:
    """The hooks on a module's parameters, by the parameter's name: copies and pickles of parameters have none."""
    hooked = ((name, p._backward_hooks) for name, p in module.named_parameters() if p.requires_grad)
    return {name: tuple(hooks.values()) for name, hooks in hooked if hooks}


def hang(hooks: Hooks, module: nn.Module) -> nn.Module:
    """Registers hooks on a module's parameters."""
    for name, some in hooks.items():
        for hook in some:
            parameter: Any = module.get_parameter(name)  # torch has no types for this
            parameter.register_hook(hook)
    return module


def copy_of(module: nn.Module) -> nn.Module:
    """A deep copy, hooks on parameters included.

    Raises:
        UserError: it cannot be copied.
    """
    _refuse_computed(module)
    memo: dict[int, Any] = {}
    try:
        # With the same memo: a hook that is a method of a part of the module becomes one of the copy's.
        return hang(copy.deepcopy(hooks_of(module), memo), copy.deepcopy(module, memo))
    except Exception as error:
        raise UserError(
            f"{type(module).__name__} cannot be copied: {error}",
            expected="a module that copy.deepcopy can copy",
            why="training must leave the module you gave as it is",
            fix="give it before its first forward pass if it keeps activations as attributes; use "
            "torch.nn.utils.parametrizations in place of the old weight_norm",
        ) from error


def refuse_lazy(module: nn.Module) -> None:
    """Goes on if all parameters and buffers have a shape.

    Raises:
        UserError: a layer takes its shape in its first pass only.
    """
    kinds = {nn.parameter.UninitializedParameter: "parameter", nn.parameter.UninitializedBuffer: "buffer"}
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if type(tensor) in kinds:
            raise UserError(
                f"{type(module).__name__}: {kinds[type(tensor)]} {name!r} has no shape yet",
                expected="a model whose parameters all exist",
                why="the weights are laid out once, before the first client trains",
                fix="run one batch through the model (lazy layers take their shape then), and give that model",
            )


def _refuse_computed(module: nn.Module) -> None:
    """Refuses a layer whose weights are no parameters, but computed before each pass, and cannot be copied then."""
    for name, part in named_parts(module):
        for hook in part._forward_pre_hooks.values():
            kind = next((k for k in type(hook).__mro__ if k.__module__ in _COMPUTING), None)
            if kind is not None:
                tensor = str(getattr(hook, "_tensor_name", getattr(hook, "name", "weight")))
                raise UserError(
                    f"{type(module).__name__} cannot be copied: {joined(name, tensor)} is computed before each pass "
                    f"by {kind.__module__}",
                    expected="a module that copy.deepcopy can copy",
                    why="training must leave the module you gave as it is",
                    fix=_COMPUTING[kind.__module__],
                )


_COMPUTING = {
    "torch.nn.utils.weight_norm": "use torch.nn.utils.parametrizations.weight_norm",
    "torch.nn.utils.spectral_norm": "use torch.nn.utils.parametrizations.spectral_norm",
    "torch.nn.utils.prune": "make the pruning permanent, with torch.nn.utils.prune.remove; what is to stay at zero in "
    "training needs a parametrization (torch.nn.utils.parametrize) that masks it",
}
"""Where torch's hooks are that compute weights, and what to do in place of them."""


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
    step = ALIGNMENT // dtype.itemsize
    offset, segments = 0, []
    for name, parameter in named:
        segments.append(Segment(name, tuple(parameter.shape), offset, parameter.numel(), parameter.dtype))
        offset += -(-parameter.numel() // step) * step
    slots = tuple(Slot(p.path, tuple(p.tensor.shape), p.tensor.dtype) for p in _buffers(module) if p.travels)
    return Layout(tuple(segments), slots, dtype, offset)


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


def weighted_sum(vectors: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """Sum of weights[i] * vectors[i] over a fixed tree: the same bits whoever adds which block, in memory O(log n).

    The tree is left-complete over positions: every aligned block of 2**k neighbours is summed on its own. Half
    precision is summed in float32. The inputs are not changed. Where the native engine was compiled it sums float32
    vectors, to the same bits, and reads each of them once; but not short ones, which take longer to hand over.

    Args:
        vectors: n tensors of one shape and dtype; a sequence, or made one by one as they are asked for.
        weights: n numbers.

    Returns:
        A new tensor, float32 for half-precision inputs, otherwise of the inputs' dtype.
    """
    if (compiled := _compiled_sum()) and isinstance(vectors, Sequence) and 0 < len(vectors) == len(weights):
        long = len(vectors) * vectors[0].numel() > _AT_ONCE
        if long and all(map(_plain, vectors)):
            compiled(total := torch.empty_like(vectors[0]), vectors, weights)
            return total
    stack: list[tuple[int, Tensor]] = []  # (leaves in the block, its sum), blocks growing towards the bottom
    for leaves, total in _blocks(vectors, weights):
        while stack and stack[-1][0] == leaves:
            total = stack.pop()[1].add_(total)
            leaves *= 2
        stack.append((leaves, total))
    if not stack:
        raise ValueError("weighted_sum of nothing")
    _, total = stack.pop()
    while stack:
        total = stack.pop()[1].add_(total)
    return total


def _blocks(vectors: Iterable[Tensor], weights: Sequence[float]) -> Iterator[tuple[int, Tensor]]:
    """Blocks of the tree from left to right, (leaves, sum): single vectors, or as many short ones as go in one call.

    The sums are the same; for short vectors a call takes longer than its arithmetic.
    """
    pairs = zip(vectors, weights, strict=True)
    for first, weight in pairs:
        half = first.dtype in (torch.float16, torch.bfloat16)
        at_once = 1 << max(1, _AT_ONCE // max(1, first.numel())).bit_length() - 1  # so that blocks are aligned
        if at_once == 1 or not first.is_floating_point():
            yield 1, (first.float() if half else first) * weight
            continue
        many, shares = zip((first, weight), *itertools.islice(pairs, at_once - 1), strict=True)
        block = torch.stack(many)  # [leaves, ...], then level by level half as many
        block = block.float() if half else block
        block = block * torch.tensor(shares, dtype=block.dtype).view(-1, *[1] * first.dim())
        leaves, complete = 1, []
        while count := block.shape[0]:
            if count % 2:
                complete.append((leaves, block[-1]))
            block, leaves = block[0 : count - 1 : 2] + block[1::2], 2 * leaves
        yield from reversed(complete)


_AT_ONCE = 2**16
"""Elements that are summed in one operation."""


def _plain(vector: Tensor) -> bool:
    return vector.dtype == torch.float32 and vector.dim() == 1 and vector.is_contiguous() and vector.is_cpu


def _compiled_sum() -> Callable[[Tensor, Sequence[Tensor], Sequence[float]], None] | None:
    return getattr(extension(), "weighted_sum", None)


def difference(after: Tensor, before: Tensor) -> tuple[Tensor, float | None]:
    """after - before, and its Euclidean length where that costs nothing more, else None.

    Where the native engine was compiled, a long float32 vector is written and measured in one pass over memory, to the
    same bits as otherwise; a short one would take longer to hand over.

    Args:
        after, before: of one shape and dtype; not changed.
    """
    if after.numel() > _AT_ONCE and _plain(after) and _plain(before) and (compiled := _compiled_difference()):
        update = torch.empty_like(after)
        return update, compiled(update, after, before)
    return after - before, None


@functools.cache
def _compiled_difference() -> Callable[[Tensor, Tensor, Tensor], float] | None:
    """The compiled one, if it adds up as this version of torch does on this processor."""
    compiled: Callable[[Tensor, Tensor, Tensor], float] | None = getattr(extension(), "difference", None)
    if compiled is None:
        return None
    several = torch.sin(torch.arange(1003, dtype=torch.float32)), torch.zeros(1003)
    length = compiled(torch.empty(1003), *several)
    return compiled if length == torch.linalg.vector_norm(several[0]).item() else None


Spans = tuple[tuple[int, int], ...]
"""Parts of a vector, each as (offset, size)."""


def clear_(vector: Tensor, spans: Spans) -> Tensor:
    """Sets parts of a vector [P] to zero, in place, and gives the vector."""
    for offset, size in spans:
        vector.narrow(0, offset, size).zero_()
    return vector


def mean_of_moved(updates: Sequence[Tensor], idle: Sequence[Spans]) -> Tensor:
    """The plain mean of updates [P], each parameter over those that moved it; zero where none did.

    Args:
        updates: at least one.
        idle: of each update, the parts that it never stepped.
    """
    mean = weighted_sum(updates, [1 / len(updates)] * len(updates))
    for span in sorted({span for spans in idle for span in spans}):
        moved = [u.narrow(0, *span) for u, spans in zip(updates, idle, strict=True) if span not in spans]
        if moved:
            mean.narrow(0, *span).copy_(weighted_sum(moved, [1 / len(moved)] * len(moved)))
    return mean


def combine_buffers(layout: Layout, many: Sequence[Buffers], shares: Sequence[float]) -> Buffers:
    """One set of buffers from several: floats averaged by share, integer counters by maximum, booleans must agree.

    Where all floats are the same NaN or infinity, as in a mask of attention, it stays.

    Args:
        layout: names the buffers.
        many: the clients' buffers, in layout order; at least one.
        shares: one per client, summing to 1.

    Raises:
        UserError: clients disagree on a boolean buffer.
    """
    combined = []
    for slot, tensors in zip(layout.buffers, zip(*many, strict=True), strict=True):
        if slot.dtype.is_floating_point or slot.dtype.is_complex:
            combined.append(_mean(tensors, shares).to(slot.dtype))
        elif slot.dtype == torch.bool:
            if any(not torch.equal(tensors[0], t) for t in tensors[1:]):
                raise UserError(
                    f"clients disagree on the boolean buffer {slot.name!r}",
                    expected="the same mask from every client",
                    why="there is no mean of masks",
                    fix="keep the mask fixed during training, or register it with persistent=False, to stay local",
                )
            combined.append(tensors[0].clone())
        else:
            largest = tensors[0].clone()
            for tensor in tensors[1:]:
                torch.maximum(largest, tensor, out=largest)
            combined.append(largest)
    return tuple(combined)


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The weighted sum; an infinity times a share of zero would be none."""
    mean, first = weighted_sum(tensors, shares), tensors[0]
    if all_finite(first):
        return mean
    kept = ~torch.isfinite(first)
    for other in tensors[1:]:
        kept &= (other == first) | (other.isnan() & first.isnan())
    return torch.where(kept, first.to(mean.dtype), mean)


def first_non_finite(layout: Layout, vector: Tensor) -> str | None:
    """The name of the first parameter with a NaN or an infinity in a vector, or None. One read of the vector."""
    if all_finite(vector):
        return None
    bad = (~torch.isfinite(vector)).nonzero()
    return layout.name_at(int(bad[0])) if len(bad) else None


def all_finite(tensor: Tensor) -> bool:
    """Whether there is no NaN and no infinity in a tensor of floats."""
    return _surely_finite(tensor.flatten()) or bool(torch.isfinite(tensor).all())


def _surely_finite(vector: Tensor) -> bool:
    """Whether a vector's square is a finite number; if not, it may have overflowed. The quickest look of torch's."""
    quick = vector.dtype in (torch.float32, torch.float64)  # half precision has no quick product
    return math.isfinite((torch.dot(vector, vector) if quick else vector.sum()).item())


def bytes_of(value: object, layout: Layout) -> int:
    """What a value costs on the wire: tensors by element, numbers 8 bytes, text by its length; containers add up.

    A vector of the layout costs its parameters only: padding need not travel.
    """
    if isinstance(value, Tensor):
        if value.shape == (layout.size,) and value.dtype == layout.dtype:
            return layout.vector_bytes
        return value.numel() * value.element_size()
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        return sum(bytes_of(v, layout) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(bytes_of(v, layout) for v in value)
    return 0 if value is None else 8
