"""Texts for language models: from a folder, a table or lines of JSON, cut into rows of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.memory import arrays, no_test
from polyrhythm.data.sources.table_files import raw_table
from polyrhythm.data.sources.text_files import decoded, json_lines
from polyrhythm.data.sources.token_rows import Row, Written, filled, rows_of
from polyrhythm.data.sources.tokenizers import CHARACTERS, Tokenizer, tokenizer_of
from polyrhythm.data.structured import Padding
from polyrhythm.data.text_reading import TextReading

MOST_FILES = 1_000_000
WHAT = "a folder of .txt files, a .jsonl, a .csv or a .parquet file"


def text(
    path: str | Path,
    *,
    column: str = "text",
    client: str = "",
    prompt: str = "",
    tokenizer: str = CHARACTERS,
    length: int = 128,
    test: str | Path | float = 0.2,
    name: str = "",
) -> Collection:
    """Texts for language models, cut into rows of tokens; the task is the next token.

    A folder holds texts as .txt files, in folders of clients or, each a client, beside one another: its column is
    "client". A table (.csv, .tsv, .parquet) or lines of JSON (.jsonl, .jsonl.gz) have a text in each row. A text that
    is longer than a row is cut into several that share a token, so each token but a text's first is asked for once.

    With `prompt` a row is what that column says and then the text, of which the text alone is asked for: the loss is of
    answers. What does not fit is cut off, from the beginning of the prompt first.

    Rows of characters have one length, filled up behind their end, for models such as `char-lstm(every=true)`; rows of
    a folder's tokenizer are filled up to the longest of a batch, for `hf`. What fills up is never asked for.

    Args:
        path: of the folder or the file.
        column: of the texts.
        client: column that names the client; partition with `by_column`.
        prompt: column of what stands before each text; "" for none.
        tokenizer: "characters", those of the training texts; or a folder with tokenizer.json, such as the model's own,
            which needs the extra `text`.
        length: tokens in a row, at most.
        test: other texts of the same form, or the share of rows to hold out: the last of each client's, in the order in
            which they stand.
        name: of the collection; the file's name by default.

    Raises:
        UserError: no such files or columns, rows without text, or nothing left to test on.

    Reference: the texts' own.
    """
    check_length("text", length)
    place = existing(path, what=WHAT)
    written, tested = _read(place, column, client, prompt), list[Written]()
    if isinstance(test, (str, Path)):
        tested = _read(existing(test, what=WHAT), column, client, prompt)
    else:
        check_share("test", test)
    known = tokenizer_of(tokenizer, (one.prompt + one.text for one in written))
    rows, test_rows = (rows_of(of, known, length) for of in (written, tested))
    if rows and not isinstance(test, (str, Path)):
        groups = np.unique([row.client for row in rows], return_inverse=True)[1]
        out = held_out(groups, None, test, stream(0, "split", "text"), ordered=True)
        test_rows = [row for row, held in zip(rows, out, strict=True) if held]
        rows = [row for row, held in zip(rows, out, strict=True) if not held]
    if not rows or not test_rows:
        raise no_test(f"{place}: {len(rows):,} rows of 2 tokens or more to train on, {len(test_rows):,} to test on")
    named = client or ("client" if place.is_dir() else "")
    reading = TextReading.of_rows(
        tokenizer, known, length, columns=("text" if place.is_dir() else column,), prompt=prompt
    )
    return collected(rows, test_rows, known, reading, named, name=name or place.stem.split(".")[0] or "text")


def check_length(who: str, length: int) -> None:
    """Goes on if rows of so many tokens have one to be asked for.

    Raises:
        UserError: they have not.
    """
    if length < 2:
        raise UserError(
            f"{who}: length = {length}",
            expected="2 or more tokens",
            why="the second one follows from the first",
            fix="length=128",
        )


def collected(
    rows: Sequence[Row],
    test_rows: Sequence[Row],
    known: Tokenizer,
    reading: TextReading,
    named: str,
    *,
    name: str,
    reference: str = "",
) -> Collection:
    """A collection of rows; the task is the next token.

    Args:
        rows: to train on.
        test_rows: to test on.
        known: what made the tokens.
        reading: how rows are made of texts; of characters all are filled up to its length.
        named: column of the clients; "" for none.
        name: of the collection.
        reference: who made the data.
    """
    held = [filled(of, reading.filled) for of in (rows, test_rows)]
    made = arrays(
        held[0][0],
        held[0][1],
        test=held[1],
        task="next_token",
        columns={named: [row.client for row in rows]} if named else None,
        test_columns={named: [row.client for row in test_rows]} if named else None,
        padding=Padding(value=0, to="batch") if reading.filled is None else None,
        name=name,
        reference=reference,
        features=known.tokens,
    )
    return replace(made, ordered_by=named, texts=reading)


def _read(place: Path, column: str, client: str, prompt: str) -> list[Written]:
    if place.is_dir():
        return list(_of_folder(place))
    lines = ".jsonl" in place.suffixes
    wanted = [name for name in (column, prompt, client) if name]
    found = list(_of_lines(place, wanted) if lines else _of_table(place, wanted))
    place_of = {name: number for number, name in enumerate(wanted)}
    return [
        Written(row[place_of[column]], row[place_of[prompt]] if prompt else "", row[place_of[client]] if client else "")
        for row in found
    ]


def _of_folder(folder: Path) -> Iterator[Written]:
    files = [file for file, _ in zip(folder.rglob("*.txt"), range(MOST_FILES), strict=False)]
    if not files:
        raise corrupt(folder, "has no .txt files", WHAT)
    for file in sorted(files):
        inside = file.relative_to(folder).parts
        yield Written(decoded(file), "", inside[0] if len(inside) > 1 else file.stem)


def _of_lines(place: Path, wanted: Sequence[str]) -> Iterator[list[str]]:
    for number, line in json_lines(place):
        cells = [line.get(name) if isinstance(line, dict) else None for name in wanted]
        if any(not isinstance(cell, (str, int)) for cell in cells):
            odd = next(name for name, cell in zip(wanted, cells, strict=True) if not isinstance(cell, (str, int)))
            raise corrupt(place, f"line {number} has no text {odd!r}", f"{', '.join(wanted)} in each line")
        yield [str(cell) for cell in cells]


def _of_table(place: Path, wanted: Sequence[str]) -> Iterator[list[str]]:
    frame = raw_table(place, separator="", encoding="", wanted=wanted).frame
    for name in wanted:
        if name not in frame.columns:
            raise corrupt(place, f"has no column {name!r}, only {', '.join(map(str, frame.columns))[:200]}", "one")
    for row in frame[list(wanted)].itertuples(index=False):
        yield ["" if cell is None or cell != cell else str(cell) for cell in row]
