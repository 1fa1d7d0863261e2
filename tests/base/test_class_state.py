"""What modules of a class share, wherever it is kept."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.attributes import attributes, changed_in
from polyrhythm.base.class_state import shared_by

NUMBER, LISTED, COUNT, STREAM = [0], [0], itertools.count(), torch.Generator()
DRAWS, TABLE = np.random.default_rng(0), list(range(100_000))


class Counter:
    """A counter beside the model."""

    calls = 0

    def __init__(self) -> None:
        self.n = 0

    def up(self) -> None:
        self.n += 1


COUNTER = Counter()


def helper() -> None:
    LISTED.append(1)


class Step:
    """A descriptor that counts."""

    calls = 0

    def __get__(self, owner: object, kind: type) -> int:
        Step.calls += 1
        return Step.calls


class Base(nn.Module):
    """Does nothing else."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.passed()
        return inputs

    def passed(self) -> None:
        """Leaves nothing behind."""


def of(passed: Callable[..., Any], **shared: Any) -> nn.Module:
    made: nn.Module = type("Made", (Base,), {"passed": passed, "__module__": __name__, **shared})()
    return made


def enclosed() -> nn.Module:
    n = 0

    def passed(self: nn.Module) -> None:
        nonlocal n
        n += 1

    return of(passed)


def grows(self: nn.Module, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)


def grows_by_name(self: nn.Module, *, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)


def raises_class(self: Any) -> None:
    type(self).n += 1


def by_global(self: nn.Module) -> None:
    NUMBER[0] += 1


def by_lambda(self: nn.Module) -> None:
    (lambda: NUMBER.append(1))()


def by_count(self: nn.Module) -> None:
    next(COUNT)


def by_generator(self: nn.Module) -> None:
    torch.rand(1, generator=STREAM)


def by_numpy(self: nn.Module) -> None:
    DRAWS.random()


def by_object(self: nn.Module) -> None:
    COUNTER.up()


def by_other_class(self: nn.Module) -> None:
    Counter.calls += 1


def by_helper(self: nn.Module) -> None:
    helper()


def by_descriptor(self: Any) -> None:
    self.step  # noqa: B018


def by_property(self: Any) -> None:
    self.there  # noqa: B018


def through_classmethod(self: Any) -> None:
    self.up()


def up(cls: Any) -> None:
    NUMBER[0] += 1


KEEPERS: dict[str, Callable[[], nn.Module]] = {
    "its class": lambda: of(raises_class, n=0),
    "a global list": lambda: of(by_global),
    "a global list, in a lambda": lambda: of(by_lambda),
    "a global count": lambda: of(by_count),
    "a global generator": lambda: of(by_generator),
    "a global generator of NumPy's": lambda: of(by_numpy),
    "a global object": lambda: of(by_object),
    "another class": lambda: of(by_other_class),
    "what a function names": lambda: of(by_helper),
    "a descriptor": lambda: of(by_descriptor, step=Step()),
    "what a property names": lambda: of(by_property, there=property(up)),
    "what a cached property names": lambda: of(by_property, there=functools.cached_property(up)),
    "what a classmethod names": lambda: of(through_classmethod, up=classmethod(up)),
    "a variable around": enclosed,
    "a default": lambda: of(grows),
    "a default by name": lambda: of(grows_by_name),
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_a_pass_changes_is_seen(keeper: str) -> None:
    module = KEEPERS[keeper]()
    before = attributes(module)
    assert not changed_in(before, attributes(module))
    module(torch.ones(1))
    assert changed_in(before, attributes(module)).startswith(("Made.", "there"))


def test_what_is_not_named_or_is_a_table_is_not_looked_at() -> None:
    def passed(self: nn.Module) -> None:
        TABLE.append(1)

    found = dict(shared_by(type(of(passed))))
    assert "TABLE" not in found
    assert "NUMBER" not in found


def test_classes_that_name_each_other_come_to_an_end() -> None:
    def passed(self: nn.Module) -> None:
        Ring.other.up()

    assert "Ring.n" in dict(shared_by(type(of(passed, ring=Ring()))))


class Ring:
    """Holds itself."""

    n = 3
    other: Any

    def up(self) -> None:
        Ring.n += 1


Ring.other = Ring()
