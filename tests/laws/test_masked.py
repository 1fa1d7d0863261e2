"""Outputs for classes that a client lacks: they count as 0 in its training, and their rows in no mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.settings import Settings
from polyrhythm.core import training, versions
from polyrhythm.engines import torch as torch_engine
from polyrhythm.methods.capacity.base import Widths
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.compression import Int8
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.weighing import Equal, Staleness

from .hand import optimiser_of
from .law import law, swap
from .test_capacity import _at_rate, _over_all, held, mask_of
from .trials import Trial, trials
from .world import CLASSES, Federation, alike, near, play, run, same

KINDS = (WidthPrefix, RandomWidth)
LEVELS = ((1.0,), (0.5,), (1.0, 0.4))
FEW = (2, 3, 2, 6)  # samples, so that clients lack classes
MANY = (60, 90)
_LEFT_OUT = torch_engine.left_out


def classes_of(federation: Federation, client: int) -> Tensor:
    return torch.bincount(federation.shards()[client].targets, minlength=CLASSES) > 0


def rows(federation: Federation, present: Tensor) -> Tensor:
    """Whether each coordinate is none of the output rows of classes that are not there, bool [P]."""
    layout = federation.engine().layout
    last = [name for name, m in federation.module().named_modules() if isinstance(m, nn.Linear)][-1]
    found = torch.ones(layout.size, dtype=torch.bool)
    for name in (f"{last}.weight", f"{last}.bias"):
        layout.named(found)[name][~present] = False
    return found


@law(
    trial=trials(nets=("perceptron", "batchnorm")),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    others=st.sampled_from(((), (Equal(), Int8()))),
    broken_by={
        "a class is missing": swap(training, "present_in", lambda data, layout: torch.arange(CLASSES) > 0),
    },
)
def test_with_all_classes_it_changes_nothing(
    trial: Trial, kind: type[Widths], levels: tuple[float, ...], others: tuple[Settings, ...]
) -> None:
    """Every model, update and loss, to the bit."""
    federation = replace(trial.federation, sizes=MANY)
    assert all(classes_of(federation, client).all() for client in range(len(MANY)))
    trial = trial.but(cohort=2)
    parts = (kind(ratio=levels), kind(ratio=levels, masked=True))
    assert alike(*(run(trial.recipe(*others, part), federation) for part in parts))


@law(
    trial=trials(nets=("perceptron",), travels=False),
    levels=st.sampled_from(LEVELS),
    examples=12,
    broken_by={
        "other classes are ruled out": swap(
            torch_engine, "left_out", lambda outputs, classes: outputs.index_fill(1, classes, -torch.inf)
        ),
        "they are as they are": swap(torch_engine, "left_out", lambda outputs, classes: outputs),
        "rows decay": swap(training, "rows_of", lambda lacking, layout: ()),
    },
)
def test_a_visit_without_some_classes(trial: Trial, levels: tuple[float, ...]) -> None:
    """A narrow copy, outputs with zeros, rows that torch.optim has no gradient of: as far; and rows stay to the bit."""
    trial = trial.but(keep_state=False, weight_decay=0.1, lr=0.1)
    federation = Federation(sizes=FEW, dtype=torch.float64)
    part = WidthPrefix(ratio=levels, masked=True)
    recipe = trial.recipe(part)
    story, shards = play(recipe, federation), federation.shards()
    whole = federation.engine().layout
    for dispatch, report in story.reports.items():
        portion, assignment = held(story, federation, dispatch, part), story.assignments[dispatch]
        if report.update is None:
            continue
        present = classes_of(federation, assignment.client)
        assert report.extras["width_prefix"]["classes"].tolist() == present.tolist()
        layout = whole if portion is None else portion.layout
        sent = assignment.weights if portion is None else portion.taken(assignment.weights)
        before = layout.named(sent)
        body = {name: nn.Parameter(w.clone()) for name, w in before.items() if not name.startswith("2.")}
        head = {name: nn.Parameter(w[present].clone()) for name, w in before.items() if name.startswith("2.")}
        learns = nn.ParameterList([*body.values(), *head.values()])
        optimiser, batches = optimiser_of(recipe.optimiser, learns), story.batches[dispatch]
        for step, batch in enumerate(batches):
            _at_rate(optimiser, trial, recipe, assignment.version, step, len(batches))
            inputs, targets = shards[assignment.client].inputs[batch], shards[assignment.client].targets[batch]
            hidden = torch.tanh(functional.linear(inputs, body["0.weight"], body["0.bias"]))
            logits = torch.zeros(len(inputs), CLASSES, dtype=torch.float64)
            logits[:, present] = functional.linear(hidden, head["2.weight"], head["2.bias"])
            optimiser.zero_grad()
            functional.cross_entropy(logits, targets).backward()
            if recipe.optimiser.clip is not None:
                nn.utils.clip_grad_norm_(learns.parameters(), recipe.optimiser.clip)
            optimiser.step()
        moved = assignment.weights + report.update
        after = layout.named(moved if portion is None else portion.taken(moved))
        for name, values in body.items():
            assert near(after[name], values.detach(), 1e-9), name
        for name, values in head.items():
            assert near(after[name][present], values.detach(), 1e-9), name
            assert same(after[name][~present], before[name][~present])


@law(
    trial=trials(nets=("perceptron", "batchnorm")),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    scalings=st.sampled_from(((), (Equal(),), (Buffer(size=2), Staleness()))),
    examples=12,
    broken_by={
        "over all who came": swap(versions, "without_lacking", lambda portion, *rest: portion),
        "over all, as if the others had not moved": swap(versions, "over_holders", _over_all),
    },
)
def test_the_mean_of_a_row_is_over_those_who_have_its_class(
    trial: Trial, kind: type[Widths], levels: tuple[float, ...], scalings: tuple[Settings, ...]
) -> None:
    """By brute force; rows of a class that nobody has, and what nobody holds, are bitwise as they were."""
    part = kind(ratio=levels, masked=True)
    federation = replace(trial.federation, sizes=FEW)
    trial = trial.but(cohort=min(trial.common["cohort"], len(FEW)))
    story = run(trial.recipe(part, *scalings), federation, versions=4)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        if release is None:
            continue
        top, below = (torch.zeros(len(before.weights), dtype=torch.float64) for _ in range(2))
        for report, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            mask = mask_of(held(story, federation, report.dispatch, part), len(top))
            mask = mask & rows(federation, classes_of(federation, report.client))
            assert report.update is not None
            assert not report.update[~mask].any()
            top += share * scale * report.update.double() * mask
            below += share * mask
        mean = torch.where(below > 0, top / below.clamp(min=1e-12), 0.0)
        assert near(after.weights, before.weights.double() + mean, 1e-5)
        assert same(after.weights[below == 0], before.weights[below == 0])


@law(
    trial=trials(nets=("perceptron",), plain=True),
    broken_by={"all classes count as there": swap(training, "present_in", lambda data, layout: torch.ones(3).bool())},
)
def test_what_a_client_lacks_is_left_alone(trial: Trial) -> None:
    """It does something where a class is missing, also to clients that hold all of the model."""
    federation = replace(trial.federation, sizes=FEW)
    trial = trial.but(cohort=len(FEW))
    stories: list[Any] = [run(trial.recipe(WidthPrefix(ratio=1.0, masked=on)), federation) for on in (False, True)]
    assert not alike(*stories)
