"""The summary's numbers are those of the records, and a digest is of every bit."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyrhythm.runs import Plan, VersionRecord
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.summary import Best, Summary, model_digest

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]
# The factories keep nothing between examples.
with_factories = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
scores = st.lists(st.floats(0, 1), min_size=1, max_size=45)


def summarise(plan: Plan, records: list[VersionRecord]) -> dict[str, Any]:
    summary = Summary(Best(plan.headline))
    for record in records:
        summary.add(record)
    return summary.fields(digest="d", wall_seconds=1.5)


@with_factories
@given(values=scores)
def test_last_twenty_leave_the_initial_model_out(
    values: list[float], make_plan: MakePlan, make_version: MakeVersion
) -> None:
    fields = summarise(make_plan(), [make_version(0, 0.0), *(make_version(i + 1, v) for i, v in enumerate(values))])
    assert fields["last20_mean"] == pytest.approx(statistics.fmean(values[-20:]))
    assert fields["last20_sd"] == pytest.approx(statistics.pstdev(values[-20:]), abs=1e-12)
    assert fields["final_accuracy"] == values[-1]


def test_versions_without_evaluation_do_not_count(make_plan: MakePlan, make_version: MakeVersion) -> None:
    fields = summarise(make_plan(), [make_version(1, 0.4), make_version(2), make_version(3, 0.6), make_version(4)])
    assert fields["last20_mean"] == pytest.approx(0.5)
    assert (fields["final_accuracy"], fields["rounds"]) == (0.6, 4)


@with_factories
@given(values=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_best_is_chosen_by_validation_and_never_by_test(
    values: list[tuple[float, float]], make_plan: MakePlan, make_version: MakeVersion
) -> None:
    versions = [make_version(i, test, held) for i, (test, held) in enumerate(values, start=1)]
    fields = summarise(make_plan(), [make_version(0, 1.0, 1.0), *versions])  # the initial model, which is none
    first_best = max(range(len(values)), key=lambda i: values[i][1])  # of equals, max() takes the first
    assert (fields["best_version"], fields["best_by"]) == (first_best + 1, "validation")
    assert fields["best_accuracy"] == values[first_best][0]


def test_best_by_test_says_so_and_is_not_the_final(make_plan: MakePlan, make_version: MakeVersion) -> None:
    fields = summarise(make_plan(), [make_version(1, 0.9), make_version(2, 0.7), make_version(3, math.nan)])
    assert (fields["best_accuracy"], fields["best_by"], fields["best_version"]) == (0.9, "test", 1)
    assert fields["final_accuracy"] is None


def test_validation_overrules_an_earlier_choice_by_test(make_plan: MakePlan, make_version: MakeVersion) -> None:
    fields = summarise(make_plan(), [make_version(0, 0.9), make_version(1, 0.5, 0.1), make_version(2, 0.95)])
    assert (fields["best_version"], fields["best_by"]) == (1, "validation")


def test_another_headline_is_read(make_plan: MakePlan, make_version: MakeVersion) -> None:
    record = dataclasses.replace(make_version(1), test={"loss": 0.1, "recall_at_5": 0.25, "accuracy": 0.9})
    fields = summarise(make_plan(headline="recall_at_5"), [record])
    assert (fields["final_accuracy"], fields["headline"]) == (0.25, "recall_at_5")


def test_totals_are_the_last_versions(make_plan: MakePlan, make_version: MakeVersion) -> None:
    fields = summarise(make_plan(), [make_version(n) for n in range(4)])
    names = ("client_updates", "local_steps", "samples", "flops", "bytes_up", "bytes_down", "wall_seconds", "digest")
    assert [fields[name] for name in names] == [6, 30, 300, 3000, 120, 132, 1.5, "d"]


def test_a_run_without_versions_has_a_summary(make_plan: MakePlan) -> None:
    fields = summarise(make_plan(), [])
    assert (fields["rounds"], fields["final_accuracy"], fields["last20_mean"]) == (0, None, None)


STATE = {
    "weight": torch.tensor([[1.0, -2.0], [0.5, 3.0]]),
    "half": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "empty": torch.empty(0),
}


def test_digest_does_not_know_the_order_or_the_layout() -> None:
    turned = {name: STATE[name] for name in reversed(STATE)}
    turned["weight"] = STATE["weight"].T.contiguous().T
    assert model_digest(turned) == model_digest(STATE)


@pytest.mark.parametrize(
    "change",
    [
        {"weight": torch.nextafter(STATE["weight"], torch.tensor(4.0))},
        {"weight": STATE["weight"].reshape(4)},
        {"weight": STATE["weight"].double()},
        {"count": torch.tensor(8)},
        {"mask": torch.tensor([True, True])},
        {"half": torch.tensor([1.5, 2.515625], dtype=torch.bfloat16)},
        {"empty": torch.empty(0, 2)},
        {"more": torch.zeros(1)},
    ],
)
def test_digest_knows_every_bit(change: dict[str, torch.Tensor]) -> None:
    assert model_digest(STATE | change) != model_digest(STATE)


def test_json_is_strict() -> None:
    value = {"nan": math.nan, "inf": [np.float32("inf"), np.int64(3)], "array": np.array([1.0, np.nan]), 5: "é"}
    text = to_json(value)
    assert "\n" not in text
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read == {"nan": None, "inf": [None, 3], "array": [1.0, None], "5": "é"}
