"""Shows before a run that a module computes the same in every visit, whoever carries it out: else it is refused.

A short visit and an evaluation are carried out twice from the same weights, buffers and draws of torch's, the second
after the first. They must give the same bits, or digests would depend on who computed what before: on the driver, the
number of workers, an interruption. Copies must compute the same, too, where a class says itself how it is copied. Asked
in this way is only what may hold more than its parameters and buffers: any class that is not torch's own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.attributes import attributes, changed_in, known, unregistered
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import generators, kept_generators, seeded_torch
from polyrhythm.base.threads import one_thread
from polyrhythm.base.unharmed import unharmed
from polyrhythm.core.protocols import Opening
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Model

FEW, STEPS, RATE = 4, 2, 0.01
_COPYING = ("__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")


def repeated(engine: TorchEngine, samples: Samples, *, batch: int) -> tuple[str, ...]:
    """What a reader should know of the state that a module has beside its parameters and buffers.

    The engine is then as it was, but for scratch.

    Args:
        engine: fresh, with the initial weights in it.
        samples: what clients train on.
        batch: samples in a batch of the run.

    Raises:
        UserError: the module does not compute the same twice, learns nothing, or cannot be trained on these samples.
    """
    if engine.plain or not len(samples):
        return ()
    initial = engine.initial()
    trial = _Trial(engine, initial, samples, batch)
    with one_thread(), kept_generators(), unharmed(engine.module):
        try:
            return trial.notices()
        finally:
            trial.open(engine, initial)
            engine.gradient.zero_()
            engine.at_rest()


@final
class _Seen(NamedTuple):
    """What a visit and an evaluation gave."""

    weights: Tensor
    buffers: tuple[Tensor, ...]
    outputs: Tensor


@final
class _Trial:
    def __init__(self, engine: TorchEngine, initial: Model, samples: Samples, batch: int) -> None:
        self._engine, self._initial, self._samples = engine, initial, samples
        self._name, self._most = type(engine.module).__name__, max(1, min(batch, len(samples)))
        self._take(min(FEW, self._most))

    def _take(self, size: int) -> None:
        """Reads so many samples, once: what they draw is no draw of the module."""
        where = np.unique(np.linspace(0, len(self._samples) - 1, size).astype(np.int64))
        self._data, self._places = Holding(self._samples, torch.from_numpy(where)), np.arange(len(where))
        self._inputs, self._targets = self._data.batch(self._places, None)

    def open(self, engine: TorchEngine, model: Model) -> None:
        engine.open(Opening(data=self._data, start=model, received=model, previous=None, reuse=False))

    def notices(self) -> tuple[str, ...]:
        engine = self._engine
        module = engine.at_rest()
        around, frozen, drawn = attributes(module), engine.frozen_sums(), generators()
        held, extra = unregistered(module), _extra_states(module)
        self._train_first()
        inside = changed_in(around, attributes(engine.module))
        if late := next((name for name in unregistered(engine.module) if name not in held), ""):
            raise self._error(
                f"makes {late} in a pass, and keeps it in no place for layers or parameters",
                "make the layer in __init__ and assign it to an attribute, or put it into an nn.ModuleList",
            )
        kept = [name for name, state in _extra_states(engine.module).items() if state != extra.get(name)]
        first = self._seen(engine)
        self._refuse_traces(frozen, drawn)
        self._train(engine)
        if not all(map(_same, _flat(first), _flat(self._seen(engine)))):
            left = changed_in(around, attributes(engine.at_rest()))
            raise self._error(
                "gives other numbers in a second visit with the same samples, weights and draws"
                + (f": {left} is not as it was before the first" if left else ""),
                "keep what changes in a buffer, which travels, or in an attribute of the module, which begins every "
                "visit anew; not in its class, a global variable or a table by id; and draw from torch's generator",
            )
        self._refuse_traces(frozen, drawn)
        self._refuse_other_copies()
        return tuple(_notices(inside, held, kept))

    def _train_first(self) -> None:
        """Trains on few samples, or if that cannot be done on as many as batches have."""
        try:
            self._train(self._engine)
        except UserError:
            raise
        except Exception as error:
            if len(self._places) < self._most:
                self._take(self._most)
                return self._train_first()
            if "does not require grad" in str(error):
                raise self._learns_nothing() from error
            raise self._error(
                f"cannot be trained on {len(self._places)} samples: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]}",
                "take one batch through the model in training mode and loss.backward(), and correct what is raised",
            ) from error

    def _train(self, engine: TorchEngine) -> None:
        """Two steps from the initial model."""
        self.open(engine, self._initial)
        with torch.enable_grad(), seeded_torch(0, "network", "repeated"):
            for _ in range(STEPS):
                computed = engine.compute(self._inputs.clone(), self._targets, self._places)
                if len(computed.unused) == len(engine.layout.segments):
                    engine.buffers()  # which says so if it has no such parameters any more
                    raise self._learns_nothing()
                engine.weights.sub_(engine.gradient, alpha=RATE)
                engine.stepped()

    def _seen(self, engine: TorchEngine) -> _Seen:
        """What came of it, and the outputs of the trained model in evaluation."""
        model = Model(weights=engine.weights.clone(), buffers=engine.buffers())
        return _Seen(model.weights, model.buffers, self._outputs(engine, model))

    def _outputs(self, engine: TorchEngine, model: Model) -> Tensor:
        self.open(engine, model)
        with torch.no_grad(), seeded_torch(0, "measure", "repeated"):
            outputs: Tensor = engine.frozen("received")(self._inputs.clone())
        return outputs

    def _learns_nothing(self) -> UserError:
        return self._error(
            "gives outputs that depend on none of its parameters",
            "leave out detach() and torch.no_grad() between the parameters that are to learn and the outputs",
        )

    def _refuse_traces(self, frozen: dict[str, float], drawn: tuple[Any, ...]) -> None:
        """Refuses what a pass moves that neither travels nor is put back."""
        now = generators()
        for which, name in ((1, "NumPy's"), (2, "Python's")):
            if now[which] != drawn[which]:
                raise self._error(
                    f"draws from {name} global random numbers in a pass",
                    "draw from torch's: torch.rand(…), torch.randint(…); each visit and evaluation seeds them by name",
                )
        sums = self._engine.frozen_sums()
        if moved := next((name for name, total in frozen.items() if not _equal(sums[name], total)), ""):
            raise self._error(
                f"changes {moved} in a pass, which requires no gradient",
                f"register it as a buffer, which travels and is averaged: register_buffer({moved.split('.')[-1]!r}, …)",
            )

    def _refuse_other_copies(self) -> None:
        """Refuses a module whose copies are something else, where a class of it says how it is copied."""
        engine = self._engine
        if not any(_copies_itself(type(part)) for part in engine.module.modules()):
            return
        ours = self._outputs(engine, self._initial)
        for theirs in self._of_copies():
            if not _same(ours, theirs):
                raise self._error(
                    "computes something else than a copy of it",
                    "leave out its __deepcopy__, __reduce__, __getstate__ or __setstate__, or have them keep all of it",
                )

    def _of_copies(self) -> Iterator[Tensor]:
        """The outputs of the module in training, of which the frozen one is a copy, and of what is sent to workers."""
        engine = self._engine
        module = engine.at_rest().eval()
        try:
            with torch.no_grad(), seeded_torch(0, "measure", "repeated"):
                yield module(self._inputs.clone())
        finally:
            module.train()
        try:
            sent: TorchEngine = pickle.loads(pickle.dumps(engine))
        except Exception:  # it goes nowhere then, which whoever wants to send it will say
            return
        yield self._outputs(sent, self._initial)

    def _error(self, found: str, fix: str) -> UserError:
        return UserError(
            f"{self._name} {found}",
            expected="a model that computes the same for the same samples, weights, buffers and draws",
            why="each client's numbers would depend on who was at work before in that process, or it would not learn",
            fix=fix,
        )


def _notices(changed: str, held: Sequence[str], kept: list[str]) -> Iterator[str]:
    if changed:
        yield (
            f"{changed} of the model changes in a pass: every visit and every evaluation begins with the value "
            "that was given. What is to travel has to be a buffer"
        )
    if held:
        yield (
            f"{held[0]} of the model requires a gradient, but is no parameter of it, and never trained: assign it as "
            "an nn.Parameter, or put its layer into an nn.ModuleList"
        )
    if kept:
        yield (
            f"the extra state of {kept[0] or 'the model'} (get_extra_state) changes in training: it does not travel, "
            "and every visit begins with the given one"
        )


def _copies_itself(kind: type) -> bool:
    return any(not known(base) and any(name in vars(base) for name in _COPYING) for base in kind.__mro__)


def _extra_states(module: nn.Module) -> dict[str, Any]:
    """What the parts of a module would put into a state dict beside tensors, as bytes where that can be told."""
    own = ((name, part) for name, part in module.named_modules() if type(part).get_extra_state is not _NONE)
    return {name: _bytes(part.get_extra_state()) for name, part in own}


_NONE = nn.Module.get_extra_state


def _bytes(value: Any) -> Any:
    try:
        return pickle.dumps(value)
    except Exception:  # whatever cannot be pickled has its own way to say so
        return None


def _flat(seen: _Seen) -> list[Tensor]:
    return [seen.weights, *seen.buffers, seen.outputs]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and (torch.equal(one, other) or bool(torch.allclose(one, other, 0.0, 0.0, True)))


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # NaN is NaN
