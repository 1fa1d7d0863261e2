"""`run.plot` and `comparison.plot`: every figure as a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from polyrhythm import figures
from polyrhythm.runs.recorded import RecordedRun

if TYPE_CHECKING:
    from polyrhythm.figures import Chart


@final
class Plots:
    """Draws figures of some runs: `plot.accuracy()`, `plot.participation(save="who.svg")`, and so on.

    Each method takes the arguments of `figures.draw`, and `save`, a file to write. `plot.names` are those that have
    something to show. What is shown in a notebook, or saved as a page, can be explored.

    Args:
        runs: what is drawn.
        options: for `figures.draw`, where a call does not say otherwise.
    """

    def __init__(self, runs: Sequence[RecordedRun], **options: Any) -> None:
        self._runs, self._options = tuple(runs), options

    @property
    def names(self) -> tuple[str, ...]:
        """The figures that have something to show."""
        return tuple(figure.name for figure in figures.applicable(self._runs))

    def __repr__(self) -> str:
        return f"<Plots: {', '.join(self.names) or 'nothing to show yet'}>"

    def __getattr__(self, name: str) -> Callable[..., Chart]:
        if name not in figures.CATALOGUE:
            raise AttributeError(f"there is no figure {name!r}; there are {', '.join(figures.CATALOGUE)}")

        def drawn(*, save: Path | str | None = None, **options: Any) -> Chart:
            if save is not None:
                figures.check_file(save)
            options.setdefault("live", save is None or Path(save).suffix.lower() == ".html")
            chart = figures.draw(name, self._runs, **{**self._options, **options})
            if save is not None:
                figures.save(chart, save)
            return chart

        drawn.__name__, drawn.__doc__ = name, figures.CATALOGUE[name].about
        return drawn

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *figures.CATALOGUE]
