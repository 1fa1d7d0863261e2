"""Figures for a browser: their specifications, with the data apart so that a figure on screen can take new ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, final, get_args

from polyrhythm import figures
from polyrhythm.base.errors import unknown
from polyrhythm.figures import trial_figures
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import THEMES
from polyrhythm.figures.trials import Trials
from polyrhythm.results import Run
from polyrhythm.runs.costs import On
from polyrhythm.runs.json_text import to_json

_KEPT = 128  # figures that nothing has happened to since they were drawn
_ROWS = 100_000  # versions that are held for the next figure


@functools.cache
def script() -> str:
    """Vega and Vega-Lite as one module that sets `window.vegaEmbed`; takes a second or two the first time."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # whose types ask for the snippet that may be left out
    return str(bundle())


def warm_up() -> None:
    """Imports what the first figure needs, and makes the script."""
    import altair  # noqa: F401

    script()


def offered_of_trials(trials: Trials) -> list[dict[str, Any]]:
    """The figures that have something to show of some trials."""
    found = []
    for name in trial_figures.offered(trials):
        kind, _, key = name.partition("-")
        title, about = trial_figures.ABOUT[kind]
        found.append({"name": name, "title": f"{title}: {key}" if key else title, "about": about})
    return found


def of_trials(trials: Trials, asked: Mapping[str, str]) -> str:
    """A figure of trials, with its data apart.

    Raises:
        UserError: no such figure, key, axis or theme, or it has nothing to show.
    """
    theme = asked.get("theme", "light")
    if theme not in THEMES:
        raise unknown("theme", theme, THEMES, why="colours are those of one")
    keys = {key: asked[key] for key in ("against", "x", "y") if asked.get(key)}
    chart = trial_figures.drawn(asked.get("name", ""), trials, theme=theme, **keys)
    return to_json(apart(chart.to_dict(validate=False)))


@final
class Drawn:
    """Figures as JSON, and which there are, kept until their runs have gone on."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], str] = {}
        self._read: tuple[Any, dict[str, list[dict[str, Any]]]] = (None, {})

    def figure(self, name: str, runs: Sequence[Run], stamp: str, settings: Mapping[str, Any]) -> str:
        """A figure's specification, with its data apart.

        Args:
            name: of the figure.
            runs: what it is of.
            stamp: changes when one of them has gone on.
            settings: for `figures.draw`.

        Raises:
            UserError: no such figure or setting, or it has nothing to show.
        """
        set_of(settings.get("on", "test"))
        key = (name, tuple(run.id for run in runs), *sorted(settings.items()))
        found = self._kept.pop((*key, stamp), None)
        if found is None:
            subject = Subject(runs, settings.get("group_by"), self._versions(runs, stamp))
            asked = {name: value for name, value in settings.items() if name != "group_by"}
            # Its legend is what hides methods.
            found = to_json(apart(figures.draw(name, subject, legend=True, **asked).to_dict(validate=False)))
        return self._keep((*key, stamp), found)

    def offered(self, runs: Sequence[Run], stamp: str, group_by: str | None = None) -> str:
        """The figures that have something to show of runs, and after them those that would say nothing, and why.

        Args:
            runs: what they are of.
            stamp: changes when one of them has gone on.
            group_by: the setting whose values are the rows; None of methods.

        Raises:
            UserError: no run, runs that are judged by different metrics, or no such setting.
        """
        key = (tuple(run.id for run in runs), group_by, stamp)
        found = self._kept.pop(key, None)
        if found is None:
            fine, flat = figures.sorted_out(Subject(runs, group_by, self._versions(runs, stamp)))
            found = to_json(
                [
                    {
                        **{"name": f.name, "title": f.title, "about": f.about, "flat": why},
                        **{"along": f.along, "judged": f.judged, "curved": f.curved},
                    }
                    for f, why in (*((f, "") for f in fine), *flat.items())
                ]
            )
        return self._keep(key, found)

    def _keep(self, key: tuple[Any, ...], found: str) -> str:
        self._kept[key] = found  # the last one used is last
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def _versions(self, runs: Sequence[Run], stamp: str) -> dict[str, list[dict[str, Any]]]:
        """What was read for the figure before, if it was of the same runs: most of the time that one takes."""
        key = (tuple(run.id for run in runs), stamp)
        if self._read[0] != key or sum(map(len, self._read[1].values())) > _ROWS:
            self._read = (key, {})
        return self._read[1]


def set_of(name: str) -> On:
    """The set of this name.

    Raises:
        UserError: there is none.
    """
    for on in get_args(On):
        if name == on:
            return cast(On, on)
    raise unknown("set", name, get_args(On), why="results are of one set")


def apart(specification: dict[str, Any]) -> dict[str, Any]:
    """A specification whose data have names by their place, the same ones when the figure is drawn again later."""
    data: dict[str, Any] = {}
    shared = specification.pop("datasets", {})
    names: dict[str, str] = {}
    for part in _parts(specification):
        source = part.get("data")
        if not isinstance(source, dict):
            continue
        if source.get("name") in shared:
            old = source["name"]
            names.setdefault(old, f"rows_{len(data)}")
            data[names[old]] = shared[old]
            part["data"] = {"name": names[old]}
        elif isinstance(source.get("values"), list):
            name = f"rows_{len(data)}"
            data[name] = source["values"]
            part["data"] = {"name": name}
    return {"specification": specification, "data": data}


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a specification, from the outside in."""
    if isinstance(value, dict):
        yield value
        for key, inner in list(value.items()):
            if key != "values":
                yield from _parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _parts(inner)
