"""Labels of runs: what their owner says of them, beside the record, which no label ever changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from polyrhythm.base.errors import UserError

LONGEST_TAG, LONGEST_NAME, LONGEST_NOTE = 60, 200, 20_000  # characters
_LABELS = "SELECT run_id, name, note, archived, pinned FROM labels"
_TAGS = "SELECT run_id, tag FROM tags ORDER BY tag"


@final
@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels of one run.

    Args:
        name: what it is called in place of the name that it began with; None for that one.
        note: a text of any length.
        tags: in alphabetical order.
        archived: since when it is left out of lists: ISO 8601, UTC; None if it is not.
        pinned: whether it is the baseline of its folder.
    """

    name: str | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    archived: str | None = None
    pinned: bool = False

    def plain(self) -> dict[str, Any]:
        """All but the name, for programs."""
        archived = {"archived": self.archived} if self.archived else {}
        return {"tags": list(self.tags), "note": self.note, "baseline": self.pinned, **archived}

    def lines(self, first_name: str) -> dict[str, str]:
        """What there is to say of a run, in words, by what it is; `first_name` is what the run began with."""
        said = {
            "first name": first_name if self.name and first_name != self.name else "",
            "tags": ", ".join(self.tags),
            "note": self.note,
            "archived": f"since {self.archived}" if self.archived else "",
            "baseline": "of this folder" if self.pinned else "",
        }
        return {label: text for label, text in said.items() if text}


@final
@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of labels; what is None stays as it is.

    Args:
        add: tags.
        remove: tags, that need not be there.
        name: another name; "" for the one that the run began with.
        note: another note; "" for none.
        archived: whether to leave it out of lists.
        pinned: whether to make it the baseline, in place of any other.

    Raises:
        UserError: a tag, a name or a note that is none.
    """

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    name: str | None = None
    note: str | None = None
    archived: bool | None = None
    pinned: bool | None = None

    def __post_init__(self) -> None:
        for tag in (*self.add, *self.remove):
            _check_line("tag", tag, 1, LONGEST_TAG)
        if self.name is not None:
            _check_line("name", self.name, 0, LONGEST_NAME)
        if self.note is not None and (not isinstance(self.note, str) or len(self.note) > LONGEST_NOTE):
            size = f"{len(self.note):,} characters" if isinstance(self.note, str) else repr(self.note)
            raise UserError(
                f"a note of {size}",
                expected=f"a text of {LONGEST_NOTE:,} characters at most",
                why="it is shown beside the run",
                fix="put the rest into a file, and its name into the note",
            )


def labels_in(connection: sqlite3.Connection) -> dict[str, Labels]:
    """The labels of all runs that have some, by their ids; what somebody has spoilt in them is passed over."""
    found = dict[str, Labels]()
    for run_id, name, note, archived, pinned in connection.execute(_LABELS):
        found[run_id] = Labels(
            name=name if isinstance(name, str) and name else None,
            note=note if isinstance(note, str) else "",
            archived=archived if isinstance(archived, str) else None,
            pinned=bool(pinned),
        )
    tags = dict[str, list[str]]()
    for run_id, tag in connection.execute(_TAGS):
        if isinstance(tag, str):
            tags.setdefault(run_id, []).append(tag)
    for run_id, some in tags.items():
        found[run_id] = replace(found.get(run_id, NONE), tags=tuple(some))
    return found


NONE = Labels()
"""Of a run that nobody has said anything of."""


def _check_line(kind: str, text: object, least: int, most: int) -> None:
    fits = isinstance(text, str) and least <= len(text) <= most and text.isprintable() and text == text.strip()
    if not fits:
        raise UserError(
            f"the {kind} {text!r:.80}",
            expected=f"{least or 'no'} to {most} printable characters, without spaces at their ends",
            why="it is shown on one line",
            fix="shorten it, or put the text into a note" if kind == "tag" else "give another one",
        )
