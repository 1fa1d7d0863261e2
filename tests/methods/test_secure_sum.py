"""Secure aggregation by hand, against other ways to the same numbers, and with everybody lost at any stage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from laws.secure_sum import CONTEXT, Plan, carried_out, drawn, randomness, vectors
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.methods.secure_sum import fixed_point, protocol
from polyrhythm.methods.secure_sum.graph import neighbours, sizes
from polyrhythm.methods.secure_sum.protocol import PRIME, Public, Secrets, Unfit


def test_three_clients_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """x 10, 20, 30, masks 7, 11, 13 of their own, 100, 200, 50 of pairs; all modulo 256.

    y = 10+7+100+200, 20+11-100+50, 30+13-200-50 = 61, 237, 49. All there: 91 - 7 - 11 - 13 = 60. The third lost after
    its letters: 61 + 237 = 42, less 7 and 11 is 24, less 200 and 50 that it would have taken away is 30 = 10 + 20.
    """
    own = {c: protocol.advertise(c, randomness("hand", c)) for c in (1, 2, 3)}
    keys = {c: secrets.public for c, secrets in own.items()}
    table = {protocol.own_key(own[c].seed, CONTEXT): n for c, n in ((1, 7), (2, 11), (3, 13))}
    for (one, other), number in {(1, 2): 100, (1, 3): 200, (2, 3): 50}.items():
        table[protocol.pair_key(own[one].mask, keys[other].mask, CONTEXT)] = number
        assert protocol.pair_key(own[other].mask, keys[one].mask, CONTEXT) in table
    monkeypatch.setattr(protocol, "numbers_of", lambda key, length: np.full(length, table[key], dtype=np.uint32))
    others = {c: {n: keys[n] for n in own if n != c} for c in own}
    y = {c: protocol.mask(own[c], others[c], np.array([10 * c], dtype=np.uint32), CONTEXT) for c in own}
    assert [int(y[c][0]) % 256 for c in own] == [61, 237, 49]
    letters = {c: protocol.share(own[c], others[c], 2, CONTEXT) for c in own}
    post = {c: {n: (keys[n], letters[n][c]) for n in own if n != c} for c in own}
    around = {c: tuple(n for n in own if n != c) for c in own}

    openings = {c: protocol.unmask(own[c], post[c], (1, 2, 3), (), 2, CONTEXT) for c in own}
    total = y[1] + y[2] + y[3]
    assert int(total[0]) % 256 == 91
    assert int(protocol.opened(total, keys, around, (1, 2, 3), openings, 2, CONTEXT)[0]) == 60

    letters = {c: protocol.share(own[c], others[c], 1, CONTEXT) for c in own}
    post = {c: {n: (keys[n], letters[n][c]) for n in own if n != c} for c in own}
    openings = {c: protocol.unmask(own[c], post[c], (1, 2), (3,), 1, CONTEXT) for c in (1, 2)}
    total = y[1] + y[2]
    assert int(total[0]) % 256 == 42
    assert int(protocol.opened(total, keys, around, (1, 2), openings, 1, CONTEXT)[0]) == 30


def test_a_thousand_plans_give_the_exact_sum_or_nothing() -> None:
    """Whoever is lost at whichever stage: the sum of those heard, or no sum. With nobody lost there is one."""
    exact = refused = 0
    for number in range(1000):
        plan = drawn(number)
        try:
            summed, total = carried_out(plan)
        except Unfit:
            assert min(plan.lost) < 4
            refused += 1
            continue
        said = vectors(plan)
        assert np.array_equal(total, np.sum([said[c] for c in summed], axis=0, dtype=np.uint32))
        exact += 1
    assert exact > 600
    assert refused > 50


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_lost_at_any_stage_of_five_is_no_trouble_and_three_are(stage: int) -> None:
    plan = Plan(count=5, degree=4, threshold=3, lost=(stage, 4, 4, 4, 4))
    summed, total = carried_out(plan)
    assert summed == plan.clients[stage < 3 :]
    assert np.array_equal(total, np.sum([vectors(plan)[c] for c in summed], axis=0, dtype=np.uint32))
    with pytest.raises(Unfit):
        carried_out(Plan(count=5, degree=4, threshold=3, lost=(stage, stage, stage, 4, 4)))


VECTORS: Mapping[str, np.ndarray] = {
    "zeros": np.zeros(40_000, dtype=np.uint32),
    "the largest number": np.full(40_000, 2**32 - 1, dtype=np.uint32),
    "a ramp": np.arange(40_000, dtype=np.uint32),
}


def how_likely(masked: np.ndarray) -> list[float]:
    """p-values of chi-squared tests of uniformity: of each of the four bytes; of neighbours' high nibbles."""
    of_bytes = [np.bincount((masked >> shift) & 255, minlength=256) for shift in (0, 8, 16, 24)]
    nibbles = (masked >> 28).astype(np.int64)
    pairs = np.bincount(16 * nibbles[0::2] + nibbles[1::2], minlength=256)
    return [float(stats.chisquare(counts).pvalue) for counts in (*of_bytes, pairs)]


def masked_with(numbers: Callable[[bytes, int], np.ndarray], vector: np.ndarray) -> np.ndarray:
    """A vector as it leaves its client, where masks come from some generator."""
    own, other = protocol.advertise(4, randomness("chance")), protocol.advertise(7, randomness("chance too")).public
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "numbers_of", numbers)
        return protocol.mask(own, {7: other}, vector, CONTEXT)


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_a_masked_vector_looks_like_chance(name: str) -> None:
    """Keys are fixed, so that p > 0.01 of all fifteen tests holds or does not, for ever."""
    assert min(how_likely(masked_with(_NUMBERS, VECTORS[name]))) > 0.01


@pytest.mark.parametrize(
    "numbers",
    [
        lambda key, length: np.zeros(length, dtype=np.uint32),
        lambda key, length: _NUMBERS(key, length) & np.uint32(2**32 - 1 - 2**9),
        lambda key, length: _NUMBERS(key, length) >> np.uint32(4),
        lambda key, length: np.repeat(_NUMBERS(key, length)[: length // 2], 2),
    ],
    ids=["no masks", "a bit that is never set", "numbers that are too small", "each number twice"],
)
def test_a_mask_that_is_not_uniform_is_found(numbers: Callable[[bytes, int], np.ndarray]) -> None:
    assert min(how_likely(masked_with(numbers, VECTORS["zeros"]))) < 0.01


_NUMBERS = protocol.numbers_of


def test_the_generator_is_aes_in_counter_mode() -> None:
    """AES-256 of the zero block under the zero key (NIST's AESAVS, and the block after it by another mode of AES)."""
    numbers = protocol.numbers_of(bytes(32), 8)
    assert numbers.tobytes()[:16].hex() == "dc95c078a2408989ad48a21492842087"
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    second = Cipher(algorithms.AES(bytes(32)), modes.ECB()).encryptor().update(bytes(15) + b"\1")
    assert numbers.tobytes()[16:] == second


def solved(shares: Mapping[int, int]) -> int:
    """The polynomial at 0 as the solution of linear equations over the field, by elimination."""
    rows = [[pow(x, power, PRIME) for power in range(len(shares))] + [y] for x, y in shares.items()]
    for place in range(len(rows)):
        pivot = next(row for row in rows[place:] if row[place])
        rows[rows.index(pivot)], rows[place] = rows[place], pivot
        inverse = pow(rows[place][place], -1, PRIME)
        rows[place] = [value * inverse % PRIME for value in rows[place]]
        for other in range(len(rows)):
            if other != place:
                factor = rows[other][place]
                rows[other] = [(a - factor * b) % PRIME for a, b in zip(rows[other], rows[place], strict=True)]
    return rows[0][-1]


@given(secret=st.integers(0, 2**256 - 1), count=st.integers(1, 6), seed=st.integers(0, 99), data=st.data())
def test_any_t_shares_give_the_secret(secret: int, count: int, seed: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, count))
    points = [3 * place + 1 for place in range(count)]
    shares = dict(zip(points, protocol.split(secret, points, threshold, randomness("split", seed)), strict=True))
    for some in itertools.combinations(points, threshold):
        held = {point: shares[point] for point in some}
        assert protocol.combine(held) == solved(held) == secret
    if threshold > 1:  # one fewer says nothing: for another value at 0 there is a polynomial as well
        few = {point: shares[point] for point in points[: threshold - 1]}
        assert protocol.combine(few) != secret


def test_the_field_is_one() -> None:
    """Fermat's test for 40 bases, of a number that is no product of small primes."""
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in range(2, 42))
    assert all(PRIME % small for small in range(2, 10_000))


def four() -> tuple[dict[int, Secrets], dict[int, Public], dict[int, dict[int, tuple[Public, bytes]]]]:
    own = {c: protocol.advertise(c) for c in range(4)}
    keys = {c: secrets.public for c, secrets in own.items()}
    letters = {c: protocol.share(own[c], {n: keys[n] for n in own if n != c}, 2, CONTEXT) for c in own}
    return own, keys, {c: {n: (keys[n], letters[n][c]) for n in own if n != c} for c in own}


def test_nobody_gives_away_both_secrets_of_a_client() -> None:
    own, _, post = four()
    with pytest.raises(Unfit, match="both of its secrets"):
        protocol.unmask(own[0], post[0], (0, 1, 2, 3), (3,), 2, CONTEXT)
    opening = protocol.unmask(own[0], post[0], (0, 1, 2), (3,), 2, CONTEXT)
    assert set(opening.seeds) == {1, 2}
    assert set(opening.keys) == {3}
    with pytest.raises(Unfit, match="1 neighbours"):
        protocol.unmask(own[0], post[0], (0, 1), (2, 3), 2, CONTEXT)
    with pytest.raises(Unfit, match="a sum that it is not in"):
        protocol.unmask(own[0], post[0], (1, 2), (3,), 2, CONTEXT)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda letter: letter[:-1], "bytes from client 1"),
        (lambda letter: letter[:-1] + bytes([letter[-1] ^ 1]), "not written with its key"),
        (lambda letter: bytes([letter[0] ^ 1]) + letter[1:], "not written with its key"),
    ],
)
def test_a_letter_that_was_changed_is_known(spoil, words: str) -> None:
    own, _, post = four()
    public, letter = post[0][1]
    with pytest.raises(Unfit, match=words):
        protocol.unmask(own[0], post[0] | {1: (public, spoil(letter))}, (0, 1, 2), (3,), 2, CONTEXT)


def test_a_letter_is_of_one_version_and_for_one_client() -> None:
    own, keys, post = four()
    with pytest.raises(Unfit, match="not written with its key"):
        protocol.unmask(own[0], post[0], (0, 1, 2), (3,), 2, b"run 4")
    other = {1: post[0][1], 2: (keys[2], post[1][2][1])}  # what the second wrote to somebody else
    with pytest.raises(Unfit, match="not written with its key"):
        protocol.unmask(own[0], other, (0, 1, 2), (3,), 2, CONTEXT)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(32)])
def test_a_public_key_that_is_none_is_refused(key: bytes) -> None:
    """Too short ones, and the point whose product with any key is zero."""
    own, keys, _ = four()
    with pytest.raises(Unfit, match="a public key that is none"):
        protocol.mask(own[0], {1: Public(channel=keys[1].channel, mask=key)}, np.zeros(2, dtype=np.uint32), CONTEXT)


def test_shares_of_another_key_give_no_sum() -> None:
    own, keys, post = four()
    around = {c: tuple(n for n in own if n != c) for c in own}
    said = np.ones(3, dtype=np.uint32)
    total = sum(protocol.mask(own[c], {n: keys[n] for n in around[c]}, said, CONTEXT) for c in (0, 1, 2))
    openings = {c: protocol.unmask(own[c], post[c], (0, 1, 2), (3,), 2, CONTEXT) for c in (0, 1, 2)}
    assert protocol.opened(total, keys, around, (0, 1, 2), openings, 2, CONTEXT).tolist() == [3, 3, 3]
    liar = protocol.Opening(seeds=openings[0].seeds, keys={3: 12345})
    with pytest.raises(Unfit, match="client 3 that are of no"):
        protocol.opened(total, keys, around, (0, 1, 2), openings | {0: liar}, 2, CONTEXT)
    with pytest.raises(Unfit, match="0 shares of client 0, where 2 are needed"):
        protocol.opened(total, keys, around, (0, 1, 2), {0: openings[0]}, 2, CONTEXT)


def test_neighbours_on_a_ring_by_hand() -> None:
    """The order 0 2 4 1 3 of clients 10 to 14, two neighbours at each side of the ring being all but none of five."""
    order = np.array([0, 2, 4, 1, 3, 5])
    found = neighbours([10, 11, 12, 13, 14, 15], 2, order)
    assert found == {10: (12, 15), 11: (13, 14), 12: (10, 14), 13: (11, 15), 14: (11, 12), 15: (10, 13)}
    assert neighbours([10, 11, 12], 2, order[:3]) == {10: (11, 12), 11: (10, 12), 12: (10, 11)}


@given(count=st.integers(2, 400))
def test_sizes_of_a_cohort(count: int) -> None:
    degree, threshold = sizes(count)
    assert degree / 2 < threshold <= degree <= count - 1
    assert degree == count - 1 or (count > 40 and degree % 2 == 0)


def test_the_tails_of_a_graph_by_chance() -> None:
    """How often a client of 60 has 3 of 12 corrupt ones among 6 neighbours: drawn, and as the bound has it."""
    from polyrhythm.methods.secure_sum import graph

    draws, hits, tries = stream(0, "sample", "tails"), 0, 4000
    for _ in range(tries):
        around = neighbours(list(range(60)), 6, draws.permutation(60))
        hits += sum(other < 12 for other in around[59]) >= 3
    expected = graph.tail(59, 12, 6, 3)
    assert abs(hits / tries - expected) < 4 * (expected * (1 - expected) / tries) ** 0.5


def test_fixed_point_by_hand() -> None:
    """20 of up to 1 in 31 bits: 2^26 steps. One and a half steps is two, the even one; a half is none."""
    assert fixed_point.scale_for(20, 1.0) == 2.0**26
    assert fixed_point.scale_for(2, 0.5) == 2.0**30
    whole = fixed_point.rounded(torch.tensor([0.25, -0.375, 0.125, 1.0]), 4.0, 1.0)
    assert whole is not None
    assert whole.tolist() == [1, -2, 0, 4]
    numbers = fixed_point.as_numbers(whole)
    assert numbers.tolist() == [1, 2**32 - 2, 0, 4]
    assert fixed_point.read(numbers + numbers, 4.0).tolist() == [0.5, -1.0, 0.0, 2.0]
    assert torch.equal(fixed_point.as_tensor(numbers), whole)
    for beyond in (1.5, float("nan"), float("inf"), -1.5):
        assert fixed_point.rounded(torch.tensor([0.0, beyond]), 4.0, 1.0) is None


@given(most=st.integers(1, 5000), bound=st.floats(1e-4, 16.0))
def test_the_largest_sum_fits_into_32_bits(most: int, bound: float) -> None:
    scale = fixed_point.scale_for(most, bound)
    assert most * (scale * bound + 1) <= 2**31 - 1 < most * (2 * scale * bound + 1)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(UserError, match="at least 4096 steps to a unit"):
        fixed_point.scale_for(1000, 1000.0)
