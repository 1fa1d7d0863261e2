"""The largest weights and the first blocks of a model beside everything else: rows of the table of pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from laws.fleets import Paces
from laws.world import Federation, run, same
from polyrhythm.base.depths import Depths
from polyrhythm.base.errors import UserError
from polyrhythm.base.magnitudes import Magnitudes
from polyrhythm.data import ArraySamples
from polyrhythm.experiments.dry_run import dry_run
from polyrhythm.fleet import Fleet
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix
from polyrhythm.methods.capacity.largest_weights import LargestWeights, largest
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.papers import fedavg, fedbuff
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.models import build
from small import collection, logged, prepared

from .test_capacity_pairs import machines, two_layers
from .test_pairs import row


def shallow(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return build("mlp-exits", shape, outputs, hidden=(8, 6, 4))


ONCE: dict[str, Any] = {"cohort": 4, "batch": 8, "epochs": 1}


MASKED = WidthPrefix(ratio=(1.0, 0.5), masked=True)


@row("`masked` × the native engine", "`masked` × bytes")
def test_classes_are_told_in_bytes_and_left_to_torch() -> None:
    ready = prepared(model=two_layers, recipe=pr.fedavg(**ONCE) | MASKED, engine="native")
    assert ready.chosen.kind == "torch"
    assert "outputs for classes that a client lacks are left out" in ready.chosen.why_not
    plain = WidthPrefix(ratio=(1.0, 0.5))
    visits = [logged(model=two_layers, recipe=pr.fedavg(**ONCE) | p, rounds=1)[1].visits for p in (plain, MASKED)]
    assert [v.bytes_up + 3 for v in visits[0]] == [v.bytes_up for v in visits[1]]  # three classes
    assert [v.bytes_down for v in visits[0]] == [v.bytes_down for v in visits[1]]
    planned = dry_run(prepared(model=two_layers, recipe=pr.fedavg(**ONCE) | MASKED, rounds=1))
    assert planned.bytes_up == sum(v.bytes_up for v in visits[1])


@row("`masked` × a movement or model sent again")
def test_what_is_sent_again_does_not_say_its_classes() -> None:
    with pytest.raises(UserError) as caught:
        fedavg() | SkipAndEstimate() | MASKED
    assert caught.value.found == "width_prefix(masked=true) with skip_and_estimate"


def ends_in_convolution(shape: tuple[int, ...], outputs: int) -> nn.Module:
    last = nn.Sequential(nn.Unflatten(1, (8, 1)), nn.Conv1d(8, 3, 1), nn.Flatten())
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), last)


@row("`masked` × a task without one class to a sample, a model without an output row for each")
def test_where_there_are_no_rows_masked_is_refused() -> None:
    inputs = torch.linspace(0, 1, 160).view(40, 4)
    numbers = ArraySamples(inputs, inputs[:, 0])
    data = replace(collection(), task="regression", classes=(), train=numbers, test=numbers)
    recipe = pr.fedavg(**ONCE) | MASKED
    with pytest.raises(UserError, match=r"width_prefix\(masked=true\) for the task regression"):
        prepared(model=two_layers, recipe=recipe, federation=pr.federate(data, pr.data.Iid(), 4, 0))
    with pytest.raises(UserError, match="whose last linear layer does not give 3 outputs"):
        prepared(model=ends_in_convolution, recipe=recipe)


@pytest.mark.parametrize("told", [None, torch.ones(2).bool(), torch.zeros(3).bool(), torch.ones(3), "all"])
def test_a_report_that_does_not_say_its_classes_is_refused(told: Any) -> None:
    federation = Federation()
    report = next(iter(run(fedavg(batch=4) | MASKED, federation, versions=1).reports.values()))
    assert MASKED.refuses(federation.setup(None), {}, report) is None
    spoiled = replace(report, extras={} if told is None else {"width_prefix": {"classes": told}})
    fault = MASKED.refuses(federation.setup(None), {}, spoiled)
    assert fault is not None
    assert fault.kind == "shape"


@row("`largest_weights`, `depth_prefix` × the native engine")
@pytest.mark.parametrize(
    ("part", "model", "words"),
    [
        (LargestWeights(ratio=0.5), two_layers, "single weights are left out of each pass"),
        (DepthPrefix(), shallow, "each exit of a model has a loss of its own"),
    ],
)
def test_what_has_no_kernel_is_left_to_torch_in_words(part: Any, model: Any, words: str) -> None:
    for engine, why in (("native", words), ("stacked", words)):
        ready = prepared(model=model, recipe=pr.fedavg(**ONCE) | part, engine=engine)
        assert ready.chosen.kind == "torch"
        assert why in ready.chosen.why_not
    assert (
        prepared(model=two_layers, recipe=pr.fedavg(**ONCE) | LargestWeights(ratio=1.0), engine="native").chosen.kind
        == "native"
    )


@row("`largest_weights` × an update that comes late")
def test_who_held_what_is_known_of_late_updates() -> None:
    """Fast and slow clients: those who come late held what was largest before others moved it."""
    part = LargestWeights(ratio=0.3)
    federation = Federation(fleet=Fleet(devices=Paces(seconds=(0.001, 0.001, 0.5, 0.1))), along="magnitude")
    story = run(fedbuff(concurrency=4, buffer=2, batch=4, lr=0.5) | part, federation, versions=12)
    cuts, late = federation.cuts(), 0
    assert isinstance(cuts, Magnitudes)
    for released, before in zip(story.released, story.states, strict=False):
        assert released.release is not None
        for report, portion in zip(released.release.reports, released.release.portions, strict=True):
            then = largest(cuts, story.assignments[report.dispatch].weights, 0.3)
            now = largest(cuts, before.weights, 0.3)
            assert then is not None
            assert now is not None
            assert portion is not None
            assert same(portion.mask, then.mask)
            late += not same(portion.mask, now.mask)
    assert late


@row("`largest_weights` × bytes, operations, seconds")
def test_what_single_weights_cost() -> None:
    """Four bytes for each weight that is held, and ⌈n/8⌉ down, of n = 243 in linear layers; no operation is saved."""
    recipe = pr.fedavg(**ONCE) | LargestWeights(ratio=0.25)
    _, cut = logged(model=two_layers, recipe=recipe, fleet=machines(), rounds=1)
    _, full = logged(model=two_layers, recipe=pr.fedavg(**ONCE), fleet=machines(), rounds=1)
    weights = 5 * 16 + 17 * 8 + 9 * 3
    for small, large in zip(cut.visits, full.visits, strict=True):
        assert large.bytes_up == 4 * weights
        assert small.bytes_up == 4 * (weights // 4)
        assert small.bytes_down == 4 * (weights // 4) + -(-weights // 8)
        assert small.flops == large.flops
        assert small.compute_seconds == large.compute_seconds
    planned = dry_run(prepared(model=two_layers, recipe=recipe, fleet=machines(), rounds=1))
    assert planned.bytes_down == sum(v.bytes_down for v in cut.visits)
    assert planned.bytes_up == sum(v.bytes_up for v in cut.visits)


@row("`largest_weights` × Fisher traces")
def test_gradients_of_single_samples_of_single_weights_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        fedavg() | LargestWeights() | CriticalPeriods(watch=(FisherTrace(),))
    assert caught.value.found == "largest_weights with critical_periods"


@row("`largest_weights` × BatchNorm")
def test_normalisation_is_held_by_everybody() -> None:
    federation = Federation(net="batchnorm", along="magnitude")
    part, cuts = LargestWeights(ratio=0.2), federation.cuts()
    assert isinstance(cuts, Magnitudes)
    portion = largest(cuts, federation.engine().weights, 0.2)
    assert portion is not None
    masks = federation.engine().layout.named(portion.mask)
    assert masks["1.weight"].all()
    assert masks["1.bias"].all()
    assert portion.buffer_bytes() == sum(b.numel() * b.element_size() for b in federation.engine().buffers())
    story = run(fedavg(batch=4) | part, federation, versions=1)
    held = [(r.num_samples, r.buffers) for r in story.reports.values()]
    total = sum(n for n, _ in held)
    mean = sum(n / total * buffers[0] for n, buffers in held)
    assert torch.allclose(story.states[1].buffers[0], torch.as_tensor(mean), atol=1e-6)


@row("`depth_prefix` × BatchNorm")
def test_statistics_of_blocks_that_nobody_holds_stay() -> None:
    federation = Federation(net="normalised exits", along="depth")
    story = run(fedavg(batch=4) | DepthPrefix(depth=(1, 1, 3), shares=(0.5, 0.49, 0.01)), federation, versions=1)
    cuts = federation.cuts()
    assert isinstance(cuts, Depths)
    for first, slot, old, new in zip(
        cuts.buffers, cuts.layout.buffers, story.states[0].buffers, story.states[1].buffers, strict=True
    ):
        if slot.dtype.is_floating_point:
            assert same(old, new) == (first > 1), slot.name


@row("`depth_prefix` × bytes, operations, seconds, memory")
def test_what_the_first_blocks_cost() -> None:
    _, log = logged(
        model=shallow,
        recipe=pr.fedavg(**ONCE) | DepthPrefix(depth=(1, 2, 3, 3), dealt="in_order"),
        fleet=machines(),
        rounds=1,
    )
    blocks, exits = [4 * 8, 8 * 6, 6 * 4], [8 * 3, 6 * 3, 4 * 3]
    biases = [(8, 3), (6, 3), (4, 3)]
    seconds = {}
    for visit in log.visits:
        depth = (1, 2, 3, 3)[visit.client]
        parameters = sum(blocks[:depth]) + sum(exits[:depth]) + sum(map(sum, biases[:depth]))
        assert visit.bytes_up == visit.bytes_down == 4 * parameters
        # A product forward, and backward one for the weights and one for what goes in, but for the first layer.
        products = sum(blocks[:depth]) + sum(exits[:depth])
        assert visit.flops == visit.samples * 2 * (3 * products - blocks[0])
        seconds[depth] = visit.compute_seconds / visit.samples
    assert seconds[1] < seconds[2] < seconds[3]
    ready = prepared(model=shallow, recipe=pr.fedavg(**ONCE) | DepthPrefix(depth=(1, 2, 3), by="memory"))
    assert isinstance(ready.cuts, Depths)
    assert ready.memory_needed == 16 * ready.cuts.layout.parameters  # nothing says how much these devices have
    whole = 16 * ready.cuts.layout.parameters
    fleet = machines(memory=(whole, whole - 1, whole - 1, whole))
    ready = prepared(model=shallow, recipe=pr.fedavg(**ONCE) | DepthPrefix(depth=(1, 2, 3), by="memory"), fleet=fleet)
    assert ready.levels == (3, 2, 2, 3)


@row("`depth_prefix` × a model without exits, a task without classes")
def test_what_has_no_exits_or_no_classes_is_refused() -> None:
    recipe = pr.fedavg(**ONCE) | DepthPrefix()
    with pytest.raises(UserError, match="cannot be cut in depth: it has no lists of modules `blocks` and `exits`"):
        prepared(model=two_layers, recipe=recipe)
    with pytest.raises(UserError, match="no depth above 2, and a model with 3 exits"):
        prepared(model=shallow, recipe=pr.fedavg(**ONCE) | DepthPrefix(depth=(1, 2)))
    inputs = torch.linspace(0, 1, 160).view(40, 4)
    numbers = ArraySamples(inputs, inputs[:, 0])
    data = replace(collection(), task="regression", classes=(), train=numbers, test=numbers)
    with pytest.raises(UserError, match="depth_prefix for the task regression"):
        prepared(model=shallow, recipe=recipe, federation=pr.federate(data, pr.data.Iid(), 4, 0))
