"""What clients gain by models of their own: measured on each client's own test, global and personal side by side."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.engines.native import engine
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.results import fairness_tables
from small import collection, logged, prepared


def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


def conv(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, shape[0])), nn.Conv1d(1, outputs, shape[0]), nn.Flatten())


def trial(recipe: pr.Recipe, **changes: Any) -> pr.Experiment:
    federation = pr.federate(collection(90), pr.data.Dirichlet(alpha=0.5), 6, 0, local_test=0.3)
    values = {"federation": federation, "model": net, "recipe": recipe, "rounds": 5}
    return small.experiment(**values | changes)


SMALL: dict[str, Any] = {"cohort": 3, "epochs": 2, "batch": 5}
NAMES = (
    "apfl",
    "ditto",
    "fedala",
    "fedavg_ft",
    "fedbabu",
    "fedbn",
    "fedper",
    "fedproto",
    "fedrep",
    "knn_per",
    "lg_fedavg",
    "per_fedavg",
    "pfedme",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_is_of_clients_own_tests(tmp_path: Path, name: str) -> None:
    """Computed again from the results of single clients, all of which are on record."""
    experiment = trial(getattr(pr, name)(**SMALL), model=net)
    run = pr.run(experiment, out=tmp_path)
    last = run.client_results.loc[5]
    tests = experiment.federation.local_tests
    assert tests is not None
    sizes = [int(tests.sizes[client]) for client in last.index]
    for which, column in (("global", "accuracy"), ("personal", "personal")):
        values = [float(v) for v in last[column]]
        assert run.summary[f"{which}_mean"] == pytest.approx(statistics.fmean(values))
        pooled = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        assert run.summary[f"{which}_pooled"] == pytest.approx(pooled)
        assert run.summary[f"{which}_median"] == pytest.approx(statistics.median(values))
        assert run.summary[f"{which}_worst_decile"] == pytest.approx(min(values))  # of six clients, one
        assert run.summary[f"{which}_sd_over_clients"] == pytest.approx(statistics.pstdev(values))
    worse = [mine < everybodys for mine, everybodys in zip(last["personal"], last["accuracy"], strict=True)]
    assert run.summary["personal_worse"] == pytest.approx(sum(worse) / len(worse))
    assert run.versions[-1]["spread"]["personal_mean"] == run.summary["personal_mean"]


def test_each_client_is_judged_by_its_own_model(tmp_path: Path) -> None:
    """Who has not had a visit has version 0's own part: the global model itself."""
    experiment = trial(pr.fedper(cohort=3, epochs=20, batch=5, lr=0.5), rounds=1)
    state = prepare(experiment)
    run = pr.run(experiment, out=tmp_path)
    trained = set(run.visits["client"])
    assert 0 < len(trained) < 6
    last = run.client_results.loc[1]
    untouched = [client for client in range(6) if client not in trained and client in last.index]
    assert untouched
    for client in untouched:
        assert last.loc[client, "personal"] == last.loc[client, "accuracy"]
    assert any(last.loc[c, "personal"] != last.loc[c, "accuracy"] for c in trained if c in last.index)
    head = {name: value for name, value in state.chosen.engine.state_of(state.initial).items() if name.startswith("3.")}
    module = run.model()
    assert all(torch.equal(dict(module.named_parameters())[name].data, value) for name, value in head.items())


def test_tuning_is_made_once_at_the_end_and_changes_nothing() -> None:
    plain, log = logged(**vars_of(trial(pr.fedavg(**SMALL))))
    tuned, of_tuned = logged(**vars_of(trial(pr.fedavg_ft(**SMALL, tuning=2))))
    assert plain["digest"] == tuned["digest"]
    assert [v.bytes_up for v in log.versions] == [v.bytes_up for v in of_tuned.versions]
    assert [v.samples for v in log.versions] == [v.samples for v in of_tuned.versions]
    assert [v.test for v in log.versions] == [v.test for v in of_tuned.versions]
    spreads = [version.spread or {} for version in of_tuned.versions]
    assert ["personal_mean" in spread for spread in spreads] == [False] * 5 + [True]
    assert all("personal_mean" not in (version.spread or {}) for version in log.versions)
    assert {k: v for k, v in spreads[-1].items() if k.startswith("global")} == log.versions[-1].spread
    assert tuned["personal_mean"] > tuned["global_mean"]


def vars_of(experiment: pr.Experiment) -> dict[str, Any]:
    return {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}


@pytest.mark.parametrize(("every", "measured"), [(None, [5]), (2, [0, 2, 4, 5]), (5, [0, 5])])
def test_how_often_tuned_models_are_measured(every: int | None, measured: list[int]) -> None:
    recipe = pr.fedavg_ft(**SMALL, tuning=1)
    _, log = logged(**vars_of(trial(recipe, evaluation=pr.Evaluation(personal_every=every))))
    assert [v.version for v in log.versions if "personal_mean" in (v.spread or {})] == measured
    _, log = logged(**vars_of(trial(recipe, until=pr.Until(accuracy=0.99))))
    assert all("personal_mean" in (v.spread or {}) for v in log.versions)


def test_models_that_are_there_anyway_are_measured_of_each_version() -> None:
    for recipe in (pr.fedper(**SMALL), pr.ditto(**SMALL)):
        _, log = logged(**vars_of(trial(recipe, evaluation=pr.Evaluation(every=2))))
        assert [v.version for v in log.versions if "personal_mean" in (v.spread or {})] == [0, 2, 4, 5]


def test_only_what_is_shared_is_billed() -> None:
    layout = prepare(trial(pr.fedavg(**SMALL))).chosen.engine.layout
    head = sum(s.size for s in layout.segments if s.name in layout.head) * 4
    assert head == (8 * 3 + 3) * 4
    norms = 2 * 8 * 4 + 8 * 4 * 2 + 8  # weight and bias, mean and variance, a counter
    for recipe, own in ((pr.fedper(**SMALL), head), (pr.fedbn(**SMALL), norms)):
        plain, _ = logged(**vars_of(trial(pr.fedavg(**SMALL))))
        found, log = logged(**vars_of(trial(recipe)))
        visits, clients = len(log.visits), len({visit.client for visit in log.visits})
        assert plain["bytes_up"] - found["bytes_up"] == visits * own
        assert plain["bytes_down"] - found["bytes_down"] == (visits - clients) * own


def test_without_tests_of_their_own_it_is_said(tmp_path: Path) -> None:
    bare = small.federation()
    some = prepared(federation=bare, model=net, recipe=pr.fedper(**SMALL))
    assert any("clients' own models are not measured" in note for note in some.notices())
    assert any("27 of 83 weights stay at clients" in note for note in some.notices())
    assert "personal_mean" not in carry_out(some, [])
    some = prepared(federation=bare, model=conv, recipe=pr.fedbn(**SMALL))
    assert any("names nothing in this model" in note for note in some.notices())
    some = prepared(federation=bare, recipe=pr.fedper(**SMALL))  # a logistic regression is all head
    assert any("every client trains alone" in note for note in some.notices())


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (pr.fedavg() | pr.parts.personal_layers(layers=("layer9",)), "layers: 'layer9', which names nothing"),
        (pr.fedper(), "the model has no linear layer"),
        (pr.fedavg() | pr.parts.fine_tuning(layers=("nose",)), "layers: 'nose', which names nothing"),
    ],
)
def test_layers_that_are_not_there_are_refused_before_the_run(recipe: pr.Recipe, words: str) -> None:
    with pytest.raises(UserError, match=words):
        prepare(trial(recipe, model=conv))
    with pytest.raises(UserError, match="nothing would be personal"):
        pr.parts.personal_layers(layers=())


@pytest.mark.parametrize("driver", ["processes"])
def test_workers_change_nothing(tmp_path: Path, driver: Any) -> None:
    experiment = trial(pr.fedrep(**SMALL, head_epochs=1) | pr.parts.personal_copy(epochs=1))
    runs = [
        pr.run(experiment, execution=how, out=tmp_path)
        for how in (pr.Execution(driver="inline"), pr.Execution(driver=driver, workers=2))
    ]
    assert runs[0].summary["digest"] == runs[1].summary["digest"]
    assert runs[0].client_results.equals(runs[1].client_results)


def test_what_clients_keep_may_lie_in_files(tmp_path: Path) -> None:
    experiment = trial(pr.ditto(**SMALL) | pr.parts.personal_layers())
    runs = [
        pr.run(experiment, execution=pr.Execution(client_memory=memory), out=tmp_path) for memory in ("1 GB", "0 B")
    ]
    assert runs[0].summary["digest"] == runs[1].summary["digest"]
    assert runs[0].client_results.equals(runs[1].client_results)


def plain(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, outputs))


@pytest.mark.parametrize(
    "name",
    [
        *("ditto", "fedrep", "fedbabu", "fedavg_ft", "apfl", "pfedme", "per_fedavg", "fedala"),
        *("knn_per", "fedproto"),
    ],
)
@pytest.mark.parametrize("engine", ["native", "stacked"])
def test_every_engine_trains_what_is_personal(tmp_path: Path, name: str, engine: Any) -> None:
    """What an engine does not take at once is computed step by step: to rounding the same, cohorts included."""
    recipe = getattr(pr, name)(**{"cohort": 3, "epochs": 2, "batch": 10})
    made = trial(recipe, model=plain)
    runs = [
        pr.run(made, execution=pr.Execution(engine=one, device="cpu", driver="inline"), out=tmp_path)
        for one in ("torch", engine)
    ]
    taken = (
        "torch" if (name, engine) == ("fedproto", "stacked") else engine
    )  # representations are not looked at side by side
    assert [run.summary["engine"] for run in runs] == ["torch", taken]
    one, other = (dict(run.model().named_parameters()) for run in runs)
    assert all(torch.allclose(one[key], other[key], rtol=0, atol=1e-4) for key in one)
    assert runs[0].summary["samples"] == runs[1].summary["samples"]
    assert runs[0].summary["personal_mean"] == pytest.approx(runs[1].summary["personal_mean"], abs=0.05)


@pytest.mark.parametrize("head_epochs", [0, 1, 3])
@pytest.mark.parametrize("built", ["now", "before parts could be held"])
@pytest.mark.parametrize(
    "more",
    [{}, {"momentum": 0.9, "clip": 0.5, "weight_decay": 1e-2}, {"optimiser": "adam"}],
    ids=["sgd", "all", "adam"],
)
def test_phases_are_taken_at_once_and_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, built: str, more: dict[str, Any], head_epochs: int
) -> None:
    """To rounding: what is held has no step, no decay, no momentum, and no part in the norm that is clipped."""
    taken = list[bool]()
    local_round = NativeEngine.local_round

    def counted(self: NativeEngine, job: Any) -> Any:
        done = local_round(self, job)
        taken.append(done is not None)
        return done

    monkeypatch.setattr(NativeEngine, "local_round", counted)
    if built != "now":
        monkeypatch.setattr(engine, "holds", lambda: False)
    adam = pr.parts.local_adam(lr=0.01) if more.pop("optimiser", "") else None
    recipe = pr.fedrep(**SMALL, head_epochs=head_epochs, **more)
    made = trial(recipe if adam is None else recipe | adam, model=plain, rounds=2)
    found = []
    for one in ("torch", "native"):
        prepared = prepare(made, pr.Execution(engine=one, device="cpu", driver="inline"))
        log = small.Log()
        carry_out(prepared, [log])
        found.append(log.states[-1])
    assert all(torch.allclose(found[0][key], found[1][key], rtol=0, atol=1e-6) for key in found[0])
    assert all(taken) == (built == "now" and adam is None)


def test_what_clients_own_models_do_is_told(tmp_path: Path) -> None:
    runs = [pr.run(trial(recipe), out=tmp_path) for recipe in (pr.fedavg(**SMALL), pr.fedper(**SMALL))]
    assert "own models" not in runs[0].view.said
    summary, said = runs[1].summary, runs[1].view.said["own models"]
    assert f"accuracy {summary['personal_mean']:.4f} as a mean over clients" in said
    assert f"worst tenth {summary['personal_worst_decile']:.4f}" in said
    assert f"sd over clients {summary['personal_sd_over_clients']:.4f}" in said
    assert f"{summary['personal_worse']:.0%} of clients do worse" in said
    table = fairness_tables.clients(pr.compare(runs))
    assert table is not None
    rows = {str(row[0]): row for row in table.rows}
    assert len(rows) == 3
    (own,) = (row for name, row in rows.items() if name.endswith("clients' own models"))
    assert any(f"{summary['personal_mean']:.{digits}f}" in " ".join(own) for digits in (3, 4))
