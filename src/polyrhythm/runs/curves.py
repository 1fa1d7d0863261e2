"""The basic curves of a run as charts: PNG, SVG, PDF, or a page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from polyrhythm.errors import UserError

if TYPE_CHECKING:
    import altair as alt

Against = Literal[
    "version", "time", "wall", "client_updates", "local_steps", "samples", "flops", "bytes_up", "bytes_down"
]
_TITLES: Mapping[str, str] = {
    "version": "server version",
    "time": "virtual time (s)",
    "wall": "wall-clock time (s)",
    "client_updates": "client updates",
    "local_steps": "local steps",
    "samples": "samples trained on",
    "flops": "floating-point operations",
    "bytes_up": "bytes sent by clients",
    "bytes_down": "bytes sent to clients",
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
                        found.append({"x": row[against], "y": value, "series": label})
        return found

    def _column(self, column: str, series: str, against: Against) -> list[dict[str, Any]]:
        rows = [row for row in self._versions if row[column] is not None]
        return [{"x": row[against], "y": row[column], "series": series} for row in rows]

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
