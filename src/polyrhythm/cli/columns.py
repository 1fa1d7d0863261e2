"""Columns of the list of runs: what each says of a run, any setting by its path among them."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.runs.costs import decimals
from polyrhythm.runs.labels import Labels
from polyrhythm.runs.settings_apart import flat
from polyrhythm.runs.settings_text import settings_lines, text
from polyrhythm.runs.view import RunView

_MOST = 8  # names in an error


@final
class Entry:
    """One run of the list, of which only what is asked for is read.

    Args:
        run: the run.
        labels: what its owner says of it.
    """

    def __init__(self, run: Run, labels: Labels) -> None:
        self.run, self.labels = run, labels

    @functools.cached_property
    def view(self) -> RunView:
        """How it stands."""
        return self.run.view

    @functools.cached_property
    def settings(self) -> Mapping[str, str]:
        """Every setting, and what came of it, by its path."""
        return flat({**self.run.config, "machine": self.run.machine, "summary": self.run.summary})

    @functools.cached_property
    def words(self) -> Mapping[str, str]:
        """Data, clients, partition, model and fleet, in words."""
        return settings_lines(self.run.config)

    @property
    def method(self) -> str:
        """The method as it was written, or as it is called."""
        written = self.run.config.get("method")
        return written if isinstance(written, str) else self.run.recipe

    @property
    def data(self) -> str:
        """The data as they were written."""
        return text(self.run.config.get("data", ""))

    def cell(self, value: Value) -> str:
        """A column's value, in words."""
        found = value(self)
        if found is None or found == "":
            return "–" if found is None else ""
        return decimals(found) if isinstance(found, float) else str(found)


Value = Callable[[Entry], Any]
USUAL: Mapping[str, Value] = {
    "run": lambda entry: entry.run.id,
    "name": lambda entry: entry.run.name,
    "method": lambda entry: entry.run.recipe,
    "status": lambda entry: entry.view.standing,
    "rounds": lambda entry: entry.view.summary.get("rounds"),
    "final": lambda entry: entry.view.numbers["final_accuracy"],
    "last 20": lambda entry: entry.view.numbers["last20_mean"],
}
_MORE: Mapping[str, Value] = {
    "tags": lambda entry: ", ".join(entry.labels.tags),
    "note": lambda entry: " ".join(entry.labels.note.split()),
    "baseline": lambda entry: "yes" if entry.labels.pinned else "",
    "archived": lambda entry: entry.labels.archived or "",
    "seed": lambda entry: entry.run.seed,
    "data": lambda entry: entry.data,
    "clients": lambda entry: entry.run.clients,
    "partition": lambda entry: entry.words.get("partition"),
    "model": lambda entry: entry.words.get("model"),
    "fleet": lambda entry: entry.words.get("devices"),
    "best": lambda entry: entry.view.numbers["best_accuracy"],
    "metric": lambda entry: entry.run.headline,
    "started": lambda entry: entry.run.started,
    "ended": lambda entry: entry.run.ended,
    "reason": lambda entry: entry.run.reason,
}
COLUMNS: Mapping[str, Value] = {**USUAL, **_MORE}


def chosen(written: str, entries: Sequence[Entry]) -> dict[str, Value]:
    """The columns that are written, with commas between; after a "+" beside the usual ones.

    Raises:
        UserError: one that no run has.
    """
    more = written.startswith("+")
    names = [name for name in (part.strip().lstrip("+") for part in written.split(",")) if name]
    found = dict(USUAL) if more or not names else {}
    return found | dict(_column(name, entries) for name in names)


def sorted_by(written: str, entries: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    """Entries by a column, the least first, or with "-" before its name the greatest; what has no value is last.

    Raises:
        UserError: one that no run has.
    """
    if not written:
        return list(entries)
    _, value = _column(written.removeprefix("-"), known)
    orders = [_order(value(entry)) for entry in entries]
    there = [(order, place) for place, order in enumerate(orders) if order is not None]
    there.sort(key=lambda pair: pair[0], reverse=written.startswith("-"))
    return [entries[place] for _, place in there] + [e for e, o in zip(entries, orders, strict=True) if o is None]


def is_number(value: Value, entries: Sequence[Entry]) -> bool:
    """Whether a column holds numbers alone."""
    orders = [order for entry in entries if (order := _order(value(entry))) is not None]
    return bool(orders) and all(order[0] == 0 for order in orders)


def _order(value: Any) -> tuple[int, Any] | None:
    """What a value is sorted by: numbers as such, in texts too."""
    if value is None or value in ("", "–"):
        return None
    try:
        return 0, float(value)
    except ValueError:
        parts = re.split(r"(\d+)", str(value).lower())
        return 1, [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _column(written: str, entries: Sequence[Entry]) -> tuple[str, Value]:
    """A column by its name, or a setting by its path or by an end of it."""
    name = re.sub(r"^last ?20$", "last 20", written.replace("_", " "))
    if name in COLUMNS:
        return name, COLUMNS[name]
    paths = sorted({path for entry in entries for path in entry.settings})
    fits = [path for path in paths if path == written] or [path for path in paths if path.endswith(f".{written}")]
    if len(fits) != 1:
        raise _unclear(written, fits, paths)
    return written, lambda entry: entry.settings.get(fits[0])


def _unclear(written: str, fits: Sequence[str], paths: Sequence[str]) -> UserError:
    if fits:
        return UserError(
            f"the column {written!r} fits {len(fits)} settings: {', '.join(fits[:_MOST])}",
            expected="a path, or an end of one, that is of one setting",
            why="they have different values",
            fix=f"give more of it, such as {fits[0]}",
        )
    near = difflib.get_close_matches(written, [*COLUMNS, *paths], n=3, cutoff=0.5)
    return UserError(
        f"no column {written!r}",
        expected=f"one of {', '.join(COLUMNS)}; or a setting by its path, such as evaluation.every",
        why="no run has a setting of that path",
        fix=f"did you mean {' or '.join(near)}?" if near else "`polyrhythm show RUN` and the dashboard name settings",
    )
