"""Parts of a user's own file: on every engine, in text, refused in words, and estimated like any other."""

from __future__ import annotations

import functools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyrhythm as pr
from golden_nodes import on_nodes
from own_parts import Balanced, Deaf, EveryFew, Halving, InTurn, Lean, StopApart, leaning, method
from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.cli.consenting import consented
from polyrhythm.config import names
from polyrhythm.config.overrides import put_inside
from polyrhythm.experiments.dry_run import dry_run
from polyrhythm.experiments.prepared import prepare
from polyrhythm.simulation.workers import choosing
from small import experiment
from terminal import Command

ENGINES = ("auto", "torch", "native", "stacked")
PARTS: tuple[Settings, ...] = (StopApart(distance=0.3), Lean(strength=0.1), EveryFew(count=2), InTurn(cohort=3))
MINE = Trust(("own_parts",))


def with_parts(*parts: Settings, **changes: Any) -> pr.Experiment:
    recipe = functools.reduce(operator.or_, parts, pr.fedavg(cohort=3, epochs=3, batch=8, lr=0.3))
    return experiment(**{"model": "mlp", "recipe": recipe, "rounds": 3} | changes)


def run_of(*parts: Settings, out: Path, **how: Any) -> pr.Run:
    return pr.run(with_parts(*parts), execution=pr.Execution(**how), out=out)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_an_order_may_draw_rare_classes_as_often_as_others(engine: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    rare = np.arange(400) % 20 == 0
    data = pr.data.arrays(draws.normal(size=(400, 8)) + rare[:, None], rare)
    split, judged = pr.federate(data, pr.data.Iid(), clients=4, seed=0), pr.task("classification", metrics=("recall",))
    values: dict[str, Any] = {"federation": split, "model": "logistic", "task": judged, "rounds": 3}
    plain, balanced = (
        pr.run(pr.Experiment(recipe=recipe, **values), execution=pr.Execution(engine=engine), out=tmp_path)
        for recipe in (pr.fedavg(cohort=4), pr.fedavg(cohort=4) | Balanced())
    )
    assert balanced.summary["final_accuracy"] > plain.summary["final_accuracy"] + 0.2  # of the headline, recall


def invited(run: pr.Run) -> list[tuple[int, int, int]]:
    """Who was invited on which version, and how many steps it took."""
    visits = run.visits
    return list(zip(visits["client"], visits["version"], visits["steps"], strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_they_work_on_every_engine(engine: str, tmp_path: Path) -> None:
    reference, found = (run_of(*PARTS, engine=which, out=tmp_path / which) for which in ("torch", engine))
    assert invited(found) == invited(reference)
    assert [client for client, version, _ in invited(found) if version == 0] == [0, 1, 2]
    assert min(steps for *_, steps in invited(found)) < max(steps for *_, steps in invited(found))
    assert found.summary["final_accuracy"] == reference.summary["final_accuracy"]
    if engine == "stacked":  # which takes whole rounds of several clients at once
        (why,) = (notice for notice in found.notices if notice.startswith("engine: torch"))
        assert "stop_apart looks at each batch" in why


@pytest.mark.parametrize("driver", ["processes", "threads"])
def test_they_work_in_workers(driver: str, tmp_path: Path) -> None:
    inline, others = (
        run_of(*PARTS, driver=which, workers=workers, out=tmp_path / which)
        for which, workers in (("inline", None), (driver, 2))
    )
    assert others.summary["digest"] == inline.summary["digest"]


def test_they_work_on_real_nodes(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return with_parts(*(part for part in PARTS if not isinstance(part, EveryFew)), Deaf())

    run = on_nodes(made, pr.Execution(), tmp_path)
    assert run.summary["digest"] == pr.run(made(), out=tmp_path / "here").summary["digest"]
    assert "skipped" in set(run.visits["status"])


@pytest.mark.parametrize("part", [part for part in PARTS if not isinstance(part, StopApart)])
@pytest.mark.parametrize("engine", ["native", "stacked"])
def test_an_engine_takes_those_that_look_at_no_batch(part: Settings, engine: str) -> None:
    assert prepare(with_parts(part), pr.Execution(engine=engine)).chosen.kind == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_representation_is_the_same_error_on_every_engine(engine: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        run_of(StopApart(watch="0"), engine=engine, out=tmp_path)
    assert str(caught.value).startswith("unknown representation '0'")
    assert not Path(tmp_path / "runs.sqlite").exists()  # before anything began


@pytest.mark.parametrize("engine", ENGINES)
def test_a_representation_that_nobody_was_told_of_is_the_same_error_on_every_engine(
    engine: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="which none of them watches") as caught:
        run_of(StopApart(says=False), engine=engine, out=tmp_path)
    assert "stop_apart" in str(caught.value)
    assert "`watches`" in caught.value.fix


def test_two_that_decide_the_same_are_refused() -> None:
    with pytest.raises(UserError, match="stop_apart and stop_on_drift") as caught:
        with_parts(StopApart(), pr.parts.stop_on_drift())
    assert caught.value.expected == "one part that decides when a client stops"
    with pytest.raises(UserError, match="deaf and skip_silently"):
        with_parts(Deaf(), pr.parts.skip_silently())


def test_a_visit_that_may_stop_is_not_foreseen_where_places_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "cores", lambda: 8)
    rolling = (pr.parts.rolling(concurrency=3), EveryFew(count=2))
    elsewhere = pr.Execution(driver="processes", engine="torch")
    assert prepare(with_parts(*rolling), elsewhere).crew.workers == 3
    assert prepare(with_parts(*rolling, StopApart()), elsewhere).crew.workers == 1


def test_a_dry_run_asks_what_guesses() -> None:
    assert dry_run(prepare(with_parts(*PARTS[1:]))).guessed == ()
    assert dry_run(prepare(with_parts(*PARTS))).guessed == ("stop_apart",)
    assert dry_run(prepare(with_parts(pr.parts.stop_on_drift(b=0)))).guessed == ("stop_on_drift",)


TEXT = "own_parts:InTurn(cohort=2) | own_parts:Lean(strength=0.25) | own_parts:StopApart(watch=features) | prox(mu=0.1)"


def test_they_are_named_by_import_path_and_settings() -> None:
    made = names.recipe(f"fedavg | {TEXT}", MINE)
    parts = (InTurn(cohort=2), Lean(strength=0.25), StopApart(watch="features"), pr.parts.prox(mu=0.1))
    assert made.digest == functools.reduce(operator.or_, parts, pr.fedavg()).digest
    assert names.recipe("fedavg | own_parts:leaning(strength=2)", MINE).corrections == (leaning(strength=2),)
    assert names.recipe("own_parts:method(cohort=4) | prox", MINE).digest == (method(cohort=4) | pr.parts.prox()).digest
    assert names.recipe("fedavg(schedule=own_parts:Halving)", MINE).schedule == Halving()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fedavg | own_parts:Lean(strength=-1)", "lean: strength = -1"),
        ("fedavg | own_parts:Lean(strenth=1)", "did you mean 'strength'?"),
        ("fedavg | own_parts:InTurn(begin=lst)", "did you mean 'last'?"),
        ("fedavg | own_parts:leaning(strength=-1)", "leaning: strength = -1"),
        ("fedavg | own_parts:Leen", "did you mean 'Lean'?"),
        ("fedavg | own_parts:method", "a whole recipe (mine | lean) on the right of a pipe"),
        ("own_parts:Lean", 'write "fedavg | own_parts:Lean"'),
        ("fedavg | worker_models:Fussy", "a class that is no one of the bases in pr.extend"),
        ("fedavg | own_parts:Halving | own_parts:Lean(strength=1, strength=2)", "strength is given twice"),
        ("fedavg(schedule=own_parts:Lean)", "schedule"),
    ],
)
def test_what_is_wrong_with_one_is_said_as_of_any_other(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        names.recipe(text, Trust(("own_parts", "worker_models")))
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["fedavg | own_parts:Lean", "own_parts:method", "fedavg(schedule=own_parts:Halving)"])
def test_none_is_imported_that_nobody_has_named(text: str) -> None:
    with pytest.raises(UserError, match="you have not named own_parts"):
        names.recipe(text, NOBODY)


def test_a_path_that_was_typed_is_named() -> None:
    def typed(method: str) -> tuple[str, ...]:
        return consented(None, {"method": method}).modules

    assert typed(f"fedavg | {TEXT}") == ("own_parts",)
    assert typed("a:b | prox | c.d:E(rule=f:G(h=[i:J]))") == ("a", "c.d", "f", "i")
    assert typed("fedavg(") == typed("fedavg | prox(mu=1)") == ()
    assert consented(None, settings=["method=fedavg | a:B", "method.prox.mu=c:D"]).modules == ("a",)


def test_a_setting_of_one_is_put_into_it() -> None:
    for name in ("lean", "Lean"):
        values: dict[str, Any] = {"method": f"fedavg | {TEXT}"}
        put_inside(values, f"method.{name}.strength", 3)
        assert "own_parts:Lean(strength=3)" in values["method"]


def test_files_and_commands_take_them(polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f'rounds = 2\nclients = 4\nmethod = ["fedavg", "{TEXT}"]\n')
    refused = polyrhythm("check", "mine.toml", "--no-estimate")
    assert refused.code == 2
    assert refused.err.count("--trust own_parts") == 3, refused.err  # one for each part
    assert polyrhythm("check", "mine.toml", "--no-estimate", "--trust", "own_parts").code == 0
    done = polyrhythm("run", "--rounds", "2", "--clients", "4", "--method", f"fedavg | {TEXT}", "--json")
    assert done.code == 0, done.err
    (run,) = pr.Run.all("runs")
    assert polyrhythm("verify", run.id).code == 2
    assert polyrhythm("verify", run.id, "--trust", "own_parts").code == 0
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft7Validator(json.loads(polyrhythm("schema").out))
    assert validator.is_valid({"method": f"fedavg | {TEXT}"})
    assert validator.is_valid({"method": ["own_parts:method(cohort=2)", "own_parts:Lean"]})
    assert not validator.is_valid({"method": "fedavg | own_parts:"})
