"""On which line of a TOML text each key stands, for errors that say where."""

from __future__ import annotations

import re
from typing import final

_TOKEN = re.compile(
    r"""
        (?P<text>\"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
      | (?P<skipped>\#[^\n]*|[ \t\r]+)
      | (?P<sign>[\n\[\]{},=.])
      | (?P<bare>[^\s"'\#\[\]{},=.]+)
    """,
    re.VERBOSE | re.DOTALL,
)


_MOST_PARTS = 1_000


def lines_of(text: str) -> dict[str, int]:
    """The line, from 1, of each key of a text that is TOML, by its path with dots; of a list's elements by number.

    >>> lines_of('rounds = 3\\n\\n[evaluation]\\nevery = 1\\nnames = [\\n  "a",\\n]')
    {'rounds': 1, 'evaluation': 3, 'evaluation.every': 4, 'evaluation.names': 5, 'evaluation.names.0': 6}
    """
    return _Reader(text).document()


def check_keys(text: str) -> None:
    """Refuses keys of a thousand parts, for which Python's reader of TOML takes the square of their length.

    Raises:
        ValueError: there is one.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        keys = (part.rpartition("{")[2].rpartition(",")[2] for part in line.split("="))
        if line.count(".") > _MOST_PARTS and any(key.count(".") > _MOST_PARTS for key in keys):
            raise ValueError(f"a key of more than {_MOST_PARTS:,} parts (at line {number})")


@final
class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []  # kind, text, line
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skipped":
                self._tokens.append((str(match.lastgroup), match[0], line))
            line += match[0].count("\n")
        self._next, self._found = 0, dict[str, int]()

    def document(self) -> dict[str, int]:
        table: tuple[str, ...] = ()
        while self._peek() != "":
            if self._take("\n"):
                continue
            line = self._line()
            if self._take("["):
                self._take("[")
                table = self._key()
                self._found.setdefault(".".join(table), line)
                while self._take("]"):
                    pass
            else:
                self._pair(table)
        return self._found

    def _pair(self, inside: tuple[str, ...]) -> None:
        line = self._line()
        path = (*inside, *self._key())
        self._found.setdefault(".".join(path), line)
        self._take("=")
        self._value(path)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while self._peek() not in ("", "=", "]", "\n"):
            kind, text, _ = self._tokens[self._next]
            self._next += 1
            if text != ".":
                parts.append(text[1:-1] if kind == "text" else text)
        return tuple(parts)

    def _value(self, path: tuple[str, ...]) -> None:
        if self._take("["):
            number = 0
            while not self._take("]") and self._peek() != "":
                if not (self._take("\n") or self._take(",")):
                    self._found.setdefault(".".join((*path, str(number))), self._line())
                    self._value((*path, str(number)))
                    number += 1
        elif self._take("{"):
            while not self._take("}") and self._peek() != "":
                if not (self._take("\n") or self._take(",")):
                    self._pair(path)
        else:
            while self._peek() not in ("", "\n", ",", "]", "}"):
                self._next += 1

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _line(self) -> int:
        return self._tokens[self._next][2]

    def _take(self, sign: str) -> bool:
        if self._peek() == sign:
            self._next += 1
            return True
        return False
