"""A module's forward pass as lists of operations, for each way in which it is run.

Symbolic tracing sees the operations and nothing else: not the mode that chose them, not the context manager around
them, not what Python did beside them. So the module is traced as it trains, as it is evaluated, and as it is evaluated
where gradients are taken; around each operation it is noted what no list of operations says; and whatever the module
changes, draws or computes meanwhile speaks against the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx, nn
from torch.nn.modules import module as of_all
from torch.utils._python_dispatch import TorchDispatchMode

from polyrhythm.base.attributes import attributes, changed_in
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import generators, seeded_torch
from polyrhythm.base.vectors import CPU
from polyrhythm.engines.unsupported import Unlike, Unsupported

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_ALL = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
CALLED = ("__call__", "_call_impl", "_wrapped_call_impl")
_NEVER_CALLED = (nn.ParameterDict, nn.ParameterList)  # which say so themselves
_CALLS = (*CALLED, "__getattr__")


@final
@dataclass(frozen=True, kw_only=True)
class Pass:
    """One way in which a module is run.

    Args:
        training: its mode.
        gradients: whether autograd looks on.
    """

    training: bool
    gradients: bool

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        return f"{mode} {'with' if self.gradients else 'without'} gradients"


# Training is traced twice: what a pass leaves behind may show only in the next one.
PASSES = (
    Pass(training=True, gradients=True),
    Pass(training=True, gradients=True),
    Pass(training=False, gradients=False),
    Pass(training=False, gradients=True),
)


def refuse_hooks(module: nn.Module, *, calls: Sequence[str] = _CALLS) -> None:
    """Goes on if a module's calls are its forward methods and nothing more.

    Args:
        module: it.
        calls: the methods of torch's modules of which none may be another one.

    Raises:
        Unsupported: something else is run with them.
    """
    for name, part in module.named_modules():
        if any(getattr(part, hooks, None) for hooks in _HOOKS):
            raise Unsupported(f"{name or 'the model'} has hooks")
        if "forward" in vars(part):
            raise Unlike(f"{name or 'the model'} has a forward method of its own, beside its class's")
        if type(part) in _NEVER_CALLED:
            continue
        if any(getattr(type(part), call) is not getattr(nn.Module, call) for call in calls):
            raise Unlike(f"calling {name or 'the model'} is more than its forward method")
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks:
            raise Unlike(f"{name} has hooks, which change its gradient")
    if any(getattr(of_all, hooks, None) for hooks in _OF_ALL):
        raise Unlike("there are hooks on all modules")


def traces(module: nn.Module) -> Iterator[tuple[Pass, nn.Module, fx.Graph]]:
    """The operations of each of `PASSES`, with a copy of the module that is in its mode meanwhile.

    Raises:
        Unsupported: the module cannot be traced.
        Unlike: the operations are not all that it does.
    """
    replica = copy_of(module, one_base=CPU)
    for way in PASSES:
        replica.train(way.training)
        before = attributes(replica)
        graph = _traced(replica, way)
        if changed := changed_in(before, attributes(replica)):
            raise Unlike(f"a pass changes {changed}")
        yield way, replica, graph


def _traced(module: nn.Module, way: Pass) -> fx.Graph:
    tracer, own = _Tracer(), _OwnOperations()  # type: ignore[no-untyped-call]
    with torch.set_grad_enabled(way.gradients), seeded_torch(0, "network", "traced"):
        before = generators()
        tracer.around = _around()
        try:
            with own:
                graph = tracer.trace(module)
        except Exception as error:  # whatever a user's own forward raises when it is given a symbol
            raise Unsupported(f"{type(module).__name__} cannot be traced") from error
        finally:
            # It is in cycles with functions of its own, which would keep the module until somebody collects them.
            vars(tracer).update(root=None, tensor_attrs={})
        if generators() != before:
            raise Unlike("a pass draws random numbers by itself")
    if tracer.why_not:
        raise Unlike(f"in {way}, {tracer.why_not}")
    if own.found:
        raise Unlike(f"in {way}, it computes {own.found} beside what becomes of the samples")
    return graph


def _around() -> Mapping[str, Any]:
    """What changes the meaning of an operation and is not in it, in words."""
    return {
        "has gradients switched on or off": torch.is_grad_enabled(),
        "switches on inference mode": torch.is_inference_mode_enabled(),
        "has autocast switched on or off": torch.is_autocast_enabled("cpu"),
        "seeds random numbers": torch.initial_seed(),
    }


@final
class _Tracer(fx.Tracer):
    """Notes the first operation around which anything is otherwise than around the whole pass.

    Attributes:
        around: the whole pass.
        why_not: what was found, in words; it cannot be raised, since the module may catch it.
    """

    around: Mapping[str, Any]
    why_not = ""

    def create_node(self, kind: str, target: Any, *rest: Any, **more: Any) -> fx.Node:
        now = _around()
        different = [words for words, value in now.items() if value != self.around[words]]
        if different and not self.why_not:
            self.why_not = f"it {different[0]} around {getattr(target, '__name__', target)}"
        return super().create_node(kind, target, *rest, **more)


@final
class _OwnOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first operation that is really carried out.

    Attributes:
        found: its name.
    """

    found = ""

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.found = self.found or str(function)
        return function(*args, **(kwargs or {}))
