"""What becomes of texts before a model reads them: kept with a run, so that new texts are read in the same way."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, final, get_args

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.data.samples import BagSamples
from polyrhythm.data.sources.posts import words_of
from polyrhythm.data.sources.table_files import raw_table
from polyrhythm.data.sources.token_rows import Row, Written, rows_of
from polyrhythm.data.sources.tokenizers import CHARACTERS, Tokenizer, tokenizer_of

Makes = Literal["tokens", "rows", "words", "end"]


@final
@dataclass(frozen=True, kw_only=True)
class TextReading:
    """How texts become what a model reads.

    Args:
        makes: of a text, "tokens": its first ones, with the marks at both ends; "rows": rows of tokens, of which each
            but the first is asked for; "words": how often each stands there; "end": its last characters.
        columns: of a table: those that there are of them, joined by spaces, are the text.
        prompt: column of what stands before a text; "" for none.
        length: tokens or characters that the model reads at once, at most; 0 for words.
        tokenizer: a folder with tokenizer.json; "" where the vocabulary says all.
        digest: SHA-256 of tokenizer.json.
        vocabulary: words or characters in the order of their numbers.
        unit: whether a vector of words is scaled to length 1, and is not their mean.
    """

    makes: Makes
    columns: tuple[str, ...]
    prompt: str = ""
    length: int = 0
    tokenizer: str = ""
    digest: str = ""
    vocabulary: tuple[str, ...] = ()
    unit: bool = False

    @classmethod
    def of_rows(
        cls, tokenizer: str, known: Tokenizer, length: int, *, columns: tuple[str, ...], prompt: str = ""
    ) -> Self:
        """It, of rows of tokens by a tokenizer of that name."""
        by: dict[str, Any] = {"tokenizer": str(Path(tokenizer)), "digest": known.digest}
        if tokenizer == CHARACTERS:
            by = {"vocabulary": known.tokens}
        return cls(makes="rows", columns=columns, prompt=prompt, length=length, **by)

    @property
    def filled(self) -> int | None:
        """The length that all rows of tokens are filled up to; None where they end with a batch's longest."""
        return None if self.tokenizer else self.length

    def fits(self, rows: Any) -> bool:
        """Whether rows are texts, and not what became of them: a table, or something with text in it."""
        if hasattr(rows, "columns"):
            return True
        if isinstance(rows, Mapping):
            return any(_is_text(cells) for cells in rows.values())
        if _is_text(rows):
            return True
        first = rows[0] if isinstance(rows, (list, tuple)) and rows else None
        return isinstance(first, Mapping) and any(isinstance(cell, str) for cell in first.values())

    def inputs(self, rows: Any) -> list[np.ndarray] | np.ndarray:
        """What the model reads of texts, each: tokens of any number, or an array with a row for each, [n, …].

        Args:
            rows: texts; a table or a mapping of columns; or a list of mappings.

        Raises:
            UserError: columns that are missing, rows without text, or a tokenizer that is no longer there.
        """
        texts = [one.text for one in self.written(rows)]
        if self.makes == "tokens":
            known = self._tokenizer()
            return [known.begin(text, self.length) for text in texts]
        if self.makes == "words":
            return self._bags(texts)
        return np.stack([self._end(text, number) for number, text in enumerate(texts, start=1)])

    def token_rows(self, rows: Any) -> list[list[Row]]:
        """The rows of tokens of each text; none of one of which nothing is asked.

        Args, Raises: as `inputs`.
        """
        written, known = self.written(rows), self._tokenizer()
        return [rows_of([one], known, self.length) for one in written]

    def written(self, rows: Any) -> list[Written]:
        """The texts of some rows, with what stands before each.

        Args, Raises: as `inputs`.
        """
        if isinstance(rows, (list, tuple)) and rows and isinstance(rows[0], Mapping):
            names = dict.fromkeys(name for row in rows for name in row)
            rows = {name: [row.get(name) for row in rows] for name in names}
        if not (hasattr(rows, "columns") or isinstance(rows, Mapping)):
            if self.prompt:
                raise _unfit("texts alone", f"columns {self.prompt!r} and {self.columns[0]!r}", "give a table")
            found = [Written(_cell(text), "", "") for text in rows]
        else:
            cells = self._columns(rows)
            before = cells.pop(self.prompt, None)
            texts = [" ".join(filter(None, row)) for row in zip(*cells.values(), strict=True)]
            found = [Written(text, before[place] if before else "", "") for place, text in enumerate(texts)]
        empty = [number for number, one in enumerate(found, start=1) if not one.text.strip()]
        if empty or not found:
            words = f"row {empty[0]:,} without text" if empty else "no row"
            more = f", and {len(empty) - 1:,} more" if len(empty) > 1 else ""
            raise _unfit(f"{words}{more}", "a text in each row", "fill it in, or leave the row out")
        return found

    def _columns(self, rows: Any) -> dict[str, list[str]]:
        """Those that are read, cells as text."""
        if hasattr(rows, "columns"):
            rows = raw_table(rows, separator="", encoding="", wanted=()).frame
        there = list(rows)
        used = [name for name in self.columns if name in there]
        if not used or (self.prompt and self.prompt not in there):
            wanted = [*([self.prompt] if self.prompt else []), " or ".join(map(repr, self.columns))]
            names = f"{wanted[0]!r} and {wanted[1]}" if self.prompt else wanted[0]
            raise _unfit(
                f"rows with the columns {', '.join(map(str, there))[:300] or '(none)'}",
                f"the texts in {names}, as the training data had them",
                "rename the column",
            )
        read = {name: rows[name] for name in (*filter(None, [self.prompt]), *used)}
        for name, cells in read.items():
            odd = next((cell for cell in cells if isinstance(cell, (list, tuple, dict, set))), None)
            if odd is not None:
                raise _unfit(f"a {type(odd).__name__} in the column {name!r}", "text", "make a text of it")
        return {name: [_cell(cell) for cell in cells] for name, cells in read.items()}

    def _tokenizer(self) -> Tokenizer:
        if not self.tokenizer:
            return tokenizer_of(CHARACTERS, self.vocabulary)
        try:
            known = tokenizer_of(self.tokenizer, ())
        except UserError as error:
            raise error.at("the tokenizer that the run was trained with") from error
        if known.digest != self.digest:
            raise _unfit(
                f"{self.tokenizer}: another tokenizer.json than the run was trained with",
                f"the one with SHA-256 {self.digest}",
                "put it back there, or train anew with this one",
            )
        return known

    def _bags(self, texts: Sequence[str]) -> np.ndarray:
        vocabulary = {word: place for place, word in enumerate(self.vocabulary)}
        bags = BagSamples.of([words_of(text) for text in texts], vocabulary, np.zeros(len(texts)), unit=self.unit)
        found, _ = bags.batch(torch.arange(len(texts)))
        if without := int((found == 0).all(dim=1).sum()):
            warnings.warn(
                f"{without:,} of {len(texts):,} texts have none of the words that were trained on: what is said of "
                "them is said of no words at all",
                stacklevel=4,
            )
        array: np.ndarray = found.numpy()
        return array

    def _end(self, text: str, number: int) -> np.ndarray:
        places = {character: place for place, character in enumerate(self.vocabulary)}
        end = text[-self.length :]
        if len(end) < self.length:
            raise _unfit(
                f"a text of {len(text):,} characters in row {number:,}", f"{self.length:,} or more", "add some"
            )
        if odd := [character for character in end if character not in places]:
            raise _unfit(
                f"the character {odd[0]!r} in row {number:,}",
                f"characters of the training texts: {''.join(self.vocabulary)!r}",
                "leave it out",
            )
        return np.array([places[character] for character in end], dtype=np.int64)

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """It, from plain data.

        Raises:
            ValueError, KeyError, TypeError: that is no such data.
        """
        if plain["makes"] not in get_args(Makes):
            raise ValueError(f"makes = {plain['makes']!r}")
        given = {key: str(plain[key]) for key in ("makes", "prompt", "tokenizer", "digest")}
        lists = {key: tuple(map(str, plain[key])) for key in ("columns", "vocabulary")}
        return cls(**given, **lists, length=int(plain["length"]), unit=bool(plain["unit"]))  # type: ignore[arg-type]


def is_text(rows: Any) -> bool:
    """Whether rows are texts or have some among their cells, of whatever form."""
    if hasattr(rows, "columns"):
        rows = dict(raw_table(rows, separator="", encoding="", wanted=()).frame)
    return any(map(_is_text, rows.values() if isinstance(rows, Mapping) else [rows]))


def _is_text(cells: Any) -> bool:
    """Whether there is text among some cells."""
    held = isinstance(cells, (list, tuple)) or getattr(getattr(cells, "dtype", None), "kind", "") in ("O", "U")
    return held and any(isinstance(cell, str) for cell in cells)


def _cell(cell: Any) -> str:
    return "" if cell is None or cell != cell else str(cell)


def _unfit(found: str, expected: str, fix: str) -> UserError:
    return UserError(
        found, expected=expected, why="new texts are read as those were that the model has learned from", fix=fix
    )
