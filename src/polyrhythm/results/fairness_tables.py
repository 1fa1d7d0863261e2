"""The tables that answer: who is served badly, clients and classes?"""

from __future__ import annotations

from collections.abc import Sequence

from polyrhythm.base.metric_names import title_of
from polyrhythm.results import tables
from polyrhythm.results.result_tables import over_seeds, row_head
from polyrhythm.results.tables import NONE, Table
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.spread import Spread, by_device, of_classes, of_clients
from polyrhythm.runs.spread import spread as over_clients

_MOST_CLASSES = 30
_COLUMNS = ("mean", "sd", "worst", "median", "best")
_HEAD = ("clients", "mean", "sd over clients", "worst tenth", "median", "best tenth", "gap between devices")


def clients(found: ComparedRuns[RecordedRun]) -> Table | None:
    """How each method's newest model does on clients' own tests; None where no method has such results."""
    lines, sampled = [], False
    for name, runs in found.methods.items():
        known: list[tuple[Spread, float | None]] = []
        for run in runs:
            own = of_clients(run.folder, run.number, last=True)
            if not own.versions or (over := over_clients(own.versions[-1][1])) is None:
                continue
            groups = by_device(own.devices, own.versions[-1][1]).values()
            known.append((over, max(groups) - min(groups) if len(groups) > 1 else None))
            sampled |= len(own.clients) < own.having
        head = tables.marked(name, found.unfinished[name])
        if not known:
            lines.append((head, *(NONE for _ in _HEAD)))
            continue
        of = [[getattr(over, column) for over, _ in known] for column in _COLUMNS]
        counts = sorted({over.clients for over, _ in known})
        lines.append(
            (
                head,
                " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))),
                *(tables.scores(spread(values), len(runs)) for values in (*of, [gap for _, gap in known])),
            )
        )
    if all(line[1] == NONE for line in lines):
        return None
    words = "; of a sample of clients, in which every group of devices has its share" if sampled else ""
    return Table(
        name="fairness",
        caption=f"{title_of(found.headline)} of the last evaluated version on clients' own tests{words}; "
        f"{over_seeds(found)}. Gap: best minus worst group of like devices.",
        head=(row_head(found), *_HEAD),
        rows=tables.rows(lines),
    )


def classes(found: ComparedRuns[RecordedRun]) -> Table | None:
    """How many test samples of each class each method recognises in the end; None without classes, or with many."""
    names = next((run.classes for runs in found.methods.values() for run in runs if run.classes), ())
    if not 1 < len(names) <= _MOST_CLASSES:
        return None
    columns = {name: _recognised(runs, names) for name, runs in found.methods.items()}
    if not any(value is not None for of in columns.values() for one in of for value in one):
        return None
    lines = [
        (label, *(tables.scores(spread([one[i] for one in of]), len(of)) for of in columns.values()))
        for i, label in enumerate(names)
    ]
    return Table(
        name="classes",
        caption=f"Share of each class's test samples that the last evaluated version recognises; {over_seeds(found)}.",
        head=("class", *(tables.marked(name, found.unfinished[name]) for name in found.methods)),
        rows=tables.rows(lines),
    )


def _recognised(runs: Sequence[RecordedRun], names: tuple[str, ...]) -> list[list[float | None]]:
    """Of each run the share of each class; nothing of one that has other classes."""
    found: list[list[float | None]] = []
    for run in runs:
        last = of_classes(run.folder, run.number, len(names), last=True) if run.classes == names else []
        row = last[-1] if last else None
        if row is None:
            found.append([None] * len(names))
        else:
            found.append([r / p if p else None for r, p in zip(row.right, row.present, strict=True)])
    return found
