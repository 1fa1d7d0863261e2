"""Each figure shows the numbers that were recorded, in the colours that its methods have everywhere."""

from __future__ import annotations

import colorsys
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.base.errors import UserError
from polyrhythm.figures import Chart
from polyrhythm.figures.clock import joined, spans, staleness, waiting
from polyrhythm.figures.cohorts import detectors, periods
from polyrhythm.figures.curricula import in_use, pacing
from polyrhythm.figures.effort import per_client, per_round
from polyrhythm.figures.ends import named_ends
from polyrhythm.figures.groups import _HUES, cells, series
from polyrhythm.figures.participation import FATES, fate, raster
from polyrhythm.figures.repainting import by_night, numbered
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import HUES, THEMES, config, style
from polyrhythm.figures.updates import errors
from polyrhythm.methods.work.budgets import SlowShare
from polyrhythm.results import Run
from small import experiment, federation

EVERY = pr.Evaluation(measure=("update_similarity", "estimation_error", "sample_losses"))
TIERS = pr.Fleet(devices=pr.fleet.Tiers())
PLAIN = pr.fedavg(cohort=2, epochs=1, batch=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of FedAvg, and one run each of CCFL, FedCL, FedBuff, a curriculum and hidden clients."""
    out = tmp_path_factory.mktemp("drawn")
    for seed in range(2):
        pr.run(experiment(recipe=PLAIN, seed=seed, fleet=TIERS, evaluation=EVERY, name="plain", rounds=5), out=out)
    for name, recipe in {
        "ccfl": pr.ccfl(cohort=4, batch=5),
        "fedcl": pr.fedcl(cohort=2, batch=5),
        "fedbuff": pr.fedbuff(concurrency=3, buffer=2, batch=5),
        "curriculum": pr.curriculum_fl(cohort=2, batch=5),
        "hidden": PLAIN | pr.parts.equal() | pr.parts.dp(noise=2.0),
    }.items():
        pr.run(experiment(recipe=recipe, fleet=TIERS, evaluation=EVERY, name=name, rounds=8), out=out)
    return out


def rows(chart: Chart) -> list[dict[str, Any]]:
    """All the values in a chart."""
    return [row for values in chart.to_dict()["datasets"].values() for row in values]


def svg(chart: Chart) -> str:
    """A chart as a picture."""
    vl_convert = pytest.importorskip("vl_convert")
    found: str = vl_convert.vegalite_to_svg(figures.drawable(chart.to_dict()))
    return found


def visit(client: int = 0, version: int = 0, **changes: Any) -> dict[str, Any]:
    given = {"dispatch": 0, "client": client, "version": version, "status": "trained", "reason": "", "finished": 0.0}
    given |= {"down_seconds": 0.0, "compute_seconds": 1.0, "up_seconds": 0.0}
    return {**given, "started": 0.0, "steps": 1, "epochs": 1.0, "measures": {}, **changes}


def test_every_figure_that_applies_is_drawn_in_both_themes(folder: Path) -> None:
    runs = pr.compare(folder).methods
    every = [run for members in runs.values() for run in members]
    applies = {figure.name for figure in figures.applicable(every)}
    of_own_tests = {"client_results", "fairness", "client_map", "device_gap"}
    of_own_tests |= {"own_models", "client_gains", "worst_tenth", "availability"}
    none = {"groups", "budgets", "samples", "battery", "drift", "rate", *of_own_tests}
    assert {figure.name: why for figure, why in figures.flat(every).items()} == {"rate": "0.1 in every version"}
    assert applies == set(figures.CATALOGUE) - none
    for name, theme in itertools.product(applies | {"rate"}, THEMES):
        assert rows(figures.draw(name, every, theme=theme)), name


def test_pictures_by_night_are_those_that_would_be_drawn(folder: Path) -> None:
    every = [run for members in pr.compare(folder).methods.values() for run in members]
    again = list[str]()
    for figure in figures.applicable(every):
        light, dark = (numbered(svg(figures.draw(figure.name, every, theme=theme))) for theme in THEMES)
        found = by_night(light)
        assert found in (None, dark), figure.name
        again += [figure.name] if found is None else []
    assert set(again) <= {"classes", "class_map", "confusion", "labels", "samples"}


def points(**lines: float) -> list[dict[str, Any]]:
    ends = [(name, 1, y) for name, y in lines.items()]
    return [{"method": m, "x": x, "y": y, "low": y, "high": y} for m, x, y in [(m, 0, 0.5) for m in lines] + ends]


def test_names_stand_at_the_ends_of_lines_and_never_on_each_other() -> None:
    # 100 pixels from 0 to 1: b and c are 1 pixel apart, and move to 14; a is far from both.
    rows = points(a=1.0, b=0.10, c=0.11, d=0.0)
    found = {row["method"]: (row["x"], 100 * row["y"] - below) for row, below in named_ends(rows, 100)}
    assert found == {name: (1, pytest.approx(at)) for name, at in {"a": 100, "d": -7, "b": 7, "c": 21}.items()}
    assert named_ends(points(a=1.0), 100) == []
    assert named_ends(points(**{f"m{i}": i / 7 for i in range(7)}), 100) == []
    assert named_ends(points(a=1.0, b=0.2)[:-1], 100) == []
    assert named_ends(points(**{"a": 1.0, "b" * 33: 0.2}), 100) == []
    decades = {row["method"]: below for row, below in named_ends(points(a=0.5, b=0.005), 100, logarithmic=True)}
    assert decades == {"a": 0, "b": 0}


def test_lines_are_named_at_their_ends_instead_of_below(folder: Path) -> None:
    runs = [*Run.find("curriculum", folder), *Run.find("ccfl", folder)]
    drawn = json.dumps(figures.draw("loss", runs, against="version").to_dict())
    assert '"text": {"field": "method"' in drawn
    assert '"legend": {"columns"' not in drawn
    told = json.dumps(figures.draw("loss", runs, legend=True).to_dict())
    assert '"text": {"field": "method"' not in told
    assert '"legend": {"columns"' in told
    narrow = json.dumps(figures.draw("loss", runs, width=300).to_dict())
    assert '"text": {"field": "method"' not in narrow
    assert '"legend": {"columns"' in narrow


def test_only_paint_is_changed_by_night() -> None:
    words = '<text fill="#1A1A1A" x="1"> fill="#FFFFFF" #0D629E</text>'
    assert by_night(words) == words.replace("#1A1A1A", "#ECECEC")
    assert by_night('<path fill="#123456"/>') is by_night('<path fill="url(#gradient_0)"/>') is None
    assert by_night('<path fill="none" stroke="#BBBBBB"/>') == '<path fill="none" stroke="#6E6E6E"/>'
    assert numbered('<g id="clip7"/><g clip-path="url(#clip7)"/><g id="clip9"/><text>url(#clip7)</text>') == (
        '<g id="clip0"/><g clip-path="url(#clip0)"/><g id="clip1"/><text>url(#clip7)</text>'
    )


def test_what_does_not_apply_says_what_is_missing_and_what_to_do(folder: Path) -> None:
    plain = Run.find("plain", folder)
    for name in figures.CATALOGUE:
        missing = figures.why_not(name, plain)
        if missing:
            assert "; " in missing, name
            with pytest.raises(UserError, match="nothing to show"):
                figures.draw(name, plain)
    assert "evaluation.groups=true" in figures.why_not("groups", plain)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "acuracy"}, "did you mean 'accuracy'"),
        ({"against": "roundz"}, "unknown axis"),
        ({"against": "tiem"}, "did you mean 'time'"),
        ({"theme": "drak"}, "did you mean 'dark'"),
        ({"on": "training"}, "unknown set"),
        ({"name": "labels", "against": "time"}, "axis of its own"),
        ({"on": "validation"}, "no version was judged on the validation set"),
    ],
)
def test_bad_names_are_refused(folder: Path, wrong: dict[str, Any], said: str) -> None:
    options = {"name": "accuracy", **wrong}
    with pytest.raises(UserError, match=said):
        figures.draw(options.pop("name"), Run.find("plain", folder), **options)


def test_a_curve_shows_the_mean_of_its_seeds_and_their_deviation(folder: Path) -> None:
    runs = Run.find("plain", folder)
    one, two = (run.history["test_accuracy"] for run in runs)
    (drawn,) = figures.draw("accuracy", runs).to_dict()["datasets"].values()
    assert [row["x"] for row in drawn] == list(one.index)
    assert [row["y"] for row in drawn] == pytest.approx([(a + b) / 2 for a, b in zip(one, two, strict=True)])
    spread = [abs(a - b) / 2**0.5 for a, b in zip(one, two, strict=True)]
    assert [row["high"] - row["y"] for row in drawn] == pytest.approx(spread)
    assert [row["y"] - row["low"] for row in drawn] == pytest.approx(spread)


@pytest.mark.parametrize("against", figures.AXES)
def test_every_axis_is_drawn_with_its_recorded_numbers(folder: Path, against: Any) -> None:
    (run,) = Run.find("fedcl", folder)
    history = run.history.reset_index()
    expected = history["bytes_up"] + history["bytes_down"] if against == "bytes" else history[against]
    drawn = rows(figures.draw("accuracy", [run], against=against))
    assert [row["x"] for row in drawn] == pytest.approx(sorted(set(expected)))


def test_a_method_has_one_colour_wherever_it_is_drawn(folder: Path) -> None:
    colours = figures.colours(folder)
    for name in ("plain", "ccfl", "fedbuff"):
        runs = Run.find(name, folder)
        assert {colours[run.id] for run in runs} == {Subject(runs).styles("light")[name].colour}
        drawn = figures.draw("accuracy", [*runs, *Run.find("fedcl", folder)]).to_dict()
        encoding = (drawn["layer"][-1] if "layer" in drawn else drawn)["encoding"]["color"]["scale"]
        assert dict(zip(encoding["domain"], encoding["range"], strict=True))[name] == colours[runs[0].id]
    assert len(set(colours.values())) == 6
    assert figures.colours(Run.find("ccfl", folder)) == {r.id: colours[r.id] for r in Run.find("ccfl", folder)}


def test_methods_that_share_a_colour_have_other_dashes() -> None:
    looks = [style(place) for place in range(32)]
    assert len(set(looks)) == 32
    assert looks[0].colour == looks[8].colour


@pytest.mark.parametrize("theme", THEMES)
def test_every_colour_stands_out_from_its_background(theme: Any) -> None:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    paper = light(config(theme)["background"])
    for name, shades in HUES.items():
        low, high = sorted((paper, light(shades[theme])))
        assert (high + 0.05) / (low + 0.05) >= (1.5 if name == "grey" else 2.8), name


@pytest.mark.parametrize("name", sorted({*FATES.values(), *_HUES, *(HUES.keys() - {"ink"})}))
def test_a_colour_of_data_keeps_its_hue_on_both_themes(name: str) -> None:
    light, dark = (
        colorsys.rgb_to_hls(*(int(HUES[name][theme][i : i + 2], 16) / 255 for i in (1, 3, 5))) for theme in THEMES
    )
    if name == "grey":
        assert light[2] == dark[2] == 0
        return
    assert min(light[2], dark[2]) > 0.2
    turned = abs(light[0] - dark[0])
    assert min(turned, 1 - turned) < 0.05


def test_a_raster_says_what_each_client_did() -> None:
    visits = [
        *(visit(0), visit(1, status="skipped", reason="its movement of 2 versions ago was used")),
        *(visit(0, 1, status="lost"), visit(1, 1, status="skipped", reason="silent")),
        *(visit(0, 2, status="dropped"), visit(1, 2, status="late")),
    ]
    assert [(c["client"], c["from"], c["to"], c["fate"]) for c in raster(visits, 2)] == [
        *((0, 0.5, 1.5, "trained"), (0, 1.5, 2.5, "lost"), (0, 2.5, 3.5, "refused")),
        *((1, 0.5, 1.5, "estimated"), (1, 1.5, 2.5, "silent"), (1, 2.5, 3.5, "late")),
    ]


def test_a_long_raster_shows_what_was_done_most_often() -> None:
    visits = [visit(client, version, status="lost" if version % 3 else "trained") for version in range(9) for client in
              range(4)]  # fmt: skip
    found = raster(visits, 4, columns=3, rows=2)
    assert {(c["client"], c["fate"]) for c in found} == {(0, "lost"), (2, "lost")}
    assert [(c["from"], c["to"]) for c in found[:3]] == [(0.5, 3.5), (3.5, 6.5), (6.5, 9.5)]
    assert [(c["rounds"], c["share"]) for c in found[:2]] == [("1 to 3", 1.0), ("4 to 6", 1.0)]


def test_a_client_that_takes_part_in_every_fourth_round_is_not_drawn_as_one_that_always_does() -> None:
    visits = [visit(client, version) for version in range(2000) for client in range(20) if version % 4 == client % 4]
    found = raster(visits, 20)
    assert {c["client"] for c in found} == set(range(20))
    assert sum(c["share"] * (c["to"] - c["from"]) for c in found) == pytest.approx(2000 * 5)
    assert max(c["share"] for c in found) < 0.5
    assert found[-1]["to"] == 2000.5


def test_clients_that_were_never_heard_of_have_their_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = Run.find("fedbuff", folder)
    monkeypatch.setattr(Subject, "visits", lambda *_: [visit(1, 0, finished=2.0), visit(3, 1, finished=2.0)])
    drawn = figures.draw("participation", [run]).to_dict()
    assert drawn["encoding"]["y"]["scale"]["domain"] == [0, 1, 2, 3]
    timeline = figures.draw("timeline", [run]).to_dict()
    assert timeline["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, 1, 2, 3]
    assert per_client([visit(1, 0, epochs=2.0)], 4) == [0.0, 2.0, 0.0, 0.0]


def test_what_is_left_out_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = Run.find("fedbuff", folder)
    long = [visit(c, v, started=v, finished=v + 1.0) for v in range(300) for c in range(5)]
    monkeypatch.setattr(Subject, "visits", lambda *_: long)
    monkeypatch.setattr(type(run), "clients", 200)
    titles = {name: json.dumps(figures.draw(name, [run]).to_dict()) for name in ("participation", "timeline", "epochs")}
    assert "100 of 200 clients, 2 rounds a column" in titles["participation"]
    assert "5 of 200 clients, the first 29 s of 300 s" in titles["timeline"]
    assert "client (100 of 200 shown)" in titles["epochs"]


def test_critical_rounds_that_follow_one_another_are_one_shade() -> None:
    critical = {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0}
    versions = [{"version": v, "measures": {"critical": c, "gradient_norm": 0.1}} for v, c in critical.items()]
    assert periods(versions) == [{"from": 0.5, "to": 2.5}, {"from": 3.5, "to": 4.5}]
    assert detectors(versions) == ["gradient_norm"]


def test_epochs_are_counted_by_round_and_by_client() -> None:
    visits = [visit(0, 0, epochs=2.0), visit(1, 0, epochs=4.0), visit(0, 1, epochs=1.0), visit(2, 1, steps=0)]
    assert per_round(visits) == [
        {"version": 1, "mean": 3.0, "total": 6.0},
        {"version": 2, "mean": 1.0, "total": 7.0},
    ]
    assert per_client(visits, 4) == [3.0, 4.0, 0.0, 0.0]


def arrivals() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Four updates by hand: two released as version 1, two as version 2, of which one began on version 0."""
    times = [(1.0, 0), (3.0, 0), (1.5, 0), (4.0, 1)]
    visits = [visit(i, v, dispatch=i, finished=t) for i, (t, v) in enumerate(times)] + [visit(9, 0, status="lost")]
    versions = [{"version": v, "accepted": a, "time": t} for v, a, t in ((0, 0, 0.0), (1, 2, 1.5), (2, 2, 4.0))]
    return visits, versions


def test_staleness_counts_versions_between() -> None:
    visits, versions = arrivals()
    assert [(v["dispatch"], to) for v, to in joined(visits, versions)] == [(0, 1), (2, 1), (1, 2), (3, 2)]
    assert staleness(visits, versions) == {0: 3, 1: 1}


def test_staleness_agrees_with_what_the_run_recorded(folder: Path) -> None:
    (run,) = Run.find("fedbuff", folder)
    subject = Subject([run])
    visits = subject.visits(run, "dispatch", "client", "version", "status", "reason", "finished")
    found = staleness(visits, subject.versions(run))
    history = run.history.iloc[1:]
    assert sum(found.values()) == history["accepted"].sum()
    total = sum(s * n for s, n in found.items())
    assert total == pytest.approx((history["staleness_mean"] * history["accepted"]).sum())
    assert max(found) == history["staleness_max"].max()


def test_a_buffer_fills_with_updates_and_is_emptied_by_versions() -> None:
    assert [(p["x"], p["y"]) for p in waiting(*arrivals())] == [
        *((0.0, 0.0), (1.0, 1.0), (1.5, 2.0), (1.5, 0.0)),
        *((3.0, 1.0), (4.0, 2.0), (4.0, 0.0)),
    ]


def test_a_timeline_follows_a_visit_from_its_start() -> None:
    seconds = {"down_seconds": 1.0, "compute_seconds": 2.0, "up_seconds": 0.0}
    drawn = spans([visit(3, started=5.0, finished=8.0, **seconds), visit(4, status="lost", finished=2.0, **seconds)])
    assert [(s["client"], s["from"], s["to"], s["doing"]) for s in drawn] == [
        *((3, 5.0, 6.0, "receiving"), (3, 6.0, 8.0, "computing")),
        (4, 0.0, 2.0, "lost or refused"),
    ]


def test_pacing_is_that_of_the_recipe(folder: Path) -> None:
    (run,) = Run.find("curriculum", folder)
    found = pacing(run.config)
    assert found is not None
    points = {point["x"]: point["y"] for point in in_use(found[0])}
    assert (points[0.0], points[0.4], points[0.8], points[1.0]) == (0.2, 0.6, 1.0, 1.0)  # linear, a = 0.8, b = 0.2
    assert pacing(Run.find("plain", folder)[0].config) is None


def test_groups_are_read_from_tests_by_device_and_by_client() -> None:
    row = {
        "groups": {"tier_1_accuracy": 0.9, "tier_1_loss": 0.1, "tier_2_accuracy": 0.7, "tier_1_balanced_accuracy": 0.4},
        "clients": {"accuracy_mean": 0.5, "accuracy_pooled": 0.6, "loss_mean": 1.0},
    }
    assert series(row, "accuracy") == {
        **{"tier 1": 0.9, "tier 2": 0.7},
        **{"mean over clients' own tests": 0.5, "all clients' own tests together": 0.6},
    }


def test_a_heat_map_has_a_cell_for_each_share_and_period(tmp_path: Path) -> None:
    runs = []
    for share, period, seed in ((0.0, 2, 0), (1.0, 2, 0), (1.0, 2, 1), (1.0, 4, 0)):
        recipe = pr.ccfl(cohort=4, batch=5, budgets=SlowShare(share_slow=share, period=period))
        runs.append(pr.run(experiment(recipe=recipe, seed=seed), out=tmp_path))
    last = [run.history["test_accuracy"].iloc[-1] for run in runs]
    assert [(c["r"], c["W"], c["result"], c["runs"]) for c in cells(Subject(runs), "test")] == [
        (0.0, 2, pytest.approx(last[0]), 1),
        (1.0, 2, pytest.approx((last[1] + last[2]) / 2), 2),
        (1.0, 4, pytest.approx(last[3]), 1),
    ]
    shown = {(row["r"], row["W"]): row["shown"] for row in rows(figures.draw("budgets", runs))}
    assert shown[1.0, 4] == pytest.approx(last[3] - last[0])
    assert "1 pairs" in figures.why_not("budgets", runs[:1])


def test_a_heat_map_keeps_ways_to_skip_apart(tmp_path: Path) -> None:
    budgets = {share: SlowShare(share_slow=share, period=2) for share in (0.0, 1.0)}
    recipes = [pr.ccfl(cohort=4, batch=5, budgets=budgets[0.0]), pr.ccfl(cohort=4, batch=5, budgets=budgets[1.0])]
    recipes.append(pr.fedavg(cohort=4, batch=5) | pr.parts.skip_silently(budgets=budgets[1.0]))
    runs = [pr.run(experiment(recipe=recipe, seed=0), out=tmp_path) for recipe in recipes]
    last = [run.history["test_accuracy"].iloc[-1] for run in runs]
    drawn = rows(figures.draw("budgets", runs))
    shown = {row["way"]: row["shown"] for row in drawn if row["r"] == 1}
    assert shown == {
        "moves as it did last": pytest.approx(last[1] - last[0]),
        "is left out": pytest.approx(last[2] - last[0]),
    }


def test_errors_of_estimates_are_means_over_the_visits_of_a_round() -> None:
    visits = [visit(c, v, measures={"estimate_model_error": e}) for c, v, e in ((0, 0, 1.0), (1, 0, 3.0), (0, 1, 5.0))]
    assert errors(visits) == [
        {"version": 1, "estimate_model_error": 2.0},
        {"version": 2, "estimate_model_error": 5.0},
    ]


def test_labels_are_those_of_the_federation(folder: Path) -> None:
    (run,) = Run.find("ccfl", folder)
    counts = federation().histogram()
    drawn = {(row["client"], row["class"]): row["samples"] for row in rows(figures.draw("labels", [run]))}
    assert drawn == {(str(i), str(c)): n for i, c in itertools.product(range(4), range(3)) if (n := counts[i, c])}


def test_rows_are_not_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = Run.find("ccfl", folder)
    many = [visit(c, v) for c in range(100) for v in range(100)]
    monkeypatch.setattr(Subject, "visits", lambda *_: many)
    monkeypatch.setattr(type(run), "clients", 100)
    assert len(rows(figures.draw("participation", [run]))) == 10_000


def test_fates_have_words_for_every_status() -> None:
    statuses = ("trained", "measured", "lost", "late", "unfinished")
    assert [fate(visit(status=status)) for status in statuses] == list(statuses)


DRAWS = """
import sys
from polyrhythm import figures
from polyrhythm.results import Run
figures.save(figures.draw("participation", Run.all(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes_in_another_process(folder: Path, tmp_path: Path) -> None:
    texts = []
    for number in range(2):
        file = tmp_path / f"{number}.svg"
        subprocess.run([sys.executable, "-c", DRAWS, str(folder), str(file)], check=True, timeout=120)
        texts.append(file.read_bytes())
    assert texts[0] == texts[1]


def test_a_page_asks_no_network(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    Run.find("ccfl", folder)[0].plot.epochs(save=page)
    text = page.read_text()
    assert "vegaEmbed" in text
    assert not any(f'{what}="http' in text for what in ("src", "href"))


def test_a_specification_is_plain_json(folder: Path) -> None:
    chart = figures.draw("loss", Run.find("ccfl", folder), theme="dark")
    assert json.loads(json.dumps(chart.to_dict()))["config"]["background"] == config("dark")["background"]
