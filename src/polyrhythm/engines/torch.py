"""The reference engine: plain PyTorch, any module, one client at a time. Every other engine is held to this one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.magnitudes import Sparser
from polyrhythm.base.module_copies import Hooks, copy_of, hang, hooks_of
from polyrhythm.base.portions import Portion
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import CPU, Buffers, Layout, Segment, clear_
from polyrhythm.core.local_step import Computed, LocalRule, LocalSteps
from polyrhythm.core.protocols import ClientData, Opening
from polyrhythm.engines.fisher import Squares
from polyrhythm.engines.frugal import PLAIN, Frugal
from polyrhythm.engines.looking import EVALUATION_BATCH, FrozenLens, View, batches
from polyrhythm.engines.sparse import SparseEngine
from polyrhythm.methods.correction import Term, Which
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.models.distillation import sum_of_exits
from polyrhythm.models.exits import watched
from polyrhythm.models.parts import part_of
from polyrhythm.models.representation import Tap, locate
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.task_parts import left_out


@final
class TorchEngine(LocalSteps):
    """Gradients and metrics of one module for one task.

    Args:
        module: the model; copied, never changed.
        task: its loss and metrics.
        frozen_on: where models compute that are not in training: evaluation, scores, frozen features.
        frugal: what steps spare of memory.
    """

    def __init__(self, module: nn.Module, task: Task, frozen_on: torch.device = CPU, frugal: Frugal = PLAIN) -> None:
        self._flat = FlatModel(module)
        self._task, self._frozen_on, self._frugal = task, frozen_on, frugal
        # Made now, since a module that is in training may hold what cannot be copied.
        self._frozen: dict[Which, FlatModel] = {"received": self._flat.twin(frozen_on).frozen()}
        self._models: dict[Which, Model] = {}
        self._loaded: set[Which] = set()
        self._visit: Opening | None = None
        self._taps: dict[str, Tap] = {}
        self._frozen_features: dict[tuple[Which, str], Tensor] = {}
        self.forward_samples = self._begun = 0  # samples of extra passes in the visit; steps that it has begun
        self._asked = 0  # gradients at other weights in the visit
        self._parts: dict[tuple[Hashable, float], TorchEngine] = {}
        self._amounts: tuple[Tensor, ...] = ()  # what the last pass's loss and objective are means over

    def __reduce__(self) -> tuple[Callable[..., TorchEngine], tuple[nn.Module, Task, torch.device, Frugal, Hooks]]:
        module = self.given()
        return _remade, (module, self._task, self._frozen_on, self._frugal, hooks_of(module))

    def given(self) -> nn.Module:
        """The module as it was given, as far as a visit does not load it anyway, and with parameters of their own."""
        return copy_of(self._flat.twin().fresh().module, one_base=CPU)

    def on(self, device: torch.device) -> TorchEngine:
        """The same with another place for models that are not in training."""
        return TorchEngine(self.given(), self._task, device, self._frugal)

    def in_double(self) -> TorchEngine:
        """The same in double precision, with the module as it was given."""
        return TorchEngine(self.given().double(), self._task)

    def narrowed(self, portion: Portion, scale: float = 1.0) -> TorchEngine | SparseEngine:
        """An engine of a part of the module, the same one for parts of the same shape; see `core.portions.Narrows`."""
        if isinstance(portion, Sparser):
            return SparseEngine(self, portion)
        key = portion.key, scale
        if key not in self._parts:
            part = part_of(self.given(), portion, scale)
            self._parts[key] = TorchEngine(part, self._task, self._frozen_on, self._frugal)
        return self._parts[key]

    @property
    def layout(self) -> Layout:
        return self._flat.layout

    @property
    def weights(self) -> Tensor:
        return self._flat.weights

    @property
    def gradient(self) -> Tensor:
        return self._flat.gradient

    @functools.cached_property
    def single_sample_fails(self) -> bool:
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._flat.module.modules())

    @functools.cached_property
    def one_mode(self) -> bool:
        """Whether the module surely computes the same in training and in eval mode."""
        return all(_same_in_both_modes(m) for m in self._flat.module.modules())

    def features_now(self, layer: str, inputs: Tensor) -> Tensor:
        """The representation under the model in training, but in eval mode and without a gradient."""
        self.forward_samples += len(inputs)
        self._flat.module.eval()
        try:
            with torch.no_grad(), self._looking("current", layer, self._begun):
                return self._tap(layer)(inputs)[1]
        finally:
            self._flat.module.train()

    def initial(self) -> Model:
        """The module's own weights and buffers, as it was given. Only before the first visit."""
        return Model(weights=self.weights.clone(), buffers=self._flat.buffers())

    def state_of(self, model: Model) -> dict[str, Tensor]:
        """A model's whole state dict by name: trainable, frozen and tied parameters, and buffers."""
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        return {name: value.cpu() for name, value in flat.state().items()}

    def open(self, visit: Opening) -> None:
        self._visit = visit
        self._models = {"received": visit.received}
        if visit.previous is not None:
            self._models["previous"] = visit.previous
        self._loaded.clear()
        self._frozen_features.clear()
        self.forward_samples = self._begun = self._asked = 0
        self._flat.load(visit.start.weights, visit.start.buffers)
        self._flat.module.train()

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed:
        if not self._frugal.cuts(len(inputs)):
            return self._computed(inputs, targets, positions, terms, watch, squares, self._flat.backward)
        of = functools.partial(self._computed, terms=terms, watch=watch, squares=squares, backward=self._flat.backward)
        batch = inputs, targets, positions
        return self._frugal.in_pieces(self.gradient, batch, lambda *some: (of(*some), self._amounts))

    def descend(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        down = functools.partial(self._flat.descend, rate=rate)
        return self._computed(inputs, targets, positions, rule.terms, rule.watch, rule.squared_losses, down)

    def _computed(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term],
        watch: str | None,
        squares: bool,
        backward: Callable[[Tensor], tuple[Segment, ...]],
    ) -> Computed:
        """What a batch gives, whose objective goes backward in one way or the other."""
        self._begun += 1
        layers = {name for term in terms for name in term.layers or ()}
        # Before the pass in training mode, which moves the statistics of BatchNorm.
        judged = None if watch is None or self.one_mode else self.features_now(watch, inputs)
        with contextlib.ExitStack() as taps:
            seen = layers | ({watch} if watch is not None and self.one_mode else set())
            read = {layer: taps.enter_context(self._tap(layer).watch()) for layer in sorted(seen)}
            exits = [] if self._exits is None else taps.enter_context(watched(self.module))
            with self._frugal.around(self.module):
                outputs: Tensor = self.module(inputs)
        if self._lacking is not None:
            outputs = left_out(outputs, self._lacking)
        view = View(self, inputs, targets, positions, {layer: read[layer](len(inputs)) for layer in read})
        pair = None
        if watch is not None:
            current = view.features("current", watch).detach() if judged is None else judged
            pair = current, view.features("received", watch)
        loss = self._task.loss(outputs, targets)
        if self._frugal.micro_batch is not None:
            self._amounts = self._task.amounts(outputs, targets)
        squared = self._squared(outputs, targets) if squares else None
        if self._exits is None:
            total = self._task.objective(loss, outputs, targets)
        else:
            total = sum_of_exits(self._task, exits, targets, self._exits)
        for term in terms:
            extra = term.term(view)
            total = total if extra is None else total + extra
        return Computed(loss.detach(), backward(total), pair, squared)

    @property
    def _exits(self) -> float | None:
        """By how much this visit's exits learn from each other, if they are trained at all."""
        return None if self._visit is None else self._visit.exits

    @property
    def _lacking(self) -> Tensor | None:
        """The classes whose outputs count as 0 in this visit's steps."""
        return None if self._visit is None else self._visit.lacking

    def _squared(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The squared loss of each sample, summed over a batch whose outputs are there anyway."""
        with torch.no_grad():
            return self._task.losses(outputs, targets).double().square().sum()

    @property
    def descends(self) -> bool:
        return self._flat.descends and self._frugal.micro_batch is None

    @property
    def plain(self) -> bool:
        """Whether the module surely has no state beside its parameters and buffers."""
        return self._flat.plain

    def frozen_sums(self) -> dict[str, float]:
        """A sum over each parameter that does not learn, by name: equal as long as nothing changes it."""
        sums, looked_at = self._flat.structure.frozen_sums(), self._frozen_model("received").structure.frozen_sums()
        return sums | {f"{name} (in evaluation)": total for name, total in looked_at.items()}

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        flat = self._elsewhere
        flat.load(at, self._flat.buffers() if buffers is None else buffers)
        flat.module.train()
        self._asked += 1
        seed = self._visit.seed if self._visit else 0
        with seeded_torch(seed, "network", "elsewhere", self._asked):
            outputs = flat.module(inputs)
            loss = self._task.loss(outputs, targets)
            unused = flat.backward(self._task.objective(loss, outputs, targets))
        clear_(flat.gradient, tuple((s.offset, s.size) for s in unused))
        return Slope(flat.gradient.clone(), unused, flat.buffers(), loss.detach())

    @functools.cached_property
    def _elsewhere(self) -> FlatModel:
        """A copy of the module for passes that a visit's own must know nothing of."""
        return self._flat.twin()

    def stepped(self) -> None:
        self._flat.refresh()

    def buffers(self) -> Buffers:
        return self._flat.buffers()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> dict[str, float]:
        return self._task.read(self.tally(model, data, positions))

    def tally(
        self, model: Model, data: ClientData, positions: np.ndarray | None = None, *, by_class: bool = False
    ) -> Tally:
        """What the task counts over a client's samples, in eval mode and large batches."""
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        where = np.arange(len(data)) if positions is None else positions
        total = Tally()
        with torch.no_grad():
            for i in range(0, len(where), EVALUATION_BATCH):
                inputs, targets = self._moved(data.batch(where[i : i + EVALUATION_BATCH], None))
                total = total + self._task.tally(flat.module(inputs), targets, by_class=by_class)
        flat.structure.check()
        return total

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        tap = locate(flat.module, layer)
        with torch.no_grad():
            found = [(*tap(inputs), targets) for inputs, targets in self._batches(data)]
        outputs, features, targets = (torch.cat(pieces).to(CPU) for pieces in zip(*found, strict=True))
        return outputs, features, targets

    def frozen(self, which: Which) -> nn.Module:
        """The received or the previous model of this visit, in eval mode."""
        flat = self._frozen_model(which)
        if which not in self._loaded:
            flat.load(self._models[which].weights, self._models[which].buffers)
            self._loaded.add(which)
        return flat.module

    def frozen_features(self, which: Which, layer: str, inputs: Tensor, positions: np.ndarray) -> Tensor:
        """Representation of a batch under a frozen model; from all samples at once where the visit reuses it."""
        visit = self._visit
        if visit is None or not visit.reuse:
            self.forward_samples += len(inputs)
            with torch.no_grad(), self._looking(which, layer, self._begun):
                return locate(self.frozen(which), layer)(inputs.to(self._frozen_on))[1].to(CPU)
        key = (which, layer)
        if key not in self._frozen_features:
            tap = locate(self.frozen(which), layer)
            with torch.no_grad(), self._looking(which, layer):
                pieces = [tap(batch)[1].to(CPU) for batch, _ in self._batches(visit.data)]
            self._frozen_features[key] = torch.cat(pieces)
            self.forward_samples += len(visit.data)
        return self._frozen_features[key].index_select(0, torch.from_numpy(np.ascontiguousarray(positions)))

    def has(self, which: Which) -> bool:
        """Whether this visit has such a model."""
        return which in self._models

    def frozen_outputs(self, which: Which) -> tuple[Tensor, Tensor]:
        """Outputs of a frozen model for all of the visit's samples, and their targets."""
        data, module = self._open().data, self.frozen(which)
        with torch.no_grad():
            pieces = [(module(inputs.to(self._frozen_on)).to(CPU), targets) for inputs, targets in batches(data)]
        self.forward_samples += len(data)
        outputs, targets = zip(*pieces, strict=True)
        return torch.cat(outputs), torch.cat(targets)

    def lens(self) -> FrozenLens:
        return FrozenLens(self, self._task, self._open().data)

    def _looking(self, *names: int | str) -> contextlib.AbstractContextManager[None]:
        """A block in which a model of this visit is looked at: what it draws there moves no draw of the training."""
        return seeded_torch(self._visit.seed if self._visit else 0, "measure", *names)

    def _tap(self, layer: str) -> Tap:
        """Where a representation of the model in training is; looked for once."""
        if layer not in self._taps:
            self._taps[layer] = locate(self.module, layer)
        return self._taps[layer]

    def _open(self) -> Opening:
        if self._visit is None:
            raise RuntimeError("this belongs to a visit: open one first")
        return self._visit

    def fisher(
        self, model: Model, data: ClientData, chunk: int | None = 32, *, labels: np.random.Generator | None = None
    ) -> float:
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        total = 0.0
        for inputs, held in self._batches(data, chunk or len(data)):
            targets = held if labels is None else self._drawn(flat, inputs, labels)
            total += self._squares(inputs, targets)
        return total / len(data)

    @functools.cached_property
    def _squares(self) -> Squares:
        return Squares(self._frozen_model("received"), self._task)

    def _drawn(self, flat: FlatModel, inputs: Tensor, labels: np.random.Generator) -> Tensor:
        """A target for each sample, drawn from what a loaded model predicts."""
        self.forward_samples += len(inputs)
        with torch.no_grad():
            return self._task.draw(flat.module(inputs).to(CPU), labels).to(self._frozen_on)

    def _batches(self, data: ClientData, size: int = EVALUATION_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """All of a client's samples in order, without augmentation, where frozen models compute."""
        return map(self._moved, batches(data, size))

    def _moved(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        return inputs.to(self._frozen_on), targets.to(self._frozen_on)

    @property
    def module(self) -> nn.Module:
        """The model in training."""
        return self._flat.module

    def at_rest(self) -> nn.Module:
        """The same between two visits, without what its last pass left behind."""
        return self._flat.fresh().module

    def _frozen_model(self, which: Which) -> FlatModel:
        if which not in self._frozen:
            self._frozen[which] = self._frozen["received"].twin(self._frozen_on).frozen()
        return self._frozen[which]


def _remade(module: nn.Module, task: Task, frozen_on: torch.device, frugal: Frugal, hooks: Hooks) -> TorchEngine:
    """An engine from its pickle, which has a module's hooks beside it."""
    return TorchEngine(hang(hooks, module), task, frozen_on, frugal)


def _same_in_both_modes(module: nn.Module) -> bool:
    """True for layers known to ignore the mode; anybody's own layer, hook or parametrization may look at it."""
    home = type(module).__module__
    if not home.startswith(("torch.nn.modules.", "polyrhythm.models.")) or "forward" in vars(module):
        return False
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    by_mode = (
        *(nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase),
        *(nn.RNNBase, nn.MultiheadAttention, nn.RReLU),
    )
    return not isinstance(module, by_mode) or (isinstance(module, nn.RNNBase) and not module.dropout)
