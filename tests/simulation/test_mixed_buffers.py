"""Without rounds, buffers move towards a client's by as much as the weights do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws.world import Federation, run

import polyrhythm as pr
from polyrhythm.base.messages import Report
from polyrhythm.core.server import Server
from polyrhythm.methods.recipe import Recipe

BATCHNORM = Federation(net="batchnorm")


def heard(recipe: Recipe, values: list[float]) -> list[float]:
    """The server's running mean after each of so many reports with such running means, each of the newest version."""
    setup, roster, engine = BATCHNORM.setup(len(values)), BATCHNORM.roster(), BATCHNORM.engine()
    server, initial = Server(recipe=recipe, setup=setup, layout=engine.layout), engine.initial()
    first = next(iter(run(pr.fedavg(cohort=1, epochs=1), BATCHNORM, versions=1).reports.values()))
    turn, found = server.begin(initial.weights, initial.buffers, roster), []
    for value in values:
        out: Any = max(turn.state.flights.items())
        assert out[1].version == turn.state.version
        buffers = tuple(torch.full_like(b, value) if b.is_floating_point() else b for b in first.buffers)
        report = replace(
            first,
            **{"dispatch": out[0], "client": out[1].client, "visit": out[1].visit, "version": out[1].version},
            **{"recipe": recipe.digest, "buffers": buffers, "checksum": None},
        )
        assert isinstance(report, Report)
        turn = server.receive(turn.state, report, roster)
        assert turn.verdict is not None
        assert turn.verdict.accepted, turn.verdict.reason
        found.append(float(turn.state.buffers[0][0]))
        assert int(turn.state.buffers[2]) == int(first.buffers[2])
    return found


def test_of_one_update_as_much_as_of_its_weights() -> None:
    recipe = pr.fedasync(concurrency=1, alpha=0.1, rule="constant", epochs=1)
    assert heard(recipe, [0.0, 10.0, 0.0]) == pytest.approx([0.0, 1.0, 0.9])


def test_a_step_of_the_whole_mean_takes_the_whole_buffer() -> None:
    recipe = pr.fedbuff(concurrency=1, buffer=1, epochs=1)
    assert heard(recipe, [3.0, 10.0]) == [3.0, 10.0]


def test_rounds_are_as_they_were() -> None:
    """Averaged by samples, whatever the server's learning rate."""
    story = run(pr.fedavg(cohort=4, epochs=1) | pr.parts.server_sgd(lr=0.1), BATCHNORM, versions=1)
    total = sum(r.num_samples for r in story.reports.values())
    mean = sum(r.buffers[0].double() * r.num_samples / total for r in story.reports.values())
    torch.testing.assert_close(story.states[-1].buffers[0].double(), mean, rtol=1e-6, atol=1e-6)
