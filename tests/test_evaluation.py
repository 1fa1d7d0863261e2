"""Every number says which model it is of, and on which samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.data.federation import Shares
from polyrhythm.evaluation import Evaluator, averaged, mean_metrics
from polyrhythm.slots.mechanism import Model
from small import collection, dealt, experiment, federation, logged


def test_alone_a_client_is_tested_on_its_own_samples_with_its_own_model() -> None:
    """Two clients that learn opposite labels are right about their own tests, and only about those."""
    data = collection(classes=2)
    inputs, targets = data.train.batch(torch.arange(60))
    flipped = pr.data.ArraySamples(inputs, torch.cat([targets[:30], 1 - targets[30:]]))
    tests = pr.data.ArraySamples(torch.cat([inputs[:9], inputs[30:39]]), torch.cat([targets[:9], 1 - targets[30:39]]))
    split = dealt(
        data,
        [30, 30],
        shares=Shares.of(flipped, np.arange(60), np.array([30, 30])),
        local_tests=Shares.of(tests, np.arange(18), np.array([9, 9])),
    )
    recipe = pr.local_only(cohort=2, epochs=20, batch=10, lr=0.5)
    _, log = logged(federation=split, recipe=recipe, rounds=1)
    assert log.versions[-1].clients is not None
    assert log.versions[-1].clients["accuracy_mean"] > 0.9
    _, log = logged(federation=split, recipe=pr.fedavg(cohort=2, epochs=20, batch=10, lr=0.5), rounds=1)
    assert log.versions[-1].clients is not None
    assert log.versions[-1].clients["accuracy_mean"] < 0.7


def test_the_sample_of_training_data_is_fixed_and_only_of_what_clients_hold() -> None:
    split = dealt(collection(), [10, 10])  # 40 of the 60 samples belong to nobody
    plan = pr.Evaluation(train_samples=1000)
    one = experiment(federation=split, evaluation=plan)
    model = one.chosen.engine.initial()
    found = Evaluator(one, one.chosen.engine).train(model)
    held = experiment(
        federation=dealt(collection(), [10, 10], test=pr.data.Selected(collection().train, torch.arange(20)))
    )
    assert found == pytest.approx(Evaluator(held, held.chosen.engine).test(model))
    few = experiment(evaluation=pr.Evaluation(train_samples=7))
    assert Evaluator(few, few.chosen.engine).train(model) == Evaluator(few, few.chosen.engine).train(model)


def test_without_a_set_there_is_no_number() -> None:
    plain = experiment(federation=federation())
    evaluator, model = Evaluator(plain, plain.chosen.engine), plain.chosen.engine.initial()
    assert (evaluator.validation(model), evaluator.train(model)) == (None,) * 2
    assert evaluator.own_tests(lambda _: model) == {}
    assert evaluator.over_clients({}) is evaluator.over_groups({}, model) is None


def test_means_count_every_entry_the_same() -> None:
    assert mean_metrics([{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}]) == {"a": 0.5, "b": 1.0}
    models = [Model(weights=torch.tensor([x]), buffers=()) for x in (1.0, 2.0, 6.0)]
    assert averaged(lambda m: {"w": float(m.weights)}, iter(models)) == {"w": 3.0}
    assert averaged(lambda m: None, iter(models)) is None
