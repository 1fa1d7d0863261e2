"""Reports as files: the ending decides the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.base.output_file import check_output
from polyrhythm.report.contents import Contents, contents
from polyrhythm.report.latex import latex
from polyrhythm.report.markdown import markdown
from polyrhythm.report.page import page
from polyrhythm.results import Comparison, Run
from polyrhythm.results.run import whole_runs
from polyrhythm.runs.costs import On

FORMATS: Mapping[str, Callable[[Contents], str]] = {".html": page, ".md": markdown, ".tex": latex}
"""What writes a report, by the ending of its file."""


def write(
    runs: Comparison | Sequence[Run] | Path | str,
    path: Path | str,
    *,
    to: float | None = None,
    on: On = "test",
    baseline: str | None = None,
    group_by: str | None = None,
    level: float = 0.95,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Path:
    """Writes a report on some runs.

    Args:
        runs: the runs, a comparison, or a folder with them.
        path: .html for one page with all its figures, which needs no network and runs no script; .md for all tables in
            Markdown; .tex for those of a paper.
        to: a goal for the headline metric; None for the largest multiple of 0.05 that every run reached.
        on: the set that all of it is judged on, "test" or "validation".
        baseline: the method that the others are compared with; None for the first.
        group_by: the dotted key of a setting whose values take the place of methods.
        level: of confidence intervals.
        told: hears how many figures are drawn of how many, since a page of many takes seconds.

    Raises:
        UserError: another ending, nothing to report, or a file that cannot be written.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise UserError(
            f"cannot write a report as {path.name!r}",
            expected=f"a name that ends in {', '.join(FORMATS)}",
            why="the ending decides the format",
            fix=f"write it as {path.stem or 'report'}.html, for example",
        )
    check_output(path, "the report")
    what = contents(_runs(runs), to=to, on=on, baseline=baseline, group_by=group_by, level=level)
    text = page(what, told) if ending == ".html" else FORMATS[ending](what)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")  # a lone surrogate in a name is no reason to fail
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}",
            expected="a folder that exists and can be written",
            why="the report would be lost",
            fix="make the folder, or give another file",
        ) from error
    return path


def _runs(given: Comparison | Sequence[Run] | Path | str) -> Sequence[Run]:
    if isinstance(given, Comparison):
        return [run for members in given.methods.values() for run in members]
    return whole_runs(given) if isinstance(given, (Path, str)) else given
