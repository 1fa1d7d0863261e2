"""The tables that answer: who was heard, and how are those served who are seldom there?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import tables
from polyrhythm.results.result_tables import over_seeds, row_head
from polyrhythm.results.tables import NONE, Table
from polyrhythm.runs.comparison import ComparedRuns
from polyrhythm.runs.heard import By
from polyrhythm.runs.recorded import RecordedRun

_SHARES = ("never_heard", "never_heard_samples", "samples_behind")
_GROUPS = ("loss_rare", "loss_common", "score_rare", "score_common")
_RANKS = ("loss_by_availability", "loss_by_participation")
LACKING = (
    "How good the model is for clients that are seldom there is not on record: that takes tests of clients' own "
    "(local_test=0.2)."
)
ORDERS: Mapping[By, str] = {
    "there": "by the share of the time that they were there",
    "heard": "by how often they were heard, as it is not on record how long they were there, or is the same for all",
}


def heard(found: ComparedRuns[RecordedRun]) -> Table | None:
    """How participation is spread over clients; None where nobody was heard yet."""
    entries = found.bias()
    lines = [
        (_name(found, entry), *(_share(entry[name]) for name in _SHARES), tables.scores(entry["gini"], entry["n"]))
        for entry in entries
    ]
    if all(set(line[1:]) == {NONE} for line in lines):
        return None
    lacks = f" {LACKING}" if availability(found, entries) is None else ""
    return Table(
        name="heard",
        caption="Who was heard, of the clients that hold data: those without any update in a version, and their "
        "samples; the share of the federation's samples behind a version, mean over versions; and the Gini coefficient "
        f"of updates over clients, 0 if all took part alike. {over_seeds(found).capitalize()}.{lacks}",
        head=(row_head(found), "clients never heard", "their samples", "samples behind a version", "Gini"),
        rows=tables.rows(lines),
    )


def availability(found: ComparedRuns[RecordedRun], entries: Sequence[Mapping[str, Any]] | None = None) -> Table | None:
    """How good the newest model is for clients by availability; None where no result of single clients is on record.

    Args:
        found: the methods.
        entries: what `found.bias()` gave, if it was asked already.
    """
    entries = found.bias() if entries is None else entries
    lines = [
        (_name(found, entry), *(tables.scores(entry[name], entry["n"]) for name in (*_GROUPS, *_RANKS)))
        for entry in entries
    ]
    if all(set(line[1:]) == {NONE} for line in lines):
        return None
    word = in_words(found.headline)
    return Table(
        name="availability",
        caption=f"Loss and {word} of the last evaluated version on clients' own tests, of the rarest and of the "
        f"commonest quarter of clients, {ORDERS[entries[0]['by']]}; and Spearman's rank correlation of a client's loss "
        "with how long it was there, and with how often it was heard: below 0, whoever is rare is served worse. "
        f"{over_seeds(found).capitalize()}.",
        head=(
            *(row_head(found), "loss, rarest quarter", "loss, commonest quarter"),
            *(f"{word}, rarest quarter", f"{word}, commonest quarter"),
            *("loss with being there", "loss with being heard"),
        ),
        rows=tables.rows(lines),
    )


def _name(found: ComparedRuns[RecordedRun], entry: Mapping[str, Any]) -> str:
    return tables.marked(entry["method"], found.unfinished[entry["method"]])


def _share(spread: Mapping[str, Any]) -> str:
    """A share in percent."""
    cell = tables.amounts(spread, factor=100.0)
    return cell if cell == NONE else f"{cell} %"
