"""Every sentence of the page on security has the tests that would fail if it were false, or why there is none."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
CLAIMS = Path(__file__).parent / "claims.toml"
REASONS = {
    *("a heading", "advice", "an argument", "of Flower", "says what is not held back"),
    *("a warning: nothing is held back", "says what a run is", "says what the page is", "says what an import path is"),
}
"""Why a sentence claims nothing that a test could hold."""


def sentences(page: str) -> list[str]:
    """What a page says, sentence by sentence: of paragraphs, items of lists and rows of tables, without examples."""
    return [part for block in _blocks(page) for part in re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`\"])", block)]


def _blocks(page: str) -> Iterator[str]:
    held: list[str] = []
    for line in [*re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL).splitlines(), ""]:
        bare = line.strip()
        row, item = bare.startswith("|"), re.match(r"(- |\d+\. )", bare)
        if held and (not bare or row or item or bare.startswith("#")):
            yield " ".join(held)
            held = []
        if row and not re.fullmatch(r"[|\- ]+", bare):
            yield bare.strip("| ")
        elif bare and not row and not bare.startswith("#"):
            held.append(bare[item.end() :] if item else bare)


def entries() -> list[dict[str, object]]:
    found: list[dict[str, object]] = tomllib.loads(CLAIMS.read_text())["sentence"]
    return found


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_sentence_of_the_page_has_its_tests() -> None:
    says = [str(entry["says"]) for entry in entries()]
    assert says == sentences(PAGE.read_text())
    assert len(says) > 80


def test_an_entry_names_tests_or_says_why_there_is_none() -> None:
    for entry in entries():
        assert ("tests" in entry) != ("none" in entry), entry["says"]
        assert entry.get("tests") or entry["none"] in REASONS, entry["says"]


@pytest.mark.parametrize("named", sorted({str(t) for entry in entries() for t in entry.get("tests", [])}))  # type: ignore[attr-defined]
def test_a_named_test_exists(named: str) -> None:
    file, _, name = named.partition("::")
    assert name.startswith("test_")
    assert name in names_in(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two `x.y` is.\nThree", ["One.", "Two `x.y` is.", "Three"]),
        (
            "# A\n\n- **B.** C\n  d.\n- E\n\n| f | g |\n| --- | --- |\n| h | i. J |\n",
            ["**B.", "C d.", "E", "f | g", "h | i.", "J"],
        ),
        ("a\n\n```sh\nb. C\n```\n\nd", ["a", "d"]),
    ],
)
def test_a_page_is_taken_apart(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected
