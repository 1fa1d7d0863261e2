"""Any module as one vector and back, and how vectors and buffers are put together."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from polyrhythm.base import sums as module
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.sums import combine_buffers, difference
from polyrhythm.base.sums import weighted_sum as sum_over_tree
from polyrhythm.base.vectors import ALIGNMENT, Layout, Slot, bytes_of, first_non_finite

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (1,), (3, 0, 2), (3,), (2, 5), (17,), (2, 3, 3, 2)]


def fill(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


@final
class Bag(nn.Module):
    """Parameters and buffers of any shape, dtype and memory order."""

    def __init__(self, parameters: Sequence[Tensor], buffers: Sequence[Tensor], frozen: Sequence[bool]) -> None:
        super().__init__()
        for i, (value, still) in enumerate(zip(parameters, frozen, strict=True)):
            self.register_parameter(f"p{i}", nn.Parameter(value, requires_grad=not still))
        for i, value in enumerate(buffers):
            self.register_buffer(f"b{i}", value, persistent=i % 3 != 2)


@st.composite
def bags(draw: st.DrawFn) -> Bag:
    def tensor(dtypes: Sequence[torch.dtype]) -> Tensor:
        shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(dtypes))
        value = fill(shape, dtype, draw(st.integers(0, 1000)))
        order = draw(st.sampled_from(["contiguous", "transposed", "channels_last", "strided"]))
        if order == "transposed":
            return value.T if value.dim() == 2 else value.transpose(0, -1) if value.dim() else value
        if order == "channels_last" and value.dim() == 4:
            return value.to(memory_format=torch.channels_last)
        if order == "strided" and value.dim():
            return torch.stack([value, value], dim=-1)[..., 0]
        return value

    parameters = [tensor(draw(st.sampled_from([FLOATS, FLOATS[2:3]])))]
    parameters += [tensor(FLOATS) for _ in range(draw(st.integers(0, 4)))]
    frozen = [False, *(draw(st.booleans()) for _ in parameters[1:])]
    buffers = [tensor([*FLOATS, torch.int64, torch.int8, torch.bool]) for _ in range(draw(st.integers(0, 4)))]
    return Bag(parameters, buffers, frozen)


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return list(a) == list(b) and all(
        a[n].shape == b[n].shape and a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a
    )


@settings(max_examples=60)
@given(bags())
def test_a_module_survives_the_trip_exactly(bag: Bag) -> None:
    before = {name: tensor.clone() for name, tensor in bag.state_dict().items()}
    flat, other = FlatModel(bag), FlatModel(bag)
    assert equal(flat.state(), before)
    other.load(torch.full_like(flat.weights, 7), tuple(torch.ones_like(b) for b in flat.buffers()))
    other.load(flat.weights, flat.buffers())
    assert equal(other.state(), before)
    assert equal(dict(bag.state_dict()), before), "the user's module was changed"
    for slot, buffer in zip(flat.layout.buffers, flat.buffers(), strict=True):
        assert torch.equal(buffer, bag.get_buffer(slot.name))
        assert buffer.dtype == slot.dtype
        assert tuple(buffer.shape) == slot.shape


@settings(max_examples=60)
@given(bags())
def test_segments_are_aligned_disjoint_views_with_zero_gaps(bag: Bag) -> None:
    flat = FlatModel(bag)
    layout = flat.layout
    trainable = {n: p for n, p in bag.named_parameters() if p.requires_grad}
    assert [s.name for s in layout.segments] == list(trainable)
    assert flat.weights.shape == (layout.size,)
    assert layout.parameters == sum(p.numel() for p in trainable.values())
    assert layout.vector_bytes == layout.parameters * flat.weights.element_size()
    covered = torch.zeros(layout.size, dtype=torch.int64)
    for segment, parameter in zip(layout.segments, trainable.values(), strict=True):
        view = segment.of(flat.weights)
        assert torch.equal(view.to(parameter.dtype), parameter.detach())
        if segment.size:
            assert view.data_ptr() % ALIGNMENT == 0
            assert layout.name_at(segment.offset) == segment.name
            assert layout.name_at(segment.offset + segment.size - 1) == segment.name
        covered[segment.offset : segment.offset + segment.size] += 1
        mine = flat.module.get_parameter(segment.name)
        assert mine.dtype == parameter.dtype
        if parameter.dtype == layout.dtype and segment.size:
            assert mine.data_ptr() == view.data_ptr()
    assert bool((covered <= 1).all())
    assert not flat.weights[covered == 0].any()
    for gap in (covered == 0).nonzero().flatten().tolist():
        assert layout.name_at(gap) == "padding"
    assert all(p.dtype == layout.dtype or layout.dtype.itemsize >= p.dtype.itemsize for p in trainable.values())


def test_two_unlike_halves_meet_in_single_precision() -> None:
    bag = Bag([fill((3,), torch.float16, 0), fill((3,), torch.bfloat16, 1)], [], [False, False])
    assert FlatModel(bag).layout.dtype == torch.float32


@final
class Tied(nn.Module):
    """Embedding and output layer are one parameter; one layer runs twice; the norm counts; one part is frozen."""

    hits: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.twice = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("hits", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.hits += 1
        self.seen = self.seen + len(x)  # another tensor in the buffer's place, as user code does
        hidden = torch.tanh(self.twice(torch.tanh(self.twice(self.embedding(x)))))
        out: Tensor = self.head(self.norm(self.frozen(hidden)))
        return out


@pytest.fixture
def tied() -> Tied:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Tied()


TOKENS = torch.tensor([0, 3, 3, 6, 1])


def loss_of(module: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(module(TOKENS), TOKENS)


def test_tied_weights_have_one_segment_and_stay_tied(tied: Tied) -> None:
    flat = FlatModel(tied)
    assert [s.name for s in flat.layout.segments] == [
        *("embedding.weight", "twice.weight", "twice.bias", "norm.weight", "norm.bias", "unused.weight", "unused.bias")
    ]
    flat.load(flat.weights + 1, flat.buffers())
    module: Any = flat.module
    assert module.head.weight is module.embedding.weight
    assert torch.equal(module.head.weight, tied.head.weight + 1)
    assert torch.equal(module.frozen.weight, tied.frozen.weight)
    assert {"embedding.weight", "head.weight", "frozen.weight"} <= set(flat.state())


def test_gradients_are_those_of_plain_backward_and_what_is_unused_is_named(tied: Tied) -> None:
    plain, flat = copy.deepcopy(tied), FlatModel(tied)
    torch.autograd.backward(loss_of(plain))
    flat.gradient.fill_(math.nan)
    unused = flat.backward(loss_of(flat.module))
    assert [s.name for s in unused] == ["unused.weight", "unused.bias"]
    for name, gradient in flat.layout.named(flat.gradient).items():
        right = plain.get_parameter(name).grad
        assert torch.equal(gradient, torch.zeros_like(gradient) if right is None else right), name
        assert flat.module.get_parameter(name).grad is not None
        assert flat.module.get_parameter(name).grad.data_ptr() == gradient.data_ptr()  # type: ignore[union-attr]
    assert flat.module.get_parameter("frozen.weight").grad is None


def test_sparse_gradients_are_written_out() -> None:
    dense, sparse = nn.Embedding(5, 3), nn.Embedding(5, 3, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    flats = [FlatModel(m) for m in (dense, sparse)]
    for flat in flats:
        flat.backward(flat.module(torch.tensor([1, 1, 4])).square().sum())
    assert torch.equal(flats[0].gradient, flats[1].gradient)
    assert flats[1].gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_descending_is_a_step_of_the_whole_vector_to_the_last_bit(tied: Tied, dtype: torch.dtype) -> None:
    whole, parts = FlatModel(tied.to(dtype)), FlatModel(tied.to(dtype))
    assert parts.descends
    for rate in (0.1, 0.03, 0.7):
        unused = whole.backward(loss_of(whole.module))
        whole.weights.add_(whole.gradient, alpha=-rate)
        parts.gradient.fill_(math.nan)
        assert parts.descend(loss_of(parts.module), rate) == unused
        assert torch.equal(whole.weights, parts.weights)
        assert parts.gradient.isnan().all()  # nobody wrote it


def test_descending_with_sparse_gradients() -> None:
    dense, sparse = nn.Embedding(5, 3), nn.Embedding(5, 3, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    flats = [FlatModel(m) for m in (dense, sparse)]
    for flat in flats:
        assert flat.descend(flat.module(torch.tensor([1, 1, 4])).square().sum(), 0.1) == ()
    assert torch.equal(flats[0].weights, flats[1].weights)
    assert not torch.equal(flats[1].weights, FlatModel(dense).weights)


def test_who_cannot_descend() -> None:
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    assert not FlatModel(mixed).descends
    assert not FlatModel(nn.Linear(2, 2).bfloat16()).descends


def test_buffers_follow_the_module_even_where_it_puts_another_tensor(tied: Tied) -> None:
    flat = FlatModel(tied)
    names = [slot.name for slot in flat.layout.buffers]
    assert names == ["seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    first = flat.buffers()
    loss_of(flat.module)
    after = dict(zip(names, flat.buffers(), strict=True))
    assert after["seen"] == 5
    assert after["norm.num_batches_tracked"] == 1
    assert not torch.equal(after["norm.running_mean"], first[1])
    assert flat.module.get_buffer("hits") == 1
    flat.load(flat.weights, first)
    assert flat.module.get_buffer("hits") == 0, "a buffer that does not travel starts each visit as it first was"
    assert flat.module.get_buffer("seen") == 0
    assert torch.equal(flat.module.get_buffer("norm.running_mean"), first[1])
    loss_of(flat.module)
    assert flat.module.get_buffer("seen") == 5


def test_a_twin_begins_where_the_first_did(tied: Tied) -> None:
    flat = FlatModel(tied)
    loss_of(flat.module)
    twin = flat.twin()
    twin.load(flat.weights, flat.buffers())
    assert flat.module.get_buffer("hits") == 1
    assert twin.module.get_buffer("hits") == 0
    twin.weights.add_(1)
    loss_of(twin.module)
    assert torch.equal(flat.layout.named(flat.weights)["twice.bias"], tied.twice.bias)
    assert flat.module.get_buffer("hits") == 1


def networks() -> dict[str, tuple[Callable[[], nn.Module], Tensor]]:
    numbers = torch.linspace(-1, 1, 60).reshape(4, 5, 3)
    images = torch.linspace(-1, 1, 4 * 3 * 6 * 6).reshape(4, 3, 6, 6)
    return {
        "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), numbers),
        "gru": (lambda: nn.GRU(3, 4, batch_first=True), numbers),
        "rnn": (lambda: nn.RNN(3, 4, batch_first=True), numbers),
        "projected lstm": (lambda: nn.LSTM(3, 4, proj_size=2, batch_first=True), numbers),
        "attention": (
            lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
            numbers.repeat_interleave(2, -1)[..., :4],
        ),
        "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(3, 4)), numbers),
        "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 4)), numbers),
        "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(3, 3)), numbers),
        "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), images),
    }


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", networks())
def test_a_training_run_is_that_of_the_plain_module_bit_for_bit(name: str) -> None:
    """Views stay valid for every kind of layer: after loading, after deep copies and over training steps."""
    make, inputs = networks()[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = make()
    flat = FlatModel(plain)
    flat.load(flat.weights.clone(), flat.buffers())
    module = flat.module
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.125, momentum=0.5, foreach=False)
    buffer = flat.layout.zeros()
    for _ in range(4):
        outputs = [m(inputs) for m in (plain, module)]
        outputs = [o[0] if isinstance(o, tuple) else o for o in outputs]
        assert torch.equal(outputs[0], outputs[1])
        optimiser.zero_grad()
        outputs[0].square().mean().backward()
        optimiser.step()
        flat.backward(outputs[1].square().mean())
        buffer.mul_(0.5).add_(flat.gradient)
        flat.weights.add_(buffer, alpha=-0.125)
    assert equal(flat.state(), dict(plain.state_dict()))
    assert not equal(flat.state(), FlatModel(make()).state())
    assert torch.equal(copied(flat)(inputs), copied(flat, deep=False)(inputs))


def copied(flat: FlatModel, *, deep: bool = True) -> Callable[[Tensor], Tensor]:
    module = (copy.deepcopy(flat.module) if deep else flat.module).eval()

    def run(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            out: Any = module(inputs)
        first: Tensor = out[0] if isinstance(out, tuple) else out
        return first

    return run


def test_channels_last_weights_become_contiguous_and_keep_their_values() -> None:
    """Convolution then takes another path than for the plain module, so equal to rounding only."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 2))
    for parameter in net.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    flat, inputs = FlatModel(net), torch.linspace(-1, 1, 4 * 3 * 6 * 6).reshape(4, 3, 6, 6)
    assert torch.equal(flat.module.get_parameter("0.weight"), net.get_parameter("0.weight"))
    net(inputs).square().mean().backward()
    flat.backward(flat.module(inputs).square().mean())
    for name, gradient in flat.layout.named(flat.gradient).items():
        torch.testing.assert_close(gradient, net.get_parameter(name).grad, rtol=1e-4, atol=1e-5)


def test_parameters_of_another_precision_follow_the_vector() -> None:
    net = nn.Sequential(nn.Linear(3, 4).bfloat16(), nn.Linear(4, 2))
    flat = FlatModel(net)
    assert flat.layout.dtype == torch.float32
    assert flat.layout.vector_bytes == (12 + 4 + 8 + 2) * 4, "what travels is the vector"
    flat.weights.add_(0.1)
    assert torch.equal(flat.module.get_parameter("0.bias"), net.get_parameter("0.bias")), "not before refresh"
    flat.refresh()
    right = (net.get_parameter("0.bias").float() + 0.1).bfloat16()
    assert torch.equal(flat.module.get_parameter("0.bias"), right)
    hidden = flat.module.get_submodule("0")(torch.ones(5, 3, dtype=torch.bfloat16)).float()
    assert flat.backward(flat.module.get_submodule("1")(hidden).sum()) == ()
    gradient = flat.layout.named(flat.gradient)["0.weight"]
    assert gradient.dtype == torch.float32
    assert gradient.any()


@final
class Sharing(nn.Module):
    def __init__(self, first: Tensor, second: Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)


BASE = torch.zeros(4, 4)


@pytest.mark.parametrize(
    ("first", "second"), [(BASE, BASE), (BASE, BASE.T), (BASE[:2], BASE[1:3]), (BASE.T, BASE[3]), (BASE, BASE[:, 1])]
)
def test_two_parameters_over_the_same_memory_are_refused(first: Tensor, second: Tensor) -> None:
    with pytest.raises(UserError, match="share memory"):
        FlatModel(Sharing(first, second))


def test_neighbours_in_one_storage_are_not_an_overlap() -> None:
    flat = FlatModel(Sharing(BASE[:2], BASE[2:]))
    assert len(flat.layout.segments) == 2


def test_what_cannot_be_a_vector_is_refused_with_its_name() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(UserError, match="no parameter that requires a gradient"):
        FlatModel(frozen)
    with pytest.raises(UserError, match=r"'weight' has dtype torch.complex64"):
        FlatModel(nn.Linear(2, 2, dtype=torch.complex64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # lazy modules warn that they are new
        lazy = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    with pytest.raises(UserError, match=r"'1.weight' has no shape yet"):
        FlatModel(lazy)
    lazy(torch.ones(1, 2))
    assert FlatModel(lazy).layout.parameters == 6 + 9
    keeper = nn.Linear(2, 2)
    keeper.last = keeper(torch.ones(1, 2))
    with pytest.raises(UserError, match="Linear cannot be copied"):
        FlatModel(keeper)


def test_a_frozen_complex_parameter_stays_where_it_is() -> None:
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2, dtype=torch.complex64).requires_grad_(False)})
    flat = FlatModel(module)
    assert [s.name for s in flat.layout.segments] == ["a.weight", "a.bias"]
    assert torch.equal(flat.state()["b.weight"], module.get_parameter("b.weight"))


# Sums.


def recursion(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The tree in words: split off the largest power of two below n, sum both sides, add."""
    if len(vectors) == 1:
        return vectors[0] * weights[0]
    half = 1 << (len(vectors) - 1).bit_length() - 1
    return recursion(vectors[:half], weights[:half]) + recursion(vectors[half:], weights[half:])


lengths = st.integers(1, 40)


@given(lengths, st.integers(0, 100), st.sampled_from([torch.float32, torch.float64]))
def test_the_sum_is_the_recursion_bit_for_bit_and_changes_no_input(n: int, seed: int, dtype: torch.dtype) -> None:
    vectors = [fill((9,), dtype, seed * 100 + i) for i in range(n)]
    weights = [float(w) for w in fill((n,), torch.float64, seed)]
    held = [v.clone() for v in vectors]
    total = sum_over_tree((v for v in vectors), weights)
    assert total.dtype == dtype
    assert torch.equal(total, recursion(vectors, weights))
    assert all(torch.equal(a, b) for a, b in zip(vectors, held, strict=True))
    assert all(total.data_ptr() != v.data_ptr() for v in vectors)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 23, 64])
@pytest.mark.parametrize("size", [1, 17, 4095, 4096, 4097, 9000])
def test_a_sequence_gives_the_bits_of_vectors_made_one_by_one(
    n: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequence of long vectors, as all of these are here, is summed in C++ where that was compiled."""
    monkeypatch.setattr("polyrhythm.base.sums._AT_ONCE", 0)
    vectors = [fill((size,), torch.float32, size + i) for i in range(n)]
    weights = [float(w) for w in fill((n,), torch.float64, n)]
    assert torch.equal(sum_over_tree(vectors, weights), sum_over_tree((v for v in vectors), weights))


def test_a_sequence_of_other_vectors_is_summed_all_the_same() -> None:
    wide = fill((10, 3), torch.float32, 1)
    for vectors in ([wide[:, 0], wide[:, 1]], [wide, wide], [wide.double()] * 2, [torch.ones(())] * 2):
        assert torch.equal(sum_over_tree(vectors, [0.5, 0.25]), vectors[0] * 0.5 + vectors[1] * 0.25)


@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 7), st.integers(0, 50))
def test_whole_blocks_may_be_summed_elsewhere(blocks: int, power: int, rest: int, seed: int) -> None:
    """A worker that sums an aligned block of 2**k neighbours changes no bit of the whole."""
    block = 2**power
    rest = min(rest, block - 1)
    n = blocks * block + rest
    vectors = [fill((5,), torch.float32, seed * 100 + i) for i in range(n)]
    weights = [float(w) for w in fill((n,), torch.float64, seed)]
    cuts = [slice(i, min(i + block, n)) for i in range(0, n, block)]
    sums = [sum_over_tree(vectors[c], weights[c]) for c in cuts]
    assert torch.equal(sum_over_tree(sums, [1.0] * len(sums)), sum_over_tree(vectors, weights))


def test_the_order_of_addition_matters_so_a_fixed_tree_is_no_luxury() -> None:
    vectors = [fill((50,), torch.float32, i) for i in range(6)]
    assert not torch.equal(sum_over_tree(vectors, [1.0] * 6), functools.reduce(torch.add, vectors))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(half: torch.dtype) -> None:
    """100 clients of 60,000 would overflow float16 on the way; 1 + 99 shares of a thousandth would vanish."""
    large = [torch.full((3,), 60_000, dtype=half) for _ in range(100)]
    total = sum_over_tree(large, [1.0] * 100)
    assert total.dtype == torch.float32
    assert torch.allclose(total, large[0].float() * 100)
    values = [torch.ones(3, dtype=half), *(torch.full((3,), 0.001, dtype=half) for _ in range(99))]
    torch.testing.assert_close(sum_over_tree(values, [1.0] * 100), torch.full((3,), 1.099), rtol=1e-3, atol=0)
    mean = sum_over_tree(large, [0.01] * 100)
    torch.testing.assert_close(mean, large[0].float(), rtol=1e-6, atol=0)


def test_a_sum_of_nothing_and_a_sum_with_a_weight_missing_are_errors() -> None:
    with pytest.raises(ValueError, match="nothing"):
        sum_over_tree([], [])
    for vectors, weights in ((1, 0), (2, 1), (0, 1), (1, 2), (3, 4), (4, 6), (6, 4)):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            sum_over_tree([torch.ones(1)] * vectors, [1.0] * weights)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
@pytest.mark.parametrize("many", [1, 2, 3, 7, 64, 100])
def test_short_vectors_are_summed_at_once_to_the_same_bits(
    dtype: torch.dtype, shape: tuple[int, ...], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = [fill(shape, torch.float32, i).to(dtype) for i in range(many)]
    shares = fill((many,), torch.float64, 7).tolist()
    at_once = sum_over_tree(iter(vectors), shares)
    monkeypatch.setattr("polyrhythm.base.sums._AT_ONCE", 1)
    one_by_one = sum_over_tree(iter(vectors), shares)
    assert (at_once.dtype, at_once.shape) == (one_by_one.dtype, one_by_one.shape)
    assert torch.equal(at_once, one_by_one)


# Differences.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 16, 17, 1003])
def test_a_difference_of_any_size_and_type_is_torchs(
    dtype: torch.dtype, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyrhythm.base.sums._AT_ONCE", -1)  # so that short ones are handed over, too
    after, before = fill((size,), dtype, 1), fill((size,), dtype, 2)
    update, length = difference(after, before)
    assert torch.equal(update, after - before)
    assert length in (None, torch.linalg.vector_norm(update).item())


def test_the_length_of_what_overflows_or_is_no_number_is_torchs() -> None:
    before = torch.zeros(2**16 + 5)
    for odd in (1e30, float("inf"), float("nan")):
        after = before.clone()
        after[70] = odd
        assert difference(after, before)[1] in (None, torch.linalg.vector_norm(after).item()) or odd != odd


def test_acompiled_difference_that_adds_up_otherwise_than_torch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Extension:
        @staticmethod
        def difference(update: Tensor, after: Tensor, before: Tensor) -> float:
            return math.nextafter(torch.linalg.vector_norm(after - before).item(), math.inf)

    monkeypatch.setattr(module, "extension", lambda: Extension)
    assert module.compiled_difference.__wrapped__() is None


# Buffers.


def layout_of(*buffers: Tensor) -> Layout:
    slots = tuple(Slot(f"part.b{i}", tuple(b.shape), b.dtype) for i, b in enumerate(buffers))
    return Layout((), slots, torch.float32, 0)


@given(st.lists(st.sampled_from([*FLOATS, torch.int64, torch.int8, torch.uint8]), max_size=4), st.integers(1, 6))
def test_floats_are_averaged_and_counters_take_the_maximum(dtypes: list[torch.dtype], clients: int) -> None:
    shapes = [(), (2, 3), (0,), (4,)]
    many = [
        tuple(fill(shapes[j], torch.int64, i * 10 + j).abs().to(d) for j, d in enumerate(dtypes))
        for i in range(clients)
    ]
    held = [tuple(b.clone() for b in buffers) for buffers in many]
    raw = [1.0 + i for i in range(clients)]
    shares = [r / sum(raw) for r in raw]
    combined = combine_buffers(layout_of(*many[0]), many, shares)
    for j, dtype in enumerate(dtypes):
        column = torch.stack([buffers[j] for buffers in many])
        assert combined[j].dtype == dtype
        assert combined[j].shape == many[0][j].shape
        if dtype.is_floating_point:
            weights = torch.tensor(shares, dtype=torch.float64).view(-1, *[1] * many[0][j].dim())
            right = (column.double() * weights).sum(0)
            torch.testing.assert_close(combined[j].double(), right, rtol=1e-2, atol=1e-6)
        else:
            assert torch.equal(combined[j], column.amax(0) if column.numel() else combined[j])
    assert all(torch.equal(a, b) for x, y in zip(many, held, strict=True) for a, b in zip(x, y, strict=True))


def test_masks_must_agree() -> None:
    mask = torch.tensor([True, False])
    (kept,) = combine_buffers(layout_of(mask), [(mask,), (mask.clone(),)], [0.5, 0.5])
    assert torch.equal(kept, mask)
    assert kept.data_ptr() != mask.data_ptr()
    with pytest.raises(UserError, match=r"boolean buffer 'part.b0'"):
        combine_buffers(layout_of(mask), [(mask,), (mask,), (~mask,)], [0.3, 0.3, 0.4])


def test_an_infinity_that_all_agree_on_stays() -> None:
    """Also with a share of zero, of which the product would be none; where they differ, it is the sum."""
    first = torch.tensor([1.0, -math.inf, math.inf, math.nan, math.inf])
    second = torch.tensor([3.0, -math.inf, math.inf, math.nan, 0.0])
    (mean,) = combine_buffers(layout_of(first), [(first,), (second,)], [1.0, 0.0])
    assert mean[:3].tolist() == [1.0, -math.inf, math.inf]
    assert mean[3].isnan()
    (mean,) = combine_buffers(layout_of(first), [(first,), (second,)], [0.5, 0.5])
    assert mean[:3].tolist() == [2.0, -math.inf, math.inf]
    assert mean[4] == math.inf


def test_one_client_gives_its_own_buffers() -> None:
    own = (torch.tensor(3), torch.tensor([1.5, 2.5], dtype=torch.float16), torch.tensor(True))
    for mine, combined in zip(own, combine_buffers(layout_of(*own), [own], [1.0]), strict=True):
        assert torch.equal(mine, combined)
        assert mine.dtype == combined.dtype


# Finding what is not finite.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_parameter_that_is_not_finite_is_named(dtype: torch.dtype, bad: float) -> None:
    flat = FlatModel(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype))
    vector = flat.layout.zeros()
    assert first_non_finite(flat.layout, vector) is None
    flat.layout.named(vector)["1.bias"][1] = bad
    assert first_non_finite(flat.layout, vector) == "1.bias"
    flat.layout.named(vector)["0.weight"][3, 2] = -bad
    assert first_non_finite(flat.layout, vector) == "0.weight"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sum_that_overflows_is_no_alarm(dtype: torch.dtype) -> None:
    layout = FlatModel(nn.Linear(100, 1)).layout
    assert first_non_finite(layout, torch.full((layout.size,), torch.finfo(dtype).max, dtype=dtype)) is None


def test_bytes_leave_padding_out() -> None:
    layout = FlatModel(nn.Linear(3, 2)).layout
    assert layout.size == 32
    vector = {"control": layout.zeros(), "wide": layout.zeros().double()}
    assert bytes_of(vector, layout) == 8 * 4 + 32 * 8
    rest = {"n": 1, "text": "ähm", "list": [1.0, None, torch.zeros((), dtype=torch.float16)], "none": {}}
    assert bytes_of(rest, layout) == 8 + 4 + (8 + 0 + 2)
