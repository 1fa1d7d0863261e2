"""Catalogue of the studies that come along: the papers', and which of them covers which table or figure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.base.consent import NOBODY, Trust, in_python
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.studies.definition import PAPERS, Study
from polyrhythm.studies.files.reading import read

_PAPERS = Path(__file__).parents[1] / "papers"


@functools.cache
def catalogue() -> Mapping[str, Study]:
    """All of them, by name, in the order of the papers."""
    files = [path for paper in PAPERS for path in sorted((_PAPERS / paper).glob("*.toml"), key=_natural)]
    return {name: read(path, name) for path in files for name in (f"{path.parent.name}/{path.stem}",)}


def items() -> Iterator[tuple[str, Study]]:
    """Every table and figure of every paper, as it is asked for ("fedcl/figure-22"), with the study that covers it.

    One of which panels are items ("Figure 5 (a)") is found as a whole, by the study of its first panel.
    """
    for paper in PAPERS:
        own = [(name, by) for by in catalogue().values() if by.paper == paper for name in by.items]
        own.sort(key=lambda item: _natural_text(item[0]))
        found: dict[str, Study] = {}
        for name, by in own:
            found.setdefault(_slug(name if name.startswith("Panel") else name.partition(" (")[0]), by)
        yield from ((f"{paper}/{name}", by) for name, by in found.items())


def find(
    reference: str,
    trust: Trust | Sequence[str] = NOBODY,
    options: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Study:
    """A study by its name, by the name of an item ("fedcl/figure-22"), or by the path of a file.

    Args:
        reference: it.
        trust: modules of yours that it may name, as with `--trust` on the command line: they are imported and run.
        options: keys of the experiment that win over the file; None means not given.
        settings: `key=value` texts, which win over both.

    Raises:
        UserError: there is none, or the file is wrong.
    """
    named = trust if isinstance(trust, Trust) else in_python(trust)
    if reference.endswith(".toml"):
        return read(Path(reference), "", options, settings, named)
    known = _known(reference)
    assert known.file is not None
    return read(known.file, known.name, options, settings, named)


def _known(reference: str) -> Study:
    """One of ours."""
    known = {**dict(items()), **catalogue()}
    if reference in known:
        return known[reference]
    paper, slash, _ = reference.partition("/")
    error = unknown("study", reference, [k for k in known if slash and k.startswith(f"{paper}/")] or known)
    raise UserError(
        error.found,
        expected="a name that `polyrhythm study list` shows, such as ccfl/table-2, or the path of a .toml file",
        why=error.why,
        fix=error.fix if error.fix.startswith("did you mean") else "polyrhythm study list",
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
