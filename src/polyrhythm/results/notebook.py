"""How a run and a comparison look in a notebook: small, in the colours of its theme, and all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from polyrhythm.base import html
from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import in_words
from polyrhythm.base.plain import plain
from polyrhythm.results import tables
from polyrhythm.runs import holes
from polyrhythm.runs.comparison import spread

if TYPE_CHECKING:
    from polyrhythm.runs.comparison import ComparedRuns
    from polyrhythm.runs.recorded import RecordedRun

_WIDTH, _HEIGHT, _MOST = 260, 60, 200


def run_line(run: RecordedRun) -> str:
    """A run in a line."""
    called = f"{run.name}, {run.id}" if run.name else run.id
    try:
        return plain(f"<Run {called}: {_stands(run)}>")
    except UserError:  # its database is gone or damaged, which a message that shows the run must not hide
        return plain(f"<Run {called}: its record cannot be read>")


def _stands(run: RecordedRun) -> str:
    view = run.view
    made = f"{view.last['version']:,} rounds" if view.last else "no round yet"
    score = f"{in_words(run.headline)} {tables.score(view.numbers['final_accuracy'])}"
    return f"{run.recipe}, {view.standing}, {made}, {score}"


def comparison_line(found: ComparedRuns[RecordedRun]) -> str:
    """A comparison in a line: each method with its mean at the end."""
    ends = {name: spread(list(found.read(name, "final").values()))["mean"] for name in found.methods}
    told = ", ".join(f"{name} {tables.score(ends[name])}" for name in ends)
    return plain(f"<Comparison, final {in_words(found.headline)}: {told}>")


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
    return html.framed(html.facts(f"{run.name or run.recipe}, {run.id}", lines) + _curve(scores, run.headline))


def comparison_html(found: ComparedRuns[RecordedRun]) -> str:
    """A comparison: a sentence on it, its results and differences, and what a reader should know."""
    from polyrhythm.results import result_tables
    from polyrhythm.results.verdict import verdict

    shown = [result_tables.accuracy(found, "test"), result_tables.differences(found, found.baseline, "test", 0.95)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    found_tables = "".join(html.table(one.caption, one.head, one.rows, one.marked) for one in shown if one is not None)
    return html.framed(f"<p>{escape(verdict(found))}</p>{found_tables}" + (f"<ul>{notes}</ul>" if notes else ""))


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
