"""How a run and a comparison look in a notebook: small, in the colours of its theme, and all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import tables
from polyrhythm.runs import holes

if TYPE_CHECKING:
    from polyrhythm.results.tables import Table
    from polyrhythm.runs.comparison import ComparedRuns
    from polyrhythm.runs.recorded import RecordedRun

# Nothing but the text's own colour, so that it is right on light and dark.
_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35);padding:.2em 1.2em .2em 0;vertical-align:top"
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;background:none;color:inherit"
_CAPTION = "caption-side:top;text-align:left;color:inherit;opacity:.75;padding:0 0 .3em;max-width:44em"
_WIDTH, _HEIGHT, _MOST = 260, 60, 200


def run_html(run: RecordedRun) -> str:
    """A run: what it is, how it stands, its curve and its costs."""
    scores, view = run.scores, run.view
    lines = {
        "status": f"{view.standing}: {run.reason}" if run.reason else view.standing,
        "method": run.recipe,
        "seed": str(run.seed),
        "rounds": f"{view.last['version']:,}" if view.last else "0",
        f"final {in_words(run.headline)}": tables.score(view.numbers["final_accuracy"]),
        **view.costs,
        **({"record": holes.in_words(view.missing)} if view.missing else {}),
    }
    title = f"{run.name or run.recipe}, {run.id}"
    body = "".join(_row((label, value), number=False) for label, value in lines.items())
    return _framed(
        f'<table style="{_TABLE}"><caption style="{_CAPTION}">{escape(title)}</caption><tbody>{body}</tbody>'
        f"</table>{_curve(scores, run.headline)}"
    )


def comparison_html(found: ComparedRuns[RecordedRun]) -> str:
    """A comparison: its results and differences, and what a reader should know."""
    from polyrhythm.results import result_tables

    base = next(iter(found.methods))
    shown = [result_tables.accuracy(found, "test"), result_tables.differences(found, base, "test", 0.95)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    return _framed("".join(_table(one) for one in shown if one is not None) + (f"<ul>{notes}</ul>" if notes else ""))


def _framed(inside: str) -> str:
    return f'<div style="overflow-x:auto;max-width:100%">{inside}</div>'


def _table(given: Table) -> str:
    head = "".join(
        f'<th scope="col" style="{_LINE};text-align:{"right" if i else "left"}">{escape(text)}</th>'
        for i, text in enumerate(given.head)
    )
    body = "".join(_row(row, number=True) for row in given.rows)
    return (
        f'<table style="{_TABLE};margin-bottom:1em"><caption style="{_CAPTION}">{escape(given.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(cells: Iterable[str], *, number: bool) -> str:
    first, *others = cells
    align = "right;white-space:nowrap" if number else "left"
    rest = "".join(f'<td style="{_LINE};text-align:{align}">{escape(text)}</td>' for text in others)
    return f'<tr><th scope="row" style="{_LINE};text-align:left">{escape(first)}</th>{rest}</tr>'


def _curve(scores: Sequence[tuple[int, float]], headline: str) -> str:
    """A line through the scores; nothing for fewer than two."""
    thinned = [*scores[:: max(1, len(scores) // _MOST)], *scores[-1:]]
    if len(scores) < 2:
        return ""
    (first, _), (last, _) = thinned[0], thinned[-1]
    low, high = min(value for _, value in thinned), max(value for _, value in thinned)
    points = " ".join(
        f"{2 + (version - first) / max(1, last - first) * (_WIDTH - 4):.1f},"
        f"{2 + (1 - (value - low) / ((high - low) or 1.0)) * (_HEIGHT - 4):.1f}"
        for version, value in thinned
    )
    label = f"{in_words(headline)} from {low:.4f} to {high:.4f} over {last:,} versions"
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{_WIDTH}" height="{_HEIGHT}">'
        f"<title>{escape(label)}</title>"
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
