"""Texts as rows of tokens, of which each token but the first is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from polyrhythm.data.sources.tokenizers import Tokenizer

LEFT_OUT = -100
"""The target of a token that is not asked about."""


class Written(NamedTuple):
    """A text, what stands before it and is not asked about, and whose it is ("" where nobody says)."""

    text: str
    prompt: str
    client: str


class Row(NamedTuple):
    """Some tokens of a text; the first `given` of them are not asked about."""

    tokens: np.ndarray
    given: int
    client: str


def rows_of(written: Iterable[Written], known: Tokenizer, length: int) -> list[Row]:
    """The rows of some texts, in their order."""
    return [row for one in written for row in _rows(one, known, length)]


def filled(rows: Sequence[Row], length: int | None) -> tuple[list[np.ndarray] | np.ndarray, np.ndarray]:
    """Rows and what is asked of them: each as long as it is, or all of one length."""
    wide = length or max(len(row.tokens) for row in rows)
    tokens = np.zeros((len(rows), wide), dtype=np.int64)
    asked = np.full((len(rows), wide), LEFT_OUT, dtype=np.int64)
    for place, row in enumerate(rows):
        tokens[place, : len(row.tokens)] = row.tokens
        asked[place, row.given : len(row.tokens)] = row.tokens[row.given :]
    if length is None:
        return [tokens[place, : len(row.tokens)] for place, row in enumerate(rows)], asked
    return tokens, asked


def _rows(one: Written, tokenizer: Tokenizer, length: int) -> Iterator[Row]:
    """The rows of a text; none where it has nothing to be asked for."""
    if not one.prompt:
        tokens = tokenizer.encode(one.text, False)
        for begin in range(0, len(tokens) - 1, length - 1):
            yield Row(tokens[begin : begin + length], 0, one.client)
        return
    before, answer = tokenizer.encode(one.prompt, False), tokenizer.encode(one.text, True)
    answer = answer[: length - 1]
    before = before[max(0, len(before) + len(answer) - length) :]
    if len(answer) and len(before):
        yield Row(np.concatenate([before, answer]), len(before), one.client)
