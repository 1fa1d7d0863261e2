"""The index of pitfalls names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (Path(__file__).parent / "index.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| kind"))]
    assert len(rows) > 40
    assert all(re.search(r"`tests/[\w/]+\.py::\w+`", row) for row in rows)


def test_every_test_here_is_in_the_index() -> None:
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and file.name != Path(__file__).name:
                assert (f"tests/pitfalls/{file.name}", node.name) in NAMED, node.name
