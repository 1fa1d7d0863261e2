"""Named randomness: every draw has a name, so no draw depends on what was drawn before it.

A stream is named by the experiment's seed, a purpose, and whatever identifies the draw: a client and its visit, a
version, a pass over the data. Never a position in the cohort, never `seed + client`, never a worker. Two draws with
the same name are equal on every driver; two draws with different names are independent.

This module and `seeded_torch` are the only places that make or seed a generator (a test holds the rest to it).
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, final

import numpy as np

from polyrhythm.base.compiled import extension

if TYPE_CHECKING:
    import torch

Purpose = Literal[
    "partition",
    "split",
    "init",
    "cohort",
    "order",
    "augment",
    "network",
    "work",
    "sample",
    "synthetic",
    "delay",
    "fleet",
    "fault",
    "labels",
    "search",
    "measure",
    "capacity",
    "noise",
    "secagg",
    "audit",
]


_default_generator = threading.RLock()  # a block inside a block is allowed


def _digest(seed: int, purpose: Purpose, names: tuple[int | str, ...]) -> bytes:
    # repr() keeps 1 and "1" apart, and the tuple's punctuation keeps ("a", "bc") and ("ab", "c") apart.
    text = repr((int(seed), purpose, *[n if isinstance(n, str) else int(n) for n in names]))
    return hashlib.sha256(text.encode()).digest()[:16]


def _key(seed: int, purpose: Purpose, names: tuple[int | str, ...]) -> int:
    return int.from_bytes(_digest(seed, purpose, names), "little")


def stream(seed: int, purpose: Purpose, *names: int | str) -> np.random.Generator:
    """A NumPy generator for one named draw.

    >>> a = stream(0, "order", 7, 0).permutation(4)
    >>> b = stream(0, "order", 7, 0).permutation(4)
    >>> bool((a == b).all())
    True
    """
    return np.random.Generator(np.random.PCG64(_key(seed, purpose, names)))


def normals(size: int, dtype: torch.dtype, seed: int, purpose: Purpose, *names: int | str) -> torch.Tensor:
    """What `stream(seed, purpose, *names).standard_normal(size)` gives, to the last bit, rounded to a dtype.

    Where the native engine was compiled it draws them, in a third of the time.

    Args:
        size: how many.
        dtype: of the result, [size].
        seed, purpose, names: of the draw.
    """
    import torch

    key = _key(seed, purpose, names)
    if dtype in (torch.float32, torch.float64) and (fill := compiled_normals()):
        fill(drawn := torch.empty(size, dtype=dtype), *divmod(key, 2**64))
        return drawn
    # Into memory that is there already, as new pages take time.
    if len(getattr(_memory, "wide", ())) != size:
        _memory.wide = np.empty(size)
    np.random.Generator(np.random.PCG64(key)).standard_normal(out=_memory.wide)
    return torch.from_numpy(_memory.wide).to(dtype, copy=True)


_memory = threading.local()


@functools.cache
def compiled_normals() -> Callable[[torch.Tensor, int, int], None] | None:
    """The compiled one, if it draws what the NumPy that is installed does, on this processor."""
    import torch

    fill: Callable[[torch.Tensor, int, int], None] | None = getattr(extension(), "standard_normals", None)
    if fill is None:
        return None
    key, several = _key(0, "noise", ("a comparison",)), torch.empty(20_000, dtype=torch.float64)
    fill(several, *divmod(key, 2**64))
    known = np.random.Generator(np.random.PCG64(key)).standard_normal(len(several))
    return fill if np.array_equal(several.numpy(), known) else None


@final
class HiddenDraws:
    """Numbers for one named draw that nobody can foretell without a key: of SHAKE-256 of the key and the name.

    Whoever knows some numbers of PCG64, which `stream` has, can find out the others; of these, not.

    >>> a, b = (HiddenDraws(7, "noise", 3).standard_normal(3) for _ in range(2))
    >>> bool((a == b).all()), bool((a == HiddenDraws(8, "noise", 3).standard_normal(3)).any())
    (True, False)

    Args:
        secret: the key; as good as it is long.
        purpose, names: of the draw, which is to be made once.
    """

    def __init__(self, secret: int, purpose: Purpose, *names: int | str) -> None:
        text = repr((int(secret), purpose, *[n if isinstance(n, str) else int(n) for n in names]))
        self._source = hashlib.shake_256(text.encode())

    def random(self, size: int) -> np.ndarray:
        """Uniform numbers from 0 to less than 1, float64 [size]."""
        return (np.frombuffer(self._source.digest(8 * size), dtype="<u8") >> 11) * 2.0**-53

    def standard_normal(self, size: int = 1) -> np.ndarray:
        """Standard normal numbers, float64 [size], two from each pair of uniform ones (Box, Muller, 1958)."""
        pairs = self.random(2 * ((size + 1) // 2)).reshape(2, -1)
        length, angle = np.sqrt(-2.0 * np.log1p(-pairs[0])), 2.0 * np.pi * pairs[1]
        return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:size]


def kept_from_others(
    seed: int, secret: int | None, purpose: Purpose, *names: int | str
) -> np.random.Generator | HiddenDraws:
    """The generator of one named draw: of a secret where there is one, else of the seed."""
    return stream(seed, purpose, *names) if secret is None else HiddenDraws(secret, purpose, *names)


class Integers(Protocol):
    """Whatever draws whole numbers, such as a NumPy generator."""

    def integers(self, low: int, high: int) -> int:
        """A whole number from low to high - 1."""


@final
class FewIntegers:
    """A few whole numbers for one named draw, without the cost of a generator: they come from the name's hash.

    Making a generator takes as long as the rest of an invitation; where each draw has a name of its own, as when
    clients are invited one by one, it would be used for one number.
    """

    def __init__(self, seed: int, purpose: Purpose, *names: int | str) -> None:
        self._name, self._count = _digest(seed, purpose, names), 0

    def integers(self, low: int, high: int) -> int:
        """A whole number from low to high - 1; for ranges up to 2**32 as good as uniform."""
        text = self._name + self._count.to_bytes(8, "little")
        self._count += 1
        return low + int.from_bytes(hashlib.sha256(text).digest()[:12], "little") % (high - low)


def proportionally(
    sums: Sequence[float],
    generator: np.random.Generator,
    wanted: Callable[[int], bool] = lambda place: True,
    among: int | None = None,
) -> Iterator[int]:
    """Distinct places, one after the other, each drawn with probability proportional to its weight among those left.

    A place that is not wanted is passed over, so the draw is one among the others. Places of weight 0 come last, in a
    uniform order. O(log n) for a place; O(n) once, where most of the weight is on places that are passed over.

    Args:
        sums: the weights, summed up to and with each place: they never fall.
        generator: decides; it must not be used for anything else meanwhile.
        wanted: whether a place may be drawn.
        among: how many of the places to draw among, from the first; None for all.

    >>> list(proportionally([0.0, 1.0, 1.0], stream(0, "cohort"), lambda place: place != 2))
    [1, 0]
    """
    among = len(sums) if among is None else among
    total = sums[among - 1] if among else 0.0
    drawn: set[int] = set()
    misses = 0
    while total > 0 and misses < _MISSES:
        place = bisect.bisect_right(sums, float(generator.random()) * total, 0, among)
        if place < among and place not in drawn and wanted(place):
            drawn.add(place)
            misses = 0
            yield place
        else:
            misses += 1
    # The same draw among those left, as a race: of exponentials with these rates, each is the first by its share.
    left = [place for place in range(among) if place not in drawn and wanted(place)]
    weights = np.array([sums[place] - (sums[place - 1] if place else 0.0) for place in left])
    times = generator.exponential(size=len(left))
    times = np.divide(times, weights, out=times, where=weights > 0)
    yield from (left[i] for i in np.lexsort((times, weights <= 0)))


_MISSES = 32


def torch_seed(seed: int, purpose: Purpose, *names: int | str) -> int:
    """A seed for a torch generator, named like a stream; between 0 and 2**63 - 1."""
    return _key(seed, purpose, names) % 2**63


def torch_generator(seed: int, purpose: Purpose, *names: int | str) -> torch.Generator:
    """A CPU torch generator for one named draw."""
    import torch

    return torch.Generator().manual_seed(torch_seed(seed, purpose, *names))


@contextlib.contextmanager
def seeded_torch(seed: int, purpose: Purpose, *names: int | str) -> Iterator[None]:
    """Runs a block with torch's default generator forked and seeded from a named stream.

    The one allowed touch of the default generator, for code that cannot be handed a generator: dropout inside a
    network, and weight initialisation. The generator's state is as before when the block ends. One thread at a time.
    GPUs that this process uses have a default generator each, of which the same holds.
    """
    import torch

    of_gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    used, drawn = [torch.default_generator, *of_gpus], torch_seed(seed, purpose, *names)
    with _default_generator:
        before = [generator.get_state() for generator in used]
        try:
            for generator in used:
                generator.manual_seed(drawn)
            yield
        finally:
            for generator, state in zip(used, before, strict=True):
                generator.set_state(state)


@contextlib.contextmanager
def seeded_everywhere(seed: int, purpose: Purpose, *names: int | str) -> Iterator[None]:
    """The same for NumPy's and Python's global generators as well, for a constructor that may draw from any of them."""
    drawn = torch_seed(seed, purpose, *names)
    with kept_generators(), seeded_torch(seed, purpose, *names):
        np.random.seed(drawn % 2**32)
        random.seed(drawn)
        yield


def generators() -> tuple[bytes, int, int]:
    """What the generators that nobody names hold: torch's default one, NumPy's and Python's. Equal if nothing drew."""
    import torch

    of_numpy = hash(pickle.dumps(np.random.get_state(legacy=False)))
    return torch.get_rng_state().numpy().tobytes(), of_numpy, hash(random.getstate())


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Leaves NumPy's and Python's generators as they were when the block ends; `seeded_torch` does so with torch's."""
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)
