"""The tables of a report in LaTeX, with booktabs' rules, for `\\input` in a paper."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from polyrhythm.report.contents import Contents
from polyrhythm.results.tables import Table

_SHOWN = ("results", "differences", "costs", "goal", "faults", "settings")  # what belongs into a paper
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
    yield r"% Needs \usepackage[T1]{fontenc}, \usepackage{booktabs} and \usepackage{textcomp}; \input this file."
    for section in contents.sections:
        for one in section.tables:
            if one.name in _SHOWN:
                yield ""
                yield from table(one)


def table(given: Table) -> Iterator[str]:
    """A floating table."""
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{escaped(given.caption)}}}"
    yield rf"  \label{{tab:polyrhythm-{given.name}}}"
    yield rf"  \begin{{tabular}}{{l{('r' if given.numbers else 'l') * (len(given.head) - 1)}}}"
    yield r"    \toprule"
    yield _row(given.head)
    yield r"    \midrule"
    for i, row in enumerate(given.rows):
        yield _row(row, frozenset(j for j in range(len(row)) if (i, j) in given.marked))
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _row(cells: tuple[str, ...], marked: frozenset[int] = frozenset()) -> str:
    texts = [escaped(cell) for cell in cells]
    return "    " + " & ".join(rf"\textbf{{{t}}}" if j in marked else t for j, t in enumerate(texts)) + r" \\"
