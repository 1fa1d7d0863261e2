"""Frozen values that change often."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, final

from immutables import Map

P = ParamSpec("P")
T = TypeVar("T")
Key = TypeVar("Key")
_new, _set = object.__new__, object.__setattr__


def replace_unchecked(value: T, /, **fields: Any) -> T:
    """`dataclasses.replace` for a frozen dataclass that checks nothing when it is made: several times as fast.

    The server makes a new state of a few changed fields for every event; through the constructor, which sets each field
    of a frozen value one by one, that would take longer than everything else it does.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int
    >>> replace_unchecked(Point(1, 2), y=3)
    Point(x=1, y=3)
    """
    made = _new(type(value))
    _set(made, "__dict__", value.__dict__ | fields)
    return made


def new_unchecked(kind: Callable[P, T], /, *_: P.args, **fields: P.kwargs) -> T:
    """A frozen, keyword-only dataclass's value, without its constructor: likewise, where one is made for every event.

    For dataclasses that check nothing. The type checker sees to it that the fields are right; those left out have their
    default on the class, so it must be a plain one.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> new_unchecked(Point, x=1)
    Point(x=1, y=0)
    """
    value: T = _new(kind)  # type: ignore[arg-type]
    _set(value, "__dict__", fields)
    return value


@final
class cached(functools.cached_property[T]):
    """`functools.cached_property` without the lock that it takes before Python 3.12: where one is asked in every event.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...
    ...     @cached
    ...     def square(self) -> int:
    ...         return self.x**2
    >>> Point(3).square
    9
    """

    if not TYPE_CHECKING:

        def __get__(self, value, owner=None):
            if value is None:
                return self
            found = value.__dict__[self.attrname] = self.func(value)
            return found


def persistent(entries: Mapping[Key, T]) -> Map[Key, T]:
    """A map of which a changed one costs the logarithm of its size; itself, if it is one already."""
    return entries if isinstance(entries, Map) else Map(entries)
