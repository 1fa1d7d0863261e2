"""What the parts of a model that clients hold give on the test set."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import polyrhythm as pr
from methods.test_capacity_pairs import two_layers
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.prepared import prepare
from polyrhythm.methods.capacity.base import Capacity
from polyrhythm.methods.capacity.largest_weights import LargestWeights
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from small import experiment, logged

ASKED = pr.Evaluation(measure=("submodels",))


@pytest.mark.parametrize(
    "part", [WidthPrefix(ratio=(1.0, 0.5)), LargestWeights(ratio=(1.0, 0.5))], ids=lambda part: part.label()
)
def test_the_part_of_a_level_is_measured_on_the_test_set(part: Capacity) -> None:
    """By hand: the first half of each width, or the larger half of all weights and biases, and zeros for the others."""
    given = {"model": two_layers, "recipe": pr.fedavg(cohort=4, batch=8) | part, "evaluation": ASKED}
    _, log = logged(**given)
    module, test = two_layers((4,), 3), prepare(experiment(**given)).federation.test
    state = dict(log.states[-1])
    if part.cuts == "magnitude":
        sizes = torch.cat([value.abs().flatten() for value in state.values()])
        least = sizes.sort(descending=True).values[len(sizes) // 2 - 1]
        state = {name: torch.where(value.abs() >= least, value, 0.0) for name, value in state.items()}
    else:
        module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
        state = {name: state[name][tuple(map(slice, own.shape))] for name, own in module.state_dict().items()}
    module.load_state_dict(state)
    inputs, targets = test.batch(torch.arange(len(test)))
    right = float((module(inputs).argmax(1) == targets).float().mean())
    assert log.versions[-1].measures == {"submodel_0.5_accuracy": pytest.approx(right)}


def test_a_model_that_everybody_has_whole_has_no_parts() -> None:
    with pytest.raises(UserError, match="measure = submodels, and fedavg"):
        prepare(experiment(evaluation=ASKED))
