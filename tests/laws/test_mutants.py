"""Every law is broken by each of its mutants, and every test in this folder is a law.

The first mutant of each law is tried by default, the others with `-m slow`.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from polyrhythm.engines import selection

from .law import LAWS

FILES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path.stem != Path(__file__).stem)
MODULES = [importlib.import_module(f".{stem}", __package__) for stem in FILES]
MUTANTS = [
    pytest.param(
        *(module.__name__, law, mutant),
        id=f"{law.removeprefix('test_')}-{mutant}",
        marks=pytest.mark.slow if number else (),
    )
    for module in MODULES
    for (owner, law), known in list(LAWS.items())
    if owner == module.__name__
    for number, mutant in enumerate(known.broken_by)
]


class Broken(BaseException):
    """Says that a law does not hold. No `Exception`, which Hypothesis would catch to try the example once more."""


@pytest.mark.parametrize(("module", "name", "mutant"), MUTANTS)
def test_the_mutant_breaks_the_law(module: str, name: str, mutant: str) -> None:
    law = LAWS[module, name]

    @functools.wraps(law.check)
    def check(*given: Any, **named: Any) -> None:
        try:
            law.check(*given, **named)
        except AssertionError as error:
            raise Broken from error

    search = check
    if law.strategies:
        once = settings(max_examples=200, phases=[Phase.generate], database=None, derandomize=True)
        search = once(given(**law.strategies)(check))
    with pytest.MonkeyPatch.context() as patch:
        law.broken_by[mutant](patch)
        for proof in ("prove", "prove_in_pieces"):  # which would leave the mutant to torch, or refuse it
            patch.setattr(selection, proof, lambda *given, **more: None)
        with pytest.raises(Broken):
            search()


class Noted:
    """A monkeypatch that notes what is swapped."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.swapped = patch, list[tuple[str, str]]()

    def setattr(self, owner: Any, name: str, *given: Any, **more: Any) -> None:
        self.swapped.append((getattr(owner, "__name__", type(owner).__name__).rpartition(".")[2], name))
        self.patch.setattr(owner, name, *given, **more)


def inside(name: str) -> bool:
    """Whether it is a private name or a constant, which may change while all that is promised stays."""
    return name.isupper() or (name.startswith("_") and not name.endswith("__"))


def test_no_mutant_changes_a_private_name_or_a_constant() -> None:
    """A mutant is a part that is wrong at a seam: tied to the inside, it would stop every change of it."""
    found = []
    for (_, law), known in LAWS.items():
        for mutant, mutation in known.broken_by.items():
            with pytest.MonkeyPatch.context() as patch:
                noted: Any = Noted(patch)
                mutation(noted)
            found += [f"{law}-{mutant}: {'.'.join(names)}" for names in noted.swapped if any(map(inside, names))]
    assert found == []


@pytest.mark.parametrize("module", MODULES, ids=FILES)
def test_every_test_is_a_law(module: object) -> None:
    tests = {name for name in vars(module) if name.startswith("test_")}
    assert tests
    assert tests == {name for owner, name in LAWS if owner == getattr(module, "__name__", "")}
