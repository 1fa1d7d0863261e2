"""Clients that hold the first blocks of a model with exits: each exit learns from the task and from the others."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.portions import Portion
from polyrhythm.base.settings import Settings
from polyrhythm.core import client, portions, versions
from polyrhythm.engines import torch as torch_engine
from polyrhythm.methods.capacity.base import Levels
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix
from polyrhythm.methods.compression import Int8
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Adam, Momentum
from polyrhythm.methods.weighing import Equal, NormalisedAveraging, Staleness

from .fleets import fleets
from .hand import optimiser_of
from .law import law, swap
from .test_capacity import _at_rate, _by_heads, _over_all
from .trials import Trial, trials
from .world import Federation, Run, alike, near, play, run, same

DEPTHS = ((1, 3), (2,), (1, 2, 3), (3,))
NETS = ("exits", "normalised exits")
_SUM, _OVER = torch_engine.sum_of_exits, portions.over_holders


def of(federation: Federation, net: str, **changes: Any) -> Federation:
    return replace(federation, net=net, along="depth", **changes)


def held(story: Run, federation: Federation, dispatch: int, part: DepthPrefix) -> Portion | None:
    what = story.assignments[dispatch]
    return part.portion(federation.setup(None), what.client, what.visit, what.version)


def _twice(task: Any, exits: Any, targets: Tensor, weight: float) -> Tensor:
    return 2 * _SUM(task, exits, targets, weight)


@law(
    trial=trials(nets=("perceptron",)),
    others=st.sampled_from(((), (Momentum(),), (NormalisedAveraging(), Int8()))),
    depth=st.integers(1, 3),
    broken_by={"each exit counts twice": swap(torch_engine, "sum_of_exits", _twice)},
)
def test_with_one_exit_it_is_fedavg(trial: Trial, others: tuple[Settings, ...], depth: int) -> None:
    """Every model, update and loss, to the bit."""
    federation = of(trial.federation, "one exit")
    parts: tuple[tuple[Settings, ...], ...] = ((), (DepthPrefix(depth=depth),))
    assert alike(*(run(trial.recipe(*others, *part), federation) for part in parts))


def _other_way(task: Any, exits: Any, targets: Tensor, weight: float) -> Tensor:
    """KL(z_i || z_j) in place of KL(z_j || z_i)."""
    total = _SUM(task, exits, targets, 0.0)
    logs = [z.log_softmax(1) for z in exits]
    for i, one in enumerate(logs):
        for j, other in enumerate(logs):
            if i != j:
                total = total + weight / (len(logs) - 1) * (one.exp() * (one - other.detach())).sum(1).mean()
    return total


@law(
    trial=trials(nets=("perceptron",)),
    net=st.sampled_from(NETS),
    depths=st.sampled_from(DEPTHS),
    distillation=st.sampled_from((0.0, 3.0)),
    examples=12,
    broken_by={
        "exits do not learn from each other": swap(
            torch_engine, "sum_of_exits", lambda task, exits, targets, weight: _SUM(task, exits, targets, 0.0)
        ),
        "the other way round": swap(torch_engine, "sum_of_exits", _other_way),
        "the last exit alone": swap(
            torch_engine, "sum_of_exits", lambda task, exits, targets, weight: task.loss(exits[-1], targets)
        ),
        "from the beginning in full": swap(DepthPrefix, "exits", lambda self, version: self.distillation),
        "one block less": swap(Levels, "level_of", lambda self, setup, client, version: 1),
    },
)
def test_a_visit_trains_all_exits_of_the_first_blocks(
    trial: Trial, net: str, depths: tuple[int, ...], distillation: float
) -> None:
    """A copy with the first blocks, all losses written out with torch's own, stepped by torch.optim: as far."""
    trial = trial.but(keep_state=False, lr=0.3)
    given = trial.federation
    federation = Federation(sizes=given.sizes, net=net, dtype=torch.float64, along="depth")
    part = DepthPrefix(depth=depths, distillation=distillation, ramp=2, dealt="in_order")
    recipe = trial.recipe(part)
    story, shards = play(recipe, federation), federation.shards()
    for dispatch, report in story.reports.items():
        assignment = story.assignments[dispatch]
        if report.update is None:
            continue
        clients, levels = len(given.sizes), len(depths)
        depth = depths[math.floor(assignment.client * levels / clients + 1e-9)]
        module = copy.deepcopy(federation.module()).train()
        module.blocks, module.exits = module.blocks[:depth], module.exits[:depth]
        own, layout = dict(module.named_parameters()), federation.engine().layout
        before = layout.named(assignment.weights)
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(before[name])
        optimiser, batches = optimiser_of(recipe.optimiser, module), story.batches[dispatch]
        weight = distillation * math.exp(-5 * (1 - min(assignment.version / 2, 1)) ** 2)
        for step, batch in enumerate(batches):
            _at_rate(optimiser, trial, recipe, assignment.version, step, len(batches))
            inputs, targets = shards[assignment.client].inputs[batch], shards[assignment.client].targets[batch]
            loss = _loss(module, inputs, targets, weight)
            optimiser.zero_grad()
            loss.backward()
            if recipe.optimiser.clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), recipe.optimiser.clip)
            optimiser.step()
        after = layout.named(assignment.weights + report.update)
        for name, values in after.items():
            assert near(values, own[name].detach() if name in own else before[name], 1e-9), name


def _loss(module: Any, inputs: Tensor, targets: Tensor, weight: float) -> Tensor:
    hidden, given = inputs, list[Tensor]()
    for block, head in zip(module.blocks, module.exits, strict=True):
        hidden = block(hidden)
        given.append(head(hidden))
    loss = sum((functional.cross_entropy(z, targets) for z in given), torch.zeros(()))
    for i, one in enumerate(given):
        for j, other in enumerate(given):
            if i != j:
                apart = functional.kl_div(one.log_softmax(1), other.detach().softmax(1), reduction="batchmean")
                loss = loss + weight / (len(given) - 1) * apart
    return loss


@law(
    trial=trials(nets=("perceptron",)),
    net=st.sampled_from(NETS),
    depths=st.sampled_from(DEPTHS),
    scalings=st.sampled_from(((), (Equal(),), (NormalisedAveraging(),), (Buffer(size=2), Staleness()))),
    fleet=fleets(),
    examples=12,
    broken_by={
        "over all, as if the others had not moved": swap(versions, "over_holders", _over_all),
        "over the holders, whatever their shares": swap(versions, "over_holders", _by_heads),
        "a report counts for all coordinates": swap(versions, "portion_of", lambda *of: None),
    },
)
def test_the_mean_of_a_block_is_over_its_holders(
    trial: Trial, net: str, depths: tuple[int, ...], scalings: tuple[Settings, ...], fleet: Any
) -> None:
    """sum_i s_i c_i u_ij / sum_i s_i over who holds j, statistics likewise; what nobody holds is bitwise as it was."""
    part, federation = DepthPrefix(depth=depths), of(trial.federation, net, fleet=fleet)
    story = run(trial.recipe(part, *scalings), federation, versions=4)
    layout = federation.engine().layout
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        if release is None:
            continue
        top, below = (torch.zeros(len(before.weights), dtype=torch.float64) for _ in range(2))
        there = dict.fromkeys((s.name for s in layout.buffers), False)
        for report, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            depth = part.level_of(federation.setup(None), report.client, report.version)
            mask = torch.zeros(len(top), dtype=torch.bool)
            for segment in layout.segments:
                mask.narrow(0, segment.offset, segment.size).fill_(int(segment.name.split(".")[1]) < depth)
            assert report.update is not None
            assert not report.update[~mask].any()
            top += share * scale * report.update.double() * mask
            below += share * mask
            there |= {name: True for name in there if int(name.split(".")[1]) < depth}
        mean = torch.where(below > 0, top / below.clamp(min=1e-12), 0.0)
        assert near(after.weights, before.weights.double() + mean, 1e-5)
        assert same(after.weights[below == 0], before.weights[below == 0])
        for slot, old, new in zip(layout.buffers, before.buffers, after.buffers, strict=True):
            if not there[slot.name]:
                assert same(old, new), slot.name


@law(
    trial=trials(nets=("perceptron",), plain=True),
    step=st.sampled_from((Adam(lr=0.1), Momentum(beta=0.9))),
    broken_by={
        "everybody has all of it": swap(client, "narrowed", lambda *of: None),
        "momentum goes on where nobody is": swap(
            versions, "over_holders", lambda mean, release: (_OVER(mean, release)[0], None)
        ),
    },
)
def test_shallow_clients_leave_the_last_blocks_alone(trial: Trial, step: Settings) -> None:
    """The active law: they are bitwise as they were until somebody deeper comes, and the first ones move."""
    part, federation = DepthPrefix(depth=(1, 3), shares=(3, 1)), of(trial.federation, "exits")
    setup, layout = federation.setup(None), federation.engine().layout
    story = run(trial.recipe(part, step), federation, versions=4)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        assert released.release is not None
        depth = max(part.level_of(setup, r.client, r.version) for r in released.release.reports)
        for segment in layout.segments:
            alone = int(segment.name.split(".")[1]) >= depth
            assert not alone or same(segment.of(before.weights), segment.of(after.weights)), segment.name
        assert not same(after.weights, before.weights)
    for dispatch, report in story.reports.items():
        portion = held(story, federation, dispatch, part)
        assert portion is None or report.update is None or not report.update[~portion.mask].any()
    assert not alike(story, run(trial.recipe(step), federation, versions=4))


@law(
    trial=trials(nets=("perceptron",), travels=False),
    net=st.sampled_from(NETS),
    depths=st.sampled_from(DEPTHS),
    others=st.sampled_from(((), (Prox(mu=0.1),), (Int8(),))),
    broken_by={
        "engines of parts remember": swap(
            torch_engine.TorchEngine, "narrowed", lambda self, portion, scale=1.0: _leaking(self, portion)
        ),
    },
)
def test_shallow_models_may_be_trained_anywhere(
    trial: Trial, net: str, depths: tuple[int, ...], others: tuple[Settings, ...]
) -> None:
    """In any order, and each visit by an engine of its own: the same bits."""
    recipe, federation = trial.recipe(DepthPrefix(depth=depths), *others), of(trial.federation, net)
    here = play(recipe, federation)
    there = play(recipe, federation, arrival=lambda invited: invited[::-1], apart=True)
    assert same([s.weights for s in here.states], [s.weights for s in there.states])


_NARROWED, _VISITS = torch_engine.TorchEngine.narrowed, dict[int, int]()


def _leaking(engine: torch_engine.TorchEngine, portion: Portion) -> Any:
    """An engine that begins a little further from where it should, each time."""
    own: Any = _NARROWED(engine, portion)
    visits = _VISITS[id(engine)] = _VISITS.get(id(engine), 0) + 1
    load = own.open

    def opened(visit: Any) -> None:
        load(visit)
        own.weights.add_(1e-3 * visits)

    vars(own)["open"] = opened
    return own
