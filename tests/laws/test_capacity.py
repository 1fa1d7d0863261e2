"""Clients that train a part of the model: no more is sent, trained or averaged, and who holds all is as in FedAvg."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.portions import Portion
from polyrhythm.base.settings import Settings
from polyrhythm.core import client, portions, versions
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.capacity import base, random_width, rolling_window
from polyrhythm.methods.capacity.base import Widths, count
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rolling_window import RollingWindow, window
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.compression import Int8
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.mechanism import Release
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Adam, Momentum
from polyrhythm.methods.weighing import Equal, NormalisedAveraging, Staleness
from polyrhythm.models.narrowing import narrow

from .fleets import fleets
from .hand import flat, optimiser_of, train
from .law import law, swap
from .trials import Trial, trials
from .world import Federation, Run, _axes, alike, near, play, run, same

CUT = ("perceptron", "batchnorm", "dropout")
KINDS = (WidthPrefix, RollingWindow, RandomWidth)
LEVELS = ((0.5,), (1.0, 0.4), (1.0, 0.6, 0.2))
_OVER, _TAKEN, _DRAWN, _WINDOW = portions.over_holders, Portion.taken, random_width.drawn, window


def held(story: Run, federation: Federation, dispatch: int, part: Widths) -> Portion | None:
    """What the client of a visit held."""
    what = story.assignments[dispatch]
    return part.portion(federation.setup(None), what.client, what.visit, what.version)


def mask_of(portion: Portion | None, size: int) -> Tensor:
    return torch.ones(size, dtype=torch.bool) if portion is None else portion.mask


@law(
    trial=trials(nets=CUT),
    kind=st.sampled_from(KINDS),
    others=st.sampled_from(((), (Momentum(),), (NormalisedAveraging(), Int8()))),
    broken_by={
        "half of it": swap(Widths, "level_of", lambda self, setup, client, version: 0.5),
    },
)
def test_whoever_holds_all_of_the_model_is_as_in_fedavg(
    trial: Trial, kind: type[Widths], others: tuple[Settings, ...]
) -> None:
    """r = 1 for all: every model, update and loss, to the bit."""
    same_runs = (run(trial.recipe(*others, *part), trial.federation) for part in ((), (kind(ratio=1.0),)))
    assert alike(*same_runs)


def _first_half_of_none(self: Portion, vector: Tensor) -> Tensor:
    return _TAKEN(self, vector.flip(0))


@law(
    trial=trials(nets=CUT, travels=False),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    examples=12,
    broken_by={
        "other coordinates are trained": swap(Portion, "taken", _first_half_of_none),
        "what is not held is sent as well": swap(
            Portion, "put", lambda self, own, onto: torch.where(self.mask, onto + own.sum(), onto + 1.0)
        ),
        "outputs are scaled": swap(Widths, "scale", lambda self, setup, client, version: 2.0),
    },
)
def test_a_visit_is_one_of_the_narrower_module(
    trial: Trial,
    kind: type[Widths],
    levels: tuple[float, ...],
) -> None:
    """A copy of the module that is really cut, trained with torch.optim on the same batches, moves as far."""
    trial = trial.but(keep_state=False)
    federation, part = (
        Federation(sizes=trial.federation.sizes, net="perceptron", dtype=torch.float64),
        kind(ratio=levels),
    )
    recipe, axes = trial.recipe(part), _axes("perceptron", torch.float64)
    story, shards = play(recipe, federation), federation.shards()
    assert axes is not None
    for dispatch, report in story.reports.items():
        portion, assignment = held(story, federation, dispatch, part), story.assignments[dispatch]
        if portion is None or report.update is None:
            continue
        module = narrow(federation.module(), portion).double().train()
        own, layout = dict(module.named_parameters()), portion.layout
        with torch.no_grad():
            for name, values in layout.named(portion.taken(assignment.weights)).items():
                own[name].copy_(values)
        optimiser, batches = optimiser_of(recipe.optimiser, module), story.batches[dispatch]
        for step, batch in enumerate(batches):
            _at_rate(optimiser, trial, recipe, assignment.version, step, len(batches))
            train(module, layout, shards[assignment.client], [batch], optimiser, clip=recipe.optimiser.clip)
        moved = flat(module, layout) - portion.taken(assignment.weights)
        assert near(portion.taken(report.update), moved, 1e-9)
        assert not report.update[~portion.mask].any()


def _at_rate(optimiser: Any, trial: Trial, recipe: Any, version: int, step: int, steps: int) -> None:
    schedule = recipe.schedule
    factor = schedule.factor(step, steps) if schedule.unit == "step" else schedule.factor(version, 3)
    for group in optimiser.param_groups:
        group["lr"] = recipe.optimiser.lr * factor


def _over_all(mean: Tensor, release: Release) -> Any:
    return mean, _OVER(mean, release)[1]


def _by_heads(mean: Tensor, release: Release) -> Any:
    sizes = torch.stack([mask_of(p, len(mean)).double() for p in release.portions]).sum(0)
    return mean * len(release.portions) / sizes.clamp(min=1), sizes == 0


@law(
    trial=trials(nets=CUT),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    scalings=st.sampled_from(((), (Equal(),), (NormalisedAveraging(),), (Buffer(size=2), Staleness()))),
    fleet=fleets(),
    examples=12,
    broken_by={
        "over all, as if the others had not moved": swap(versions, "over_holders", _over_all),
        "over the holders, whatever their shares": swap(versions, "over_holders", _by_heads),
        "a report counts for all coordinates": swap(versions, "portion_of", lambda recipe, setup, report: None),
    },
)
def test_the_mean_of_a_coordinate_is_over_its_holders(
    trial: Trial, kind: type[Widths], levels: tuple[float, ...], scalings: tuple[Settings, ...], fleet: Any
) -> None:
    """sum_i s_i c_i u_ij / sum_i s_i over who holds j, by brute force; what nobody holds is bitwise as it was."""
    part = kind(ratio=levels)
    given = trial.federation
    federation = Federation(sizes=given.sizes, net=given.net, seed=given.seed, fleet=fleet)
    story = run(trial.recipe(part, *scalings), federation, versions=4)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        if release is None:
            continue
        size = len(before.weights)
        top, below = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
        for report, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            mask = mask_of(held(story, federation, report.dispatch, part), size)
            assert report.update is not None
            assert not report.update[~mask].any()
            top += share * scale * report.update.double() * mask
            below += share * mask
        mean = torch.where(below > 0, top / below.clamp(min=1e-12), 0.0)
        assert near(after.weights, before.weights.double() + mean, 1e-5)
        nobody = below == 0
        assert same(after.weights[nobody], before.weights[nobody])
        for slot, a, b in zip(range(len(after.buffers)), after.buffers, before.buffers, strict=True):
            assert a.shape == b.shape, slot


@law(
    trial=trials(nets=("perceptron",)),
    step=st.sampled_from((Adam(lr=0.1), Momentum(beta=0.9))),
    broken_by={
        "moments fall where nobody is": swap(versions, "kept_state", lambda after, before, nobody, size: after),
        "momentum goes on where nobody is": swap(
            versions, "over_holders", lambda mean, release: (_OVER(mean, release)[0], None)
        ),
    },
)
def test_where_nobody_holds_a_coordinate_the_server_takes_no_step(trial: Trial, step: Settings) -> None:
    """Weights and moments are bitwise as they were, although moments of others fall."""
    part = RollingWindow(ratio=0.4)
    story = run(trial.recipe(part, step), trial.federation, versions=5)
    key = step.label()
    for version, (before, after) in enumerate(zip(story.states, story.states[1:], strict=False)):
        axes = _axes(trial.federation.net, torch.float32)
        assert axes is not None
        nobody = ~mask_of(window(axes, 0.4, version), len(before.weights))
        assert same(after.weights[nobody], before.weights[nobody])
        for name, value in after.parts[key].items():
            if isinstance(value, Tensor) and value.shape == nobody.shape:
                assert same(value[nobody], before.parts[key][name][nobody])
        assert not same(after.weights, before.weights)


def _plain_means(many: Any) -> Any:
    return tuple(torch.stack([t.double() for t in tensors]).mean(0).float() for tensors in zip(*many, strict=True))


@law(
    trial=trials(nets=("batchnorm",)),
    levels=st.sampled_from(((0.5,), (1.0, 0.4))),
    broken_by={
        "over all who came": swap(versions, "mean_of_held", lambda layout, many, *rest: _plain_means(many)),
    },
)
def test_statistics_of_a_unit_are_of_those_who_hold_it(trial: Trial, levels: tuple[float, ...]) -> None:
    part = WidthPrefix(ratio=levels)
    story = run(trial.recipe(part), trial.federation, versions=2)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        assert released.release is not None
        for number, (old, new) in enumerate(zip(before.buffers, after.buffers, strict=True)):
            if not old.is_floating_point():
                continue
            top, below = torch.zeros_like(old), torch.zeros_like(old)
            for report in released.release.reports:
                portion = held(story, trial.federation, report.dispatch, part)
                where = None if portion is None else portion.buffer_places[number]
                one = torch.ones_like(old) if where is None else torch.zeros_like(old).index_fill(0, where, 1.0)
                top += report.num_samples * report.buffers[number] * one
                below += report.num_samples * one
            assert near(new, torch.where(below > 0, top / below.clamp(min=1.0), old))


@law(
    ratio=st.sampled_from((0.2, 0.4, 0.5, 0.9)),
    start=st.integers(0, 9),
    broken_by={
        "it stands still": swap(rolling_window, "window", lambda axes, ratio, version: _WINDOW(axes, ratio, 0)),
        "it jumps by its width": swap(
            rolling_window, "window", lambda axes, ratio, version: _WINDOW(axes, ratio, version * 2)
        ),
    },
)
def test_a_window_holds_every_unit_equally_often(ratio: float, start: int) -> None:
    """In n versions k times each, and from one to the next one unit leaves and one comes."""
    axes = _axes("perceptron", torch.float32)
    assert axes is not None
    part, setup = RollingWindow(ratio=ratio), Federation().setup(None)
    n, k = axes.axes[0].units, count(axes.axes[0], ratio)
    times, last = np.zeros(n, dtype=int), None
    for version in range(start, start + n):
        portion = part.portion(setup, 0, 0, version)
        kept = set(range(n)) if portion is None else set(portion.kept[0].tolist())
        assert len(kept) == k
        assert last is None or k == n or len(kept - last) == 1
        times[list(kept)] += 1
        last = kept
    assert (times == k).all()


@law(
    ratio=st.sampled_from((0.3, 0.5)),
    shared=st.booleans(),
    broken_by={
        "the same on every visit": swap(random_width, "drawn", lambda axes, ratio, *names: base.prefix(axes, ratio)),
        "whoever it is": swap(
            random_width,
            "drawn",
            lambda axes, ratio, seed, names: _DRAWN(axes, ratio, seed, (0,)),
        ),
    },
)
def test_random_units_are_drawn_by_name(ratio: float, shared: bool) -> None:
    """For each visit, or one set for all in a version; narrower ones lie in wider ones where it is shared."""
    federation = Federation()
    setup, part = federation.setup(None), RandomWidth(ratio=ratio, shared=shared)
    draws = {(c, v): part.portion(setup, c, v, v) for c in range(4) for v in range(6)}
    kept = {where: tuple(p.kept[0].tolist()) for where, p in draws.items() if p is not None}
    assert len(set(kept.values())) > 1
    assert kept == {w: tuple(p.kept[0].tolist()) for w, p in ((w, part.portion(setup, *w, w[1])) for w in kept) if p}
    if shared:
        assert all(kept[0, v] == kept[c, v] for c, v in kept)
        wider = RandomWidth(ratio=0.9, shared=True)
        for (c, v), few in kept.items():
            more = wider.portion(setup, c, v, v)
            assert more is None or set(few) <= set(more.kept[0].tolist())


@law(
    trial=trials(nets=CUT, plain=True),
    kind=st.sampled_from(KINDS),
    broken_by={
        "everybody has all of it": swap(client, "narrowed", lambda *of: None),
    },
)
def test_narrower_clients_train_another_model(trial: Trial, kind: type[Widths]) -> None:
    """It does something: the active law."""
    plain, cut = (run(trial.recipe(*part), trial.federation) for part in ((), (kind(ratio=0.5),)))
    assert not alike(plain, cut)
    for dispatch, report in cut.reports.items():
        portion = held(cut, trial.federation, dispatch, kind(ratio=0.5))
        assert portion is not None
        assert report.update is not None
        assert not report.update[~portion.mask].any()


@law(
    trial=trials(nets=CUT, travels=False),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    others=st.sampled_from(((), (Prox(mu=0.1),), (Int8(),))),
    broken_by={
        "engines of parts remember": swap(
            TorchEngine, "narrowed", lambda self, portion, scale=1.0: _leaking(self, portion)
        ),
    },
)
def test_a_part_of_the_model_may_be_trained_anywhere(
    trial: Trial, kind: type[Widths], levels: tuple[float, ...], others: tuple[Settings, ...]
) -> None:
    """In any order, and each visit by an engine of its own: the same bits."""
    if trial.recipe().optimiser.keep_state and kind is not WidthPrefix:
        trial = trial.but(keep_state=False)
    recipe = trial.recipe(kind(ratio=levels), *others)
    here = play(recipe, trial.federation)
    there = play(recipe, trial.federation, arrival=lambda invited: invited[::-1], apart=True)
    assert same([s.weights for s in here.states], [s.weights for s in there.states])


_PARTS: dict[int, int] = {}


def _leaking(engine: TorchEngine, portion: Portion) -> TorchEngine:
    """An engine that trains what it has trained before a little further."""
    own = TorchEngine(narrow(engine.given(), portion), engine._task)
    visits = _PARTS[id(engine)] = _PARTS.get(id(engine), 0) + 1
    load = own.open

    def opened(visit: Any) -> None:
        load(visit)
        own.weights.add_(1e-3 * visits)

    vars(own)["open"] = opened
    return own
