"""Studies that run: the same trials and choice for any number of workers, and however often they are stopped."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.results import Run
from polyrhythm.studies import AtScale, Claim, ColumnSearch, Plan, Range, Search, Study, StudyResult, planned
from polyrhythm.studies.running.executing import carry_out, judged
from polyrhythm.studies.running.performing import Ending, Job
from polyrhythm.studies.running.trials import Record, Trial
from polyrhythm.studies.space import Setting
from small import federation
from study_makers import made, stumbling

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
RATES = {"lr": (0.001, 0.5, 0.1)}


def tune(make: Any = made, fresh: tuple[int, ...] = (), **search: Any) -> Study:
    """One row, or several."""
    rows = make if isinstance(make, dict) else {"": make}
    return Study(name="s", rows=rows, seeds=fresh, search=Search(**{"space": RATES} | search))


class Stops:
    """Ctrl-C once so many versions were made."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.begun: list[str] = []

    def begin(self, plan: Plan, record: Record) -> None: ...

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        self.begun.append(f"{job.name}:{job.seed}:{version}")
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def tried(self, trial: Trial) -> None: ...

    def compared(self, job: Job, ending: Ending) -> None: ...

    def end(self) -> None: ...


def outcome(found: StudyResult) -> list[dict[str, Any]]:
    """All that does not depend on when it was run."""
    return [{k: v for k, v in row.items() if k != "runs"} for row in found.rows()]


def test_trials_are_runs_and_the_best_on_validation_is_chosen(tmp_path: Path) -> None:
    found = pr.study(tune(seeds=(0, 1)), out=tmp_path, workers=1)
    runs = {(run.name, run.seed): run for run in Run.all(tmp_path)}
    assert set(runs) == {(f"s/{n}", seed) for n in (1, 2, 3) for seed in (0, 1)}
    for trial in found.trials:
        history = [runs[f"s/{trial.number}", seed].history["validation_accuracy"].iloc[-1] for seed in (0, 1)]
        assert trial.score == pytest.approx(sum(history) / 2)
        assert list(trial.runs.values()) == [runs[f"s/{trial.number}", seed].id for seed in (0, 1)]
    chosen = found.best()
    assert chosen is not None
    assert chosen.score == max(trial.score or 0 for trial in found.trials)
    assert outcome(StudyResult.open("s", tmp_path)) == outcome(found)
    assert list(found.table()["lr"]) == [0.001, 0.5, 0.1]


def test_a_finished_study_runs_nothing_again_and_may_be_made_longer(tmp_path: Path) -> None:
    space = {"lr": Range(low=0.01, high=1.0, log=True)}
    short = tune(space=space, kind="random", trials=2)
    first = outcome(pr.study(short, out=tmp_path, workers=1))
    assert outcome(pr.study(short, out=tmp_path, workers=1)) == first
    assert len(Run.all(tmp_path)) == 2
    longer = pr.study(tune(space=space, kind="random", trials=3), out=tmp_path, workers=1)
    assert outcome(longer)[:2] == first
    assert len(Run.all(tmp_path)) == 3


def test_another_study_of_that_name_is_refused(tmp_path: Path) -> None:
    pr.study(tune(), out=tmp_path, workers=1)
    with pytest.raises(pr.UserError, match=r"another study 's': they differ in seeds, space\.lr"):
        pr.study(tune(seeds=(3,), space={"lr": (0.2, 0.3)}), out=tmp_path, workers=1)


@needs_optuna
@pytest.mark.parametrize("stop", [1, 7, 16])
def test_a_stopped_study_goes_on_to_the_same_trials(tmp_path: Path, stop: int) -> None:
    space = {"lr": Range(low=0.001, high=1.0, log=True), "epochs": Range(low=1, high=3)}
    whole = tune(space=space, kind="tpe", trials=5, batch=2, fresh=(5,), prune=2)
    undisturbed = pr.study(whole, out=tmp_path / "a", workers=1)
    stops = Stops(stop)
    with pytest.raises(KeyboardInterrupt):
        pr.study(whole, out=tmp_path / "b", workers=1, listener=stops)
    rest = Stops(10**9)
    resumed = pr.study(whole, out=tmp_path / "b", workers=1, listener=rest)
    assert outcome(resumed) == outcome(undisturbed)
    assert [run.summary["digest"] for run in resumed.runs("")] == [
        run.summary["digest"] for run in undisturbed.runs("")
    ]
    # Nothing was made twice but what the run under way had made since its last checkpoint.
    twice = set(stops.begun) & set(rest.begun)
    assert len(twice) <= 2


@needs_optuna
def test_workers_change_nothing(tmp_path: Path) -> None:
    space = {"lr": Range(low=0.001, high=1.0, log=True)}
    rows = {"one": made, "two": made}
    whole = tune(rows, space=space, kind="tpe", trials=4, batch=2, seeds=(0, 1), fresh=(5,), prune=2)
    found = [outcome(pr.study(whole, out=tmp_path / str(n), workers=n)) for n in (1, 2)]
    assert found[0] == found[1]
    digests = [{(run.name, run.seed): run.summary["digest"] for run in Run.all(tmp_path / str(n))} for n in (1, 2)]
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_a_trial_that_kills_them_has_failed(tmp_path: Path) -> None:
    folder = tmp_path / "fuses"
    folder.mkdir()
    for name in ("0.1-0", "0.5-0", "0.5-1"):
        (folder / name).write_text("")
    listed = tuple({"lr": lr, "folder": str(folder)} for lr in (0.1, 0.5, 0.2))
    plan = planned(tune(stumbling, space={}, settings=listed, kind="list"))
    found = carry_out(plan, tmp_path / "out", 2)  # looking at the settings beforehand would kill this process
    assert [trial.state for trial in found.trials] == ["finished", "failed", "finished"]
    assert "2 processes died in it (signal 9)" in found.trials[1].reason
    again = carry_out(plan, tmp_path / "out", 1)
    assert [trial.state for trial in again.trials] == ["finished"] * 3


def test_a_trial_that_diverges_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    space = {"lr": (1e38, 0.1)}
    found = pr.study(tune(space=space), out=tmp_path, workers=1)
    assert [trial.state for trial in found.trials] == ["failed", "finished"]
    assert "(seed 0)" in found.trials[0].reason
    assert found.best().number == 2  # type: ignore[union-attr]


def test_runs_that_are_behind_are_stopped_by_earlier_batches(tmp_path: Path) -> None:
    space = {"lr": (0.2, 0.3, 0.4, 1e-9)}
    whole = tune(space=space, prune=1, batch=3, seeds=(0, 1))
    found = pr.study(whole, out=tmp_path, workers=1)
    assert [trial.state for trial in found.trials] == ["finished"] * 3 + ["pruned"]
    last = found.trials[3]
    assert last.reason.startswith("pruned: accuracy ")
    assert len(last.runs) == 1
    (run,) = pr.Run.find("s/4", tmp_path)
    assert run.status == "stopped"
    assert run.history.index[-1] < 4


def test_each_row_has_its_best_and_they_are_compared_over_fresh_seeds(tmp_path: Path) -> None:
    rates = {"slow": {"lr": (1e-4, 1e-3)}, "quick": {"lr": (0.1, 0.5)}}
    whole = tune({"slow": made, "quick": made}, space={}, rows=rates, fresh=(7, 8))
    found = pr.study(whole, out=tmp_path, workers=1)
    table = found.comparison().results()
    assert [(entry["method"], entry["seeds"]) for entry in table] == [("s/slow/best", [7, 8]), ("s/quick/best", [7, 8])]
    assert table[1]["final_accuracy"]["mean"] > table[0]["final_accuracy"]["mean"]


def untouched(setting: Setting, seed: int) -> pr.Experiment:
    return made(setting, seed, federation=federation())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"make": untouched}, "without validation data"),
        ({"space": {"lr": (0.1, -1.0)}}, r"lr = -1\.0: .*lr = -1"),
        ({"kind": "random"}, "without trials"),
        ({"trials": 3}, "and 3 trials"),
        ({"kind": "random", "trials": 4}, "4 trials of a space with 3 settings"),
        ({"fresh": (0,)}, r"seeds \[0\] are tried and compared"),
        ({"space": {"lr": Range(low=0.1, high=1.0)}}, "a range in a grid"),
        ({"make": {"a": made, "b": made}, "rows": {"b": {"lr": (0.1,)}}}, "3 trials for a and 1 trials for b"),
        ({"kind": "list"}, "0 listed settings and 1 keys"),
        ({"space": {}}, "has nothing to try"),
        ({"seeds": ()}, "a search without seeds"),
        ({"make": {"a/b": made}, "rows": {}}, "without slashes"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        pr.study(tune(**changes), out=tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "a/b", ".a", "best"])
def test_no_run_can_have_every_name(name: str) -> None:
    with pytest.raises(pr.UserError, match="the name"):
        Study(name=name, rows={"": made})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": {}}, "no rows"),
        ({"columns": {}}, "no columns"),
        ({"rows": {"A": {"lr": 0.1}}}, "make="),
        ({"measure": "mean"}, "unknown measure 'mean'"),
        ({"claims": (Claim(says="more", of="A", against="C"),)}, "unknown row 'C' in the claim 'more'"),
        ({"claims": (Claim(says="more", of="A", rising=True, columns=("x",)),)}, "unknown column 'x'"),
        ({"search": Search(rows={"C": {"lr": (1.0,)}})}, "unknown row 'C' in the search"),
        ({"search": Search(space=RATES, column="x")}, "unknown column 'x' in the search"),
        ({"scales": {"quick": AtScale(rows=("C",))}}, "unknown row 'C' in the scale quick"),
    ],
)
def test_names_of_a_study_are_there(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        Study(**{"name": "s", "rows": {"A": made}} | changes)


@pytest.mark.parametrize(
    "changes",
    [{"against": ""}, {"measure": "mean"}, {"at": "money"}, {"grows_over": ("x",)}, {"more_than": "2"}, {"of": 1}],
)
def test_a_claim_compares_something(changes: dict[str, Any]) -> None:
    with pytest.raises(pr.UserError, match="the claim 'more': "):
        Claim(**{"says": "more", "of": "A", "against": "B"} | changes)


def test_settings_are_chosen_in_one_column_for_all_and_compared_over_other_seeds(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"few": {"epochs": 1}, "many": {"epochs": 2}}
    search = Search(space=RATES, column="few", seeds=(7,))
    what = Study(name="s", rows={"A": made, "B": made}, columns=columns, seeds=(0,), search=search)
    found = pr.study(what, out=tmp_path, workers=1)
    assert found.arms == ("A, few", "B, few")
    assert {run.name for run in Run.all(tmp_path)} == {
        *(f"s/{row}/few/{trial}" for row in "AB" for trial in (1, 2, 3)),
        *(f"s/{row}/{column}/best" for row in "AB" for column in columns),
    }
    (run,) = found.runs("B, many")
    chosen = found.best("B, few")
    assert chosen is not None
    assert f"'lr': {chosen.setting['lr']}" in str(run.config["method"])
    assert found.page is not None
    assert "Chosen for B, many" in found.page.read_text()


def test_a_column_may_have_other_values_and_a_scale_wins_over_its_keys(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"few": {"epochs": 1}, "many": {"epochs": 2}}
    own = ColumnSearch(space={"lr": [0.1, 0.2]}, over={"epochs": 3})
    search = Search(space=RATES, seeds=(7,), columns={"many": own})
    what = Study(name="s", rows={"A": made}, columns=columns, seeds=(0,), search=search)
    found = pr.study(what, out=tmp_path, workers=1)
    assert [trial.setting["lr"] for trial in found.trials] == [0.001, 0.5, 0.1, 0.1, 0.2]
    assert found.page is not None
    page = found.page.read_text()
    assert "few: Rates were chosen" in page
    assert "lr of 0.001, 0.5, 0.1" in page
    assert "many: Rates were chosen" in page
    assert "lr of 0.1, 0.2" in page
    best = found.best("A, few")
    assert best is not None
    assert ("a better one may lie beyond" in page) == (best.setting["lr"] in (0.001, 0.5))
    scaled = search.at(AtScale(search_over={"epochs": 4}))
    assert scaled.in_column("many").over == {"epochs": 4}
    with pytest.raises(pr.UserError, match="columns"):
        Search(space=RATES, columns={"many": {"lr": (0.1,)}})


def test_rows_in_columns_without_a_search_are_compared_as_they_are(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"slow": {"lr": 0.001}, "quick": {"lr": 0.1}}
    claims = (Claim(says="quicker is better", of="A", rising=True),)
    what = Study(name="s", rows={"A": made, "B": made}, columns=columns, seeds=(0, 1), claims=claims)
    found = pr.study(what, out=tmp_path, workers=1)
    assert {(run.name, run.seed) for run in Run.all(tmp_path)} == {
        (f"s/{row}/{column}", seed) for row in "AB" for column in columns for seed in (0, 1)
    }
    assert found.trials == []
    assert found.findings.verdict == "0 of 1 claims hold, 1 more on average"
    assert found.page is not None
    assert "| A | 63.33" in found.page.read_text()


def test_what_judges_a_run() -> None:
    history = [(0, 0.9), (1, 0.2), (2, 0.6), (3, 0.4)]
    assert judged(history, "final") == 0.4
    assert judged(history, "best") == 0.6
    assert judged(history, "last20") == pytest.approx(0.4)
    assert judged([(0, 0.9)], "final") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_has_a_line_for_each_trial(tmp_path: Path, theme: Any) -> None:
    space = {"lr": (0.001, 0.1), "epochs": (1, 2)}
    found = pr.study(tune(space=space), out=tmp_path, workers=1)
    drawn = json.dumps(found.plot(theme=theme).to_dict())
    assert drawn.count('"trial": 4,') == 3  # two keys and the score
    figures.save(found.plot(theme=theme), tmp_path / "trials.svg")
    assert "validation accuracy" in (tmp_path / "trials.svg").read_text()
