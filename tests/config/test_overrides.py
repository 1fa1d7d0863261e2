"""Keys with dots, also inside the texts that name things."""

from __future__ import annotations

from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.config.configuration import configure
from polyrhythm.config.overrides import put


@pytest.mark.parametrize(
    ("values", "path", "value", "made"),
    [
        ({"method": "fedavg"}, "method.lr", 0.1, {"method": "fedavg(lr=0.1)"}),
        ({}, "method.lr", 0.1, {"method": "fedavg(lr=0.1)"}),
        ({}, "partition.alpha", 1, {"partition": "dirichlet(alpha=1)"}),
        ({"data": "digits"}, "model.hidden", 8, {"data": "digits", "model": "mlp(hidden=8)"}),
        (
            {"method": ["fedavg(lr=1)", "prox(mu=1)"]},
            "method.prox.mu",
            0.5,
            {"method": "fedavg(lr=1) | prox(mu=0.5)"},
        ),
        (
            {"method": "fedavg | server-adam"},
            "method.server_adam.lr",
            1e-05,
            {"method": "fedavg | server-adam(lr=1e-05)"},
        ),
        (
            {"method": "ccfl(budgets=slow_share(period=2))"},
            "method.budgets.share_slow",
            0.25,
            {"method": "ccfl(budgets=slow_share(period=2, share_slow=0.25))"},
        ),
        ({}, "method.schedule", "power", {"method": "fedavg(schedule=power)"}),
        ({}, "method.schedule", "step_decay(gamma=0.5)", {"method": "fedavg(schedule=step_decay(gamma=0.5))"}),
        ({"fleet": "tiers | faults"}, "fleet.faults.dropout", 0.1, {"fleet": "tiers | faults(dropout=0.1)"}),
        ({"evaluation": {"groups": True}}, "evaluation.every", 5, {"evaluation": {"groups": True, "every": 5}}),
        ({}, "rounds", 3, {"rounds": 3}),
    ],
)
def test_a_value_goes_where_it_belongs(values: dict[str, Any], path: str, value: Any, made: dict[str, Any]) -> None:
    put(values, path, value)
    assert values == made


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"method": "fedavg"}, "method.prox.mu", "unknown part 'prox' in method.prox.mu"),
        ({"method": "ccfl"}, "method.budgets.period", "unknown part 'budgets'"),
        ({}, "task.k", "task is None"),
        ({"method": 3}, "method.lr", "method is 3"),
    ],
)
def test_what_has_no_place_is_refused(values: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        put(values, path, 1)


def test_a_setting_of_a_part_may_be_given_on_the_command_line() -> None:
    made = configure(None, {"method": "fedavg | prox"}, ["method.prox.mu=0.5", "method.lr=0.2"])
    assert made.method == "fedavg(lr=0.2) | prox(mu=0.5)"
    assert made.resolved_parts.recipe == (pr.fedavg(lr=0.2) | pr.parts.prox(mu=0.5))
    with pytest.raises(pr.UserError, match=r"the command line: method: .*mu = -1"):
        configure(None, {"method": "fedavg | prox"}, ["method.prox.mu=-1"])
