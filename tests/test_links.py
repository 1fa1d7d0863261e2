"""Every link of the documentation leads somewhere: files that are there, and headings that a page has."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "tests/pitfalls/index.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(\s*<?([^\s)>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:a|img)[^>]*(?:href|src)=\"([^\"]+)\"")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)


def without_code(text: str) -> str:
    """A page without what stands in code, where brackets are no links."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", text)


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    text = re.sub(r"(?<!\w)[*_]+|[*_]+(?!\w)", "", text)
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link into a page may lead to."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.MULTILINE):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def dead(page: Path) -> list[str]:
    """The links of a page that lead nowhere on this disk."""
    text, found = without_code(page.read_text(encoding="utf-8")), []
    targets = [one or other for one, other in _LINK.findall(text)] + _REFERENCE.findall(text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and (place.suffix != ".md" or anchor not in anchors(place))):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert not dead(page)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Where to go on", "where-to-go-on"),
        ("`polyrhythm run`", "polyrhythm-run"),
        ("Sources, and `table`", "sources-and-table"),
        ("What is [measured](x.md)?", "what-is-measured"),
        ("A_b and *c*", "a_b-and-c"),
    ],
)
def test_an_anchor_is_made_as_github_makes_it(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One\n\n## One\n\n[a](#one) [b](#one-1) [c](#two) [d](a.md#one) [e](b.md) `[f](g.md)`\n")
    assert dead(page) == ["#two", "b.md"]
