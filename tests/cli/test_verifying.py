"""`polyrhythm verify`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from polyrhythm.config import data_names
from polyrhythm.runs.database import FILE
from terminal import Command

RUN = ("run", "--model", "logistic", "--rounds", "4", "--name", "mine", "--set", "checkpoint.every=1")


def test_a_run_is_verified_by_other_workers(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm(*RUN, *out)
    found = polyrhythm("verify", "mine", *out)
    assert (found.code, found.out.count("all equal")) == (0, 1)
    found = polyrhythm("verify", "mine", "--driver", "processes", "--workers", "2", *out)
    assert (found.code, found.out.count("all equal")) == (0, 1)
    found = polyrhythm("verify", "mine", "--from-checkpoint", "--json", *out)
    verdict = json.loads(found.out)
    assert (verdict["equal"], verdict["first"], verdict["last"]) == (True, 4, 4)


def test_a_difference_ends_with_code_1(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm(*RUN, *out)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as database:
        database.execute("UPDATE versions SET digest = 'x' WHERE version = 2")
    found = polyrhythm("verify", "mine", *out)
    assert found.code == 1
    assert "differs from version 2 on, in digest" in found.out
    assert json.loads(polyrhythm("verify", "mine", "--json", *out).out)["differs_at"] == 2


RECIPES = (
    *(
        "fedavg",
        "fedprox",
        "scaffold",
        "fednova",
        "vrl_sgd",
        "moon(layer='logits')",
        "fedadam",
        "fedyogi",
        "fedadagrad",
    ),
    *("fedcl", "fedcl(kdd23=true)", "alt(representation='logits')", "curriculum_fl", "fedavg | client_curriculum"),
    *("ccfl(storage='client')", "ccfl(storage='server')", "ccfl(storage='mixed')"),
    *("cc_fedavg", "cc_fedadam", "cc_fedadagrad", "cc_fedams", "cc_fedyogi"),
)
"""The papers' methods, and what they are compared with."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_papers_recipes_are_verified(polyrhythm: Command, tmp_path: Path, recipe: str) -> None:
    out = ("--out", str(tmp_path))
    small = ("--model", "logistic", "--clients", "10", "--set", "evaluation.every=5")
    assert polyrhythm("run", *small, "--method", recipe, "--rounds", "10", "--name", "mine", *out).code == 0
    found = polyrhythm("verify", "mine", *out)
    assert found.code == 0
    assert "11 versions, 0 to 10, all equal to the last bit" in found.out


def test_a_run_is_replayed(polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm(*RUN, "--log-updates", "--fleet", "tiers", "--method", "ccfl | rolling | buffer(size=2)", *out)
    found = polyrhythm("replay", "mine", *out)
    assert (found.code, found.out.count("all equal")) == (0, 1)

    def no_data(name: str) -> None:
        raise AssertionError("data were read")

    monkeypatch.setattr(data_names, "source", no_data)
    found = polyrhythm("replay", "mine", "--from-updates", "--json", *out)
    assert (found.code, json.loads(found.out)["last"]) == (0, 4)


@pytest.mark.parametrize(
    "recipe", ["fedex_lora", "flora(rank=none)", "flexlora(rank=none)", "ffa_lora", "rolora | server_adam"]
)
def test_adapters_are_replayed_from_updates(polyrhythm: Command, tmp_path: Path, recipe: str) -> None:
    """The server's average needs to know which numbers are factors, and makes what it changes under them."""
    out = ("--out", str(tmp_path))
    small = ("--model", "with_lora(mlp(hidden=[8]), rank=2)", "--set", "method.cohort=3", "--log-updates")
    assert polyrhythm(*RUN, *small, "--method", recipe, *out).code == 0
    found = polyrhythm("replay", "mine", "--from-updates", "--json", *out)
    assert (found.code, json.loads(found.out)["last"]) == (0, 4)


def test_a_run_without_updates_cannot_be_replayed_from_them(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm(*RUN, *out)
    found = polyrhythm("replay", "mine", "--from-updates", *out)
    assert found.code == 2
    assert "--log-updates" in found.err
