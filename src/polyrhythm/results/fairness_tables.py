"""The tables that answer: who is served badly, clients and classes?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyrhythm.base.metric_names import in_words, title_of
from polyrhythm.results import tables
from polyrhythm.results.result_tables import over_seeds, row_head
from polyrhythm.results.tables import NONE, Table
from polyrhythm.runs.comparison import ComparedRuns, last_spread, spread
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.spread import ClientResults, Spread, by_device, of_classes, of_clients
from polyrhythm.runs.spread import spread as over_clients

_MOST_CLASSES = 30
_COLUMNS = ("mean", "sd", "worst", "median", "best")
_OF_SPREAD = ("mean", "sd_over_clients", "worst_decile", "median")
_UNSEEN = {"unseen_global": "unseen clients", "unseen_personal": "unseen clients' own models"}
_HEAD = ("clients", "mean", "sd over clients", "worst tenth", "median", "best tenth", "gap between devices")


def clients(found: ComparedRuns[RecordedRun]) -> Table | None:
    """How each method's newest model does on clients' own tests; None where no method has such results.

    Where clients use models of their own these have a row of their own below; so have clients that never train.
    """
    lines, sampled = [], False
    for name, runs in found.methods.items():
        head = tables.marked(name, found.unfinished[name])
        results = [of_clients(run.folder, run.number, last=True) for run in runs]
        known = [own for own in results if own.versions]
        sampled |= any(len(own.clients) < own.having for own in known)
        lines.append((head, *_row([(own, own.versions[-1][1]) for own in known], len(runs))))
        if personal := [(own, own.personal[-1][1]) for own in known if own.personal]:
            lines.append((f"{head}, clients' own models", *_row(personal, len(runs))))
        lines += [
            (f"{head}, {whose}", *row) for which, whose in _UNSEEN.items() if (row := _unseen(found, name, which))
        ]
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


def differences(found: ComparedRuns[RecordedRun], baseline: str, level: float = 0.95) -> Table | None:
    """What each of the other methods gives clients more than one of them, client by client; None without a pair."""
    by = found.client_differences(baseline=baseline, level=level)
    if all(one.mean.mean is None for one in by.values()):
        return None
    return Table(
        name="client_differences",
        caption=f"What clients gain over {baseline}: {in_words(found.headline)} of the model that each uses, on its "
        f"own test, minus that of the same client and seed. Gain: mean over clients, with the {level * 100:g} % "
        f"interval of its mean over seeds (Student's t); {tables.HOLDS_ZERO} it holds 0. Over clients, in a seed: "
        "the share that loses and that wins, the standard deviation, and the tenth that loses most.",
        head=(row_head(found), "n", "clients", "gain", "Holm", "lose", "win", "sd over clients", "worst tenth"),
        rows=tables.rows(
            (
                *(tables.marked(name, found.unfinished[name]), str(one.mean.n), _counts(one.clients)),
                *(tables.gain(one.mean), tables.chance(one.mean.holm)),
                *(NONE if value is None else f"{value:.0%}" for value in (one.lose, one.win)),
                *(
                    NONE if value is None else tables.signed(value, digits=4, plus=False)
                    for value in (one.sd, one.worst)
                ),
            )
            for name, one in by.items()
        ),
    )


def _unseen(found: ComparedRuns[RecordedRun], method: str, which: str) -> tuple[str, ...]:
    """The same of clients that never train: `_HEAD`; nothing where there are none."""
    runs = [last_spread(rows) for rows in found.versions[method]]
    counts = [int(last["unseen_clients"]) for last in runs if f"{which}_mean" in last]
    if not counts:
        return ()
    of = [found.over_seeds(method, [last.get(f"{which}_{column}") for last in runs]) for column in _OF_SPREAD]
    return (_counts(counts), *(tables.scores(values, len(runs)) for values in of), NONE, NONE)


def _row(results: Sequence[tuple[ClientResults, Sequence[float]]], runs: int) -> tuple[str, ...]:
    """What the results of clients come to over the runs of a method: `_HEAD`."""
    known: list[tuple[Spread, float | None]] = []
    for own, scores in results:
        if (over := over_clients(scores)) is not None:
            groups = by_device(own.devices, scores).values()
            known.append((over, max(groups) - min(groups) if len(groups) > 1 else None))
    if not known:
        return tuple(NONE for _ in _HEAD)
    of = [[getattr(over, column) for over, _ in known] for column in _COLUMNS]
    return (
        _counts(over.clients for over, _ in known),
        *(tables.scores(spread(values), runs) for values in (*of, [gap for _, gap in known])),
    )


def _counts(given: Iterable[int]) -> str:
    """How many clients there were, in all runs."""
    counts = sorted(set(given))
    return " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))


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
