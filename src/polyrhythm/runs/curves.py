"""The basic curves of a run as charts: PNG, SVG, PDF, or a page that needs no network."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from polyrhythm.errors import UserError
from polyrhythm.runs.costs import On, bytes_of, score

if TYPE_CHECKING:
    import altair as alt

Against = Literal[
    "version",
    "time",
    "wall",
    "client_updates",
    "visits",
    "local_steps",
    "samples",
    "flops",
    "joules",
    "bytes",
    "bytes_up",
    "bytes_down",
    "compute_seconds",
    "link_seconds",
    "waiting_seconds",
]
_TITLES: Mapping[str, str] = {
    "version": "server version",
    "time": "virtual time (s)",
    "wall": "wall-clock time (s)",
    "client_updates": "client updates",
    "visits": "client visits",
    "local_steps": "local steps",
    "samples": "samples trained on",
    "flops": "floating-point operations",
    "joules": "energy (J)",
    "bytes": "traffic (bytes)",
    "bytes_up": "bytes sent by clients",
    "bytes_down": "bytes sent to clients",
    "compute_seconds": "clients' time computing (s)",
    "link_seconds": "clients' time on links (s)",
    "waiting_seconds": "clients' time waiting (s)",
}
_SERIES: Mapping[str, str] = {
    "test": "test set",
    "validation": "validation set",
    "train": "sample of training data",
    "clients": "clients' own test sets",
}
_FEW = 50  # versions that still leave room for a mark at each
_FORMATS = (".png", ".svg", ".pdf", ".html")


@final
class Curves:
    """Draws what a run recorded. Each curve takes `against`, its horizontal axis, and `save`, a file to write.

    Args:
        versions: the rows of the run's versions.
        headline: the metric that "accuracy" stands for.
        title: above each chart.
    """

    def __init__(self, versions: Sequence[Mapping[str, Any]], headline: str, title: str) -> None:
        self._versions, self._headline, self._title = versions, headline, title

    def accuracy(self, *, against: Against = "version", save: Path | str | None = None) -> alt.Chart:
        """The headline metric of the global model, on each set it was evaluated on."""
        values = self._metric(self._headline, against)
        return self._lines(values, self._headline.replace("_", " "), against, save)

    def loss(self, *, against: Against = "version", save: Path | str | None = None) -> alt.Chart:
        """The loss of the global model on each set, and of the local models while they trained."""
        values = self._metric("loss", against)
        values += self._column("train_loss", "local training", against)
        return self._lines(values, "loss", against, save)

    def participation(self, *, against: Against = "version", save: Path | str | None = None) -> alt.Chart:
        """How many clients were invited for each version, and how many reports made it."""
        values = self._column("cohort", "invited", against) + self._column("accepted", "accepted", against)
        return self._lines([v for v in values if v["x"] or against != "version"], "clients", against, save)

    def rate(self, *, against: Against = "version", save: Path | str | None = None) -> alt.Chart:
        """The local learning rate."""
        return self._lines(self._column("rate", "local learning rate", against), "rate", against, save)

    def _metric(self, metric: str, against: Against) -> list[dict[str, Any]]:
        found = []
        for row in self._versions:
            for column, series in _SERIES.items():
                for name, value in (row[column] or {}).items():
                    if name == metric or (column == "clients" and name.startswith(f"{metric}_")):
                        label = f"{series} ({name.removeprefix(metric).strip('_')})" if name != metric else series
                        found.append({"x": _across(row, against), "y": value, "series": label})
        return found

    def _column(self, column: str, series: str, against: Against) -> list[dict[str, Any]]:
        rows = [row for row in self._versions if row[column] is not None]
        return [{"x": _across(row, against), "y": row[column], "series": series} for row in rows]

    def _lines(
        self, values: list[dict[str, Any]], measure: str, against: Against, save: Path | str | None
    ) -> alt.Chart:
        import altair as alt

        # Given as values and not as a frame, so that no limit on rows bites.
        chart: alt.Chart = (
            alt.Chart(alt.InlineData(values=values), title=self._title, width=520, height=300)
            .mark_line(point=len(values) <= 2 * _FEW)
            .encode(
                x=alt.X("x:Q", title=_TITLES[against]),
                y=alt.Y("y:Q", title=measure, scale=alt.Scale(zero=False)),
                color=alt.Color("series:N", title=None, legend=alt.Legend(orient="bottom")),
                tooltip=[
                    alt.Tooltip("series:N"),
                    alt.Tooltip("x:Q", title=_TITLES[against]),
                    alt.Tooltip("y:Q", title=measure),
                ],
            )
        )
        if save is not None:
            save_chart(chart, save)
        return chart


@final
class ComparedCurves:
    """Draws several methods together, each as the mean over its runs, with a band of one sample standard deviation.

    The curve of a run is a step: what the last evaluated version gave holds until the next one. A method's mean ends
    where the first of its runs does, so it is always over all of them.

    Args:
        methods: the versions of each run, by the method's name.
        headline: the metric that "accuracy" stands for.
        on: the set it is measured on.
    """

    def __init__(
        self, methods: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], headline: str, on: On = "test"
    ) -> None:
        self._methods, self._headline, self._on = methods, headline, on

    def accuracy(self, *, against: Against = "version", save: Path | str | None = None) -> alt.LayerChart:
        """The headline metric of each method."""
        chart = self._panel(against, width=520)
        if save is not None:
            save_chart(chart, save)
        return chart

    def costs(
        self, *, against: Sequence[Against] = ("time", "joules", "bytes"), save: Path | str | None = None
    ) -> alt.HConcatChart:
        """The headline metric over time, energy and traffic, side by side."""
        import altair as alt

        chart = alt.hconcat(*(self._panel(axis, width=260) for axis in against))
        if save is not None:
            save_chart(chart, save)
        return chart

    def _panel(self, against: Against, *, width: int) -> alt.LayerChart:
        import altair as alt

        values = [v for name, runs in self._methods.items() for v in self._steps(name, runs, against)]
        legend = alt.Legend(orient="bottom", labelLimit=0, columns=2, symbolOpacity=1, symbolType="square")
        scale = alt.Scale(
            domain=list(self._methods), range=[COLOURS[i % len(COLOURS)] for i in range(len(self._methods))]
        )
        color = alt.Color("method:N", title=None, scale=scale, legend=legend)
        x = alt.X("x:Q", title=_TITLES[against], axis=alt.Axis(format="~s", tickCount=5))
        title = f"{self._headline.replace('_', ' ')} on the {_SERIES[self._on]}"
        chart = alt.Chart(alt.InlineData(values=values), width=width, height=260)
        line = chart.mark_line(interpolate="step-after").encode(
            x=x, y=alt.Y("y:Q", title=title, scale=alt.Scale(zero=False)), color=color
        )
        band = chart.mark_area(interpolate="step-after", opacity=0.2).encode(x=x, y="low:Q", y2="high:Q", color=color)
        return alt.LayerChart(layer=[band, line])

    def _steps(self, name: str, runs: Sequence[Sequence[Mapping[str, Any]]], against: Against) -> list[dict[str, Any]]:
        """Mean and spread at every cost at which one of the runs was evaluated, up to where the first of them ends."""
        curves = []
        for rows in runs:
            known = [(_across(row, against), score(row, self._headline, self._on)) for row in rows]
            curve = [(float(x), y) for x, y in known if x is not None and y is not None]
            if not curve:
                return []
            curves.append(curve)
        first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
        places = sorted({x for curve in curves for x, _ in curve if first <= x <= last})
        places = places[:: max(1, len(places) // _MOST)] + places[-1:]
        found = []
        for x in dict.fromkeys(places):
            values = [curve[bisect.bisect_right(curve, (x, math.inf)) - 1][1] for curve in curves]
            mean, spread = mean_and_spread(values)
            low, high = (mean - (spread or 0.0), mean + (spread or 0.0))
            found.append({"method": name, "x": x, "y": mean, "low": low, "high": high})
        return found


# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#F0E442")
_MOST = 500  # points of a curve that still make a difference to the eye


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; None for that of a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _across(row: Mapping[str, Any], against: Against) -> Any:
    return bytes_of(row) if against == "bytes" else row[against]


def save_chart(chart: alt.TopLevelMixin, path: Path | str) -> None:
    """Writes a chart as .png (twice the size, for print), .svg, .pdf, or .html with everything it needs inside (1 MB).

    Raises:
        UserError: another ending, or a file that cannot be written.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        raise UserError(
            f"cannot save a chart as {path.name!r}",
            expected=f"a name that ends in {', '.join(_FORMATS)}",
            why="the ending decides the format",
            fix=f"save it as {path.stem}.png, for example",
        )
    try:
        # inline: a page that loads its scripts from elsewhere is blank without a network.
        chart.save(str(path), inline=ending == ".html", scale_factor=2 if ending == ".png" else 1)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}",
            expected="a folder that exists and can be written",
            why="the chart would be lost",
            fix="make the folder, or give another file",
        ) from error
