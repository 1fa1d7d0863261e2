"""Files of texts: a text a line, lines of JSON, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrhythm.data.sources.files import content, corrupt, existing
from polyrhythm.data.sources.table_files import raw_table

WHAT = "texts: a .txt with one a line, or a .csv, .tsv, .parquet or .jsonl with the column that the training texts had"


def texts_in(path: Path) -> Any:
    """The texts of a file, in their order: a list, or a DataFrame with the columns that the file has.

    Raises:
        UserError: no such file, or one that holds none.
    """
    place = existing(path, what=WHAT)
    suffixes = [suffix.lower() for suffix in place.suffixes]
    if place.is_dir():
        raise corrupt(place, "is a folder", WHAT)
    if {".jsonl", ".json"} & {*suffixes}:
        import pandas as pd

        rows = list(_objects(place))
        if not rows:
            raise corrupt(place, "is empty", WHAT)
        return pd.DataFrame(rows, dtype=object)
    if ".txt" in suffixes:
        return _lines(place)
    return raw_table(place, separator="", encoding="", wanted=()).frame


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """What each line says, with its number, but for empty ones.

    Raises:
        UserError: a line that is no JSON.
    """
    for number, raw in enumerate(content(path).splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise corrupt(path, f"line {number} is not JSON ({error})") from None
        yield number, line


def decoded(path: Path) -> str:
    """A file of text.

    Raises:
        UserError: it is no text in UTF-8.
    """
    try:
        text = content(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise corrupt(path, f"is no text in UTF-8 ({error})"[:160], "text in UTF-8") from None
    return text


def _objects(place: Path) -> Iterator[dict[str, Any]]:
    for number, line in json_lines(place):
        if not isinstance(line, dict):
            raise corrupt(place, f"line {number} is no object", 'an object in each line, such as {"text": "..."}')
        yield line


def _lines(place: Path) -> list[str]:
    text = decoded(place)
    if "\0" in text:
        raise corrupt(place, "is no text, as there are zero bytes in it", "text in UTF-8")
    if not text.strip():
        raise corrupt(place, "is empty", WHAT)
    return text.removesuffix("\n").split("\n")
