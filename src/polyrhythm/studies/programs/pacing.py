"""The curriculum paper's pacing functions: as its Table 5 prints them, as they must be, and as clients have them.

They are to begin with b of the samples, and to have all of them in use after a of the steps. Whether the printed
formulas do so is computed here from their letters, and beside it what a client of this library is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from polyrhythm.figures.marks import chart, grouped
from polyrhythm.figures.theme import config, shades
from polyrhythm.methods.order.pacing import Family, Pacing
from polyrhythm.studies.definition import Scale
from polyrhythm.studies.page.findings import Findings, Outcome, Picture, Table, holding
from polyrhythm.studies.page.pictures import saved

SAMPLES, STEPS = 500, 500  # of a client of 100 on CIFAR-10, and its steps in a round of 10 epochs in batches of 10
SHARES: tuple[Fraction, ...] = (Fraction(1, 10), Fraction(1, 2), Fraction(4, 5))  # a, in Figures 2 and 12
START = Fraction(1, 5)  # b, there

Curve = Callable[[float, float, float], float]  # of N, b, and s / (aT)


class Formulas(NamedTuple):
    """A family as it is printed, and as it must be to do what is said of it."""

    printed: Curve
    corrected: Curve


def _exponential(n: float, b: float, way: float) -> float:
    """With the denominator as it is printed, which is the numerator: 0 / 0 at the start, read as its limit."""
    return n * b + n * (1 - b)


FORMULAS: Mapping[Family, Formulas] = {
    "exponential": Formulas(_exponential, lambda n, b, w: n * b + n * (1 - b) * math.expm1(10 * w) / math.expm1(10)),
    "step": Formulas(*[lambda n, b, w: n * b + n * math.floor(w)] * 2),
    "root": Formulas(
        lambda n, b, w: n * b + (n - b) * math.sqrt(w), lambda n, b, w: n * b + n * (1 - b) * math.sqrt(w)
    ),
    "linear": Formulas(lambda n, b, w: n * b + (n - b) * w, lambda n, b, w: n * b + n * (1 - b) * w),
    "quadratic": Formulas(lambda n, b, w: n * b + (n - b) * w**2, lambda n, b, w: n * b + n * (1 - b) * w**2),
}
"""In the order of Table 5."""

_HUES = ("purple", "green", "orange", "blue", "vermilion")


def findings(scale: Scale, folder: Path, runs: Path) -> Findings:
    """Table 5 and Figure 9; the same at every scale, since it takes no time.

    Args:
        scale: how much of it.
        folder: of the page.
        runs: of runs, of which there are none.
    """
    claims = _claims()
    return Findings(
        verdict=holding(claims),
        tables=(_ends(), _counts()),
        claims=claims,
        pictures=(_picture(folder),),
        notes=(
            "Table 5 prints N − b, samples minus a share, where N (1 − b) must stand, and for the exponential a "
            "denominator that equals the numerator. Corrected are the formulas of Wu, Dyer and Neyshabur (ICLR 2021), "
            "which are also those of the authors' program.",
            "A client has in use what the formula gives, rounded down, at least 32 samples (the program's "
            "least) and at most all.",
        ),
    )


def _ends() -> Table:
    """When everything is in use."""
    rows = []
    for family, formulas in FORMULAS.items():
        rows.append(
            (
                family,
                *(f"{_full(formulas.printed, a):.3f}" for a in SHARES),
                *(f"{_full(formulas.corrected, a):.3f}" for a in SHARES),
            )
        )
    return Table(
        name="full",
        caption=f"Share of a visit's steps after which all samples are in use; b = {float(START):g}.",
        head=("family", *(f"printed, a = {float(a):g}" for a in SHARES), *(f"a = {float(a):g}" for a in SHARES)),
        rows=tuple(rows),
    )


def _counts() -> Table:
    """Samples in use along a visit."""
    a = SHARES[-1]
    marks = [STEPS * tenth // 10 for tenth in range(0, 11, 2)]
    rows = []
    for family, formulas in FORMULAS.items():
        for form, curve in (("corrected", formulas.corrected), ("as printed", formulas.printed)):
            rows.append((f"{family}, {form}", *(str(_count(curve, a, step)) for step in marks)))
    return Table(
        name="counts",
        caption=f"Samples in use, of {SAMPLES}, by step of {STEPS}; a = {float(a):g}, b = {float(START):g}.",
        head=("family", *(str(step) for step in marks)),
        rows=tuple(rows),
    )


def _claims() -> tuple[Outcome, ...]:
    full = {family: [(_full(f.corrected, a), a) for a in SHARES] for family, f in FORMULAS.items()}
    kept = all(abs(found - float(a)) < 1 / STEPS for pairs in full.values() for found, a in pairs)
    printed = {family: _full(f.printed, SHARES[-1]) for family, f in FORMULAS.items()}
    early = [f"{family} {share:.3f}" for family, share in printed.items() if share < float(SHARES[-1]) - 1 / STEPS]
    worst = max(_apart(family, a) for family in FORMULAS for a in SHARES)
    first = {family: _count(f.corrected, SHARES[-1], 0) for family, f in FORMULAS.items()}
    return (
        Outcome(
            says="a is the share of the steps after which all samples are in use, b the share in use at first",
            verdict="holds" if kept and set(first.values()) == {int(START * SAMPLES)} else "differs",
            evidence="of the corrected formulas, in all five families and at all three a",
        ),
        Outcome(
            says="The formulas printed in Table 5 do that",
            verdict="differs" if early else "holds",
            evidence=f"at a = {float(SHARES[-1]):g} everything is in use after: {', '.join(early)}",
        ),
        Outcome(
            says="A client of this library has in use what the corrected formula gives",
            verdict="holds" if worst == 0 else "differs",
            evidence=f"largest difference over all families, a and steps: {worst} samples",
        ),
    )


def _count(curve: Curve, a: Fraction, step: int) -> int:
    """Samples in use at a step: rounded down, at least 1, at most all; a product that is whole stays whole."""
    raw = curve(SAMPLES, float(START), float(Fraction(step) / (a * STEPS)))
    return max(1, min(SAMPLES, math.floor(raw + 1e-9)))


def _full(curve: Curve, a: Fraction) -> float:
    """The share of the steps after which all samples are in use."""
    return next(step for step in range(STEPS + 1) if _count(curve, a, step) == SAMPLES) / STEPS


def _apart(family: Family, a: Fraction) -> int:
    """How far what a client is given is from the formula, at most."""
    rule = Pacing(family=family, a=float(a), b=float(START))
    return max(
        abs(rule.count(SAMPLES, step, STEPS) - _count(FORMULAS[family].corrected, a, step)) for step in range(STEPS + 1)
    )


def _picture(folder: Path) -> Picture:
    """The curves, a panel for each a; as printed they are dashed."""
    import altair as alt

    forms = {"corrected": [1, 0], "as printed": [4, 4]}
    panels: list[Any] = []
    for a in SHARES:
        rows = [
            {"x": step / STEPS, "y": _count(curve, a, step) / SAMPLES, "family": family, "form": form}
            for family, formulas in FORMULAS.items()
            for form, curve in zip(forms, (formulas.corrected, formulas.printed), strict=True)
            for step in range(0, STEPS + 1, 5)
        ]
        dashes = alt.Scale(domain=list(forms), range=list(forms.values()))
        panels.append(
            chart(rows, 230, 230, f"a = {float(a):g}, b = {float(START):g}").mark_line().encode(
                x=alt.X("x:Q", title="share of the visit's steps", axis=alt.Axis(format="%", tickCount=4)),
                y=alt.Y("y:Q", title="share of the samples in use", axis=alt.Axis(format="%")),
                color=grouped("family", list(FORMULAS), shades(_HUES, "light")),
                strokeDash=alt.StrokeDash("form:N", title=None, scale=dashes, legend=alt.Legend(symbolType="stroke")),
            )
        )  # fmt: skip
    title = "Pacing functions"
    drawn = alt.hconcat(*panels).properties(title=title).configure(**config("light"))
    about = (
        "Solid: corrected. Dashed: as printed in Table 5; the exponential then is constant, the step function the same."
    )
    return saved(drawn, folder, "pacing-curves", title=title, about=about)
