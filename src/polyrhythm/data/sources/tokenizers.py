"""Tokenizers: text to numbers, by characters or by a file of the Hugging Face ecosystem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import text_of

CHARACTERS = "characters"
FILE = "tokenizer.json"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""What stands for characters that no training text has, and fills up rows: number 0."""
MOST_TOKENS = 2_000_000


class Tokenizer(NamedTuple):
    """A tokenizer.

    Args:
        encode: the tokens of a text, int64 [n]; with True, of one that goes on, which has no mark of its own.
        tokens: what each number stands for.
        begin: the first tokens of a text, so many at most, with the marks that its model expects at both ends.
        digest: SHA-256 of its file; "" for characters.
    """

    encode: Callable[[str, bool], np.ndarray]
    tokens: tuple[str, ...]
    begin: Callable[[str, int], np.ndarray]
    digest: str = ""


def tokenizer_of(name: str, texts: Iterable[str]) -> Tokenizer:
    """A tokenizer by name: "characters", or a folder with tokenizer.json.

    Args:
        name: of it.
        texts: to train on, for "characters": their characters in order are the numbers from 1.

    Raises:
        UserError: no such folder, a damaged file, or the extra is not installed.
    """
    if name == CHARACTERS:
        known = sorted(set().union(*texts) - {UNKNOWN})
        codes = _codes("".join(known))
        return Tokenizer(
            lambda text, _: _numbers(codes, _codes(text)),
            (UNKNOWN, *known),
            lambda text, most: _numbers(codes, _codes(text[:most])),
        )
    return _of_folder(Path(name).expanduser())


def _of_folder(folder: Path) -> Tokenizer:
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "the library tokenizers is not installed",
            expected="the extra polyrhythm[text], or tokenizer=characters",
            why="it reads tokenizers of pretrained models",
            fix='pip install "polyrhythm[text]"',
        ) from None
    try:
        described = text_of(folder / FILE)
        about = json.loads(described)
        size = _size(about)
        if not 0 < size <= MOST_TOKENS:
            raise ValueError(f"a vocabulary of {size:,}")
        made = tokenizers.Tokenizer.from_file(str(folder / FILE))
        made.no_padding()
        made.no_truncation()
        known = sorted(made.get_vocab().items(), key=lambda item: item[1])
    except Exception as error:  # whatever a library says of a damaged file
        raise UserError(
            f"{folder}: {FILE} cannot be read ({' '.join(str(error).split())[:120]})",
            expected=f"a folder with {FILE}, as save_pretrained writes it",
            why="the model knows tokens by the numbers that its own tokenizer gives them",
            fix="give the folder of the model's tokenizer, or tokenizer=characters",
        ) from None

    def encode(text: str, goes_on: bool) -> np.ndarray:
        return np.array(made.encode(text, add_special_tokens=not goes_on).ids, dtype=np.int64)

    def begin(text: str, most: int) -> np.ndarray:
        made.enable_truncation(most)
        try:
            return np.array(made.encode(text).ids, dtype=np.int64)
        finally:
            made.no_truncation()

    digest = hashlib.sha256(described.encode()).hexdigest()
    return Tokenizer(encode, tuple(token for token, _ in known), begin, digest)


def _codes(text: str) -> np.ndarray:
    """Each character's number in Unicode. uint32 [n]"""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _numbers(known: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The places of some codes among those that are known, rising, from 1 on; 0 for others. int64 [n]"""
    if not len(known):
        return np.zeros(len(codes), dtype=np.int64)
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[places] == codes, places + 1, 0).astype(np.int64)


def _size(about: object) -> int:
    """How many tokens a file describes; 0 where it is no tokenizer."""
    model = about.get("model") if isinstance(about, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    return len(vocabulary) if isinstance(vocabulary, (dict, Sequence)) else 0
