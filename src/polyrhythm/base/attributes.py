"""Plain attributes of a module, which a forward pass may change: what a pass left, and how it was before.

Parameters and buffers are no plain attributes. Of torch's own layers and of this package's models it is known that
their own passes leave their attributes alone; but the module around them may change their settings, such as the share
of a dropout.
"""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, fx, nn

from polyrhythm.base.class_state import shared_by

_DEEP = 6  # containers in containers
_LARGE = 2**20  # bytes of an array or an object whose content is looked at
_STORES = ("_parameters", "_buffers")
_OF_MODULES = vars(nn.Module()).keys()
_ABSENT = object()
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
_KNOWN_BY_ID = (*_FUNCTIONS, nn.Module, nn.Parameter)  # of which others take care
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, *_KNOWN_BY_ID)


@final
class Attributes:
    """The attributes of a module and its parts, to be put back.

    Args:
        module: as it is now.
    """

    def __init__(self, module: nn.Module) -> None:
        alone = all(_leaves_alone(part) and not _hooked(part) for part in module.modules())
        # What several parts hold is one thing, before and after it is put back; tensors of the module stay as they are.
        self._registered = {id(t): t for t in (*module.parameters(), *module.buffers())}
        memo = dict[int, Any](self._registered)
        self._parts = [] if alone else [_Part(part, memo) for part in module.modules()]

    def __bool__(self) -> bool:
        """Whether there is a part whose passes may change anything."""
        return bool(self._parts)

    def put_back(self) -> None:
        """Gives every attribute the value that it had, and takes away those that there were not."""
        if self._parts:
            memo, looked = dict[int, Any](self._registered), dict[int, object]()
            for part in self._parts:
                part.put_back(memo, looked)


@final
class _Part:
    def __init__(self, part: nn.Module, memo: dict[int, Any]) -> None:
        self._now = vars(part)
        self._names = self._now.keys() | _OF_MODULES
        self._then = {name: value for name, value in self._now.items() if name not in _OF_MODULES}
        if _leaves_alone(part):  # what torch keeps beside settings is its own business, as an LSTM's list of weights
            self._then = {name: value for name, value in self._then.items() if _fixed(value)}
        self._inside = {n: (_seen(v), _copied(v, memo)) for n, v in self._then.items() if not _fixed(v)}
        self._shallow = {name: _held(self._then[name]) for name in self._inside}

    def put_back(self, memo: dict[int, Any], looked: dict[int, object]) -> None:
        then, now = self._then, self._now
        for name in now.keys() - self._names:
            del now[name]
        for name, (seen, value) in self._inside.items():
            held, known = then[name], self._shallow[name]
            if known is not None and _holds(held, known):
                continue
            if id(held) not in looked:
                looked[id(held)] = _seen(held)
            if looked[id(held)] != seen:
                then[name] = _copied(value, memo)
                self._inside[name], self._shallow[name] = (_seen(then[name]), value), _held(then[name])
        for name, value in then.items():
            if now.get(name, _ABSENT) is not value:
                now[name] = value


def _held(value: Any) -> list[object] | None:
    """What a container holds in which nothing can change but what it holds; None of anything else."""
    if type(value) is dict:
        return [*value.keys(), *value.values()] if all(map(_fixed, value.values())) else None
    return [*value] if type(value) is list and all(map(_fixed, value)) else None


def _holds(value: Any, known: list[object]) -> bool:
    """Whether a container holds the very objects that are known: quicker than to look at each."""
    now = [*value.keys(), *value.values()] if type(value) is dict else value
    return len(now) == len(known) and all(map(operator.is_, now, known))


def attributes(module: nn.Module) -> Mapping[str, object]:
    """The attributes of a module and its parts by name, in a form that can be compared: equal if nothing has changed.

    Tensors that a pass leaves behind count as no change, whichever they are: they matter only where a later pass reads
    them, which has to be looked for otherwise. Parameters and buffers are the exception: they have to be the same.
    """
    found = dict[str, object]()
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            seen = _stored(value) if name in _STORES else _seen(value, left_behind=True)
            found[f"{prefix}.{name}".lstrip(".")] = seen
    for kind in {kind for part in module.modules() for kind in type(part).__mro__ if not known(kind)}:
        for name, value in shared_by(kind):
            found[f"{kind.__name__}.{name}"] = _seen(value, left_behind=True)
    return found


def changed_in(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """The name of an attribute that is not what it was; empty if there is none."""
    names = sorted(before.keys() | after.keys())
    return next((name for name in names if before.get(name, _LEFT) != after.get(name, _LEFT)), "")


_LEFT = ("left behind",)


def unregistered(module: nn.Module) -> tuple[str, ...]:
    """What learns in torch's eyes but is no parameter of the module: in plain attributes, lists and dicts of it."""
    own = {id(t) for t in module.parameters()}
    return tuple(
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in _OF_MODULES and any(id(t) not in own for t in _learning(value))
    )


def _learning(value: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(value, nn.Module):
        yield from (p for p in value.parameters() if p.requires_grad)
    elif isinstance(value, Tensor):
        yield from [value] if value.is_leaf and value.requires_grad else []
    elif type(value) in (list, tuple, dict) and depth < _DEEP:
        for inside in value.values() if type(value) is dict else value:
            yield from _learning(inside, depth + 1)


def _leaves_alone(part: nn.Module) -> bool:
    return type(part).__module__.startswith(("torch.nn.modules.", "polyrhythm.models."))


def known(kind: type) -> bool:
    """Whether a class is one whose passes are known: Python's, torch's or this package's."""
    return kind is object or kind.__module__.startswith(("torch.", "polyrhythm.models.", "typing"))


def _hooked(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def _fixed(value: Any) -> bool:
    """Whether nothing can change inside of a value; a part of the module is looked at by itself."""
    if type(value) is tuple:
        return all(map(_fixed, value))
    return value is None or isinstance(value, _PLAIN)


def _stored(tensors: Mapping[str, Tensor | None]) -> object:
    return [(n, (id(t), t.requires_grad, t.shape) if isinstance(t, Tensor) else type(t)) for n, t in tensors.items()]


def _seen(value: Any, *, left_behind: bool = False, depth: int = 0) -> object:
    """What can be seen of a value, without holding it."""
    if left_behind and (value is None or isinstance(value, (Tensor, fx.Proxy))):
        return _LEFT
    if isinstance(value, nn.Parameter):
        return id(value)
    if isinstance(value, Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes() if value.nbytes <= _LARGE else id(value)
    if not isinstance(value, tuple) and _fixed(value):
        return id(value) if isinstance(value, _KNOWN_BY_ID) else (type(value), repr(value))
    if depth == _DEEP:
        return id(value)
    if isinstance(value, Mapping):
        items = [*value.keys(), *value.values()]
        return type(value), [_seen(v, left_behind=left_behind, depth=depth + 1) for v in items]
    if isinstance(value, (list, tuple)):
        return type(value), [_seen(v, left_behind=left_behind, depth=depth + 1) for v in value]
    if _around_tensors(value):
        # Two levels down: such an object may lead to all others.
        inside = vars(value).items()
        return id(value), [(n, _seen(v, left_behind=left_behind, depth=max(depth + 1, _DEEP - 2))) for n, v in inside]
    content = _content(value)
    return id(value) if content is None else (type(value), content)


def _copied(value: Any, memo: dict[int, Any], depth: int = 0) -> Any:
    """A value that a pass can change without changing this one: containers are copied, parts of the module are not.

    Args:
        value: it.
        memo: copies by the identity of what they were made of.
        depth: containers around it.
    """
    if id(value) not in memo:
        memo[id(value)] = _copy(value, memo, depth)
    return memo[id(value)]


def _copy(value: Any, memo: dict[int, Any], depth: int) -> Any:
    if _fixed(value) or depth == _DEEP:
        return value
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad) if value.is_leaf else value
    if isinstance(value, np.ndarray):
        return value.copy() if value.nbytes <= _LARGE else value
    if type(value) in (list, tuple, set):
        return type(value)(_copied(v, memo, depth + 1) for v in value)
    if type(value) is dict:
        return {k: _copied(v, memo, depth + 1) for k, v in value.items()}
    if _around_tensors(value):
        other = copy.copy(value)
        vars(other).update({n: _copied(v, memo, max(depth + 1, _DEEP - 2)) for n, v in vars(value).items()})
        return other
    return value if _content(value) is None else copy.deepcopy(value)


def _around_tensors(value: Any) -> bool:
    """Whether an object of any class holds tensors, or parts of the module, in attributes of its own."""
    return hasattr(value, "__dict__") and any(isinstance(v, (Tensor, nn.Module)) for v in vars(value).values())


def _content(value: Any) -> bytes | None:
    """What an object of any class holds; None if that is large, or more than can be told."""
    try:
        content = pickle.dumps(value)
    except Exception:  # whatever cannot be pickled has its own way to say so
        return None
    return content if len(content) <= _LARGE else None
