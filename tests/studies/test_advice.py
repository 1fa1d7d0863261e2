"""Advice: what is measured of an experiment, what is near, how recipes stand there, and trying within a budget."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.config import names
from polyrhythm.experiments.dry_run import dry_run
from polyrhythm.fleet.survey import met, survey
from polyrhythm.report.markdown import escaped
from polyrhythm.results import Run
from polyrhythm.runs.paired import difference
from polyrhythm.studies.advice import advising, judging
from polyrhythm.studies.advice.advising import METHODS, Budget, local_settings, made
from polyrhythm.studies.advice.evidence import (
    FIRST,
    RESOURCES,
    RULE,
    Rule,
    Tried,
    evidence,
    nearest,
    ordered,
    standings,
    tried,
)
from polyrhythm.studies.advice.page import told
from polyrhythm.studies.advice.situation import Situation, situation, skew
from polyrhythm.studies.advice.trying import LEAST, _with_rate, attempt, candidates

HERE = Situation(skew=0.2, sizes=0.0, speeds=4.0, there=1.0, met=1.0, cohort=0.1, rounds=20.0)


def experiment(*, method: str = "fedavg(cohort=3, epochs=1)", rounds: int = 40, **how: Any) -> pr.Experiment:
    share = how.pop("validation", 0.1)
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.5), clients=10, seed=0, validation=share)
    recipe = names.recipe(method)
    return pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=rounds, **how)


def in_setting(name: str, rounds: float = 20.0, **scores: tuple[float, ...]) -> Tried:
    of = Situation(skew=0.2, sizes=0.0, speeds=4.0, there=1.0, met=1.0, cohort=0.1, rounds=rounds)
    return Tried(name=name, fleet="alike", situation=of, rates={}, scores=scores)


def test_skew_by_hand() -> None:
    """Each of two clients holds one of two classes: 0.5 from all, of which chance gives sqrt(1 / (100 pi))."""
    chance = math.sqrt(1 / (100 * math.pi))
    assert skew(np.array([[50, 0], [0, 50]])) == pytest.approx((0.5 - chance) / (1 - chance))
    assert skew(np.array([[50, 50], [50, 50], [0, 0]])) == 0.0
    assert skew(np.array([[50], [50]])) is None
    assert skew(np.zeros((3, 0), dtype=np.int64)) is None


def test_chance_alone_is_hardly_skew_however_small_clients_are() -> None:
    generator = np.random.default_rng(0)
    for size in (10, 100):
        drawn = skew(generator.multinomial(size, [0.1] * 10, size=500))
        assert drawn is not None
        assert drawn < 0.06


def test_a_situation_is_that_of_data_and_fleet() -> None:
    fleet = names.fleet("tiers(slowdown=[1, 8]) | periodic(period=86400, on=0.5)")
    of = situation(experiment(fleet=fleet), cohort=3, rounds=40, seconds=86400.0)
    assert of.speeds == pytest.approx(8.0)
    assert of.there == pytest.approx(0.5, abs=0.02)
    assert of.cohort == pytest.approx(0.3)
    assert of.met == 1.0
    assert of.skew is not None
    assert 0.2 < of.skew < 0.6


def test_who_is_met_is_who_is_there_by_then() -> None:
    """Half of the clients begin a day of which they are there for a half; by its end all have been there."""
    fleet = names.fleet("tiers(slowdown=[1, 8]) | periodic(period=86400, on=0.5)")
    shares = [met(fleet, 10, 0, seconds) for seconds in (0.0, 20_000.0, 43_300.0)]
    assert shares == sorted(shares)
    assert shares[0] < 1.0
    assert shares[-1] == 1.0
    assert met(fleet, 10, 0, 20_000.0) == (survey(fleet, 10, 0, horizon=20_000.0).share > 0.0).mean()
    assert met(names.fleet("uniform"), 10, 0, 0.0) == 1.0


def test_distances_by_hand() -> None:
    other = Situation(skew=0.5, sizes=9.0, speeds=16.0, there=0.6, met=0.6, cohort=0.4, rounds=40.0)
    steps = {"skew": 1.0, "speeds": 1.0, "there": 1.0, "met": 1.0, "cohort": 1.0, "rounds": 1.0}
    assert HERE.apart(other) == pytest.approx(steps)
    assert HERE.distance(other) == pytest.approx(math.sqrt(6))
    assert HERE.distance(HERE) == 0.0


def test_a_setting_is_taken_at_its_nearest_budget() -> None:
    known = [in_setting("a", rounds=5), in_setting("a", rounds=25), in_setting("b", rounds=10)]
    near = nearest(HERE, known)
    assert [(one.name, one.situation.rounds) for _, one in near] == [("a", 25), ("b", 10)]
    assert [distance for distance, _ in near] == pytest.approx([math.log2(1.25), 1.0])


def test_standings_by_hand() -> None:
    near = [
        in_setting("a", FedAvg=(0.5, 0.5), One=(0.6, 0.7), Two=(0.4, 0.5)),
        in_setting("b", FedAvg=(0.8, 0.6), One=(0.7, 0.7), Two=(0.4, 0.5)),
    ]
    order = standings(near)
    assert [one.recipe for one in order] == ["One", "FedAvg", "Two"]
    gains = [(0.1 - 0.1) / 2, (0.2 + 0.1) / 2]  # of a seed, over the settings
    assert order[0].gain.mean == pytest.approx(sum(gains) / 2)
    assert order[0].gain.low == pytest.approx(difference(gains).low)
    assert order[0].gain.n == 2
    assert order[0].gain.holm == pytest.approx(max(2 * min(order[0].gain.p, order[2].gain.p), order[0].gain.p))  # type: ignore[type-var]
    assert [one.best for one in order] == [0.75, 0.25, 0.0]


def test_standings_by_what_settings_count() -> None:
    near = [
        in_setting("a", FedAvg=(0.5, 0.5), One=(0.6, 0.7), Two=(0.4, 0.5)),
        in_setting("b", FedAvg=(0.8, 0.6), One=(0.7, 0.7), Two=(0.9, 0.9)),
    ]
    order = standings(near, [0.25, 0.75])
    assert [one.recipe for one in order] == ["Two", "One", "FedAvg"]
    assert order[0].gain.mean == pytest.approx(0.25 * -0.05 + 0.75 * 0.2)
    assert [one.best for one in order] == pytest.approx([0.75, 0.25, 0.0])
    assert ordered(near, [0.25, 0.75]) == ["Two", "One", "FedAvg"]
    assert ordered(near, [0.5, 0.5]) == [one.recipe for one in standings(near)]


def test_weights_by_hand() -> None:
    at = [0.0, 1.0, 2.0]
    assert Rule(many=2).weights(at) == pytest.approx([0.5, 0.5, 0.0])
    assert Rule().weights(at) == pytest.approx([1 / 3] * 3)
    near = [1.0, math.exp(-0.5), math.exp(-2.0)]
    assert Rule(width=1.0).weights(at) == pytest.approx([one / sum(near) for one in near])
    assert Rule(many=1, width=1.0, overall=3.0).weights(at) == pytest.approx([0.5, 0.25, 0.25])
    assert Rule(width=0.5, overall=0.3).weights([90.0, 91.0]) == pytest.approx([0.5, 0.5])  # far from everything
    assert Rule(width=0.5).weights([90.0, 91.0]) == [1.0, 0.0]


@pytest.mark.parametrize("given", ["time", "time=0", "time=-3", "time=inf", "time=much", {}, {"time": 1, "bytes": 1}])
def test_a_budget_that_is_none(given: Any) -> None:
    with pytest.raises(UserError, match="a budget of"):
        Budget.of(given)


def test_an_unknown_resource() -> None:
    with pytest.raises(UserError, match="did you mean 'joules'"):
        Budget.of("joule=3")


@pytest.mark.parametrize(
    "method",
    [
        "fedavg(cohort=3)",
        "fedavg(steps=7, batch=none, lr=0.02, momentum=0.9, nesterov=true, clip=5)",
        "fedbuff(concurrency=4, optimiser=adam, lr=0.002, weight_decay=0.01)",
        "fedprox(epochs=0.5, optimiser=adamw)",
    ],
)
def test_local_settings_are_carried_over(method: str) -> None:
    recipe = names.recipe(method)
    for name in ("FedAvg", "FedProx", "FedBuff", "ALT", "CC-FedAdam", "HeteroFL", "FedAvg by sweeps"):
        again = made(METHODS[name].format(cohort=recipe.cohort, local=local_settings(recipe)))
        assert again.cohort == recipe.cohort, name
        assert again.batch == recipe.batch
        assert (again.work, again.optimiser) == (recipe.work, recipe.optimiser)


def test_what_an_experiment_does_not_allow_is_left_out() -> None:
    found = pr.advise(experiment(method="fedavg(cohort=3, optimiser=adam)"))
    assert not {"SCAFFOLD", "HeteroFL"} & {one.recipe for one in found.suggestions}
    assert any("SCAFFOLD is left out: control_variates with local_adam" in note for note in found.notes)
    assert any("HeteroFL is left out" in note for note in found.notes)  # of a logistic model there are no parts


def test_the_table_that_comes_along() -> None:
    table = evidence()
    assert {"date", "polyrhythm", "command"} <= table["made"].keys()
    for resource in RESOURCES:
        known, held_out = tried(table, resource), tried(table, resource, held_out=True)
        assert known
        assert held_out
        for one in (*known, *held_out):
            assert one.scores.keys() == METHODS.keys() == one.rates.keys()
            assert all(0.0 < value < 1.0 for values in one.scores.values() for value in values)
        assert not {one.name for one in known} & {one.name for one in held_out}


def test_left_out_is_what_is_like_it() -> None:
    """Where the only other setting is on the same fleet, or of the same place, that it knows it or not decides."""
    table = evidence()
    of = {(one["name"], one["fleet"]): one for one in table["settings"] if not one["held_out"]}
    (name, fleet), *rest = of
    same_place = next(key for key in rest if key[0] == name)
    same_fleet = next(key for key in rest if key[1] == fleet)
    for other, known in ((same_place, {"fleets"}), (same_fleet, {"places"})):
        two = {**table, "settings": [of[name, fleet], of[other]]}
        assert {what for what in get_args(judging.Left) if judging.left_out(two, what=what)} == known


def test_the_page_says_what_the_table_gives() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results" / "heterogeneity-pays.md").read_text(encoding="utf-8")
    found = told(evidence())
    assert f"**Verdict:** {found.verdict}." in page
    for table in found.tables:
        for row in table.rows:
            assert f"| {' | '.join(map(escaped, row))} |" in page


def test_the_order_is_that_of_the_nearest_settings() -> None:
    found = pr.advise(experiment())
    assert found.budget == Budget(resource="updates", amount=120.0)
    assert found.situation.rounds == 40
    every = nearest(found.situation, tried(evidence(), "updates"))
    order = standings([one for _, one in every], RULE.weights([distance for distance, _ in every]))
    assert [one.distance for one in found.near] == [distance for distance, _ in every[:3]]
    assert [one.recipe for one in found.suggestions] == [one.recipe for one in order if one.recipe != "HeteroFL"]
    assert found.suggestions[0].method.partition("(")[2].startswith(("cohort=3", "concurrency=3", "mu=", "sco", "sca"))
    assert json.loads(json.dumps(found.plain()))["budget"] == {"resource": "updates", "amount": 120.0}


def test_a_budget_pays_for_rounds_by_what_they_cost() -> None:
    """A round of 3 visits, of a model of 650 weights in 4 bytes, both ways."""
    each = 3 * 2 * 650 * 4
    assert pr.advise(experiment(), {"bytes": 12.5 * each}).situation.rounds == 12
    with pytest.raises(UserError, match="ten rounds"):
        pr.advise(experiment(), {"bytes": 0.5 * each})
    free = names.fleet("uniform | energy(joules_per_flop=0, joules_per_byte=0)")
    with pytest.raises(UserError, match="of which a round costs nothing"):
        pr.advise(experiment(fleet=free), "joules=3")


def test_a_slow_machine_counts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are counted by visits, not until some time is over: a try that goes on elsewhere finds the same rounds."""
    asked = list[tuple[int | None, dict[str, Any]]]()

    def counted(prepared: Any, **limits: Any) -> Any:
        asked.append((prepared.experiment.rounds, limits))
        return dry_run(prepared, **limits)

    monkeypatch.setattr(advising, "dry_run", counted)
    assert pr.advise(experiment(), "updates=1e6").situation.rounds == 333_333
    assert asked == [(30, {})]
    pr.advise(experiment(), "updates=120")
    assert asked[1:] == [(30, {}), (40, {})]


def test_where_the_evidence_does_not_reach_it_says_so() -> None:
    near, far = pr.advise(experiment(rounds=60)), pr.advise(experiment(rounds=60_000))
    assert not far.reaches
    assert far.near[0].distance > near.near[0].distance
    assert any("does not reach this experiment" in note and "rounds" in note for note in far.notes)
    piped = pr.advise(experiment(method="fedavg(cohort=3) | compress_int8"))
    assert any("compress_int8" in note for note in piped.notes)


def test_advice_needs_an_end() -> None:
    endless = pr.Experiment(
        federation=experiment().federation, model="logistic", recipe=pr.fedavg(cohort=3), until=pr.Until(accuracy=0.9)
    )
    with pytest.raises(UserError, match="an experiment whose end nobody knows"):
        pr.advise(endless)
    assert pr.advise(endless, "updates=60").situation.rounds == 20


def test_another_rate_leaves_what_is_piped_on() -> None:
    texts = candidates(pr.advise(experiment()))
    swept = [text for text in texts if text.endswith(" | sweep")]
    assert len(swept) in (0, 3)
    assert _with_rate("fedavg(cohort=3, lr=0.1) | sweep", 3.0) == "fedavg(cohort=3, lr=0.3) | sweep"


def test_fedavg_is_always_tried() -> None:
    texts = candidates(pr.advise(experiment()))
    assert len(texts) == len({*texts}) == 12
    plain = [text for text in texts[:4] if text.startswith("fedavg(") and "|" not in text]
    assert len(plain) == 1


def test_trying_stays_within_the_budget_and_chooses_by_validation(tmp_path: Path) -> None:
    some = experiment(rounds=2 * LEAST * 4)  # enough for four candidates and two rungs
    advice = pr.advise(some)
    choice = attempt(advice, some, out=tmp_path)
    assert [len(rung.trials) for rung in choice.rungs] == [4, 2]
    assert 0.5 * advice.budget.amount < choice.spent <= advice.budget.amount
    best = choice.rungs[-1].trials[0]
    assert (choice.method, choice.score) == (best.setting["method"], best.score)
    (run,) = best.runs.values()
    rows = [row for row in Run.open(run, tmp_path).versions if row["validation"]]
    assert choice.score == rows[-1]["validation"]["accuracy"]
    first = [trial.setting["method"] for trial in choice.rungs[0].trials[:2]]
    assert {trial.setting["method"] for trial in choice.rungs[1].trials} == {*first}
    plain = choice.method.startswith("fedavg") and "|" not in choice.method  # whose rounds all cost the same
    assert choice.rounds == some.rounds or not plain


def test_a_try_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    some = experiment(rounds=2 * LEAST)
    advice = pr.advise(some)
    done = list[str]()

    class Stops:
        """A listener that stops it after the first trial."""

        def begin(self, plan: Any, record: Any) -> None: ...
        def version(self, *of: Any) -> None: ...
        def compared(self, *of: Any) -> None: ...
        def end(self) -> None: ...
        def tried(self, trial: Any) -> None:
            done.append(trial.runs[0])
            if len(done) == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(advice, some, out=tmp_path, listener=Stops())
    choice = attempt(advice, some, out=tmp_path, listener=Stops())
    assert len(Run.all(tmp_path)) == 2
    assert done[0] in {run for trial in choice.rungs[0].trials for run in trial.runs.values()}


def test_the_tries_of_another_experiment_are_refused(tmp_path: Path) -> None:
    some = experiment(rounds=2 * LEAST)
    attempt(pr.advise(some), some, out=tmp_path)
    other = replace(some, seed=some.seed + 1)
    with pytest.raises(UserError, match="is of another study"):
        attempt(pr.advise(other), other, out=tmp_path)
    assert attempt(pr.advise(other), other, out=tmp_path, name="other").rungs[0].name == "other rung 1"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedavg(cohort=3)", ""),
        ("fedavg(cohort=3) | sweep", ""),
        ("fedprox(cohort=3, mu=1.0)", "prox(mu=1)"),
        ("fedavg(cohort=3, drop_last=true)", "drop_last=True"),
        ("fedbuff(concurrency=6, buffer=2)", "buffer(size=2)"),
        ("ditto(cohort=3)", "personal_copy(strength="),
    ],
)
def test_what_the_recipes_do_not_have_is_told(method: str, words: str) -> None:
    notes = [note for note in pr.advise(experiment(method=method)).notes if "no recipe has these parts" in note]
    assert len(notes) == bool(words)
    assert not words or words in notes[0]


@pytest.mark.parametrize("given", [30, ("updates", 30), {}, None])
def test_a_budget_or_an_experiment_of_another_kind_is_refused(given: Any) -> None:
    with pytest.raises(UserError):
        pr.advise(experiment(), given) if given is not None else pr.advise("own.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "words"), [({"validation": 0.0}, "without validation data"), ({"rounds": 9}, "two candidates would have")]
)
def test_what_cannot_be_tried(how: dict[str, Any], words: str, tmp_path: Path) -> None:
    some = experiment(**{"rounds": 20, **how})
    with pytest.raises(UserError, match=words):
        attempt(pr.advise(some), some, out=tmp_path)
    assert not Run.all(tmp_path) if (tmp_path / "runs.sqlite").exists() else True


def test_regret_by_hand() -> None:
    of = in_setting("a", FedAvg=(0.5, 0.7), One=(0.8, 0.8), Two=(0.7, 0.7), Three=(0.1, 0.1))
    case = judging.Case(resource="time", of=of, distance=1.0, order=("Two", "Three", "FedAvg", "One"))
    assert case.best == "One"
    assert case.regret(judging.ADVISED) == pytest.approx(0.1)
    assert case.regret(judging.FIRST_THREE) == pytest.approx(0.1)
    assert case.regret(FIRST) == pytest.approx(0.2)
    other = judging.Case(resource="bytes", of=in_setting("b", FedAvg=(0.5,), One=(0.9,)), distance=1.0, order=("One",))
    again = judging.Case(resource="bytes", of=of, distance=1.0, order=("One",))
    found = judging.by_place([case, again, other], lambda one: one.regret(judging.ADVISED))
    assert found.mean == pytest.approx((0.05 + 0.0) / 2)  # a place counts once, however many budgets it has
    assert found.n == 2
