"""A report in Markdown, as GitHub and notebooks read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyrhythm.base.plain import plain
from polyrhythm.report.contents import Contents
from polyrhythm.results.tables import Table

# What begins a link, a tag, emphasis, code, a heading or a column, wherever it stands.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$!&@])")


def markdown(contents: Contents) -> str:
    """The whole report but the figures."""
    return "\n".join(_lines(contents)) + "\n"


def escaped(text: str) -> str:
    """A text that Markdown takes as it is, on one line; in it nothing is a tag, a link or a formula.

    >>> print(escaped("<b>_x_|$y$"))
    \\<b\\>\\_x\\_\\|\\$y\\$
    """
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    # A list or a heading begins with these, and a space.
    return re.sub(r"^(\d*)([-+=.)])(?=\s|$)", r"\1\\\2", _SPECIAL.sub(r"\\\1", flat))


def table(given: Table) -> Iterator[str]:
    """A pipe table under its caption."""
    yield f"{escaped(given.caption)}"
    yield ""
    yield _row(given.head)
    yield (
        "| --- |" + " ---: |" * (len(given.head) - 1)
        if given.numbers
        else "| --- |" * 1 + " --- |" * (len(given.head) - 1)
    )
    for i, row in enumerate(given.rows):
        yield _row(row, [j for j in range(len(row)) if (i, j) in given.marked])
    yield ""


def _row(cells: tuple[str, ...], marked: list[int] | None = None) -> str:
    texts = [escaped(cell) for cell in cells]
    return "| " + " | ".join(f"**{t}**" if j in (marked or ()) and t else t for j, t in enumerate(texts)) + " |"


def _lines(contents: Contents) -> Iterator[str]:
    yield f"# {escaped(contents.title)}"
    yield ""
    yield escaped(contents.about)
    yield ""
    yield escaped(contents.verdict)
    yield ""
    if contents.notices:
        yield "## Before you read the numbers"
        yield ""
        yield from (f"- {escaped(notice)}" for notice in contents.notices)
        yield ""
    for section in contents.sections:
        yield f"## {section.title}"
        yield ""
        for one in section.tables:
            yield from table(one)
    yield "## How to run it again"
    yield ""
    for recipe in contents.recipes:
        yield f"### {escaped(recipe.method)}"
        yield ""
        yield escaped(recipe.words)
        yield ""
        yield from _code(recipe.text, recipe.language)
        if recipe.commands:
            yield from _code("\n".join(recipe.commands), "sh")


def _code(text: str, language: str) -> Iterator[str]:
    """A fenced block, with a fence that is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield f"{fence}{language}"
    yield plain(text)
    yield fence
    yield ""
