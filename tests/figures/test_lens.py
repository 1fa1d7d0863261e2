"""Curves looked at closely: what a lens keeps, what it changes, and what the picture says of it."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.base.errors import UserError
from polyrhythm.figures.bands import mean, single
from polyrhythm.figures.lens import PLAIN, Lens, smoothed
from polyrhythm.figures.lines import alike, in_dashes
from polyrhythm.figures.live import readings, said
from polyrhythm.figures.marks import LOSS, SHARE, in_turn, upright
from polyrhythm.figures.theme import style
from polyrhythm.results import Run
from small import experiment

LONG = [(float(x), math.sin(x / 50)) for x in range(5000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method and of its twin, and one of another that goes on for longer."""
    out = tmp_path_factory.mktemp("looked_at")
    plain = pr.fedavg(cohort=2, epochs=1, batch=5)
    for name, recipe, rounds, seeds in (
        ("plain", plain, 6, 2),
        ("twin", pr.fedprox(cohort=2, epochs=1, batch=5, mu=0.0), 6, 2),
        ("long", pr.scaffold(cohort=2, epochs=1, batch=5), 14, 1),
    ):
        for seed in range(seeds):
            pr.run(experiment(recipe=recipe, seed=seed, rounds=rounds, name=name), out=out)
    return out


@pytest.fixture
def runs(folder: Path) -> list[Run]:
    return Run.all(folder)


def text(chart: figures.Chart) -> str:
    return json.dumps(chart.to_dict()["title"])


def rows(chart: figures.Chart) -> list[dict[str, Any]]:
    return [row for values in chart.to_dict()["datasets"].values() for row in values]


def layers(chart: figures.Chart) -> list[dict[str, Any]]:
    drawn = chart.to_dict()
    return list(drawn.get("layer", [drawn]))


def test_a_mean_says_its_deviation_and_how_many_seeds_it_is_of() -> None:
    (first, *_) = mean([[(0.0, 0.2), (1.0, 0.4)], [(0.0, 0.4), (1.0, 0.8)], [(0.0, 0.3), (1.0, 0.6)]])
    assert first["n"] == 3
    assert first["sd"] == pytest.approx(statistics.stdev([0.2, 0.4, 0.3]))
    (alone, _) = mean([[(0.0, 0.2), (1.0, 0.4)]])
    assert (alone["n"], alone["sd"]) == (1, None)


def test_a_part_of_a_long_curve_has_every_place_of_it() -> None:
    whole = mean([LONG])
    part = mean([LONG], Lens(span=(1000, 1050)))
    shown = [point["x"] for point in part if 1000 <= point["x"] <= 1050]
    assert shown == [float(x) for x in range(1000, 1051)]
    assert len(shown) > 5 * sum(1000 <= point["x"] <= 1050 for point in whole)
    assert (part[0]["x"], part[-1]["x"]) == (949.0, 1101.0)  # and as much on both sides


def test_smoothing_is_the_mean_of_neighbours_and_keeps_what_was_recorded() -> None:
    points = [{"x": x, "y": float(y)} for x, y in enumerate((1, 5, 3, 9, 2))]
    found = smoothed(points, 3)
    assert [point["y"] for point in found] == pytest.approx([1, 3, 17 / 3, 14 / 3, 2])
    assert [point["raw"] for point in found] == [1, 5, 3, 9, 2]
    assert smoothed(points, 1) == points
    assert [point["y"] for point in smoothed(points, 999)] == pytest.approx([1, 3, 4, 14 / 3, 2])


def test_a_smoothed_figure_says_so_and_draws_the_raw_line(runs: list[Run]) -> None:
    chart = figures.draw("accuracy", runs, smooth=3)
    assert "lines: mean of 3 neighbouring places; faint: as recorded" in text(chart)
    fields = [layer["encoding"]["y"]["field"] for layer in layers(chart)]
    assert fields.count("raw") == 1
    assert "neighbouring" not in text(figures.draw("accuracy", runs))


def test_a_logarithmic_axis_leaves_out_what_has_no_place_on_it(runs: list[Run]) -> None:
    chart = figures.draw("accuracy", runs, log="x")
    assert min(row["x"] for row in rows(chart)) > 0
    assert "what lies at 0 has no place on a logarithmic axis" in text(chart)
    assert layers(chart)[-1]["encoding"]["x"]["scale"] == {"type": "log", "nice": False}
    assert "what lies at 0" not in text(figures.draw("accuracy", runs, log="x", span=(1, 4)))
    free = figures.draw("accuracy", runs, log="x", against="link_seconds")  # this fleet has no links
    assert "the horizontal axis is not logarithmic: all lies at 0" in text(free)
    assert "scale" not in layers(free)[-1]["encoding"]["x"]


def test_values_that_a_logarithmic_axis_cannot_hold_are_said() -> None:
    points = [{"method": "a", "x": x, "y": y, "low": y, "high": y} for x, y in enumerate((0.0, 0.4, 0.9))]
    refused = upright("", points, SHARE, Lens(log="y"))
    assert not refused.logarithmic
    assert "values of 0 or less" in refused.refused
    held = upright("", points[1:], LOSS, Lens(log="y"))
    assert held.logarithmic
    assert held.refused == ""
    assert held.axis.to_dict()["scale"]["type"] == "log"


def test_a_band_that_goes_below_zero_stays_on_a_logarithmic_axis(runs: list[Run]) -> None:
    drawn = rows(figures.draw("loss", runs, log="y"))
    assert min(row["low"] for row in drawn if "low" in row) > -math.inf
    band = figures.draw("loss", runs, log="y").to_dict()
    values = band["datasets"][band["layer"][0]["data"]["name"]]
    assert min(row["low"] for row in values) > 0


def test_a_part_has_a_vertical_axis_of_its_own() -> None:
    points = [{"method": "a", "x": x, "y": y, "low": y, "high": y} for x, y in enumerate((0.1, 0.5, 0.8, 0.82))]
    scale = upright("", points, SHARE, Lens(span=(2, 3))).axis.to_dict()["scale"]
    assert scale["domain"] == [0.5, 0.82]  # with where the line comes in from the left
    assert "domain" not in upright("", points, SHARE, PLAIN).axis.to_dict()["scale"]


def test_single_seeds_are_drawn_beside_their_mean(runs: list[Run]) -> None:
    chart = figures.draw("accuracy", runs, seeds=True)
    alone = [row for row in rows(chart) if "seed" in row]
    assert {(row["method"], row["seed"]) for row in alone} == {(m, s) for m in ("plain", "twin") for s in (0, 1)}
    one = Run.find("plain", runs[0].folder)[0]
    own = [row["y"] for row in alone if row["method"] == "plain" and row["seed"] == 0]
    assert own == pytest.approx([score for _, score in one.scores])
    assert "thin: single seeds" in text(chart)
    assert len(single([LONG], PLAIN)[0]) <= 400


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log": "z"}, "unknown logarithmic axis"),
        ({"smooth": 0}, "smooth = 0"),
        ({"smooth": 10_000}, "smooth = 10000"),
        ({"smooth": 2.5}, "smooth = 2.5"),
        ({"span": (5, 5)}, "the first of them smaller"),
        ({"span": (0, math.nan)}, "two numbers"),
        ({"span": (0, math.inf)}, "two numbers"),
    ],
)
def test_what_is_no_lens_is_refused(runs: list[Run], options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        figures.draw("accuracy", runs, **options)


@pytest.mark.parametrize(
    ("name", "options"), [("labels", {"smooth": 5}), ("costs", {"span": (0, 1)}), ("costs", {"log": "x"})]
)
def test_a_figure_that_cannot_be_looked_at_so_says_which_can(runs: list[Run], name: str, options: Any) -> None:
    with pytest.raises(UserError, match="a curve: accuracy"):
        figures.draw(name, runs, **options)


def test_every_lens_draws_every_curve_without_a_warning(runs: list[Run]) -> None:
    curved = [
        figure for figure in figures.CATALOGUE.values() if figure.curved and not figures.why_not(figure.name, runs)
    ]
    assert {"accuracy", "loss", "costs", "rate"} <= {figure.name for figure in curved}
    for figure, log, live in itertools.product(curved, figures.LOGS, (False, True)):
        if figure.along or "x" not in log:
            span = (1, 4) if figure.along else None
            figures.draw(figure.name, runs, log=log, smooth=5, span=span, seeds=True, live=live).to_dict()


def line(method: str, *values: float) -> list[dict[str, Any]]:
    return [{"method": method, "x": float(x), "y": y} for x, y in enumerate(values)]


def test_lines_that_lie_on_each_other_are_found() -> None:
    drawn = [*line("a", 0, 1, 2, 3, 4), *line("b", 0, 1, 2, 3, 9), *line("c", 4, 3, 2, 1, 0), *line("d", 0, 1, 2, 3, 4)]
    assert alike(drawn) == [["a", "b", "d"]]
    assert alike(line("a", 1, 2)) == []
    assert alike([*line("a", 5, 5, 5), *line("b", 5, 5, 5)]) == [["a", "b"]]  # as cohorts do
    assert alike([*line("a", 1), *line("b", 1)]) == []  # one place says nothing


def test_dashes_take_turns_and_a_legend_shows_them(runs: list[Run]) -> None:
    chart = figures.draw("accuracy", runs)
    scale = layers(chart)[-1]["encoding"]["strokeDash"]["scale"]
    dashes = dict(zip(scale["domain"], scale["range"], strict=True))
    assert dashes["plain"] == [1, 0]
    assert dashes["twin"] == [7, 7]
    assert dashes["long"] == [1, 0]
    assert "plain, twin: one line on the other" in text(chart)
    shown = [in_turn(place, 4, 7) for place in range(1, 4)]
    assert [on for on, _ in shown] == [21, 14, 7]
    assert {on + off for on, off in shown} == {28}
    looks, words = in_dashes({name: style(place) for place, name in enumerate("abcde")}, [list("abcde")])
    assert len({look.dash for look in looks.values()}) == 5
    assert words == ["a, b, c and 2 more: one line on the other, their dashes take turns"]


def test_what_is_read_at_a_place_is_the_nearest_recorded_one() -> None:
    points = [
        *({"method": "a", "x": x, "y": x / 10, "sd": 0.01, "n": 3} for x in range(0, 10, 2)),
        {"method": "b", "x": 5, "y": 0.7, "sd": None, "n": 1},
    ]
    found = {row["at"]: row for row in readings(points)}
    assert found[5]["a"] == "0.4 ± 0.01, n = 3, at 4"
    assert found[5]["b"] == "0.7, n = 1"
    assert found[0]["b"] == "0.7, n = 1, at 5"
    assert said({"x": 1, "y": 0.5, "raw": 0.25, "sd": 0.5, "n": 2}, 1) == "0.25 ± 0.5, n = 2"  # as it was recorded
    assert said({"x": 1, "y": 1234567.0, "sd": None, "n": 1}, 1) == "1.235e+06, n = 1"


def test_a_live_figure_has_selections_and_a_picture_has_none(runs: list[Run]) -> None:
    for name in ("accuracy", "costs"):
        live, picture = (figures.draw(name, runs, live=live).to_dict() for live in (True, False))
        names = [selection["name"].partition("_")[0] for selection in live["params"]]
        assert set(names) == {"shown", "zoom", "over"}
        assert all(len(selection["views"]) == 1 for selection in live["params"])
        assert len({selection["name"] for selection in live["params"]}) == len(names)
        assert "params" not in json.dumps(picture)
        wheel = [selection["select"]["zoom"] for selection in live["params"] if selection["name"].startswith("zoom")]
        assert all("ctrlKey" in events for events in wheel)  # a wheel alone scrolls the page


def test_looks_beyond_the_eighth_differ_in_fills_and_shapes_too(folder: Path, runs: list[Run]) -> None:
    first, ninth, last = style(0), style(8), style(24)
    assert first.colour == ninth.colour == last.colour
    assert len({look.fill for look in (first, ninth, last)}) == 3
    assert len({look.shape for look in (first, ninth, last)}) == 3


def test_a_logarithmic_axis_is_written_at_1_2_and_5(runs: list[Run]) -> None:
    def words(**options: Any) -> str:
        axis = layers(figures.draw("accuracy", runs, log="x", **options))[-1]["encoding"]["x"]["axis"]
        return str(axis["labelExpr"])

    assert "[1, 2, 5]" in words()
    assert "[1, 2, 5]" not in words(span=(3, 9))  # where two or three of them would be all


def test_numbers_at_axes_have_no_prefix_below_a_thousand(runs: list[Run]) -> None:
    axis = layers(figures.draw("accuracy", runs, against="time"))[-1]["encoding"]["x"]["axis"]
    assert axis["labelExpr"] == "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"


def test_what_is_said_of_a_point_has_the_names_of_its_axes(runs: list[Run]) -> None:
    tips = layers(figures.draw("accuracy", runs, against="time"))[-1]["encoding"]["tooltip"]
    said = {tip["field"]: tip.get("title") for tip in tips}
    assert (said["x"], said["y"]) == ("virtual time (s)", "accuracy on the test set")
    every = {
        tip["field"] for layer in layers(figures.draw("accuracy", runs)) for tip in layer["encoding"].get("tooltip", ())
    }
    assert {"method", "x", "y", "sd", "n"} <= every


def test_groups_are_looked_at_in_the_same_way(tmp_path: Path) -> None:
    looks = pr.Evaluation(groups=True)
    fleet = pr.Fleet(devices=pr.fleet.Tiers())
    recipe = pr.fedavg(cohort=2, epochs=1, batch=5)
    own = [
        pr.run(experiment(recipe=recipe, seed=s, rounds=6, evaluation=looks, fleet=fleet), out=tmp_path) for s in (0, 1)
    ]
    chart = figures.draw("groups", own, span=(2, 4), smooth=3, log="xy")
    assert "neighbouring" in text(chart)
    assert all(layer["encoding"]["x"]["scale"]["domain"] == [2, 4] for layer in layers(chart))
    assert layers(chart)[-1]["encoding"]["y"]["scale"]["type"] in ("log", None)
    assert min(row["x"] for row in rows(chart)) > 0
