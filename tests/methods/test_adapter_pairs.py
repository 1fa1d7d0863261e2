"""Adapters beside everything else: rows of the table of pairs in docs/concepts.md."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from torch import nn

import polyrhythm as pr
from laws.test_adapters import adapter_of, mean_of_products, of
from laws.world import Federation, run, same
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.config import names
from polyrhythm.experiments.dry_run import dry_run
from polyrhythm.methods.adapters.averages import DecomposedAverage, ResidualInBase
from polyrhythm.methods.adapters.factors import FreezeFactor
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.compression import Int8
from polyrhythm.methods.papers import fedavg
from small import logged, prepared

from .test_capacity_pairs import machines, two_layers
from .test_pairs import row

ONCE: dict[str, Any] = {"cohort": 4, "batch": 8, "epochs": 1}
AVERAGES = ("residual_in_base", "stack_in_base", "decomposed_average", "length_weighted_average")
D, K, RANK, HEAD = 16, 4, 3, 8 * 3 + 3  # of `two_layers`, 4 → 16 → 8 → 3, whose head learns whole
RANKS = RANK * (D + K) + RANK * (8 + 16)


def small_lora(shape: tuple[int, ...], outputs: int, rank: int = RANK, **settings: Any) -> nn.Module:
    return pr.models.with_lora(two_layers, rank=rank, **settings)(shape, outputs)


def refused(text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        names.recipe(text)
    return caught.value


@row(
    "an average of adapters × server optimisers, scales, `clip_updates`, middles, what else changes the mean",
    "an average of adapters × `personal_layers`, other parts of the model than `rank_prefix`",
)
@pytest.mark.parametrize(
    "other",
    [
        *("server_adam", "server_sgd(lr=0.5)", "normalised_averaging", "per_step", "clip_updates", "median"),
        *("dynamic_regularisation", "personal_layers", "width_prefix"),
    ],
)
@pytest.mark.parametrize("part", AVERAGES)
def test_what_changes_the_mean_is_refused(part: str, other: str) -> None:
    for text in (f"fedavg | {part} | {other}", f"fedavg | {other} | {part}"):
        found = refused(text).found
        assert part in found
        assert other.partition("(")[0] in found


@row("an average of adapters, `alternate_factors` × a buffer, `rolling`, `sampled_staleness`")
@pytest.mark.parametrize("late", ["buffer", "sampled_staleness", "buffer | rolling"])
@pytest.mark.parametrize("part", [*AVERAGES, "alternate_factors"])
def test_factors_of_several_versions_are_refused(part: str, late: str) -> None:
    assert "rounds: everybody begins at the same version" in str(refused(f"fedavg | {late} | {part}"))


@row(
    "`stack_in_base`, `decomposed_average` × control variates, a movement sent again, error feedback, moments kept "
    "over visits, a client's own model"
)
@pytest.mark.parametrize(
    "other",
    ["control_variates", "skip_and_estimate", "compress_top_k", "compress_int8", "personal_copy", "fine_tuning"],
)
def test_what_goes_on_from_other_coordinates_is_refused(other: str) -> None:
    for part in ("stack_in_base", "decomposed_average"):
        assert refused(f"fedavg | {part} | {other}").found == f"{part} with {other}"
        assert "keep_state" in refused(f"fedavg(momentum=0.9, keep_state=true) | {part}").found
    assert names.recipe(f"fedavg | residual_in_base | {other}")


@row("an average of adapters, `alternate_factors` × `dp`, `secagg`", "`alternate_factors`, `freeze_factor` × bytes")
def test_noise_and_masks_take_one_factor() -> None:
    for part in (*AVERAGES, "alternate_factors"):
        assert f"{part} with dp" in refused(f"fedavg | equal | {part} | dp").found
        assert f"{part} with secagg" in refused(f"fedavg | equal | {part} | secagg(limit=1)").found
    assert names.recipe("ffa_lora | equal | dp")
    assert names.recipe("ffa_lora | equal | secagg(limit=1)")
    factors = {"A": 4 * RANK * (K + D), "B": 4 * RANK * (D + 8)}  # inputs and outputs of both layers
    both, head = sum(factors.values()), 4 * HEAD
    assert both == 4 * RANKS
    for recipe, up, down in (
        (pr.ffa_lora(**ONCE), [factors["B"] + head] * 2, factors["B"] + head),
        (pr.rolora(**ONCE), [factors["B"] + head, factors["A"] + head], both + head),
    ):
        ready = prepared(model=small_lora, recipe=recipe, rounds=2)
        visits = logged(model=small_lora, recipe=recipe, rounds=2)[1].visits
        assert [v.bytes_up for v in visits] == [b for b in up for _ in range(4)]
        assert {v.bytes_down for v in visits} == {down}
        planned = dry_run(ready)
        assert (planned.bytes_up, planned.bytes_down) == (4 * sum(up), 8 * down)


@row("`residual_in_base`, `stack_in_base` × bytes")
def test_the_base_is_sent_and_does_not_come_back() -> None:
    for recipe in (pr.fedex_lora(**ONCE), pr.flora(**ONCE)):
        visits = logged(model=small_lora, recipe=recipe, rounds=2)[1].visits
        assert {v.bytes_up for v in visits} == {4 * (RANKS + HEAD)}
        assert {v.bytes_down for v in visits} == {4 * (RANKS + HEAD + D * K + 8 * D)}
        planned = dry_run(prepared(model=small_lora, recipe=recipe, rounds=2))
        assert planned.bytes_down == sum(v.bytes_down for v in visits)
        assert planned.bytes_up == sum(v.bytes_up for v in visits)


@row("an average of adapters, `alternate_factors` × a factor that is frozen")
def test_of_a_frozen_factor_nothing_is_left_to_do() -> None:
    frozen = pr.models.with_lora(two_layers, rank=RANK, freeze="A")
    for part in (*AVERAGES, "alternate_factors"):
        with pytest.raises(UserError, match=f"{part} and adapters of which one factor is frozen"):
            prepared(model=frozen, recipe=names.recipe(f"fedavg(cohort=4) | {part}"))
    with pytest.raises(UserError, match="which factor of adapters is trained"):
        fedavg() | FreezeFactor() | pr.parts.alternate_factors()


@row("what is about adapters × a model without any")
@pytest.mark.parametrize("part", [*AVERAGES, "alternate_factors", "freeze_factor", "rank_prefix"])
def test_a_model_without_adapters_is_refused_by_name(part: str) -> None:
    with pytest.raises(UserError, match=f"{part} with .*, which has no adapters"):
        prepared(model=two_layers, recipe=names.recipe(f"fedavg(cohort=4) | {part}"))


@row("`rank_prefix` × ranks of which the largest is not the model's")
def test_the_largest_rank_is_the_models() -> None:
    for ranks in ((2, 1), (4, 2)):
        with pytest.raises(UserError, match=f"ranks up to {ranks[0]}, and a model whose adapters have rank 3"):
            prepared(model=small_lora, recipe=fedavg(**ONCE) | RankPrefix(rank=ranks))


@row("`rank_prefix` × memory")
def test_a_device_has_the_rank_that_fits_beside_the_base() -> None:
    recipe = fedavg(**ONCE) | RankPrefix(rank=(3, 1), by="memory")
    base = 4 * (K * D + D + D * 8 + 8)  # weights and biases of both adapted layers
    few, all_ = (base + 16 * (RANKS * rank // RANK + HEAD) for rank in (1, 3))  # four vectors of what learns
    ready = prepared(model=small_lora, recipe=recipe, fleet=machines(memory=(few, all_, all_ - 1, few - 1)))
    assert ready.levels == (1, 3, 1, 1)
    assert ready.eligible.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="the most memory"):
        prepared(model=small_lora, recipe=recipe, fleet=machines(memory=(few - 1,) * 4))


def test_costs_follow_the_rank() -> None:
    """Bytes and vectors are those of the rank, and operations fewer; by speed half as fast is half the rank."""
    recipe = fedavg(**ONCE) | RankPrefix(rank=(3, 1), dealt="in_order")
    ready = prepared(model=small_lora, recipe=recipe, rounds=1)
    visits = {v.client: v for v in logged(model=small_lora, recipe=recipe, rounds=1)[1].visits}
    assert [visits[c].bytes_up for c in range(4)] == [4 * (RANKS + HEAD)] * 2 + [4 * (RANKS // 3 + HEAD)] * 2
    assert [visits[c].bytes_down for c in range(4)] == [v.bytes_up for _, v in sorted(visits.items())]
    assert visits[2].flops / visits[2].samples < visits[0].flops / visits[0].samples
    assert dry_run(ready).bytes_up == sum(v.bytes_up for v in visits.values())
    by_speed = fedavg(**ONCE) | RankPrefix(rank=(3, 2, 1), by="speed")
    fleet = machines(seconds=(0.01, 0.012, 0.02, 1.0))
    assert prepared(model=small_lora, recipe=by_speed, fleet=fleet).levels == (3, 2, 1, 1)


@row("an average of adapters × ranks that nobody holds in a version")
def test_what_nobody_holds_is_set_as_well() -> None:
    """Only clients of rank 1 answer: beyond it the decomposition has nothing left."""
    federation = of(Federation(), "adapters", eligible=(2, 3))
    part = RankPrefix(rank=(3, 1), dealt="in_order")
    story, adapter = run(fedavg(cohort=2, batch=4) | DecomposedAverage() | part, federation), adapter_of(federation)
    b = adapter.b.of(story.weights).double()
    assert float(b.norm(dim=0)[0]) > 1e-3
    mean = mean_of_products(story, len(story.released) - 1, federation, part)
    assert float((adapter.product(story.weights) - mean).norm()) < 1e-5


@row(
    "`residual_in_base`, `stack_in_base` × a model sent again",
    "`alternate_factors` × a movement or model sent again, `last_updates`, `last_models`, `stale_updates`",
    "`rank_prefix` × `freeze_factor`",
    "`rank_prefix(prune_to)` × a movement or model sent again, what needs fixed parts of a model",
    "`rank_prefix(tail_decay)` × control variates, VRL-SGD, FedNova",
)
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fedavg | residual_in_base | skip_and_resend_model", "residual_in_base with skip_and_resend_model"),
        ("fedavg | stack_in_base | skip_and_resend_model", "stack_in_base with skip_and_resend_model"),
        ("rolora | skip_and_estimate(storage=server)", "alternate_factors with skip_and_estimate"),
        ("rolora | skip_and_resend_model", "alternate_factors with skip_and_resend_model"),
        ("rolora | equal | last_updates", "alternate_factors with last_updates"),
        ("ffa_lora | rank_prefix", "rank_prefix with freeze_factor"),
        ("hetlora(prune_to=0.5) | skip_and_estimate", "rank_prefix with skip_and_estimate"),
        (
            "fedit | rank_prefix(prune_to=0.5, tail_decay=0.1) | normalised_averaging",
            "rank_prefix(tail_decay=0.1) with normalised_averaging",
        ),
    ],
)
def test_what_is_of_another_version_or_another_rank_is_refused(text: str, found: str) -> None:
    assert refused(text).found == found


@row("`rank_prefix(prune_to)` × bytes")
def test_what_is_pruned_travels_no_more() -> None:
    """Rank 3 costs three times the numbers of rank 1, and 8 bytes are for the rank."""
    recipe = pr.hetlora(**ONCE | {"epochs": 3}, lr=0.3, rank=(3,), prune_to=0.4, tail_decay=5.0)
    log = logged(model=small_lora, recipe=recipe, rounds=8)[1]
    sizes = {8 + 4 * (RANKS // 3 * rank + HEAD) for rank in (3, 1)}
    assert {v.bytes_up for v in log.visits} == {v.bytes_down for v in log.visits} == sizes


def test_last_ranks_that_shrink_are_given_up() -> None:
    """Weights of last ranks decay until all four clients prune; of what does not shrink, every rank stays."""
    sizes = dict[float, list[int]]()
    for prune_to, tail_decay in ((0.5, 2.0), (1.0, 0.0)):
        recipe = pr.hetlora(**ONCE | {"epochs": 2}, lr=0.1, rank=(4,), prune_to=prune_to, tail_decay=tail_decay)
        log = logged(model=partial(small_lora, rank=4), recipe=recipe, rounds=4)[1]
        sizes[prune_to] = [visit.bytes_up for visit in log.visits]
    pruned, whole = sizes[0.5], sizes[1.0]
    assert pruned[:4] == [whole[0] + 8] * 4
    assert max(pruned[-4:]) < whole[0] == max(whole)


@row("an average of adapters × prox, compression, weighing, deadlines, over-selection")
@pytest.mark.parametrize("other", [Int8(), pr.parts.over_select(factor=1.5), pr.parts.deadline(seconds=60.0)])
def test_what_the_server_was_told_counts(other: Settings) -> None:
    federation = of(Federation())
    story = run(fedavg(cohort=2, batch=4, lr=0.3) | ResidualInBase() | other, federation)
    adapter = adapter_of(federation)
    assert adapter.residual is not None
    for version, after in enumerate(story.states[1:]):
        mean = mean_of_products(story, version, federation, None)
        found = adapter.residual.of(after.weights).double() + adapter.product(after.weights)
        assert float((found - mean).abs().max()) < 1e-6
    assert not same(story.states[0].weights, story.weights)
