"""Every number says which model it is of, and on which samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
import small
from polyrhythm.core import client, measuring
from polyrhythm.data.holding import Holding
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.difficulty import expert_losses
from polyrhythm.experiments.estimate import estimate
from polyrhythm.experiments.evaluation import Evaluator, averaged, mean_metrics
from polyrhythm.experiments.experiment import Evaluation
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.session import carry_out
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.models.tasks import task
from polyrhythm.results import Run
from polyrhythm.runs import VersionRecord
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.portrait import SAMPLES
from small import Log, collection, dealt, federation, logged, prepared
from worker_models import Hazy


def test_alone_a_client_is_tested_on_its_own_samples_with_its_own_model() -> None:
    """Two clients that learn opposite labels are right about their own tests, and only about those."""
    split = small.opposed()
    recipe = pr.local_only(cohort=2, epochs=20, batch=10, lr=0.5)
    _, log = logged(federation=split, recipe=recipe, rounds=1)
    assert log.versions[-1].clients is not None
    assert log.versions[-1].clients["accuracy_mean"] > 0.9
    _, log = logged(federation=split, recipe=pr.fedavg(cohort=2, epochs=20, batch=10, lr=0.5), rounds=1)
    assert log.versions[-1].clients is not None
    assert log.versions[-1].clients["accuracy_mean"] < 0.7


@pytest.mark.parametrize(("draws", "times"), [(False, 1 + 2), (True, 6 + 6)])
def test_the_model_that_clients_began_with_is_tested_once(
    draws: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six clients two train in one round; of a model that draws, each client's test is another one."""
    tests, tally = list[int](), TorchEngine.tally

    def count(self: TorchEngine, model: Model, data: Any, *rest: Any, **more: Any) -> Any:
        tests.append(len(data))
        return tally(self, model, data, *rest, **more)

    monkeypatch.setattr(TorchEngine, "tally", count)
    model = (lambda shape, outputs: Hazy(shape[0], outputs)) if draws else "logistic"
    recipe = pr.local_only(cohort=2, epochs=1, batch=10)
    made = prepared(federation=dealt(collection(), [10] * 6), model=model, recipe=recipe, rounds=1, engine="torch")
    carry_out(made, [Log()])
    assert tests == [len(collection().test)] * times


def test_the_sample_of_training_data_is_fixed_and_only_of_what_clients_hold() -> None:
    split = dealt(collection(), [10, 10])  # 40 of the 60 samples belong to nobody
    plan = pr.Evaluation(train_samples=1000)
    one = prepared(federation=split, evaluation=plan)
    model = one.chosen.engine.initial()
    found = Evaluator(one).train(model)
    held = prepared(
        federation=dealt(collection(), [10, 10], test=pr.data.Selected(collection().train, torch.arange(20)))
    )
    assert found == pytest.approx(Evaluator(held).test(model))
    few = prepared(evaluation=pr.Evaluation(train_samples=7))
    assert Evaluator(few).train(model) == Evaluator(few).train(model)


def test_without_a_set_there_is_no_number() -> None:
    plain = prepared(federation=federation())
    evaluator, model = Evaluator(plain), plain.chosen.engine.initial()
    assert (evaluator.validation(model), evaluator.train(model)) == (None,) * 2
    assert evaluator.own_tests(lambda _: model) == {}
    assert evaluator.over_clients({}) is evaluator.over_groups({}, model) is None


def test_means_count_every_entry_the_same() -> None:
    assert mean_metrics([{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}]) == {"a": 0.5, "b": 1.0}
    models = [Model(weights=torch.tensor([x]), buffers=()) for x in (1.0, 2.0, 6.0)]
    assert averaged(lambda m: {"w": float(m.weights)}, iter(models)) == {"w": 3.0}
    assert averaged(lambda m: None, iter(models)) is None


# Models that draw in eval mode, too.

TIERS = pr.Fleet(devices=pr.fleet.Tiers(slowdown=(1.0, 4.0)))
SETS = ("test", "validation", "train", "clients", "groups")


def hazy(**changes: Any) -> Prepared:
    """A model that draws in every pass, measured on sets of every kind."""
    values: dict[str, Any] = {
        "federation": federation(validation=0.2, local_test=0.3),
        "model": lambda shape, outputs: Hazy(shape[0], outputs),
        "fleet": TIERS,
        "evaluation": Evaluation(train_samples=11, groups=True),
        "rounds": 4,
    }
    return prepared(**values | changes)


def measured(one: Prepared) -> list[VersionRecord]:
    log = Log()
    torch.rand(3)  # so that no two runs begin alike
    before = torch.get_rng_state()
    carry_out(one, [log])
    assert torch.equal(torch.get_rng_state(), before)
    return log.versions


def numbers(versions: list[VersionRecord], sets: tuple[str, ...] = SETS) -> list[list[Any]]:
    return [[getattr(version, name) for name in sets] for version in versions]


@pytest.mark.parametrize("method", ["fedavg", "local_only", "power of choice"])
def test_two_equal_runs_have_equal_numbers_whatever_the_model_draws(method: str) -> None:
    common: Any = {"cohort": 2, "epochs": 1, "batch": 5}
    recipe = pr.local_only(**common) if method == "local_only" else pr.fedavg(**common)
    if method == "power of choice":
        recipe = recipe | LossSampling(d=3)
    one, again = (measured(hazy(recipe=recipe)) for _ in range(2))
    assert numbers(one) == numbers(again)
    assert all(value is not None for row in numbers(one) for value in row)
    apart = measured(hazy(recipe=recipe, driver="processes", workers=2))
    assert numbers(one) == numbers(apart)


def test_that_law_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def unnamed(engine: Any, data: Any, seed: int, *names: Any) -> Any:
        return measuring.contextlib.nullcontext()

    monkeypatch.setattr("polyrhythm.experiments.evaluation.measuring", unnamed)
    with pytest.raises(AssertionError):
        measured(hazy())


def test_a_number_does_not_depend_on_what_else_is_measured_and_how_often() -> None:
    whole = measured(hazy())
    rare = measured(hazy(evaluation=Evaluation(every=2, train_samples=11, groups=True)))
    assert numbers(rare)[2] == numbers(whole)[2]
    few = measured(hazy(evaluation=Evaluation()))
    kept = ("test", "validation", "clients")
    assert numbers(few, kept) == numbers(whole, kept)
    watched = measured(hazy(evaluation=Evaluation(measure=("update_similarity", "sample_losses"))))
    assert numbers(watched, kept) == numbers(whole, kept)
    assert [v.train_loss for v in whole] == [v.train_loss for v in rare]


def test_groups_are_named_on_training_data() -> None:
    plan = Evaluation(groups=True)
    one, again = (measured(hazy(federation=federation(12), evaluation=plan)) for _ in range(2))
    assert numbers(one, ("groups",)) == numbers(again, ("groups",))


def test_each_set_and_model_has_draws_of_its_own() -> None:
    """The same samples and weights, measured as different things: the names alone make the difference."""
    data = collection()
    one = hazy(federation=dealt(data, [30, 30], test=data.train, validation=data.train), evaluation=Evaluation())
    evaluator, model = Evaluator(one), one.chosen.engine.initial()
    found = [evaluator.test(model, (0,)), evaluator.test(model, (1,)), evaluator.test(model, (1, 0))]
    found += [evaluator.validation(model, (0,)) or {}]
    other = Evaluator(replace(one, experiment=replace(one.experiment, seed=1)))
    found += [other.test(model, (0,))]
    assert len({f["loss"] for f in found}) == len(found)
    assert evaluator.test(model, (0,)) == found[0]


class Broken(Exception):
    pass


def test_a_resumed_run_and_a_verified_one_have_the_same_numbers(tmp_path: Path) -> None:
    trial = hazy(checkpoint=pr.Checkpoint(every=1))
    whole = small.run(trial, out=tmp_path / "whole")
    assert small.verify(whole, hazy(checkpoint=pr.Checkpoint(every=1))).equal

    def die(record: Any) -> None:
        if getattr(record, "test", None) is not None and record.version == 2:
            raise Broken

    with pytest.raises(Broken):
        small.run(trial, out=tmp_path / "parts", observers=[Log(die)])
    [broken] = pr.Run.all(tmp_path / "parts")
    resumed = small.resume(hazy(checkpoint=pr.Checkpoint(every=1)), broken)
    columns = [c for c in whole.history.columns if c != "wall"]
    assert whole.history[columns].equals(resumed.history[columns])
    assert whole.summary["best_accuracy"] == resumed.summary["best_accuracy"]
    assert small.verify(whole, trial, from_checkpoint=True).equal


def losses_of(run: Run) -> str:
    return (run.path / SAMPLES).read_text()


def test_whoever_else_measures_names_its_draws(tmp_path: Path) -> None:
    plan = Evaluation(measure=("sample_losses",))
    before = torch.get_rng_state()
    one = small.run(hazy(evaluation=plan), out=tmp_path)
    again = small.run(hazy(evaluation=plan), out=tmp_path)
    assert losses_of(one) == losses_of(again)
    estimate(hazy().experiment, out=tmp_path / "nowhere")
    assert torch.equal(torch.get_rng_state(), before)


def test_an_expert_that_draws_gives_every_run_the_same_difficulties(tmp_path: Path) -> None:
    from safetensors.torch import save

    module = Hazy(4, 3)
    write_whole(tmp_path / "expert", save(module.state_dict()))
    before = torch.get_rng_state()
    one, again = (
        expert_losses(tmp_path / "expert", module, collection().train, task("classification")) for _ in range(2)
    )
    assert (one == again).all()
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_need_not_wait_where_nothing_can_draw() -> None:
    """The native engine draws by name, so that measuring samples in memory leaves the lock alone."""

    class Names:
        names_draws = True

    class Plain:
        pass

    held = Holding(federation().train)
    names, plain = (measuring.measuring(engine, held, 0, "test") for engine in (Names(), Plain()))  # type: ignore[arg-type]
    assert isinstance(names, measuring.contextlib.nullcontext)
    assert not isinstance(plain, measuring.contextlib.nullcontext)
    assert client.measuring is measuring.measuring
