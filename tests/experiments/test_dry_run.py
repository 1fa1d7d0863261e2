"""A dry run counts what the run then does, to the last visit, step, sample, byte and virtual second."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import polyrhythm as pr
from polyrhythm.config import names
from polyrhythm.data import ArraySamples
from polyrhythm.data.transforms import RandomFlip
from polyrhythm.experiments.dry_run import DryRun, dry_run
from polyrhythm.experiments.estimate import estimate
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.session import carry_out
from small import collection, experiment, prepared

COUNTED = {
    **{"rounds": "versions", "visits": "visits", "local_steps": "steps", "samples": "samples", "flops": "flops"},
    **{"bytes_up": "bytes_up", "bytes_down": "bytes_down", "virtual_seconds": "virtual_seconds", "joules": "joules"},
}
UNEVEN = pr.federate(collection(90), pr.data.QuantitySkew(alpha=1.0), 7, 0)


def both(some: Prepared) -> tuple[DryRun, dict[str, object], dict[str, object]]:
    """A dry run, what it counted by the summary's names, and the same of the run itself."""
    dry = dry_run(some)
    summary = carry_out(prepare(some.experiment, some.execution), [])
    return dry, {k: getattr(dry, a) for k, a in COUNTED.items()}, {k: summary[k] for k in COUNTED}


@pytest.mark.parametrize(
    ("method", "fleet"),
    [
        ("fedavg", "uniform"),
        ("fedavg(batch=none, steps=3, drop_last=true)", "zipf"),
        ("scaffold | compress_top_k(share=0.1)", "tiers | markov(mean_on=5, mean_off=5) | faults(dropout=0.2)"),
        ("vrl_sgd | compress_int8", "lognormal | links(up=1e4, down=1e5)"),
        ("moon(layer=logits)", "uniform"),
        ("feddyn | compress_top_k(error_feedback=false)", "tiers"),
        ("curriculum_fl(score=both)", "uniform"),
        ("fedbuff(concurrency=4, buffer=3)", "tiers(slowdown=[1, 5])"),
        ("fedasync(concurrency=4)", "exponential | periodic(period=10, spread=0.5)"),
        ("afl(participation=on_arrival)", "tiers | poisson(rate=1)"),
        ("ccfl", "uniform | budgets"),
        ("fedprox(partial=0.05, epochs=5)", "tiers"),
        ("mifa", "tiers"),
        ("scaffold", "tiers | faults(crash=0.1, nan=0.3, malformed=0.2, duplicate=0.3, stray=0.2, lost=0.1)"),
        ("cc_fedadam", "lognormal"),
        ("fedavg(steps=7) | over_select | deadline(seconds=0.05)", "tiers"),
        ("fedavg | random_resize | skip_and_estimate", "uniform | slow_share"),
        ("local_only", "uniform"),
        ("centralised", "uniform"),
        ("fedavg | personal_layers(layers=['*.bias']) | compress_int8 | personal_first(epochs=1)", "lognormal"),
        ("ditto(personal_epochs=1.5) | personal_layers(layers=['*.bias'])", "tiers | faults(crash=0.2)"),
        ("fedavg(steps=7) | personal_copy(epochs=1) | partial_work(seconds=0.05)", "tiers"),
        ("apfl(epochs=1.5) | personal_layers(layers=['*.bias'])", "tiers | faults(crash=0.2)"),
        ("per_fedavg(steps=7, form=hessian_free) | partial_work(seconds=0.05)", "tiers"),
        ("pfedme(personal_steps=3)", "lognormal"),
        ("heterofl", "tiers"),
        ("fedbuff | random_width(ratio=[1, 0.5])", "uniform | links(up=1e4, down=1e5)"),
        ("fedavg | rolling_window(by=speed) | compress_top_k(share=0.1)", "tiers"),
        ("fedprox(partial=0.05, epochs=5) | width_prefix", "tiers"),
    ],
)
def test_a_dry_run_is_exact(method: str, fleet: str) -> None:
    recipe = names.recipe(method)
    if recipe.participation.size > 4 and recipe.participation.invites:
        recipe = recipe | pr.parts.uniform(cohort=4)
    model = "logistic" if recipe.capacity.whole else "mlp"
    some = prepared(federation=UNEVEN, recipe=recipe, fleet=names.fleet(fleet), rounds=6, model=model)
    dry, counted, done = both(some)
    assert counted == done
    assert dry.whole
    assert not dry.guessed


@pytest.mark.parametrize("until", [pr.Until(updates=9), pr.Until(time=0.3)])
def test_it_ends_where_the_run_does(until: pr.Until) -> None:
    _, counted, done = both(prepared(until=until, rounds=None, federation=UNEVEN))
    assert counted == done


@pytest.mark.parametrize("method", ["fedavg", "fedavg | skip_silently", "fedavg | skip_and_estimate"])
def test_it_ends_with_as_many_updates_as_the_run(method: str) -> None:
    """What is lost is no update, and nor is a word in place of one."""
    _, counted, done = both(
        prepared(
            until=pr.Until(updates=9),
            rounds=None,
            federation=UNEVEN,
            recipe=names.recipe(method) | pr.parts.uniform(cohort=4),
            fleet=names.fleet("uniform | slow_share(share_slow=0.5) | faults(lost=0.4, stray=0.2)"),
        )
    )
    assert counted == done


def test_normalised_models_and_augmented_samples_too() -> None:
    data = collection(60, features=16)
    images = data.train.batch(torch.arange(60))[0].reshape(60, 1, 4, 4)
    train = ArraySamples(images, data.train.targets, augmentations=(RandomFlip(),))
    test = ArraySamples(images[:15], data.train.targets[:15])
    some = prepared(
        federation=pr.federate(replace(data, train=train, test=test), pr.data.Iid(), 7, 0),
        model=names.model("resnet18(norm=batch)"),
        recipe=names.recipe("moon(layer=logits, cohort=2, epochs=1, batch=4)"),
        rounds=2,
    )
    _, counted, done = both(some)
    assert counted == done


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("power_of_choice", "loss_sampling"),
        ("oort", "utility_sampling"),
        ("tifl(tiers=2)", "tier_sampling"),
        ("fedcl", "critical_periods"),
        ("alt(representation=logits)", "stop_on_drift"),
        ("fedavg | client_curriculum(scores=reported)", "client_curriculum"),
    ],
)
def test_what_decides_by_training_is_named(method: str, name: str) -> None:
    dry, _, _ = both(prepared(recipe=names.recipe(method), fleet=names.fleet("tiers"), federation=UNEVEN))
    assert dry.guessed == (name,)
    assert dry.versions == 3


def test_a_run_that_cannot_go_on_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "never.json").write_text('{"1": {"active": [], "inactive": [], "finish_time": 100}}')
    some = prepared(fleet=names.fleet(f"uniform | availability(path={tmp_path}/never.json)"))
    with pytest.raises(pr.RunFailed) as failed:
        carry_out(some, [])
    assert dry_run(some).failure == str(failed.value)
    assert str(failed.value) in estimate(some.experiment, execution=some.execution, out=tmp_path).notes[0]


def test_an_estimate_is_of_the_whole_run_and_changes_nothing() -> None:
    some = prepared(rounds=4)
    found = estimate(some.experiment, execution=some.execution, out="nowhere")
    summary = carry_out(some, [])
    assert (found.versions, found.counted) == (4, 4)
    for name in ("visits", "samples", "flops", "bytes_up", "bytes_down", "virtual_seconds"):
        assert getattr(found, name) == summary[name]
    assert summary["digest"] == carry_out(prepared(rounds=4), [])["digest"]
    assert found.memory > 0
    assert 0 < found.seconds.expected < 60
    assert (found.seconds.low or 0) <= (found.seconds.high or 0)
    assert "measured" in found.seconds.source
    assert not found.notes


def test_an_estimate_by_recorded_runs(tmp_path: Path) -> None:
    recorded = [pr.run(experiment(seed=seed), out=tmp_path) for seed in (0, 1)]
    found = estimate(experiment(rounds=30, seed=5), out=tmp_path).seconds
    per_version = sorted(run.summary["wall_seconds"] / 3 for run in recorded)
    assert (found.low, found.high) == pytest.approx((30 * per_version[0], 30 * per_version[1]))
    assert found.source.startswith("2 recorded runs")
    other = estimate(experiment(recipe=pr.fedavg(cohort=3)), out=tmp_path).seconds
    assert "measured" in other.source


def test_a_long_run_is_counted_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.5)
    with monkeypatch.context() as patched:
        patched.setattr("polyrhythm.experiments.dry_run.time.perf_counter", lambda: next(clock))
        dry = dry_run(prepared(rounds=1000), within=5)
    assert 0 < dry.versions < 20
    assert not dry.whole
    endless = estimate(experiment(rounds=None, until=pr.Until(accuracy=1.0)), out="nowhere")
    assert endless.versions is None
    assert any("nobody knows" in note for note in endless.notes)
