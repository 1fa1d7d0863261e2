"""Shows before a run that an engine computes what torch computes of the module: else it is not used.

Held to torch are, at the initial weights and at others nearby:

- one step on a training batch: what it changes of every parameter and buffer, the loss, and the squared losses;
- the outputs, and the representations that the recipe looks at, of an evaluation batch, where the engine has passes of
  its own;
- its outputs for as many samples as the run's batches have, and for one;
- the outputs for fewer samples, where the engine fills short batches up.

Where rounding alone moves a step, as two pixels nearly tie in a pooling, both may lie apart as far as it does.

Dropout is held to its law, since the engines draw other masks: as many layers, as wide, that drop as large a share; and
everything else with the same mask. The module must give the same for the same, and leave no trace in its attributes, or
no comparison would mean anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.attributes import attributes, changed_in
from polyrhythm.base.streams import generators, kept_generators, seeded_torch
from polyrhythm.base.vectors import Spans
from polyrhythm.core.protocols import ClientData, Done, Job, Opening
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.looking import EVALUATION_BATCH
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.step import Masks, keys_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import Unlike
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.calling import structure_taken

Proved = NativeEngine | StackedEngine

FEW = 8  # samples in a batch
LARGE = 256  # samples in a batch that is shortened
CLOSE = 2e-3  # how far two results may lie apart, as a share of their size: many times what rounding does
TIMES = 2.0  # or how many times as far as rounded weights move the step
ROUNDING, ROUNDINGS = 1e-5, 8  # of what share of a weight that is, and how often it is tried
SLIGHT = 1e-5  # and as a share of the whole step, for a parameter that hardly moves
RATE = 256.0  # of the step, so large that rounding of the weights hides nothing of the gradient
_NEARBY = 4099  # numbers that are repeated over the vector
_SGD = LocalSgd(lr=RATE)


def prove(engine: Proved, samples: Samples, *, batch: int, layers: Sequence[str] = ()) -> None:
    """Goes on if the engine computes what the torch engine inside of it does.

    The engine is then as it was, but for scratch.

    Args:
        engine: fresh, with the initial weights in it.
        samples: what clients train on.
        batch: samples in a batch of the run.
        layers: the representations that are looked at.

    Raises:
        Unlike: it does not.
    """
    inside = engine.reference
    initial = inside.weights.clone()
    size = max(1, min(FEW, batch, len(samples)))
    data = Holding(samples, _spread(len(samples), size))
    trial = _Trial(engine, data)
    try:
        with kept_generators(), seeded_torch(0, "network", "proved"):
            drawn = generators()
            for weights in (initial, _nearby(initial)):
                trial.train(weights, repeat=weights is initial)
                if isinstance(engine, NativeEngine):
                    trial.evaluate(weights, layers)
            width = min(batch, len(samples), LARGE)
            if isinstance(engine, NativeEngine):
                trial.widen(samples, width)
            else:  # which fill short batches up
                trial.shorten(samples, width)
            if generators()[1:] != drawn[1:]:
                raise Unlike("it draws from NumPy's or Python's random numbers")
    finally:
        trial.put_back(initial)
        inside.gradient.zero_()
        inside.at_rest()


def _spread(samples: int, size: int) -> Tensor:
    """So many of all samples, from the first to the last."""
    return torch.from_numpy(np.unique(np.linspace(0, samples - 1, size).astype(np.int64)))


def _nearby(weights: Tensor) -> Tensor:
    """Weights at which nothing is zero by chance, [P]: what starts as zeros, a branch that is not taken at first."""
    with seeded_torch(0, "network", "nearby"):
        noise = torch.nn.init.normal_(torch.empty(_NEARBY, dtype=weights.dtype))
    scale = 0.5 * float(weights.norm()) / max(1, len(weights)) ** 0.5 + 0.01
    nearby: Tensor = weights + scale * noise.repeat(-(-len(weights) // _NEARBY))[: len(weights)]
    return nearby


@final
class _Trial:
    """Single steps of an engine and of torch.

    Args:
        engine: the one to be judged.
        data: a client's samples: one batch.
    """

    def __init__(self, engine: Proved, data: ClientData) -> None:
        self._engine, self._inside, self._data = engine, engine.reference, data
        self._positions, self._buffers = np.arange(len(data)), self._inside.buffers()

    def _open(self, engine: TorchEngine | Proved, weights: Tensor) -> Model:
        model = Model(weights=weights, buffers=self._buffers)
        engine.open(Opening(data=self._data, start=model, received=model, previous=None, reuse=False))
        return model

    def put_back(self, weights: Tensor) -> None:
        """Leaves both with some weights, [P], and the buffers that they had."""
        self._open(self._inside, weights)
        self._open(self._engine, weights)

    def widen(self, samples: Samples, width: int) -> None:
        """Compares outputs of the engine with torch's of as many samples as batches have: a forward may count them.

        Args:
            samples: what clients train on.
            width: samples in a batch of training.
        """
        assert isinstance(self._engine, NativeEngine)
        initial = Model(weights=self._engine.weights.clone(), buffers=self._buffers)
        alone = () if self._inside.single_sample_fails else ((True, 1),)
        for training, size in ((True, width), *alone, (False, min(EVALUATION_BATCH, len(samples))), (False, 1)):
            data = Holding(samples, _spread(len(samples), size))
            visit = Opening(data=data, start=initial, received=initial, previous=None, reuse=False)
            self._engine.open(visit)
            ours = self._outputs_of(data, training)
            self._inside.open(visit)
            module = self._inside.module if training else self._inside.frozen("received")
            with torch.no_grad():
                theirs = self._outputs(module, data.batch(np.arange(size), None)[0])
            if not _near(ours, theirs):
                raise Unlike(
                    f"its outputs for {size} samples in {'training' if training else 'evaluation'} are not torch's"
                )

    def _outputs_of(self, data: ClientData, training: bool) -> Tensor:
        """The engine's outputs of all samples: of one batch in training, or in evaluation."""
        assert isinstance(self._engine, NativeEngine)
        if not training:
            return self._engine.frozen_outputs("received")[0]
        with self._engine.undropped():
            return self._engine.outputs(*data.batch(np.arange(len(data)), None))

    def shorten(self, samples: Samples, width: int) -> None:
        """Compares what torch makes of samples in shorter and shorter batches."""
        inputs, _ = samples.batch(torch.arange(width))
        module = self._inside.module.train()
        with torch.no_grad():
            whole = self._outputs(module, inputs)
            while (width := width * 2 // 3) > 0:
                for size in (width, width + 1):  # even and odd
                    found = self._outputs(module, inputs[:size])
                    if not _near(found, self._as_long(whole[:size], found)):
                        raise Unlike(f"its outputs for {size} samples depend on whether there are {len(inputs)}")

    def _as_long(self, whole: Tensor, found: Tensor) -> Tensor:
        """Outputs of some samples, without places behind the longest of a smaller batch, [b, ...]."""
        structure = structure_taken(self._inside.module)
        if structure is None or not structure.trims:
            return whole
        return whole[tuple(map(slice, found.shape))] if whole.dim() == found.dim() else whole

    def _outputs(self, module: nn.Module, inputs: Tensor) -> Tensor:
        with self._masks(), _its_own_errors():
            outputs: Tensor = module(inputs.clone())
        return outputs

    def train(self, weights: Tensor, *, repeat: bool) -> None:
        """Compares a step from some weights, [P].

        Args:
            weights: where it starts.
            repeat: whether torch takes it twice, to see whether it is the same.
        """
        masks, before = self._masks(), attributes(self._inside.module)
        change, loss, squares = self._step(weights, masks)
        if changed := changed_in(before, attributes(self._inside.module)):
            raise Unlike(f"a pass changes {changed}")
        if not bool(torch.isfinite(change).all()):
            raise Unlike("its gradient is not finite, so there is nothing to compare")
        moved = self._inside.buffers()
        if repeat and not torch.equal(change, self._step(weights, self._masks())[0]):
            raise Unlike("two passes through it with the same samples and weights give different numbers")
        if isinstance(self._engine, NativeEngine) and masks.found != (
            read := self._engine.dropped(len(self._positions))
        ):
            raise Unlike(f"it drops out {masks.found} (shares and numbers), and {read} was read")
        done = self._taken(weights)
        if done is None:
            return  # and so torch would take it
        self._compare(self._engine.weights - weights, change, weights)
        for slot, own, wanted in zip(self._inside.layout.buffers, self._engine.buffers(), moved, strict=True):
            if not _near(own.double(), wanted.double()):
                raise Unlike(f"its {slot.name} after a step are not torch's")
        for what, theirs, ours in (("loss", loss, done.loss), ("squared loss", squares, done.squared_loss)):
            if not abs(ours - theirs) <= CLOSE * abs(theirs) + SLIGHT:
                raise Unlike(f"its {what} over {len(self._positions)} samples is {ours:.6g} and not {theirs:.6g}")

    def _masks(self) -> Masks:
        """What torch takes for dropout: the engine's masks, or none."""
        if isinstance(self._engine, NativeEngine):
            return Masks(None)
        return Masks(torch.from_numpy(keys_of(0, 1, self._engine.dropouts)[0]))

    def _step(self, weights: Tensor, masks: Masks) -> tuple[Tensor, float, float]:
        """What torch makes of a step: the change [P], the sum of losses, and of their squares."""
        inside = self._inside
        self._open(inside, weights)
        inputs, targets = self._data.batch(self._positions, None)
        with masks, _its_own_errors():
            computed = inside.compute(inputs, targets, self._positions, squares=True)
        _SGD.step_(inside.weights, inside.gradient, RATE, _SGD.start(weights))
        change = inside.weights - weights
        for segment in computed.unused:
            segment.of(change).zero_()
        assert computed.squares is not None
        return change, float(computed.loss) * len(inputs), float(computed.squares)

    def _taken(self, weights: Tensor) -> Done | None:
        """Has the engine take the same step."""
        engine = self._engine
        self._open(engine, weights)
        job = Job(
            data=self._data,
            positions=self._positions,
            ends=np.array([len(self._positions)], dtype=np.int64),
            rates=[RATE],
            optimiser=_SGD,
            push=None,
            start=weights,
            moments=_SGD.start(weights),
            seed=0,
            gradient_squares=False,
        )
        if not isinstance(engine, NativeEngine):
            with _its_own_errors():
                return engine.local_round(job)
        with engine.undropped():
            return engine.local_round(job) or self._halves(engine, weights)

    def _halves(self, engine: NativeEngine, weights: Tensor) -> Done:
        """The same step where samples are made when they are read, so that no round is taken at once."""
        inputs, targets = self._data.batch(self._positions, None)
        computed = engine.compute(inputs, targets, self._positions, squares=True)
        engine.weights.copy_(weights).sub_(engine.gradient, alpha=RATE)
        assert computed.squares is not None
        idle: Spans = tuple((s.offset, s.size) for s in computed.unused)
        loss, squares = float(computed.loss) * len(inputs), float(computed.squares)
        return Done(loss=loss, squared_loss=squares, gradient_squares=0.0, idle=idle)

    def _compare(self, found: Tensor, wanted: Tensor, weights: Tensor) -> None:
        """Compares two changes from some weights, parameter by parameter.

        Where a number nearly ties with another in a pooling, or with zero in a ReLU, rounding moves gradients
        of a sample as a whole: steps may lie apart as far as rounded weights change a step in double precision.
        """
        whole, astray = float(wanted.norm()), dict[str, float]()
        for segment in self._inside.layout.segments:
            apart = float((segment.of(found) - segment.of(wanted)).norm())
            if not apart <= CLOSE * float(segment.of(wanted).norm()) + SLIGHT * whole:
                astray[segment.name] = apart
        if not astray:
            return
        for reach in self._reaches(weights) if isinstance(self._engine, NativeEngine) else ():
            astray = {name: apart for name, apart in astray.items() if not apart <= TIMES * reach[name]}
            if not astray:
                return
        raise Unlike(f"its gradient of {next(iter(astray))} is not torch's")

    def _reaches(self, weights: Tensor) -> Iterator[dict[str, float]]:
        """How far the step from some weights, [P], lies from that of the same ones rounded, by parameter.

        One rounding after the other, of as many digits as a long sum loses; all of it in double precision.
        """
        exact = self._in_double(weights.double())
        for rounding in range(ROUNDINGS):
            with seeded_torch(0, "network", "rounded", rounding):
                noise = torch.nn.init.normal_(torch.empty(len(weights), dtype=torch.float64))
            moved = self._in_double(weights.double() * (1 + ROUNDING * noise))
            yield {name: float((change - exact[name]).norm()) for name, change in moved.items()}

    def _in_double(self, weights: Tensor) -> dict[str, Tensor]:
        """What a step from some weights, float64 [P], changes of each parameter, by name."""
        engine = self._inside.in_double()
        for segment, own in zip(self._inside.layout.segments, engine.layout.segments, strict=True):
            own.of(engine.weights).copy_(segment.of(weights))
        model = Model(weights=engine.weights.clone(), buffers=engine.buffers())
        engine.open(Opening(data=self._data, start=model, received=model, previous=None, reuse=False))
        inputs, targets = self._data.batch(self._positions, None)
        with self._masks(), _its_own_errors():
            engine.compute(inputs.double() if inputs.is_floating_point() else inputs, targets, self._positions)
        return {segment.name: -RATE * segment.of(engine.gradient) for segment in engine.layout.segments}

    def evaluate(self, weights: Tensor, layers: Sequence[str]) -> None:
        """Compares outputs and representations in evaluation."""
        assert isinstance(self._engine, NativeEngine)
        self._open(self._inside, weights)
        self._open(self._engine, weights)
        with _its_own_errors():
            theirs, _ = self._inside.frozen_outputs("received")
        ours, _ = self._engine.frozen_outputs("received")
        if not _near(ours, theirs):
            raise Unlike("its outputs in evaluation are not torch's")
        inputs, _ = self._data.batch(self._positions, None)
        for layer in layers:
            theirs = self._inside.frozen_features("received", layer, inputs, self._positions)
            ours = self._engine.frozen_features("received", layer, inputs, self._positions)
            if not _near(ours, theirs):
                raise Unlike(f"its {layer} are not torch's")


@contextlib.contextmanager
def _its_own_errors() -> Iterator[None]:
    """Leaves a module to torch that raises something: the run will then meet it."""
    try:
        yield
    except Unlike:
        raise
    except Exception as error:  # whatever a user's own forward raises
        raise Unlike(f"it raises {type(error).__name__}: {' '.join(str(error).split())[:120]}") from error


def _near(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and float((ours - theirs).norm()) <= CLOSE * float(theirs.norm()) + SLIGHT
