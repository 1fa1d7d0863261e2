"""The part `secagg`: what it costs, what it refuses, and what becomes of every other part beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from laws import secure_sum
from laws.test_secure_sums import LIMIT, LOSSES, SIX, hidden
from laws.world import Federation, near, run
from polyrhythm import parts
from polyrhythm.base.errors import UserError
from polyrhythm.fleet import FixedLinks, Fleet
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import OverSelect
from polyrhythm.methods.release.robust import ClipUpdates
from polyrhythm.methods.secure_sum.effects import NEEDS_SINGLE
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.simulator import InlineDriver


def test_of_many_seeds_some_versions_are_skipped_and_some_are_not() -> None:
    """Below t helpers the version is skipped, counted by its note, and the run goes on."""
    notes, made = [], 0
    for seed in range(12):
        story = run(hidden(), replace(SIX, seed=seed, fleet=Fleet(faults=LOSSES)), versions=4)
        notes += [r.note for r in story.released if r.release is None]
        made += sum(r.release is not None for r in story.released)
        assert len(story.released) == 4
    assert made > 10
    assert any("too few clients are left" in note for note in notes)


def test_the_bill_of_a_visit() -> None:
    """Up 64 + 128 k + 4 P, down 158 k, the model and max n_i; three latencies more each way."""
    federation = replace(SIX, fleet=Fleet(links=FixedLinks(latency=1.0)))
    plain, layout = run(fedavg(cohort=5, epochs=1, batch=4), federation, versions=1), federation.engine().layout
    ceremony = Secagg().ceremony(5, layout.parameters)
    assert (ceremony.up, ceremony.down, ceremony.turns) == (64 + 128 * 4, 158 * 4, 3)
    assert Secagg().ceremony(20, 55_000).seconds == pytest.approx(20 * (80e-6 + 4 * 55_000 / 2.1e9))
    shards, engine = federation.shards(), federation.engine()
    driver = InlineDriver(
        hidden(),
        federation.setup(1),
        engine,
        shards.__getitem__,
        federation.world(),
        Meter(layout, ceremony=ceremony),
    )
    moments = [m for m in driver.moments(engine.initial()) if m.assignment is not None]
    before = [m for m in plain.moments if m.assignment is not None]
    for one, other in zip(before, moments, strict=True):
        assert other.spent.bytes_up == ceremony.up + 4 * layout.parameters
        assert other.spent.bytes_down == one.spent.bytes_down + ceremony.down + 8
        assert other.spent.down == pytest.approx(one.spent.down + 3)
        assert other.spent.up == pytest.approx(one.spent.up + 3)


def test_every_part_says_what_becomes_of_it_in_sums() -> None:
    """Those of the list are refused with the same sentence; the others work, or are of no concern."""
    refused, fine = set[str](), set[str]()
    for name in parts.__all__:
        part = getattr(parts, name)
        if not (isinstance(part, type) and issubclass(part, Mechanism)):
            continue
        try:
            effect = part().under_secagg()
        except (TypeError, UserError):
            continue  # which has no defaults; those are below
        (refused if effect.refused else fine).add(name)
        assert not effect.refused or NEEDS_SINGLE in effect.words, name
    assert refused >= {
        *("median", "trimmed_mean", "geometric_median", "clip_updates", "buffer", "rolling", "on_arrival"),
        *("control_variates", "variance_reduction", "dynamic_regularisation", "shared_moments"),
        *("utility_sampling", "loss_sampling", "norm_sampling", "client_curriculum", "critical_periods"),
        *("diverse_sampling", "cluster_sampling", "server_extrapolation", "staleness", "as_invited"),
        *("last_updates", "last_models", "stale_updates", "unlike_updates", "from_current", "random_resize"),
    }
    assert fine >= {
        *("uniform", "sweep", "epochs", "steps", "prox", "by_samples", "equal", "per_step", "normalised_averaging"),
        *("server_adam", "server_momentum", "deadline", "over_select", "min_reports", "time_out", "skip_silently"),
        *("skip_and_estimate", "client_momentum", "sampled_staleness", "secagg", "when_all", "personal_copy"),
    }
    assert not ClipUpdates(norm=1.0).under_secagg().refused
    assert ClipUpdates(norm=1.0, refuse=2.0).under_secagg().refused
    assert SkipAndEstimate(storage="mixed").under_secagg().refused
    assert WidthPrefix(ratio=0.5).under_secagg().refused


@pytest.mark.parametrize("name", ["compress_int8", "compress_top_k"])
def test_no_compression_takes_its_place_in_silence(name: str) -> None:
    for one, other in ((Secagg(), getattr(parts, name)()), (getattr(parts, name)(), Secagg())):
        with pytest.raises(UserError, match=NEEDS_SINGLE):
            fedavg(cohort=5) | one | other


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (fedavg(cohort=2) | Secagg(), "a cohort of 2"),
        (fedavg(cohort=10) | Secagg(neighbours=5), "an even number"),
        (fedavg(cohort=5) | Secagg(threshold=2), "more than half"),
        (fedavg(cohort=5) | Secagg(threshold=5), "no more than all"),
        (fedavg(cohort=3) | Secagg() | OverSelect(factor=1.5), "every version would be skipped"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(recipe: Recipe, words: str) -> None:
    with pytest.raises(UserError) as refused:
        recipe.whole()
    assert words in str(refused.value)
    with pytest.raises(UserError, match="more than half of them"):
        Secagg(neighbours=6, threshold=3)


def test_a_ring_in_a_cohort_of_fifty() -> None:
    """Neighbours are few, and the sum is that of all; the lost ones are left out."""
    plan = secure_sum.Plan(count=50, degree=12, threshold=7, lost=(4,) * 45 + (2, 2, 3, 1, 4))
    summed, total = secure_sum.carried_out(plan)
    said = secure_sum.vectors(plan)
    assert np.array_equal(total, np.sum([said[c] for c in summed], axis=0, dtype=np.uint32))
    federation = Federation(sizes=(3,) * 50, net="logistic")
    story = run(fedavg(cohort=50, epochs=1, batch=4) | Secagg(limit=LIMIT), federation, versions=1)
    plain = run(fedavg(cohort=50, epochs=1, batch=4), federation, versions=1)
    assert near(story.weights, plain.weights, 1e-5)
