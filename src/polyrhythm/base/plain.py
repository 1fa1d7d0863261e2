"""Text of somebody else as it may be shown: nothing in it moves a cursor, ends a line, or turns the reading around."""

from __future__ import annotations

import contextlib
import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # what terminals take as orders, and XML does not take at all
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what shows text in another order than it has
    "\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"  # ends of lines that are none, and what is no character
)


def plain(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """A text without what is not seen but does something; line feeds and tabs stay.

    >>> plain("a\\x1b[31mb\\r\\nc")
    'a�[31mb�\\nc'
    """
    return _UNSEEN.sub(instead, text)


def in_cell(text: str) -> str:
    """A text for a cell of a CSV file: what begins like a formula would be one in a spreadsheet.

    >>> [in_cell(text) for text in ("=1+1", "-1.5", "-x", "cat")]
    ["'=1+1", '-1.5', "'-x", 'cat']
    """
    with contextlib.suppress(ValueError):
        float(text)
        return text
    text = plain(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
