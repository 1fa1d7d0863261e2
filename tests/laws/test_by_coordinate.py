"""What remembers clients, where these hold fixed parts of the model: each coordinate by itself, over its holders."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.portions import FixedParts
from polyrhythm.base.settings import Settings
from polyrhythm.core import versions
from polyrhythm.methods.capacity.base import Levels, with_fixed_parts
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, VarianceReduction
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.robust import Median, TrimmedMean
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.weighing import Equal

from .law import law, swap
from .test_capacity import held, mask_of
from .world import Federation, Run, alike, near, play, run, same

FIXED: tuple[tuple[Settings, ...], ...] = (
    (ControlVariates(),),
    (VarianceReduction(),),
    (DynamicRegularisation(),),
    (LastUpdates(), Equal()),
    (LastUpdates(within=1), Equal()),
    (StaleUpdates(), Equal()),
    (LastModels(), Equal()),
)
ANY: tuple[tuple[Settings, ...], ...] = (
    (ClientMomentum(alpha=0.5),),
    (Buffer(size=2), FromCurrent()),
    (Median(),),
    (TrimmedMean(share=0.3),),
)
TWO = WidthPrefix(ratio=(1.0, 0.5), dealt="in_order")


def recipe(*parts: Settings, cohort: int = 2) -> Recipe:
    made = fedavg(cohort=cohort, epochs=1, batch=4, lr=0.1)
    for part in parts:
        made = made | part
    return made


def fixed(story: Run, federation: Federation) -> FixedParts:
    parts = with_fixed_parts(TWO, federation.setup(None)).fixed_parts
    assert parts is not None
    return parts


@law(
    others=st.sampled_from((*FIXED, *ANY)),
    examples=12,
    broken_by={"half of it": swap(Levels, "level_of", lambda self, setup, client, version: 0.5)},
)
def test_whoever_holds_all_of_the_model_is_as_without_parts(others: tuple[Settings, ...]) -> None:
    """r = 1 for all: every model, update and loss, to the bit."""
    federation = Federation()
    assert alike(*(run(recipe(*others, *part), federation, versions=3) for part in ((), (WidthPrefix(ratio=1.0),))))


@law(
    others=st.sampled_from((*FIXED, *ANY)),
    seed=st.integers(0, 99),
    examples=12,
    broken_by={
        "a step also there": swap(
            versions, "over_holders", lambda mean, release, over=versions.over_holders: (over(mean, release)[0], None)
        ),
    },
)
def test_where_nobody_holds_a_coordinate_there_is_no_step(others: tuple[Settings, ...], seed: int) -> None:
    """Whatever is remembered of it."""
    federation = Federation(seed=seed)
    story = play(recipe(*others, TWO, cohort=1), federation, versions=4)
    narrow = 0
    for before, after, released in zip(story.states, story.states[1:], story.released, strict=False):
        if released.release is None:
            continue
        told, size = released.release.reports, len(before.weights)
        masks = [mask_of(held(story, federation, report.dispatch, TWO), size) for report in told]
        nobody = ~torch.stack(masks).any(0)
        narrow += bool(nobody.any())
        assert same(before.weights[nobody], after.weights[nobody])
        assert not same(before.weights[~nobody], after.weights[~nobody])
    assert narrow or seed


def _all(self: FixedParts) -> Tensor:
    return torch.tensor(4.0, dtype=torch.float64)


def _mean(vectors: list[Tensor], parts: FixedParts) -> Tensor:
    masks = [mask_of(parts.part(client), len(vectors[0])) for client in range(4)]
    return torch.stack(vectors).double().sum(0) / torch.stack(masks).sum(0).clamp(min=1)


@law(
    seed=st.integers(0, 99),
    broken_by={"over all clients": swap(FixedParts, "holders", property(_all))},
)
def test_what_the_server_remembers_is_the_mean_over_the_holders(seed: int) -> None:
    """c of SCAFFOLD of all c_i, h of FedDyn of all duals, and AREA's model of all y_i."""
    federation = Federation(seed=seed, dtype=torch.float64)
    for part, key, name, own in (
        (ControlVariates(), "control_variates", "control", "control"),
        (DynamicRegularisation(), "dynamic_regularisation", "h", "dual"),
    ):
        story = play(recipe(part, TWO), federation, versions=4)
        parts, last = fixed(story, federation), dict[int, Tensor]()
        for dispatch in sorted(story.ends):
            state = story.ends[dispatch].parts.get(key, {})
            if own in state:
                last[story.assignments[dispatch].client] = state[own]
        assert near(story.states[-1].parts[key][name], _mean(list(last.values()), parts), 1e-9)
    story = play(recipe(LastModels(), Equal(), TWO), federation, versions=4)
    parts, state = fixed(story, federation), story.states[-1]
    models = state.parts["last_models"]
    first = models["first"]
    ways = [models["last"].get(c, first).double() - first for c in range(len(federation.sizes))]
    assert near(state.weights - first, _mean(ways, parts), 1e-9)
