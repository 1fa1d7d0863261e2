"""What a study file cannot say, in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.config.layers import ConfigSource


def no_study(file: Path) -> UserError:
    """Refusal of a file that is a single experiment."""
    return UserError(
        f"{file} has no table [sweep], [rows.NAME] or [reproduces]",
        expected='what is tried, such as [sweep.space] with "method.lr" = [0.01, 0.1], or what is compared',
        why="a study is made of many experiments; without these the file is a single one",
        fix="add one of them, or use `polyrhythm run`",
    )


def two_searches(file: Path) -> UserError:
    """Refusal of both names of one table."""
    return UserError(
        f"{file} has both [sweep] and [tuning]",
        expected="one of them",
        why="they are two names of one table",
        fix="write all of it into [tuning]",
    )


def nothing_tried(found: str, expected: str) -> UserError:
    """Refusal of a space or settings that are none."""
    return UserError(
        found, expected=expected, why="it says what is tried", fix="write it as in the documentation of studies"
    )


def no_seeds(value: Any) -> UserError:
    """Refusal of seeds that are none."""
    return UserError(
        f"seeds = {value!r}",
        expected='whole numbers, such as "0-2" or [0, 1, 2]',
        why="one run is made for each",
        fix='seeds = "0-2"',
    )


def no_tables(inside: str, said: ConfigSource) -> UserError:
    """Refusal of rows, columns or a search that are something else than tables."""
    return UserError(
        f"{said.where(inside)}: {inside} that are no tables",
        expected=f"tables [{inside}.NAME]",
        why="each has keys of the experiment",
        fix=f"write [{inside}.NAME] and the keys below it",
    )


def no_names(inside: str, value: Any) -> UserError:
    """Refusal of rows or columns of a scale that are no list of names."""
    return UserError(
        f"{inside} = {value!r:.120}",
        expected='a list of names, such as ["FedAvg"]',
        why="it says which of them are run",
        fix="list them, or leave it out for all",
    )


def two_ways(row: str, inside: str) -> UserError:
    """Refusal of two things that are tried for one row."""
    return UserError(
        f"{inside}: {row} is said twice",
        expected="a space or settings, in rows or in methods: one of them",
        why="one of them would be tried, and the other would not",
        fix="leave one out",
    )


def no_paper(value: Any, where: str) -> UserError:
    """Refusal of something else than a table of the paper's numbers."""
    return UserError(
        f"{where}: paper = {value!r:.120}",
        expected="a table [paper] with the numbers of each row",
        why="they stand beside ours",
        fix="for the paper that is repeated write paper below [reproduces]",
    )


def not_as_many(row: str, columns: Mapping[str, Any], where: str) -> UserError:
    """Refusal of a row of a paper with other than a number for each column."""
    return UserError(
        f"{where}: other than {len(columns)} numbers for {row}",
        expected=f"a text for each column: {', '.join(columns) or 'one'}",
        why="they stand beside ours",
        fix='give one for each, "" where the paper has none',
    )


def no_number(row: str, text: Any, where: str) -> UserError:
    """Refusal of a text that is no number."""
    return UserError(
        f"{where}: {row} has {text!r}",
        expected='a text such as "78.76 ± 2.62", in percent',
        why="it is compared with ours",
        fix='write it so, or "" for none',
    )
