"""Reads a model's representation of a batch from inside one forward pass, whatever the model.

MOON and ALT compare what different models make of the same samples. No model needs to be written for that: a `Tap`
sets forward hooks for one pass and takes them off again, so a model outside of a pass carries nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, final

from torch import Tensor, nn

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.vectors import CPU
from polyrhythm.models.probing import output_shape

Reader = Callable[[nn.Module, tuple[Any, ...], Any], Any]


@final
class Tap:
    """Runs a model once and gives its outputs and its representation of the batch. Made by `locate`."""

    def __init__(self, module: nn.Module, where: str, watched: tuple[nn.Module, ...], read: Reader) -> None:
        self.module, self.where = module, where
        self._watched, self._read = watched, read

    def __call__(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Outputs as the model gives them, and the representation. [B, …], [B, F]

        Both belong to one pass and carry gradients as usual. If the place runs more than once in a pass, the last run
        counts. An in-place layer right after the place (ReLU(inplace=True)) changes what is read.

        Raises:
            UserError: the place did not run in this pass, or does not give a tensor with a row per sample.
        """
        with self.watch() as read:
            outputs: Tensor = self.module(*inputs)
        return outputs, read(len(inputs[0]))

    @contextlib.contextmanager
    def watch(self) -> Iterator[Callable[[int], Tensor]]:
        """Watches one pass that the caller runs inside the block, so that several taps can share it.

        Yields:
            A function that gives the representation [B, F] once the pass has run, from the number of samples B.
        """
        seen: list[Any] = []

        def hook(layer: nn.Module, layer_inputs: tuple[Any, ...], layer_outputs: Any) -> None:
            seen[:] = [self._read(layer, layer_inputs, layer_outputs)]

        def read(samples: int) -> Tensor:
            if not seen:
                raise UserError(
                    f"the representation {self.where!r} did not run in a pass through {type(self.module).__name__}",
                    expected="a part of the model that every forward pass uses",
                    why="there is nothing to compare between models",
                    fix='name another submodule, or choose "logits"',
                )
            return self._flat(seen[0], samples)

        with contextlib.ExitStack() as hooks:
            for layer in self._watched:
                hooks.callback(layer.register_forward_hook(hook).remove)
            yield read

    def _flat(self, value: Any, samples: int) -> Tensor:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != samples:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise UserError(
                f"the representation {self.where!r} is {found} for a batch of {samples}",
                expected="one tensor with a row per sample",
                why="representations are compared sample by sample",
                fix="name a submodule that gives such a tensor (an LSTM gives a pair: name a layer after it)",
            )
        return value.reshape(samples, -1)


def locate(module: nn.Module, which: Literal["projection", "features", "logits"] | str) -> Tap:
    """Finds where a model's representation is.

    Args:
        module: any module.
        which: "logits", the model's outputs; "features", what goes into the output layer, that is the last nn.Linear
            that ran; "projection", what the model's attribute `projection` gives if it has one, else the same as
            "features"; or the name of a submodule, as in `named_modules()`, for what that one gives.

    Raises:
        UserError: no submodule of that name, or features of a model without an nn.Linear.
    """
    if which == "logits":
        return Tap(module, which, (module,), _outputs)
    if which == "projection" and isinstance(getattr(module, "projection", None), nn.Module):
        return Tap(module, which, (module.get_submodule("projection"),), _outputs)
    if which in ("projection", "features"):
        linears = tuple(m for m in module.modules() if isinstance(m, nn.Linear))
        if not linears:
            raise UserError(
                f"{type(module).__name__} holds no nn.Linear, so its {which} cannot be found",
                expected="an nn.Linear as output layer, or the name of a submodule",
                why='"features" are what goes into the last nn.Linear',
                fix=f'choose "logits" or one of {", ".join(list(_names(module))[:8])}',
            )
        return Tap(module, which, linears, _inputs)
    if which not in _names(module):
        raise unknown("representation", which, ["projection", "features", "logits", *_names(module)])
    return Tap(module, which, (module.get_submodule(which),), _outputs)


def output_layer(module: nn.Module, inputs: Tensor) -> str:
    """The name of a model's output layer: the last nn.Linear that runs. Empty if the model itself is that layer.

    Args:
        module: any module; a copy of it runs.
        inputs: a small batch of samples.

    Raises:
        UserError: no nn.Linear runs, or the model cannot be run on these samples.
    """
    ran: list[str] = []
    replica = copy_of(module, one_base=CPU)
    for name, layer in replica.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda *_, name=name: ran.append(name))
    output_shape(replica, inputs)
    if not ran:
        raise UserError(
            f"{type(module).__name__} runs no nn.Linear, so its output layer cannot be found",
            expected="a model that ends in an nn.Linear",
            why="the output layer is the last nn.Linear that runs",
            fix="choose such a model, or do without what is asked of its output layer",
        )
    return ran[-1]


def _outputs(_: nn.Module, __: tuple[Any, ...], outputs: Any) -> Any:
    return outputs


def _inputs(_: nn.Module, inputs: tuple[Any, ...], __: Any) -> Any:
    return inputs[0]


def _names(module: nn.Module) -> Iterator[str]:
    return (name for name, _ in module.named_modules() if name)
