"""Parts of the model beside everything else: rows of the table of pairs in docs/concepts.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from laws.test_capacity import held
from laws.world import Federation, play, run, same
from polyrhythm.base.axes import Axes
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.config import names
from polyrhythm.engines.unsupported import Unlike
from polyrhythm.experiments import parts_of_model
from polyrhythm.fleet import Fleet
from polyrhythm.fleet.parts import Device, Devices, Place
from polyrhythm.methods.capacity.base import Levels
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix
from polyrhythm.methods.capacity.largest_weights import LargestWeights
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.compression import TopK
from polyrhythm.methods.correction import ControlVariates, DynamicRegularisation, ModelContrast, VarianceReduction
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.robust import GeometricMedian, Median, TrimmedMean
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.server_step import Extrapolation
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate, SkipAndResendModel
from polyrhythm.models.widths import axes_of
from small import collection, experiment, logged, prepared

from .test_pairs import EVERYBODY, row

HALF = WidthPrefix(ratio=0.5)


@row(
    "a part of the model × `server_extrapolation`, `diverse_sampling`, `cluster_sampling` by updates, "
    "`geometric_median`, `shared_moments`, `prototypes`",
)
@pytest.mark.parametrize(
    "other",
    [
        *(Extrapolation(), DiverseSampling(), ClusterSampling(by="updates"), GeometricMedian(), SharedMoments()),
        Prototypes(),
    ],
    ids=lambda part: part.label(),
)
@pytest.mark.parametrize(
    "part", [HALF, RollingWindow(), LargestWeights(), DepthPrefix()], ids=lambda part: part.label()
)
def test_what_needs_whole_models_is_refused(part: Levels, other: Settings) -> None:
    for one, two in ((part, other), (other, part)):
        with pytest.raises(UserError) as caught:
            EVERYBODY | one | two
        assert caught.value.found == f"{part.label()} with {other.label()}"
        assert "coordinate" in caught.value.why


@row(
    "a part of the model × control variates, VRL-SGD, FedDyn, `last_updates`, `last_models`, `stale_updates`",
    "a part of the model × MOON, a model sent again",
)
@pytest.mark.parametrize(
    "other",
    [
        *(ControlVariates(), VarianceReduction(), DynamicRegularisation(), ModelContrast(layer="logits")),
        *(LastUpdates(), LastModels(), StaleUpdates(), SkipAndResendModel()),
    ],
    ids=lambda part: part.label(),
)
def test_what_goes_on_from_earlier_visits_needs_fixed_parts(other: Settings) -> None:
    for moving in (RollingWindow(), RandomWidth(), WidthPrefix(redrawn=True), LargestWeights()):
        for one, two in ((moving, other), (other, moving)):
            with pytest.raises(UserError, match="width_prefix") as caught:
                EVERYBODY | one | two
            assert caught.value.found == f"{moving.label()} with {other.label()}"
    story = play(EVERYBODY | WidthPrefix(ratio=(1.0, 0.5)) | other, Federation(), versions=2)
    assert not same(story.states[0].weights, story.states[-1].weights)
    masked = replace(HALF, masked=True)
    if not isinstance(other, ModelContrast):
        with pytest.raises(UserError, match=r"width_prefix\(masked=true\) with"):
            EVERYBODY | masked | other


@row("a part of the model × `from_current`, `client_momentum`, `median`, `trimmed_mean`")
@pytest.mark.parametrize(
    "other",
    [(FromCurrent(),), (ClientMomentum(),), (Median(),), (TrimmedMean(),)],
    ids=lambda parts: parts[-1].label(),
)
@pytest.mark.parametrize("part", [HALF, RollingWindow(ratio=0.5)], ids=lambda part: part.label())
def test_what_takes_coordinates_apart_goes_with_any_part(part: Levels, other: tuple[Settings, ...]) -> None:
    recipe = EVERYBODY | part
    for one in other:
        recipe = recipe | one
    story = play(recipe, Federation(), versions=2)
    assert not same(story.states[0].weights, story.states[-1].weights)


@row("a part of the model × what is personal")
@pytest.mark.parametrize(
    "own",
    [
        *("personal_layers(layers=[head])", "fine_tuning", "personal_copy"),
        *("personal_mixture", "moreau_envelope", "meta_step", "adaptive_start", "nearest_neighbours"),
    ],
)
@pytest.mark.parametrize("part", ["rolling_window", "largest_weights", "depth_prefix"])
def test_what_is_a_clients_own_is_refused(part: str, own: str) -> None:
    with pytest.raises(UserError) as caught:
        names.recipe(f"fedavg | {own} | {part}")
    assert caught.value.found == f"{part} with {own.partition('(')[0]}"


@row("a part of the model × a client's momentum that is kept, a movement sent again")
def test_what_goes_on_from_an_earlier_visit_needs_the_same_part() -> None:
    kept = fedavg(cohort=4, batch=4, momentum=0.9, keep_state=True)
    for moving in (
        RollingWindow(),
        RandomWidth(),
        WidthPrefix(redrawn=True),
        LargestWeights(),
        DepthPrefix(redrawn=True),
    ):
        for recipe in (kept, EVERYBODY | SkipAndEstimate()):
            with pytest.raises(UserError, match="width_prefix or depth_prefix, with which"):
                recipe | moving
    story = play(kept | HALF, Federation(), versions=2)
    portion = held(story, Federation(), 0, HALF)
    assert portion is not None
    for state in story.ends.values():
        momentum = state.optimiser["momentum"]
        assert momentum[portion.mask].any()
        assert not momentum[~portion.mask].any()
    assert SkipAndEstimate() in (EVERYBODY | SkipAndEstimate() | HALF).modifiers


@row("a part of the model × compression")
def test_what_waits_of_a_coordinate_that_is_not_held_goes_on_waiting() -> None:
    part = RollingWindow(ratio=0.4)
    story = play(EVERYBODY | part | TopK(share=0.2), Federation(), versions=3)
    waited = 0
    for dispatch, before in story.starts.items():
        portion = held(story, Federation(), dispatch, part)
        report, after = story.reports[dispatch], story.ends[dispatch]
        assert portion is not None
        assert report.packed == 8 * -(-portion.layout.parameters // 5)  # of the part: places and numbers
        left = before.parts.get("compress_top_k", {}).get("left")
        if left is not None:
            outside = ~portion.mask
            assert same(after.parts["compress_top_k"]["left"][outside], left[outside])
            waited += int(left[outside].count_nonzero())
    assert waited


@row("a part of the model × clipping, `clip_updates`, gradient norms, Fisher traces")
def test_a_gradient_is_clipped_by_the_length_of_the_part() -> None:
    recipe = fedavg(cohort=4, batch=None, epochs=1, lr=1.0, clip=1e-3)
    story = play(recipe | HALF, Federation(), versions=1)
    for report in story.reports.values():
        assert report.norm == pytest.approx(1e-3, rel=1e-3)


@row("a part of the model × GroupNorm")
def test_groups_of_channels_stay_together() -> None:
    net = nn.Sequential(nn.Conv2d(1, 12, 1), nn.GroupNorm(4, 12), nn.Flatten(), nn.Linear(48, 3))
    axes = axes_of(net, torch.linspace(0, 1, 8).view(2, 1, 2, 2))
    portion = HALF.of_level(axes, 0.5)
    assert portion is not None
    assert axes.axes[0].unit == 3
    assert dict(zip([s.name for s in portion.layout.segments], portion.layout.segments, strict=True))[
        "1.weight"
    ].shape == (6,)


@row("a part of the model × layer normalisation")
def test_a_narrow_layer_is_normalised_over_its_own_units() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    axes = axes_of(net, torch.linspace(0, 1, 8).view(2, 4))
    portion = HALF.of_level(axes, 0.5)
    assert portion is not None
    assert [s.shape for s in portion.layout.segments] == [(3, 4), (3,), (3,), (3,), (3, 3), (3,)]


@row("a part of the model × measuring for the server")
def test_clients_measure_with_the_part_that_they_hold() -> None:
    recipe = fedavg(batch=4) | LossSampling(cohort=2, d=4) | HALF
    story = run(recipe, Federation(), versions=2)
    whole = run(fedavg(batch=4) | LossSampling(cohort=2, d=4), Federation(), versions=2)
    measured, fully = (
        [r.measures["loss"] for r in s.reports.values() if r.kind == "measure" and r.version == 0]
        for s in (story, whole)
    )
    assert measured
    assert measured != fully


def two_layers(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, outputs))


def layers(**changes: Any) -> pr.Experiment:
    federation = pr.federate(collection(), pr.data.Iid(), 4, 0)
    return experiment(**{"model": two_layers, "federation": federation, **changes})


@row("a part of the model × evaluation")
def test_the_whole_model_is_evaluated() -> None:
    _, log = logged(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8) | HALF)
    assert log.states[-1]["0.weight"].shape == (16, 4)


class Machines(Devices):
    """Devices of given memory and speed, by client."""

    memory: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()

    @property
    def bounded(self) -> bool:
        return bool(self.memory)

    def device(self, place: Place, client: int) -> Device:
        return Device(
            seconds_per_sample=self.seconds[client] if self.seconds else 0.01,
            memory=self.memory[client] if self.memory else None,
        )


def machines(**settings: Any) -> Fleet:
    made = Machines()
    for name, value in settings.items():
        object.__setattr__(made, name, value)
    return Fleet(devices=made)


@row("a part of the model × a device with too little memory")
def test_a_device_is_asked_for_what_its_part_needs() -> None:
    """Sixteen bytes for a parameter: weights as received, weights, gradient, update."""
    levels = (1.0, 0.5, 0.25)
    recipe = pr.fedavg(cohort=4, batch=8) | WidthPrefix(ratio=levels, by="memory")
    ready = prepared(model=two_layers, recipe=recipe)
    assert isinstance(ready.cuts, Axes)
    needs = [16 * p.layout.parameters for r in levels[1:] if (p := HALF.of_level(ready.cuts, r)) is not None]
    whole = 16 * ready.cuts.layout.parameters
    fleet = machines(memory=(whole, whole - 1, needs[1], needs[1] - 1))
    ready = prepared(model=two_layers, recipe=recipe, fleet=fleet)
    assert ready.levels == (1.0, 0.5, 0.25, 0.25)
    assert ready.eligible.tolist() == [0, 1, 2]
    assert prepared(model=two_layers, recipe=pr.fedavg(), fleet=fleet).eligible.tolist() == [0]
    with pytest.raises(UserError, match="the most memory that any device has"):
        prepared(model=two_layers, recipe=recipe, fleet=machines(memory=(1.0,) * 4))


@row("a part of the model × seconds for a sample")
def test_time_and_bytes_and_operations_are_those_of_the_part() -> None:
    fleet = machines(seconds=(0.01, 0.02, 0.04, 1.0))
    speed = WidthPrefix(ratio=(1.0, 0.5, 0.25), by="speed")
    ready = prepared(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8) | speed, fleet=fleet)
    assert ready.levels == (1.0, 0.5, 0.25, 0.25)
    _, cut = logged(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8, epochs=1) | HALF, fleet=machines(), rounds=1)
    _, full = logged(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8, epochs=1), fleet=machines(), rounds=1)
    inputs, outputs = 4, 3
    # Products for a sample forward: widths 16 and 8, or 8 and 4.
    products = [inputs * a + a * b + b * outputs for a, b in ((16, 8), (8, 4))]
    parameters = [(inputs + 1) * a + (a + 1) * b + (b + 1) * outputs for a, b in ((16, 8), (8, 4))]
    for small, large in zip(cut.visits, full.visits, strict=True):
        assert large.bytes_up == large.bytes_down == 4 * parameters[0]
        assert small.bytes_up == small.bytes_down == 4 * parameters[1]
        # Backward: the gradient of all weights, and of all inputs but the first.
        whole, part = (3 * p - inputs * a for p, a in zip(products, (16, 8), strict=True))
        assert small.flops * whole == large.flops * part
        assert small.compute_seconds == pytest.approx(large.compute_seconds * part / whole)


@row("a part of the model × the stacked engine", "a part of the model × `scaler` × the native engine")
def test_engines_that_cannot_leave_it_to_torch_in_words() -> None:
    ready = prepared(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8) | HALF, engine="stacked")
    assert ready.chosen.kind == "stacked"
    masked = pr.fedavg(cohort=4, batch=8) | replace(HALF, masked=True)
    ready = prepared(model=two_layers, recipe=masked, engine="stacked")
    assert ready.chosen.kind == "torch"
    assert "classes that a client lacks" in ready.chosen.why_not
    scaled = pr.fedavg(cohort=4, batch=8) | replace(HALF, scaler=True)
    ready = prepared(model=two_layers, recipe=scaled, engine="native")
    assert ready.chosen.kind == "torch"
    assert "is scaled" in ready.chosen.why_not


def test_an_engine_that_is_wrong_of_a_part_leaves_the_run_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike(engine: object, *given: object, **named: object) -> None:
        raise Unlike("its gradient is not torch's")

    monkeypatch.setattr(parts_of_model, "prove", unlike)
    ready = prepared(model=two_layers, recipe=pr.fedavg(cohort=4, batch=8) | HALF, engine="native")
    assert ready.chosen.name == "torch"
    assert ready.chosen.why_not == "with 0.5 of each width, its gradient is not torch's"
    assert any("engine: torch, since the native one cannot be used here" in note for note in ready.notices())
