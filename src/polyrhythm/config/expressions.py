"""The small language of names with settings: `fedprox(mu=0.01, cohort=10) | server_adam(lr=0.01)`.

It is parsed, never evaluated: names, numbers, text in quotes, true, false, none, lists, and calls inside calls.

    pipeline = call { "|" call }
    call     = name [ "(" [ argument { "," argument } ] ")" ]
    argument = [ name "=" ] value
    value    = number | text | "true" | "false" | "none" | "[" [ value { "," value } ] "]" | call

Names may have hyphens, which mean the same as underscores, and may be import paths such as package.module:Name. Text
stands in single or double quotes; a backslash only escapes a quote or another backslash, so that paths of any system
can be written. A path with a slash and without spaces, brackets or commas needs no quotes: npz(path=data/x.npz).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, final

from polyrhythm.base.errors import UserError

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<path>[\w.~-]*/[^\s,()\[\]|='"]*)
      | (?P<number>[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
      | (?P<name>[A-Za-z_][\w]*(?:[-.:][A-Za-z_]\w*|-\d\w*)*)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>[|(),=\[\]])
    )""",
    re.VERBOSE,
)
_BARE = re.compile(r"[\w.~-]*/[^\s,()\[\]|='\"]*")
_WHOLE = re.compile(r"[-+]?[\d_]+")
_DEPTH, _DIGITS = 30, 400  # brackets in brackets; characters of a number
_A_CALL = "a name with settings, such as fedprox(mu=0.01, cohort=10), and parts after pipes"
_A_VALUE = "a number, a text, true, false, none, or a list of them such as [1, 2]"
_CONSTANTS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}


@final
@dataclass(frozen=True)
class Call:
    """A name with what was given to it."""

    name: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    place: str = field(default="", compare=False)
    """Where it stands in what was written, such as ".2" for the third text of a list."""

    def __str__(self) -> str:
        given = [_text(v) for v in self.positional] + [f"{k}={_text(v)}" for k, v in self.named.items()]
        return f"{self.name}({', '.join(given)})" if given else self.name


@final
class Pipe(str):
    """One or more calls with pipes between them: a text that was read, and is not read again.

    >>> Pipe.of("fedprox( mu = .01 ) | server-adam")
    'fedprox(mu=0.01) | server-adam'
    """

    calls: tuple[Call, ...]

    def __new__(cls, calls: Iterable[Call]) -> Pipe:
        calls = tuple(calls)
        made = super().__new__(cls, " | ".join(map(str, calls)))
        made.calls = calls
        return made

    def __reduce__(self) -> tuple[type[Pipe], tuple[tuple[Call, ...]]]:
        return Pipe, (self.calls,)

    @classmethod
    def of(cls, text: str) -> Pipe:
        """The calls of a text; those of a pipe as they are.

        Raises:
            UserError: the text is not a pipeline; the place is shown.
        """
        return text if isinstance(text, Pipe) else cls(parse_pipeline(text))

    @classmethod
    def one(cls, text: str, of: str = "") -> Pipe:
        """The same for a text that is one call.

        Args:
            text: it.
            of: the name of the call if the text is its settings alone, such as `crash=0.05, nan=0.01` of faults.
        """
        if isinstance(text, Pipe):
            return text
        alone = of and not (text.strip().endswith(")") and "(" in text)
        return cls([parse_call(f"{of}({text})" if alone else text)])


def parse_pipeline(text: str) -> tuple[Call, ...]:
    """One or more calls with pipes between them.

    >>> [str(call) for call in parse_pipeline("fedprox(mu=0.01) | server-adam")]
    ['fedprox(mu=0.01)', 'server-adam']

    Raises:
        UserError: the text is not a pipeline; the place is shown.
    """
    parser = _Parser(text)
    calls = [parser.call()]
    while parser.take("|"):
        calls.append(parser.call())
    parser.end()
    return tuple(calls)


def parse_call(text: str) -> Call:
    """One call."""
    parser = _Parser(text)
    call = parser.call()
    parser.end()
    return call


def parse_value(text: str) -> Any:
    """One value; a bare name is text.

    >>> parse_value("[1, 2.5]"), parse_value("hello"), parse_value("none")
    ((1, 2.5), 'hello', None)
    """
    parser = _Parser(text, _A_VALUE)
    value = parser.value()
    parser.end()
    return value.name if isinstance(value, Call) and not value.positional and not value.named else value


def parse_argument(text: str) -> Any:
    """A value as it stands in a call: a call, a number, a list; any other text as it is.

    >>> str(parse_argument("slow_share(period=2)")), parse_argument("data/x.npz"), parse_argument("two words")
    ('slow_share(period=2)', 'data/x.npz', 'two words')
    """
    try:
        parser = _Parser(text, _A_VALUE)
        value = parser.value()
        parser.end()
    except UserError:
        return text
    return value


@final
class _Parser:
    def __init__(self, text: str, expected: str = _A_CALL) -> None:
        self._source, self._expected = text, expected
        self._tokens: list[tuple[str, str, int]] = []  # kind, text, place
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None or match.lastgroup is None:
                start = place + len(text[place:]) - len(text[place:].lstrip())
                self._fail(start, f"{text[start]!r} has no meaning here; a text with it needs quotes")
            self._tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            place = match.end()
        self._next = self._depth = 0

    def call(self) -> Call:
        kind, name, place = self._peek()
        if kind != "name":
            self._fail(place, "a name was expected")
        self._next += 1
        positional: list[Any] = []
        named: dict[str, Any] = {}
        if self.take("("):
            while not self.take(")"):
                self._argument(positional, named)
                if not self.take(","):
                    self._expect(")")
                    break
        return Call(name, tuple(positional), named)

    def _argument(self, positional: list[Any], named: dict[str, Any]) -> None:
        kind, name, place = self._peek()
        if kind == "name" and self._peek(1)[1] == "=":
            self._next += 2
            name = name.replace("-", "_")
            if name in named:
                self._fail(place, f"{name} is given twice")
            named[name] = self.value()
            return
        if named:
            self._fail(place, "a setting needs its name: name=value")
        positional.append(self.value())

    def value(self) -> Any:
        kind, text, place = self._peek()
        self._depth += 1
        if self._depth > _DEPTH:
            self._fail(place, "this lies in too many brackets")
        try:
            return self._value(kind, text, place)
        finally:
            self._depth -= 1

    def _value(self, kind: str, text: str, place: int) -> Any:
        if kind == "number":
            self._next += 1
            if len(text) > _DIGITS or not math.isfinite(number := int(text) if _WHOLE.fullmatch(text) else float(text)):
                self._fail(place, "this number is too large")
            return number
        if kind == "path":
            self._next += 1
            return text
        if kind == "text":
            self._next += 1
            return re.sub(r"""\\([\\'"])""", r"\1", text[1:-1])
        if kind == "name" and text in _CONSTANTS and self._peek(1)[1] != "(":
            self._next += 1
            return _CONSTANTS[text]
        if self.take("["):
            values: list[Any] = []
            while not self.take("]"):
                values.append(self.value())
                if not self.take(","):
                    self._expect("]")
                    break
            return tuple(values)
        return self.call()

    def take(self, sign: str) -> bool:
        if self._peek()[:2] == ("sign", sign):
            self._next += 1
            return True
        return False

    def end(self) -> None:
        if self._next < len(self._tokens):
            self._fail(self._peek()[2], "nothing more was expected")

    def _expect(self, sign: str) -> None:
        if not self.take(sign):
            self._fail(self._peek()[2], f"{sign!r} was expected")

    def _peek(self, ahead: int = 0) -> tuple[str, str, int]:
        where = self._next + ahead
        return self._tokens[where] if where < len(self._tokens) else ("end", "", len(self._source))

    def _fail(self, place: int, problem: str) -> NoReturn:
        start = self._source.rfind("\n", 0, place) + 1
        line = self._source[start:].partition("\n")[0]
        raise UserError(
            f"text that cannot be read\n    {line}\n    {' ' * (place - start)}^ {problem}",
            expected=self._expected,
            why="what it means would be a guess",
            fix="correct it at the mark; on the command line, put all of it in quotes",
        )


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    if isinstance(value, str):
        if _BARE.fullmatch(value):
            return value
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
