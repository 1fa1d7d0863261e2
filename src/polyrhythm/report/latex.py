"""The tables of a report in LaTeX, with booktabs' rules, for `\\input` in a paper."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterator, Mapping

from polyrhythm.report.contents import Contents
from polyrhythm.results import tables
from polyrhythm.results.tables import Table

_SHOWN = (
    "results",
    "differences",
    "fairness",
    "classes",
    "heard",
    "availability",
    "costs",
    "goal",
    "faults",
    "settings",
)  # what belongs into a paper
_OF_METHODS = ("cost", "fault", "class")  # heads of tables that have a column for each method
TEXT_WIDTH = 345.0
"""Points between the margins of LaTeX's article, the narrowest of its classes with one column."""
_BREAKS = re.compile(r"(?<=[.,=|_/])(?=[A-Za-z])|(?<=\w\()(?=[A-Za-z])")
_UNDER = "\n"  # in a cell: what follows stands in a line below
_SHRINKS = 1.35  # times the width of the text; smaller letters than that makes are hard to read
_FIRST, _MOST_COLUMNS = 0.3, 3  # share of the width that keys of settings take; methods beside each other
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_SPECIAL: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "-": "{-}",  # two of them would be a dash
    "[": "{[}",  # after \\ it would begin an argument
    "]": "{]}",
    "?": "{?}",  # with ` before it another character
    "!": "{!}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "µ": r"$\mu$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "†": r"\dag{}",
    "°": r"\textdegree{}",
    "\u00a0": "~",
    **{letter: f"$\\{name}$" for letter, name in zip("αβγδεζηθικλμνξπρστυφχψω", _GREEK, strict=True)},
}


def latex(contents: Contents) -> str:
    """The tables of results, differences, costs and settings, each in an environment of its own."""
    return "\n".join(_lines(contents)) + "\n"


def escaped(text: str) -> str:
    """A text that LaTeX sets as it is, whichever engine reads it; what its fonts lack comes as U+ and a number.

    >>> escaped("50% of a_b, α ≥ 1")
    '50\\\\% of a\\\\_b, $\\\\alpha$ $\\\\geq$ 1'
    """
    flat = " ".join("".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", text)).split())
    return "".join(_SPECIAL.get(c) or (c if _has(c) else f"{{[}}U+{ord(c):04X}{{]}}") for c in flat)


def _has(character: str) -> bool:
    """Whether the fonts of T1 have it: ASCII, and the letters of Latin-1."""
    return character.isascii() or ("À" <= character <= "ÿ" and character not in "×÷")


def _lines(contents: Contents) -> Iterator[str]:
    yield f"% {escaped(contents.title)}"
    yield f"% {escaped(contents.about)}"
    yield f"% {escaped(contents.verdict)}"
    yield r"% Needs \usepackage[T1]{fontenc} and \usepackage{textcomp,booktabs,array,graphicx,longtable}."
    for section in contents.sections:
        for one in section.tables:
            if one.name in _SHOWN:
                yield ""
                yield from words(one) if one.code else table(one)


def table(given: Table) -> Iterator[str]:
    """A floating table of numbers; one that is wider than the text is made narrower, and then shrunk."""
    shown = _narrower(given)
    fits = width(shown) <= TEXT_WIDTH
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{escaped(shown.caption)}}}"
    yield rf"  \label{{tab:polyrhythm-{given.name}}}"
    if not fits:
        yield r"  \resizebox{\textwidth}{!}{%"
    yield rf"  \begin{{tabular}}{{@{{}}l{'r' * (len(given.head) - 1)}@{{}}}}"
    yield r"    \toprule"
    yield _row(shown.head)
    yield r"    \midrule"
    for i, row in enumerate(shown.rows):
        yield _row(row, frozenset(j for j in range(len(row)) if (i, j) in given.marked))
    yield r"    \bottomrule"
    yield r"  \end{tabular}" + ("" if fits else "}")
    yield r"\end{table}"


def _narrower(given: Table) -> Table:
    """The same if it fits; else with intervals and deviations under their means, then with methods by number."""
    found = given
    for sign in "[±":
        if width(found) <= _SHRINKS * TEXT_WIDTH:
            return found
        under = [tuple(cell.replace(f" {sign}", f"{_UNDER}{sign}") for cell in row) for row in found.rows]
        heads = tuple(head.replace(" (", f"{_UNDER}(") for head in found.head)
        found = dataclasses.replace(found, head=heads, rows=tables.rows(under))
    if width(found) <= _SHRINKS * TEXT_WIDTH:
        return found
    if given.head[0] in _OF_METHODS:
        names, head, rows = given.head[1:], (given.head[0], *_numbers(len(given.head) - 1)), found.rows
    else:
        names, head = tuple(row[0] for row in given.rows), found.head
        rows = tables.rows([(n, *row[1:]) for n, row in zip(_numbers(len(names)), found.rows, strict=True)])
    legend = "; ".join(f"{n} {name}" for n, name in zip(_numbers(len(names)), names, strict=True))
    return dataclasses.replace(found, head=head, rows=rows, caption=f"{given.caption} {legend}.")


def _numbers(many: int) -> list[str]:
    return [f"({place})" for place in range(1, many + 1)]


def words(given: Table) -> Iterator[str]:
    """A table of words, such as settings: its columns share the width of the text, and it goes on over pages.

    Of more methods than there is room for, each setting has the value of most and, behind it, those of others.
    """
    head, rows, marked, caption = given.head, given.rows, given.marked, given.caption
    if len(head) > 1 + _MOST_COLUMNS:
        caption = "What differs between the methods: what most have; then what others have, by number. " + "; ".join(
            f"({i}) {name}" for i, name in enumerate(head[1:], 1)
        )
        head, rows, marked = (head[0], "value"), tuple(_in_two(row) for row in rows), frozenset()
    share = (1 - _FIRST) / (len(head) - 1)
    column = r">{{\raggedright\arraybackslash}}p{{\dimexpr {share:.3f}\textwidth-2\tabcolsep}}"
    columns = column.format(share=_FIRST) + column.format(share=share) * (len(head) - 1)
    yield r"{\footnotesize"
    yield rf"\begin{{longtable}}{{{columns}}}"
    yield rf"  \caption{{{escaped(caption)}}}\label{{tab:polyrhythm-{given.name}}}\\"
    yield r"    \toprule"
    yield _row(head, breaks=True)
    yield r"    \midrule"
    yield r"  \endfirsthead"
    yield r"    \toprule"
    yield _row(head, breaks=True)
    yield r"    \midrule"
    yield r"  \endhead"
    yield r"    \bottomrule"
    yield r"  \endfoot"
    for i, row in enumerate(rows):
        yield _row(row, frozenset(j for j in range(len(row)) if (i, j) in marked), breaks=True)
    yield r"\end{longtable}}"


def width(given: Table) -> float:
    """About how wide a table is in Computer Modern at 10 pt, in points; rather too wide than too narrow."""
    cells = zip(*(given.head, *given.rows), strict=True)
    return sum(max(_points(cell) for cell in column) for column in cells) + 12 * (len(given.head) - 1)


def _points(text: str) -> float:
    return max(map(_of_line, text.split(_UNDER)))


def _of_line(text: str) -> float:
    wide = sum(7.8 if c.isupper() or c in "±−%mw" else 4.0 if c in " .,:;()[]|lijtf'" else 5.4 for c in text)
    return float(wide)


def _in_two(row: tuple[str, ...]) -> tuple[str, str]:
    """A setting, and its values: that of most, and those of others with their numbers."""
    by: dict[str, list[int]] = {}
    for place, value in enumerate(row[1:], 1):
        by.setdefault(value, []).append(place)
    first, *others = sorted(by, key=lambda value: -len(by[value]))
    return row[0], "; ".join([first, *(f"{value} ({', '.join(map(str, by[value]))})" for value in others)])


def _row(cells: tuple[str, ...], marked: frozenset[int] = frozenset(), *, breaks: bool = False) -> str:
    texts = [_breakable(cell) if breaks else _stacked(cell) for cell in cells]
    return "    " + " & ".join(rf"\textbf{{{t}}}" if j in marked else t for j, t in enumerate(texts)) + r" \\"


def _stacked(text: str) -> str:
    lines = [escaped(line) for line in text.split(_UNDER)]
    under = r" \\ ".join(lines)
    return lines[0] if len(lines) == 1 else rf"\shortstack[r]{{{under}}}"


def _breakable(text: str) -> str:
    """A text that may be broken behind a dot, a comma and the like."""
    return r"\allowbreak{}".join(map(escaped, _BREAKS.split(text)))
