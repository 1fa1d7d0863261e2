"""Updates that travel compressed: what is sent and what waits add up, at both ends, and nothing else knows of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Settings
from polyrhythm.base.vectors import Layout, Spans
from polyrhythm.methods.compression import Compression, Int8, Lossless, Lossy, Packed, TopK
from polyrhythm.methods.correction import (
    ControlVariates,
    Correction,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.mechanism import Outcome, Setup
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.weighing import Equal, NormalisedAveraging, PerStep
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate
from polyrhythm.simulation.cost_meter import Meter

from .law import Mutation, law, swap
from .test_idle_parameters import Headed
from .test_skipping import MIXED, fair, never_rolled_back
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, Run, alike, near, play, run, same

# What mutants wrap.
_PACK = Lossy.pack
_ENCODE_TOP, _ENCODE_INT8 = TopK.encode, Int8.encode
_CONTROLS = ControlVariates.after_step
_DRIFTS = VarianceReduction.after_step
_FEDDYN = DynamicRegularisation.finish
_FINISH = SkipAndEstimate.finish

NETS = ("logistic", "perceptron", "batchnorm", "odd")
LOSSY: tuple[Lossy, ...] = (TopK(share=0.1), TopK(share=0.6), Int8())
MIXES: tuple[tuple[Settings, ...], ...] = (
    (),
    (ControlVariates(), NormalisedAveraging()),
    (VarianceReduction(), PerStep()),
    (DynamicRegularisation(), Equal()),
    (ModelContrast(layer="logits"), Prox(mu=0.1)),
)
LAYOUTS = {net: Federation(net=net).engine().layout for net in NETS}


@final
@dataclass(frozen=True, kw_only=True)
class Witness(Correction):
    """Sends up what training really gave, as any mechanism sees it."""

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        return state, {"update": outcome.update}


def truth(story: Run, dispatch: int) -> Tensor:
    """The update before it was compressed."""
    update: Tensor = story.reports[dispatch].extras["witness"]["update"]
    return update


def left(story: Run, number: int, part: Lossy) -> Tensor | None:
    """What waits at a client at the end."""
    waiting: Tensor | None = story.clients[number].parts.get(part.label(), {}).get("left")
    return waiting


def filled(layout: Layout, values: Callable[[int], Tensor]) -> Tensor:
    """A vector [P] with `values(n)` in each parameter of n entries, and nothing between."""
    vector = layout.zeros()
    for segment in layout.segments:
        vector.narrow(0, segment.offset, segment.size).copy_(values(segment.size))
    return vector


def drawn(layout: Layout, seed: int, spread: float = 1.0) -> Tensor:
    """A vector [P] of normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return filled(layout, lambda n: spread * torch.randn(n, generator=generator))


def some_idle(layout: Layout, mask: int) -> Spans:
    """Some of the parameters, never all."""
    return tuple((s.offset, s.size) for i, s in enumerate(layout.segments[1:]) if mask >> i & 1)


def _one_less(self: TopK, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    entries = max(1, math.ceil(self.share * layout.parameters) - 1)
    return _ENCODE_TOP(replace(self, share=entries / layout.parameters), layout, vector, idle)


def _a_little_less(self: TopK, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    decoded, size = _ENCODE_TOP(self, layout, vector, idle)
    return decoded * 0.999, size


@law(
    trial=trials(nets=NETS, travels=True),
    parts=st.sampled_from(MIXES),
    feedback=st.booleans(),
    examples=20,
    broken_by={
        "an entry is missing": swap(TopK, "encode", _one_less),
        "entries shrink on their way": swap(TopK, "encode", _a_little_less),
    },
)
def test_all_entries_are_the_whole_update(trial: Trial, parts: tuple[Settings, ...], feedback: bool) -> None:
    everything = TopK(share=1.0, error_feedback=feedback)
    story = run(trial.recipe(*parts, everything), trial.federation)
    assert alike(story, run(trial.recipe(*parts), trial.federation))
    assert all(r.packed is not None for r in story.reports.values())
    assert all(left(story, number, everything) is None for number in story.clients)


@law(
    trial=trials(travels=False),
    broken_by={
        "a little is lost": swap(
            Lossless, "pack", lambda self, layout, state, update, idle=(): (state, Packed(update=update * 0.999))
        )
    },
)
def test_what_travels_as_it_is_is_what_training_gave(trial: Trial) -> None:
    story = run(trial.recipe(Witness(), Lossless()), trial.federation)
    for dispatch, report in story.reports.items():
        assert same(report.update, truth(story, dispatch))
        assert report.packed is None
    assert trial.recipe(Lossless()).digest == trial.recipe().digest


def _forgets(self: Lossy, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
    return _PACK(self, layout, {}, update, idle)


def _remembers_this_visit_only(self: Lossy, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> Any:
    _, packed = _PACK(self, layout, state, update, idle)
    return {"left": update - packed.update}, packed


@law(
    trial=trials(nets=NETS),
    part=st.sampled_from(LOSSY),
    parts=st.sampled_from(MIXES),
    happening=misfortunes(),
    examples=25,
    broken_by={
        "memory is dropped": swap(Lossy, "pack", _forgets),
        "memory of one visit only": swap(Lossy, "pack", _remembers_this_visit_only),
        "clients keep what was refused": never_rolled_back,
    },
)
def test_what_was_sent_and_what_waits_are_all_updates(
    trial: Trial, part: Lossy, parts: tuple[Settings, ...], happening: Misfortune
) -> None:
    story = play(trial.recipe(*parts, Witness(), part), trial.federation, versions=5, happening=happening)
    for number in story.clients:
        accepted = [d for d in story.visits(number) if story.accepted[d]]
        updates = torch.stack([truth(story, d).double() for d in accepted]).sum(0)
        sent = torch.stack([story.reports[d].update.double() for d in accepted]).sum(0)  # type: ignore[union-attr]
        waiting = left(story, number, part)
        assert near(sent if waiting is None else sent + waiting, updates, 1e-6)


@law(
    trial=trials(nets=NETS, travels=False),
    part=st.sampled_from([replace(p, error_feedback=False) for p in LOSSY]),
    broken_by={"remembers all the same": swap(Lossy, "pack", _remembers_this_visit_only)},
)
def test_without_feedback_a_client_remembers_nothing(trial: Trial, part: Lossy) -> None:
    story = run(trial.recipe(Witness(), part), trial.federation)
    layout = trial.federation.engine().layout
    for dispatch, report in story.reports.items():
        _, packed = part.pack(layout, {}, truth(story, dispatch), report.idle)
        assert same(report.update, packed.update)
    assert all(part.label() not in state.parts for state in story.clients.values())


def _by_torch(self: TopK, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    """Of equal entries the last ones."""
    decoded, size = _ENCODE_TOP(self, layout, vector.flip(0), ())
    return decoded.flip(0), size


def _by_value(self: TopK, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    decoded, size = _ENCODE_TOP(self, layout, vector - vector.min(), idle)
    return torch.where(decoded != 0, vector, 0), size


def _padding_counts(self: TopK, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    entries = min(layout.parameters, math.ceil(self.share * layout.size))
    return _ENCODE_TOP(replace(self, share=entries / layout.parameters), layout, vector, idle)


@law(
    net=st.sampled_from(NETS),
    seed=st.integers(0, 1000),
    share=st.sampled_from((1e-6, 0.1, 1 / 3, 0.5, 0.77, 1.0)),
    mask=st.integers(0, 15),
    examples=60,
    broken_by={
        "the last of equal ones": swap(TopK, "encode", _by_torch),
        "by value, not by size": swap(TopK, "encode", _by_value),
        "padding counts": swap(TopK, "encode", _padding_counts),
        "idle is not heeded": swap(
            TopK, "encode", lambda self, layout, vector, idle: _ENCODE_TOP(self, layout, vector, ())
        ),
    },
)
def test_the_largest_are_sent_and_of_equal_ones_the_first(net: str, seed: int, share: float, mask: int) -> None:
    layout = LAYOUTS[net]
    generator = torch.Generator().manual_seed(seed)
    vector = filled(layout, lambda n: torch.randint(-3, 4, (n,), generator=generator).float())
    idle = some_idle(layout, mask)
    decoded, size = TopK(share=share).encode(layout, vector, idle)
    places = [i for s in layout.segments if (s.offset, s.size) not in idle for i in range(s.offset, s.offset + s.size)]
    kept = min(max(1, math.ceil(share * layout.parameters)), len(places))
    chosen = sorted(places, key=lambda i: (-abs(float(vector[i])), i))[:kept]
    right = torch.zeros_like(vector)
    right[chosen] = vector[chosen]
    assert same(decoded, right)
    assert size == 8 * kept


def _rounded_down(self: Int8, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    decoded = torch.zeros_like(vector)
    for s in layout.segments:
        part = vector[s.offset : s.offset + s.size]
        step = part.abs().max() / 127
        decoded[s.offset : s.offset + s.size] = (part / step).floor() * step
    return decoded, 0


def _one_step_for_all(self: Int8, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    step = vector.abs().max() / 127
    return (vector / step).round() * step, 0


@law(
    net=st.sampled_from(NETS),
    seed=st.integers(0, 1000),
    spread=st.sampled_from((1e-6, 1.0, 1e6)),
    mask=st.integers(0, 15),
    examples=40,
    broken_by={
        "rounded down": swap(Int8, "encode", _rounded_down),
        "one step for all parameters": swap(Int8, "encode", _one_step_for_all),
        "idle is not heeded": swap(
            Int8, "encode", lambda self, layout, vector, idle: _ENCODE_INT8(self, layout, vector, ())
        ),
    },
)
def test_rounding_is_by_half_a_step_at_most(net: str, seed: int, spread: float, mask: int) -> None:
    layout = LAYOUTS[net]
    vector, idle = drawn(layout, seed, spread), some_idle(layout, mask)
    first = layout.segments[0]
    vector[first.offset : first.offset + first.size] *= 1e-3  # a parameter with a step of its own
    decoded, _ = Int8().encode(layout, vector, idle)
    for segment in layout.segments:
        part, found = (v[segment.offset : segment.offset + segment.size].double() for v in (vector, decoded))
        if (segment.offset, segment.size) in idle:
            assert not found.any()
            continue
        step = float(part.abs().max()) / 127
        assert float((found - part).abs().max()) <= step * (0.5 + 1e-4)
        assert float((found / step - (found / step).round()).abs().max()) <= 1e-4
    gaps = torch.ones(layout.size, dtype=torch.bool)
    for segment in layout.segments:
        gaps[segment.offset : segment.offset + segment.size] = False
    assert not decoded[gaps].any()


def _of_128(self: Int8, layout: Layout, vector: Tensor, idle: Spans) -> tuple[Tensor, int]:
    decoded = torch.zeros_like(vector)
    for s in layout.segments:
        part = vector[s.offset : s.offset + s.size]
        step = part.abs().max() / 128
        decoded[s.offset : s.offset + s.size] = (part / step).round().clamp(-127, 127) * step
    return decoded, 0


@law(
    net=st.sampled_from(NETS),
    seed=st.integers(0, 1000),
    power=st.integers(-20, 20),
    broken_by={"a step of one in 128": swap(Int8, "encode", _of_128)},
)
def test_whole_multiples_of_the_step_lose_nothing(net: str, seed: int, power: int) -> None:
    layout, generator = LAYOUTS[net], torch.Generator().manual_seed(seed)

    def values(count: int) -> Tensor:
        drawn = torch.randint(-127, 128, (count,), generator=generator).float()
        drawn[0] = 127
        return drawn * 2.0**power

    vector = filled(layout, values)
    state, packed = Int8().pack(layout, {}, vector)
    assert same(packed.update, vector)
    assert state == {}


DTYPES = st.sampled_from((torch.bfloat16, torch.float16, torch.float32, torch.float64))


def _sized(kind: type[Lossy], size: Callable[[Layout, int], int]) -> Mutation:
    """What is sent is said to be of another size, in bytes."""
    encode = kind.encode

    def encoded(self: Any, layout: Layout, *given: Any) -> tuple[Tensor, int]:
        decoded, right = encode(self, layout, *given)
        return decoded, size(layout, right)

    return swap(kind, "encode", encoded)


@law(
    net=st.sampled_from(NETS),
    dtype=DTYPES,
    share=st.sampled_from((0.01, 0.1, 0.5)),
    controls=st.booleans(),
    examples=16,
    broken_by={
        "padding travels": _sized(Int8, lambda layout, right: right + layout.size - layout.parameters),
        "elements are float32": _sized(TopK, lambda layout, right: right // (4 + layout.dtype.itemsize) * 8),
        "places are free": _sized(
            TopK, lambda layout, right: right // (4 + layout.dtype.itemsize) * layout.dtype.itemsize
        ),
        "steps are free": _sized(Int8, lambda layout, right: layout.parameters),
    },
)
def test_bytes_are_those_of_what_is_sent(net: str, dtype: torch.dtype, share: float, controls: bool) -> None:
    federation = Federation(net=net, dtype=dtype)
    layout, meter = federation.engine().layout, Meter(federation.engine().layout)
    parameters = sum(p.numel() for p in federation.module().parameters() if p.requires_grad)
    tensors = sum(p.requires_grad for p in federation.module().parameters())
    buffers = sum(slot.dtype.itemsize * math.prod(slot.shape) for slot in layout.buffers)
    extra = parameters * dtype.itemsize if controls else 0
    entries = math.ceil(share * parameters)
    for part, right in (
        (TopK(share=share), entries * (4 + dtype.itemsize)),
        (Int8(), parameters + 4 * tensors),
    ):
        recipe = fedavg(cohort=4, batch=4) | part
        recipe = recipe | ControlVariates() if controls else recipe
        story = run(recipe, federation, versions=2)
        for dispatch, report in story.reports.items():
            unsent = sum(n for _, n in report.idle)
            assert parameters - unsent >= entries
            assert report.packed == right
            assert meter.load(story.assignments[dispatch], report).bytes_up == right + buffers + extra


@law(
    net=st.sampled_from(NETS),
    dtype=DTYPES,
    part=st.sampled_from(LOSSY),
    seed=st.integers(0, 100),
    broken_by={
        "of the dtype of the memory": swap(
            Lossy, "pack", lambda self, layout, state, u, idle=(): (state, Packed(update=u.float() + 0))
        )
    },
)
def test_updates_keep_their_precision_and_memories_have_enough(
    net: str, dtype: torch.dtype, part: Lossy, seed: int
) -> None:
    layout = Federation(net=net, dtype=dtype).engine().layout
    updates = [drawn(layout, seed + i) for i in range(3)]
    before, state, sent = [u.clone() for u in updates], dict[str, Any](), layout.zeros().double()
    for update in updates:
        state, packed = part.pack(layout, state, update)  # type: ignore[assignment]
        assert packed.update.dtype == dtype
        sent += packed.update.double()
    memory: Tensor = state["left"]
    assert memory.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert near(sent + memory, torch.stack([u.double() for u in updates]).sum(0), 1e-6)
    assert all(same(a, b) for a, b in zip(updates, before, strict=True))


def _zero_for_nothing(self: Lossy, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> Any:
    return _PACK(self, layout, state, update.nan_to_num(0.0, 0.0, 0.0), idle)


@law(
    net=st.sampled_from(NETS),
    part=st.sampled_from(LOSSY),
    value=st.sampled_from((math.nan, math.inf, -math.inf)),
    place=st.integers(0, 200),
    broken_by={"zero in place of it": swap(Lossy, "pack", _zero_for_nothing)},
)
def test_what_is_no_number_does_not_hide(net: str, part: Lossy, value: float, place: int) -> None:
    layout = LAYOUTS[net]
    vector = drawn(layout, place)
    places = [i for s in layout.segments for i in range(s.offset, s.offset + s.size)]
    vector[places[place % len(places)]] = value
    _, packed = part.pack(layout, {}, vector)
    assert not bool(torch.isfinite(packed.update).all())


def _idle_is_sent(self: Lossy, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> Any:
    return _PACK(self, layout, state, update, ())


@law(
    part=st.sampled_from((TopK(share=0.1), Int8())),
    seed=st.integers(0, 3),
    broken_by={"it is sent": swap(Lossy, "pack", _idle_is_sent)},
)
def test_what_waits_for_an_idle_parameter_goes_on_waiting(part: Lossy, seed: int) -> None:
    """With one step a visit, a client with samples for both heads moves one of them."""
    federation = Headed(heads=(None, None, 0, 1), seed=seed)
    story = play(fedavg(cohort=4, steps=1, batch=1) | part, federation, versions=6)
    waited = 0
    for dispatch, report in story.reports.items():
        memories = [s[dispatch].parts.get(part.label(), {}).get("left") for s in (story.starts, story.ends)]
        before, after = (federation.engine().layout.zeros() if m is None else m for m in memories)
        for offset, size in report.idle:
            assert report.update is not None
            assert not report.update[offset : offset + size].any()
            assert same(before[offset : offset + size], after[offset : offset + size])
            waited += bool(before[offset : offset + size].any())
    assert waited


def _what_training_gave(self: SkipAndEstimate, setup: Setup, state: Any, brief: Any, outcome: Outcome) -> Any:
    return _FINISH(self, setup, state, brief, replace(outcome, sent=outcome.update))


def _bytes_of_any(self: SkipAndEstimate, setup: Setup, state: Any, brief: Any, outcome: Outcome) -> Any:
    return _FINISH(self, setup, state, brief, replace(outcome, packed=1))


@law(
    trial=trials(),
    part=st.sampled_from(LOSSY),
    cold=st.sampled_from(("train", "zero")),
    happening=misfortunes(),
    examples=15,
    broken_by={
        "what training gave": swap(SkipAndEstimate, "finish", _what_training_gave),
        "bytes of another movement": swap(SkipAndEstimate, "finish", _bytes_of_any),
    },
)
def test_a_movement_sent_again_is_what_was_sent(trial: Trial, part: Lossy, cold: Any, happening: Misfortune) -> None:
    layout = trial.federation.engine().layout
    stories = [
        play(
            trial.recipe(SkipAndEstimate(budgets=MIXED, storage=storage, cold_start=cold), part),
            trial.federation,
            versions=6,
            happening=fair(happening),
        )
        for storage in ("client", "server")
    ]
    one, other = stories
    assert all(same(a.weights, b.weights) for a, b in zip(one.states, other.states, strict=True))
    last: dict[int, int] = {}
    for dispatch, report in one.reports.items():
        again = other.reports[dispatch]
        if report.fresh:
            assert report.packed == again.packed
            if one.accepted[dispatch]:
                last[report.client] = dispatch
            continue
        assert again.packed is None
        assert again.update is None
        assert same(one.starts[dispatch], one.ends[dispatch])  # what waits goes on waiting
        if report.client in last:
            trained = one.reports[last[report.client]]
            assert same(report.update, trained.update)
            assert report.packed == trained.packed
        else:
            assert report.update is not None
            assert not report.update.any()
            assert report.packed == part.size(layout)


def _by_what_training_gave(self: Any, setup: Setup, state: Any, brief: Any, outcome: Outcome) -> Any:
    return _FEDDYN(self, setup, state, brief, replace(outcome, sent=outcome.update))


def _population_of_one_more(self: ControlVariates, setup: Setup, state: Any, release: Any) -> Any:
    return _CONTROLS(self, replace(setup, population=setup.population + 1), state, release)


@law(
    trial=trials(nets=NETS),
    part=st.sampled_from(LOSSY),
    memory=st.sampled_from((ControlVariates(), DynamicRegularisation())),
    happening=misfortunes(),
    examples=20,
    broken_by={
        "duals of what training gave": swap(DynamicRegularisation, "finish", _by_what_training_gave),
        "c of other clients": swap(ControlVariates, "after_step", _population_of_one_more),
    },
)
def test_the_server_knows_the_mean_of_what_clients_remember(
    trial: Trial, part: Lossy, memory: Correction, happening: Misfortune
) -> None:
    federation = replace(trial.federation, dtype=torch.float64)
    story = play(trial.recipe(memory, part), federation, versions=5, happening=happening)
    server, own = ("control", "control") if isinstance(memory, ControlVariates) else ("h", "dual")
    vectors = [state.parts[memory.label()][own] for state in story.clients.values() if memory.label() in state.parts]
    mean = torch.stack(vectors).sum(0) / len(federation.sizes)
    assert near(story.states[-1].parts[memory.label()][server], mean, 1e-10)
    assert mean.any()


def _another_path(self: VarianceReduction, setup: Setup, state: Any, release: Any) -> Any:
    first, *others = release.reports
    return _DRIFTS(self, setup, state, replace(release, reports=(replace(first, travel=1.0), *others)))


@law(
    trial=trials(nets=("logistic", "perceptron"), everybody=True, equal_steps=True),
    part=st.sampled_from(LOSSY),
    broken_by={"one client's path is another's": swap(VarianceReduction, "after_step", _another_path)},
)
def test_drifts_still_sum_to_zero(trial: Trial, part: Lossy) -> None:
    federation = replace(trial.federation, dtype=torch.float64)
    story = run(trial.recipe(VarianceReduction(), part), federation, versions=4)
    drifts = torch.stack(list(story.states[-1].parts["variance_reduction"]["drift"].values()))
    assert len(drifts) == len(federation.sizes)
    assert near(drifts.sum(0), torch.zeros_like(drifts[0]), 1e-10)
    assert drifts.any()


def _half_of_it(self: Any, layout: Layout, state: State, update: Tensor, idle: Spans = ()) -> tuple[State, Packed]:
    return {}, Packed(update=update * 0.5)


@law(
    trial=trials(nets=NETS, everybody=True),
    part=st.sampled_from((Lossless(), *LOSSY)),
    broken_by={"half of it": lambda patch: [patch.setattr(kind, "pack", _half_of_it) for kind in (Lossless, Lossy)]},
)
def test_error_feedback_brings_everything_in_the_end(trial: Trial, part: Compression) -> None:
    """One update and then nothing but zeros: in the end the server has all of it."""
    layout = trial.federation.engine().layout
    update, state, sent = drawn(layout, trial.federation.seed), dict[str, Any](), layout.zeros().double()
    for visit in range(400):
        state, packed = part.pack(layout, state, update if visit == 0 else layout.zeros())  # type: ignore[assignment]
        sent += packed.update.double()
        if not state:
            break
    assert near(sent, update.double(), 1e-6)
