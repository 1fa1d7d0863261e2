"""SCAFFOLD against its equations in NumPy (option II), on clients that take unequal steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.local.schedules import Cosine, Exponential, Power, StepDecay
from polyrhythm.methods.papers import fedavg, scaffold

Bowls = Callable[..., list[Any]]
Descend = Callable[..., np.ndarray]
START = [1.0, -2.0, 0.5]


@pytest.mark.parametrize(
    "local",
    [
        {},
        {"momentum": 0.8},
        {"momentum": 0.8, "nesterov": True},
        {"mu": 0.7},
        {"momentum": 0.5, "mu": 0.3},
    ],
)
@pytest.mark.parametrize(("cohort", "population", "server_lr"), [(5, 5, 1.0), (3, 8, 1.0), (2, 5, 0.5)])
def test_path_and_controls(
    bowls: Bowls,
    descend: Descend,
    clients: list[Any],
    local: dict[str, Any],
    cohort: int,
    population: int,
    server_lr: float,
) -> None:
    common = {k: v for k, v in local.items() if k != "mu"}
    recipe = scaffold(server_lr=server_lr, cohort=cohort, epochs=2, batch=1, lr=0.05, **common)
    if "mu" in local:
        recipe = recipe | Prox(mu=local["mu"])
    versions = bowls(recipe, clients, START, rounds=8, population=population)

    x, c, controls = np.array(START), np.zeros(3), np.zeros((population, 3))
    for version in versions:
        ends, changes = [], []
        for i in version.cohort:
            steps = 2 * clients[i].copies
            y = descend(
                lambda w, i=i, c=c: clients[i].gradient(w) - controls[i] + c,
                x,
                steps,
                0.05,
                **local,
            )
            effective = -descend(lambda w: np.ones(1), np.zeros(1), steps, 0.05, **local)  # K * eta when plain
            renewed = controls[i] - c + (x - y) / effective
            changes.append(renewed - controls[i])
            controls[i] = renewed
            ends.append(y)
        x = x + server_lr * np.mean([y - x for y in ends], axis=0)
        c = c + len(ends) / population * np.mean(changes, axis=0)
        np.testing.assert_allclose(version.weights, x, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(version.server("control_variates", "control"), c, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(c, controls.mean(axis=0), rtol=1e-9, atol=1e-10)
    seen = {i for version in versions for i in version.cohort}
    for i in seen:
        mine = versions[-1].client(i, "control_variates", "control")
        np.testing.assert_allclose(mine, controls[i], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "common",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"schedule": StepDecay(every=2, gamma=0.5, unit="step"), "momentum": 0.5},
        {"schedule": Power(alpha=0.5), "momentum": 0.9},
        {"schedule": Cosine(unit="step")},
        {"schedule": Cosine()},
        {"schedule": Exponential(gamma=0.8), "momentum": 0.9},
    ],
)
@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_a_control_is_the_average_gradient_exactly_where_the_gradient_is_constant(
    bowls: Bowls, flat_clients: list[Any], common: dict[str, Any], mu: float
) -> None:
    recipe = scaffold(cohort=3, epochs=2, batch=1, lr=0.1, **common) | Prox(mu=mu)
    versions = bowls(recipe, flat_clients, START, rounds=4)
    for version in versions:
        for i in version.cohort:
            mine = version.client(i, "control_variates", "control")
            np.testing.assert_allclose(mine, flat_clients[i].slope, rtol=1e-10, atol=1e-12)


def test_corrections_cancel_when_everybody_takes_part(bowls: Bowls, clients: list[Any]) -> None:
    for version in bowls(scaffold(cohort=5, epochs=1, batch=1), clients, START, rounds=4):
        c = version.server("control_variates", "control")
        own = [version.client(i, "control_variates", "control") for i in range(5)]
        np.testing.assert_allclose(sum(c - mine for mine in own), 0, atol=1e-12)
        assert any(np.abs(c - mine).max() > 0.01 for mine in own)


def test_it_finds_the_optimum_of_the_mean_loss_where_fedavg_does_not(bowls: Bowls, clients: list[Any]) -> None:
    optimum = sum(c.curvature * c.optimum - c.slope for c in clients) / sum(c.curvature for c in clients)
    settings: dict[str, Any] = {"cohort": 5, "epochs": 3, "batch": 1, "lr": 0.05}
    ends = [
        bowls(recipe, clients, START, rounds=60)[-1].weights for recipe in (scaffold(**settings), fedavg(**settings))
    ]
    np.testing.assert_allclose(ends[0], optimum, atol=1e-6)
    assert np.abs(ends[1] - optimum).max() > 0.05


@pytest.mark.parametrize(("drop_last", "steps"), [(False, (6, 42)), (True, (4, 40))])
def test_steps_are_those_truly_taken(
    bowls: Bowls, flat_clients: list[Any], drop_last: bool, steps: tuple[int, int]
) -> None:
    """33 and 330 samples in batches of 16, two epochs: neither epochs nor samples count, but optimiser steps."""
    kind = type(flat_clients[0])
    pair = [kind(c.curvature, c.optimum, c.slope, copies) for c, copies in zip(flat_clients, (33, 330), strict=False)]
    recipe = scaffold(cohort=2, epochs=2, batch=16, lr=0.01, drop_last=drop_last)
    for version in bowls(recipe, pair, START, rounds=2):
        assert tuple(r.steps for r in sorted(version.release.reports, key=lambda r: r.client)) == steps
        for report in version.release.reports:
            assert report.travel == pytest.approx(report.steps * 0.01, rel=1e-12)
            control = version.client(report.client, "control_variates", "control")
            np.testing.assert_allclose(control, pair[report.client].slope, rtol=1e-9)


def test_a_client_that_never_trained_has_no_control_and_receives_the_servers(bowls: Bowls, clients: list[Any]) -> None:
    versions = bowls(scaffold(cohort=2, epochs=1, batch=1, lr=0.05), clients, START, rounds=3)
    early = {i for version in versions[:2] for i in version.cohort}
    late = [i for i in versions[2].cohort if i not in early]
    assert late, "the seed must give a client that first trains in version 2"
    for i in late:
        report = next(r for r in versions[2].release.reports if r.client == i)
        c = torch.from_numpy(versions[1].server("control_variates", "control"))
        # One epoch of identical samples with the control c and none of its own.
        w0 = torch.from_numpy(versions[1].weights)
        w = w0.clone()
        for _ in range(clients[i].copies):
            w = w - 0.05 * (torch.from_numpy(clients[i].gradient(w.numpy())) + c)
        torch.testing.assert_close(report.update[:3], w - w0, rtol=1e-10, atol=1e-12)
        assert c.abs().max() > 0.01
