"""The rooms of the package: each imports from rooms below it alone, and no two modules import each other.

Every import counts: at the top of a file, inside a function, for type checkers only, and a module's name in a text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = (
    *(
        "base",
        "data",
        "models",
        "methods",
        "parts",
        "extend",
        "fleet",
        "core",
        "engines",
        "runs",
        "simulation",
        "figures",
    ),
    *("results", "trackers", "experiments", "deployment", "config", "report", "studies", "dashboard", "bench", "cli"),
)
"""From the ground up."""
OUTSIDE = {"polyrhythm", "polyrhythm.__main__"}  # the names at the top, which are all rooms' doors


def modules(source: Path) -> dict[str, str]:
    """The text of every module, by its name."""
    found = {}
    for file in source.rglob("*.py"):
        name = ".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        found[name] = file.read_text(encoding="utf-8")
    return found


def imports(name: str, texts: Mapping[str, str]) -> Iterator[str]:
    """The modules that one imports, in any way."""
    for node in ast.walk(ast.parse(texts[name])):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: imports are written in full"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            named = [one if one in texts else str(node.module) for one in named]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = [node.value]
        else:
            continue
        yield from (one for one in named if one in texts and one not in OUTSIDE and one != name)


def graph(texts: Mapping[str, str]) -> dict[str, set[str]]:
    return {name: set(imports(name, texts)) for name in texts if name not in OUTSIDE}


def circle(found: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def room(name: str) -> str:
    return name.split(".")[1]


def upwards(found: Mapping[str, set[str]]) -> list[str]:
    """What a module imports from a room above its own."""
    above = {name: place for place, name in enumerate(ROOMS)}
    return sorted(
        f"{name} imports {other}"
        for name, others in found.items()
        for other in others
        if above[room(other)] > above[room(name)]
    )


@pytest.fixture(scope="module")
def ours() -> dict[str, set[str]]:
    return graph(modules(SOURCE))


def test_no_module_imports_itself_through_others(ours: dict[str, set[str]]) -> None:
    assert circle(ours) == []


def test_rooms_import_from_rooms_below(ours: dict[str, set[str]]) -> None:
    assert upwards(ours) == []
    assert {room(name) for name in ours} == set(ROOMS)


def test_there_are_few_rooms_and_floors(ours: dict[str, set[str]]) -> None:
    below: dict[str, set[str]] = {name: set() for name in ROOMS}
    for name, others in ours.items():
        below[room(name)] |= {room(other) for other in others} - {room(name)}
    floors = dict[str, int]()
    for name in ROOMS:
        floors[name] = 1 + max((floors[other] for other in below[name]), default=0)
    assert len(ROOMS) <= 24
    assert max(floors.values()) <= 12


@pytest.mark.parametrize(
    "text",
    [
        "from polyrhythm.cli import app",
        "from polyrhythm.cli.app import main",
        "import polyrhythm.cli.app",
        "def late() -> None:\n    import polyrhythm.cli.app",
        "import importlib\nimportlib.import_module('polyrhythm.cli.app')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from polyrhythm.cli import app",
    ],
)
def test_an_arrow_is_seen_however_it_is_written(text: str) -> None:
    texts = {"polyrhythm.base.low": text, "polyrhythm.cli": "", "polyrhythm.cli.app": "import polyrhythm.base.low"}
    found = graph(texts)
    assert "polyrhythm.base.low imports polyrhythm.cli.app" in upwards(found)
    assert circle(found)
