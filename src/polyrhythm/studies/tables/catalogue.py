"""All reproductions, and which of them covers which table or figure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from polyrhythm.base.consent import NOBODY, Trust, in_python
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.studies.tables.definition import PAPERS, Reproduction
from polyrhythm.studies.tables.reading import read

_HERE = Path(__file__).parent


@final
@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or figure.

    Args:
        paper: one of `PAPERS`.
        name: such as "Figure 22".
        by: the reproduction that covers it.
    """

    paper: str
    name: str
    by: Reproduction

    @property
    def slug(self) -> str:
        """As it is asked for: "fedcl/figure-22"."""
        return f"{self.paper}/{_slug(self.name)}"


@functools.cache
def reproductions() -> Mapping[str, Reproduction]:
    """All of them, by name, in the order of the papers."""
    files = [path for paper in PAPERS for path in sorted((_HERE / paper).glob("*.toml"), key=_natural)]
    return {f"{path.parent.name}/{path.stem}": read(path, f"{path.parent.name}/{path.stem}") for path in files}


def items() -> Iterator[Item]:
    """Every table and figure of every paper."""
    for paper in PAPERS:
        own = [
            Item(paper=paper, name=i, by=by) for by in reproductions().values() if by.paper == paper for i in by.items
        ]
        yield from sorted(own, key=lambda item: _natural_text(item.name))


def find(reference: str, trust: Trust | Sequence[str] = NOBODY) -> Reproduction:
    """A reproduction by its name, by the name of an item ("fedcl/figure-22"), or by the path of a file.

    Args:
        reference: it.
        trust: modules of yours that it may name, as with `--trust` on the command line: they are imported and run.

    Raises:
        UserError: there is none, or the file is wrong.
    """
    found = read(Path(reference)) if reference.endswith(".toml") else _known(reference)
    named = trust if isinstance(trust, Trust) else in_python(trust)
    return replace(found, maker=replace(found.maker, trust=named))


def _known(reference: str) -> Reproduction:
    """One of ours."""
    if reference in reproductions():
        return reproductions()[reference]
    named = {item.slug: item.by for item in items()}
    if reference in named:
        return named[reference]
    paper, slash, _ = reference.partition("/")
    known = {*reproductions(), *named}
    error = unknown("reproduction", reference, [k for k in known if slash and k.startswith(f"{paper}/")] or known)
    raise UserError(
        error.found,
        expected="a name that `polyrhythm reproduce list` shows, such as ccfl/table-2, or the path of a .toml file",
        why=error.why,
        fix=error.fix if error.fix.startswith("did you mean") else "polyrhythm reproduce list",
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    return _natural_text(path.stem)


def _natural_text(text: str) -> list[tuple[bool, int, str]]:
    """Sorts numbers in texts by size: tables first, since people look for them first."""
    parts = re.findall(r"\d+|\D+", text)
    return [(not text.startswith("Table"), 0, "")] + [
        (p.isdigit(), int(p) if p.isdigit() else 0, "" if p.isdigit() else p) for p in parts
    ]
