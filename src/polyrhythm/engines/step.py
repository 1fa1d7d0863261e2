"""A step of one client as a function of tensors alone: what can be mapped over clients.

Rules:

- A batch may be longer than it is: samples with a share of zero add nothing to the gradient. So batches of unequal
  sizes have one shape. It takes a model that treats the samples of a batch each on its own, which is tried out.
- Dropout draws by visit, step, layer, and element of the batch, from a hash of that name: the same masks whoever else
  is in the cohort, however a batch is filled up, and on any device. They are other masks than torch's, of its law.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from polyrhythm.base.attributes import Attributes, attributes, changed_in
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import Layout, Segment
from polyrhythm.core.protocols import Job
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.native.tracing import CALLED, refuse_hooks
from polyrhythm.engines.unsupported import Unlike, Unsupported
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.models.calling import bare, outputs_in, structure_taken
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import TASKS

FEW = 3  # samples on which a model is tried out
CLOSE = 1e-3  # how far the gradients of two ways to compute may lie apart there, as a share of their norm


Arrays = tuple[tuple[Tensor, ...], Mapping[str, Tensor]]
"""What a model is called with: in order, and by name."""


class Batch(NamedTuple):
    """What a step computes on; tensors with more axes in front are for so many steps or clients.

    Args:
        inputs: [B, ...]; to a mapped step in arrays as the model takes them, in order and by name.
        targets: [B, ...].
        shares: of each sample in the mean loss, [B]; zero for one that only fills up.
        keys: two 32-bit words for each layer of dropout, int64 [L, 2].
    """

    inputs: Tensor | Arrays
    targets: Tensor
    shares: Tensor
    keys: Tensor


@final
class Step:
    """The gradient of one client's batch.

    Args:
        module: the model; copied.
        task: its loss.
        layout: of its weights.
        weights: to try it out with, [P].
        samples: to try it out on.
        device: where it computes.

    Attributes:
        used: the parameters that the loss depends on.
        idle: the others.
        by_samples: whether the loss of a batch is the plain mean over its samples.
        layers: how often a pass draws dropout.
        kept: about how many bytes a pass keeps for each sample until its gradient is there.

    Raises:
        Unsupported: the model cannot be run like that, and why.
    """

    def __init__(
        self, module: nn.Module, task: Task, layout: Layout, weights: Tensor, samples: Samples, device: torch.device
    ) -> None:
        self._structure = structure_taken(module)
        self._trims = self._structure is not None and self._structure.trims
        if self._structure is not None:  # one width for all batches, which the device need not be asked for
            self._structure = dataclasses.replace(self._structure, trims=False)
        self._module, self._task = bare(copy_of(module, one_base=device)).train().to(device), task
        _check(self._module, task, layout)
        self._attributes, self._device = Attributes(self._module), device
        self.used, self.idle = layout.segments, tuple[Segment, ...]()
        self.by_samples, self.layers, self.kept = task.sums_over_samples, 0, 0
        before, kept = attributes(self._module), [(b, b.clone()) for b in self._module.buffers()]
        try:
            with seeded_torch(0, "network", "tried out"):
                self._try_out(weights.to(device), samples, device)
        except Unsupported:
            raise
        except Exception as error:  # whatever a user's own forward raises when it is mapped
            told = " ".join(str(error).split())[:120]
            raise Unsupported(f"torch.func cannot map it over clients: {told}") from error
        if changed := changed_in(before, attributes(self._module)):
            raise Unlike(f"a pass changes {changed}")
        now = {id(buffer) for buffer in self._module.buffers()}
        if not all(id(b) in now and torch.equal(b, first) for b, first in kept):
            raise Unlike("a pass changes its buffers")

    def on(self, device: torch.device) -> Step:
        """The same step on another device."""
        self._attributes.put_back()  # what a pass leaves behind is often nothing that can be copied
        other = copy.copy(self)
        other._module = copy_of(self._module, one_base=device).to(device)
        other._attributes, other._device = Attributes(other._module), device
        return other

    def narrowed(self, module: nn.Module, layout: Layout) -> Step:
        """The same step of a part of the module, in vectors of its own."""
        other, idle = copy.copy(self), {segment.name for segment in self.idle}
        other._module = bare(copy_of(module, one_base=self._device)).train().to(self._device)
        other._attributes = Attributes(other._module)
        other.used = tuple(s for s in layout.segments if s.name not in idle)
        other.idle = tuple(s for s in layout.segments if s.name in idle)
        return other

    def __call__(self, weights: Tensor, batch: Batch) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """The gradient of each used parameter, the loss of each sample, and that of the batch.

        Args:
            weights: of one client, [P], or of several, [K, P].
            batch: its samples, or theirs.
        """
        batch = batch._replace(inputs=self._arrays(batch.inputs))
        used = {s.name: s.of(weights).detach().requires_grad_() for s in self.used}
        idle = {s.name: s.of(weights) for s in self.idle}
        of_all = vmap(self._objective, randomness="error") if weights.dim() == 2 else self._objective
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the only kernel of attention that can be mapped
            objectives, losses, means = of_all(used, idle, batch)
            # Each client's objective depends on its own weights alone, so the sum has the gradients of all.
            gradients = torch.autograd.grad(objectives.sum(), list(used.values()))
        return gradients, losses.detach(), means.detach()

    def _objective(
        self, used: dict[str, Tensor], idle: dict[str, Tensor], batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What a client minimises, from the samples' own parts of it, their losses, and the batch's."""
        task = self._task

        def of_one(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            loss = task.loss(output[None], target[None])
            return task.objective(loss, output[None], target[None]), loss

        def amounts(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            of_loss, of_objective = task.amounts(output[None], target[None])
            return of_loss[0], of_objective[0]

        with Masks(batch.keys):
            outputs = self._outputs({**used, **idle}, batch.inputs)
        parts, losses = vmap(of_one)(outputs, batch.targets)
        if task.sums_over_samples:
            return (parts * batch.shares).sum(), losses, (losses * batch.shares).sum()
        of_loss, of_objective = (a * (batch.shares > 0) for a in vmap(amounts)(outputs, batch.targets))
        return _mean(parts, of_objective), losses, _mean(losses, of_loss)

    def _arrays(self, inputs: Tensor | Arrays) -> Arrays:
        """What the model is called with, of rows [B, ...] or [K, B, ...]."""
        if not isinstance(inputs, Tensor):
            return inputs
        if self._structure is None:
            return (inputs,), {}
        arrays, named = self._structure.unpack(inputs.flatten(0, -2))
        ahead = inputs.shape[:-1]
        return tuple(a.view(*ahead, *a.shape[1:]) for a in arrays), {
            name: a.view(*ahead, *a.shape[1:]) for name, a in named.items()
        }

    def _outputs(self, parameters: Mapping[str, Tensor], inputs: Tensor | Arrays) -> Tensor:
        """What the model gives with these in place of its own parameters."""
        arrays, named = self._arrays(inputs)
        found: Tensor = outputs_in(functional_call(self._module, dict(parameters), arrays, dict(named)))
        return found

    def _try_out(self, weights: Tensor, samples: Samples, device: torch.device) -> None:
        """Holds a batch that was filled up, mapped over two clients, to plain autograd."""
        inputs, targets = (t.to(device) for t in samples.batch(torch.arange(min(FEW, len(samples)))))
        parts = {s.name: s.of(weights).clone().requires_grad_() for s in self.used}
        with torch.no_grad(), Masks(None) as counted:
            self._outputs(parts, inputs)
        self.layers = len(counted.found)
        if self.layers and self._trims:
            raise Unsupported('it drops out, and padding ends with the longest of a batch: to="longest" does not')
        keys = torch.from_numpy(keys_of(0, 1, self.layers)[0]).to(device)
        kept = _Bytes([*self._module.parameters(), *self._module.buffers()])
        with Masks(keys), torch.autograd.graph.saved_tensors_hooks(kept, lambda tensor: tensor):
            outputs = self._outputs(parts, inputs)
            objective = self._task.objective(self._task.loss(outputs, targets), outputs, targets)
        wanted = torch.autograd.grad(objective, list(parts.values()), allow_unused=True)
        self.kept = kept.total // len(inputs)
        self.idle = tuple(s for s, g in zip(self.used, wanted, strict=True) if g is None)
        self.used = tuple(s for s in self.used if s not in self.idle)
        shares = torch.full((len(inputs) + 1,), 1 / len(inputs), dtype=weights.dtype, device=device)
        shares[-1] = 0
        filled = torch.cat([inputs, inputs[-1:]]), torch.cat([targets, targets[-1:]]), shares, keys
        both = Batch(*(torch.stack([t, t]) for t in filled))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of operations that would be mapped one client after the other
            found, *_ = self(torch.stack([weights, weights / 2]), both)
        expected = [g for g in wanted if g is not None]
        apart = torch.stack([(g[0] - w).norm() for g, w in zip(found, expected, strict=True)])
        if not apart.norm() <= CLOSE * torch.stack([w.norm() for w in expected]).norm():
            raise Unsupported("its gradient depends on samples that only fill up a batch, or on how it is mapped")


def _check(module: nn.Module, task: Task, layout: Layout) -> None:
    """Refuses what can be seen."""
    if type(task) not in TASKS.values() or not task.divisible:
        own = "a loss of one's own" if getattr(task, "loss_function", None) else f"the loss of {task.name}"
        raise Unsupported(f"{own} may be no mean over samples")
    if any(s.dtype not in (torch.float32, torch.float64) or s.dtype != layout.dtype for s in layout.segments):
        raise Unsupported("its weights are not all float32 or float64")
    if any(isinstance(part, nn.RNNBase) for part in module.modules()):
        raise Unsupported("torch.func has no rule for recurrent layers")
    if layout.buffers:
        raise Unsupported("it has buffers, which its passes may change")
    refuse_hooks(module, calls=CALLED)
    if not {segment.name for segment in layout.segments} <= dict(module.named_parameters()).keys():
        raise Unsupported("it is inside of a compiled or a parallel module")


def _mean(values: Tensor, amounts: Tensor) -> Tensor:
    """The mean of values [B] that count so much; 0 where none counts."""
    total = amounts.sum()
    return (values * amounts).sum() / torch.where(total == 0, 1, total)


@final
class _Bytes:
    """Counts what autograd keeps.

    Args:
        shared: whose memory is there anyway, once for all clients.
    """

    def __init__(self, shared: Sequence[Tensor]) -> None:
        self.total = 0
        self._shared = {tensor.untyped_storage().data_ptr() for tensor in shared}

    def __call__(self, tensor: Tensor) -> Tensor:
        there = tensor.is_leaf and tensor.requires_grad
        if not there and tensor.untyped_storage().data_ptr() not in self._shared:
            self.total += tensor.nbytes
        return tensor


@final
class Masks(TorchFunctionMode):
    """Gives every call of dropout its own mask.

    Args:
        keys: of the layers, [L, 2]; None to drop nothing.

    Attributes:
        found: the calls: the share that each drops, and of how many numbers.
    """

    def __init__(self, keys: Tensor | None) -> None:
        super().__init__()
        self._keys = keys
        self.found: list[tuple[float, int]] = []

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function is functional.dropout:
            return self._dropped(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _dropped(self, inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return inputs
        self.found.append((p, inputs.numel()))
        if self._keys is None:
            return inputs
        if len(self.found) > len(self._keys):
            raise Unlike("it drops out more often than in its first pass")
        first, second = self._keys[len(self.found) - 1]
        element = torch.arange(inputs.numel(), device=inputs.device).view(inputs.shape)
        drawn = _mixed_32((_mixed_32(element ^ first) + second) & _ALL)
        scale = (drawn >= int(p * 2**32)).to(inputs.dtype) * (0.0 if p == 1 else 1 / (1 - p))
        return inputs.mul_(scale) if inplace else inputs * scale


_ALL = 2**32 - 1


def _mixed_32(values: Tensor) -> Tensor:
    """Mixes the low 32 bits of int64; both factors are below 2**31, so nothing overflows.

    The constants are TheIronBorn's, in the search for good hashes that C. Wellons began ("hash-prospector").
    """
    values = ((values ^ (values >> 16)) * 0x21F0AAAD) & _ALL
    values = ((values ^ (values >> 15)) * 0x735A2D97) & _ALL
    return values ^ (values >> 15)


def keys_of(seed: int, steps: int, layers: int) -> np.ndarray:
    """What dropout draws from in a visit: a hash of seed, step and layer as two words, int64 [steps, layers, 2]."""
    of_steps = np.uint64(seed) ^ _mixed_64(np.arange(steps, dtype=np.uint64))
    words = _mixed_64(_mixed_64(of_steps)[:, None] ^ np.arange(layers, dtype=np.uint64))
    return np.stack([words & np.uint64(_ALL), words >> np.uint64(32)], axis=-1).astype(np.int64)


def _mixed_64(values: np.ndarray) -> np.ndarray:
    """splitmix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def takes(job: Job) -> bool:
    """Whether a job's steps can be taken like that."""
    held = job.data.arrays() if isinstance(job.data, Holding) else None
    plain = not job.terms and job.watch is None and not job.held and not job.away
    return held is not None and type(job.optimiser) is LocalSgd and plain


def sizes_of(job: Job) -> np.ndarray:
    """Samples in each batch, [steps]."""
    return np.diff(job.ends, prepend=0)


def rows_of(job: Job, width: int) -> np.ndarray:
    """Which of all samples are in each batch, int64 [steps, width]; the last one of a batch fills it up."""
    assert isinstance(job.data, Holding)
    arrays = job.data.arrays()
    assert arrays is not None
    order = job.positions if arrays[2] is None else arrays[2].numpy()[job.positions]
    sizes = sizes_of(job)
    places = np.minimum(np.arange(width), sizes[:, None] - 1)
    rows: np.ndarray = order[(job.ends - sizes)[:, None] + places]
    return rows


def shares_of(sizes: np.ndarray, width: int) -> np.ndarray:
    """Each sample's share in its batch's mean, [..., width]; zero for what fills up."""
    shares: np.ndarray = (np.arange(width) < sizes[..., None]) / np.maximum(sizes, 1)[..., None]
    return shares
