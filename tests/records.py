"""Small plans and records to tell observers about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from polyrhythm.runs import Plan, VersionRecord, VisitRecord


def plan(**changes: Any) -> Plan:
    given = {
        "name": "trial",
        "config": {"data": "digits", "seed": 3},
        "recipe": "fedavg(cohort=2)",
        "recipe_digest": "abc",
        "seed": 3,
        "rounds": 5,
        "notices": ("two samples unused",),
        "headline": "accuracy",
        "parameters": 10,
        "clients": 4,
    }
    return Plan(**(given | changes))


def version(number: int, test: float | None = None, validation: float | None = None, **changes: Any) -> VersionRecord:
    given = {
        "version": number,
        "time": 2.0 * number,
        "wall": 0.5 * number,
        "cohort": 2,
        "accepted": 2,
        "dropped": 0,
        "rate": 0.1,
        "train_loss": None,
        "test": None if test is None else {"loss": 1.0 - test, "accuracy": test},
        "validation": None if validation is None else {"loss": 1.0 - validation, "accuracy": validation},
        "train": None,
        "clients": None,
        "client_updates": 2 * number,
        "local_steps": 10 * number,
        "samples": 100 * number,
        "flops": 1000 * number,
        "bytes_up": 40 * number,
        "bytes_down": 44 * number,
        "joules": 0.5 * number,
    }
    return VersionRecord(**(given | changes))


def visit(dispatch: int, **changes: Any) -> VisitRecord:
    given = {"dispatch": dispatch, "client": dispatch % 4, "version": dispatch // 2, "visit": 0, "status": "trained"}
    return VisitRecord(**(given | changes))


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    return plan


@pytest.fixture
def make_version() -> Callable[..., VersionRecord]:
    return version


@pytest.fixture
def make_visit() -> Callable[..., VisitRecord]:
    return visit
