"""What makes a test a law: examples from Hypothesis or cases, and mutants of the source that must break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

Mutation = Callable[[pytest.MonkeyPatch], object]


@final
@dataclass(frozen=True, kw_only=True)
class Law:
    """A test function that may also be run on a mutated source."""

    check: Callable[..., None]
    strategies: Mapping[str, SearchStrategy[Any]]
    broken_by: Mapping[str, Mutation]


LAWS: dict[tuple[str, str], Law] = {}
"""Every law by (module, name)."""


def law(
    *,
    broken_by: Mapping[str, Mutation],
    examples: int = 6,
    cases: Sequence[Mapping[str, Any]] = (),
    **strategies: SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a law of a test function.

    Args:
        broken_by: mutants by name; the law must fail under each. At least one: a law that cannot fail is no test.
        examples: how many examples Hypothesis tries.
        cases: what is tried in place of examples, where there is little to draw from: arguments by name.
        strategies: what the function's arguments are drawn from; where there are cases, only in search of one that a
            mutant breaks.
    """
    assert broken_by

    def register(check: Callable[..., None]) -> Callable[..., None]:
        LAWS[check.__module__, check.__name__] = Law(check=check, strategies=strategies, broken_by=broken_by)
        if cases:
            tried = [pytest.param(*case.values(), id="-".join(map(str, case.values()))) for case in cases]
            return pytest.mark.parametrize(tuple(cases[0]), tried)(check)
        return settings(max_examples=examples)(given(**strategies)(check)) if strategies else check

    return register


def swap(owner: object, name: str, other: object) -> Mutation:
    """The mutant in which `owner.name` is something else."""
    return lambda patch: patch.setattr(owner, name, other)
