"""Secure aggregation, as pure functions: the sum of clients' vectors modulo 2^32, and of no fewer than t of them.

| stage | a client | the server |
| --- | --- | --- |
| 0 `advertise` | makes two X25519 pairs, c for channels and s for masks | hands out the public ones of neighbours |
| 1 `share` | draws b, and sends t-of-k shares of b and of s, each sealed for one neighbour | passes letters on |
| 2 `mask` | y_i = x_i + PRG(b_i) + sum_{j>i} PRG(s_ij) - sum_{j<i} PRG(s_ij) mod 2^32 | sums what comes |
| 3 `unmask` | gives its share of b of those in the sum, of s of those that shared and are missing | `opened` |

A client never gives both of one other client, and none where fewer than t of its neighbours are in the sum: both
secrets together are that client's vector.

s_ij is what X25519 makes of one client's s and the other's, by HKDF-SHA256 with a label and the context; b_i goes the
same way. PRG is AES-256 in counter mode from a zero nonce: a key is of one version, and used once. Letters are AES-256
in GCM under what HKDF makes of the c's, with who writes to whom and the context as associated data. Shares are Shamir's
over the field of p = 2^256 + 297 elements, at the points client + 1.

Against a server that follows the protocol and is curious, with fewer than t of any client's neighbours on its side. A
server that lies about keys, or tells different clients of different survivors, is not held off: that needs signatures
and a round of consistency.

References: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, figure 4
without its lines for active adversaries; Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead", CCS 2020, Algorithm 2 (neighbours).
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, final

import numpy as np

from polyrhythm.base.errors import UserError

PRIME = 2**256 + 297
KEY = 32
"""Bytes of a key, private or public, and of a seed."""
SHARE = 33
"""Bytes of a share: an element of the field."""
NONCE, TAG = 12, 16
LETTER = NONCE + 2 * SHARE + TAG
"""Bytes of a sealed pair of shares."""

Random = Callable[[int], bytes]
"""Gives so many random bytes."""
Numbers = np.ndarray
"""Whole numbers modulo 2^32, uint32 [P]."""


class Unfit(Exception):
    """Something in the protocol that does not fit; says what. Nothing is told to anybody then."""


@final
@dataclass(frozen=True, kw_only=True)
class Public:
    """What everybody may know of a client: its public keys, 32 bytes each."""

    channel: bytes
    mask: bytes


@final
@dataclass(frozen=True, kw_only=True)
class Secrets:
    """What a client keeps to itself in one version.

    Args:
        client: its number, 0 or more.
        channel, mask: its private keys.
        seed: b, of the mask that is its own.
    """

    client: int
    channel: bytes
    mask: bytes
    seed: bytes

    @functools.cached_property
    def public(self) -> Public:
        """Its public keys."""
        return Public(channel=_public(self.channel), mask=_public(self.mask))


@final
@dataclass(frozen=True, kw_only=True)
class Opening:
    """Shares that a client gives away at the end, by whose secret they are.

    Args:
        seeds: of b of clients in the sum.
        keys: of s of clients that are missing.
    """

    seeds: Mapping[int, int]
    keys: Mapping[int, int]


def advertise(client: int, random: Random = secrets.token_bytes) -> Secrets:
    """Stage 0: a client's secrets, with the public keys that it makes known."""
    return Secrets(client=client, channel=random(KEY), mask=random(KEY), seed=random(KEY))


def share(
    own: Secrets,
    neighbours: Mapping[int, Public],
    threshold: int,
    context: bytes,
    random: Random = secrets.token_bytes,
) -> dict[int, bytes]:
    """Stage 1: one sealed letter to each neighbour, with a share of b and one of s.

    Args:
        own: the client's secrets.
        neighbours: who may hold its shares.
        threshold: t, how many of them can make the secrets of it again.
        context: names run and version.
        random: draws coefficients and nonces.

    Raises:
        Unfit: too few neighbours, a client among its own, or a key that is none.
    """
    if own.client in neighbours or not 1 <= threshold <= len(neighbours):
        raise Unfit(f"{len(neighbours)} neighbours of client {own.client}, where {threshold} of them are to be enough")
    points = [client + 1 for client in neighbours]
    seeds = split(int.from_bytes(own.seed, "big"), points, threshold, random)
    keys = split(int.from_bytes(own.mask, "big"), points, threshold, random)
    letters = {}
    for (client, public), seed, key in zip(neighbours.items(), seeds, keys, strict=True):
        nonce, text = random(NONCE), seed.to_bytes(SHARE, "big") + key.to_bytes(SHARE, "big")
        cipher, about = _channel(own, public, context), _about(own.client, client, context)
        letters[client] = nonce + cipher.encrypt(nonce, text, about)
    return letters


def mask(own: Secrets, sharing: Mapping[int, Public], vector: Numbers, context: bytes) -> Numbers:
    """Stage 2: a client's vector under its masks.

    Args:
        own: its secrets.
        sharing: those neighbours that sent it a letter.
        vector: x_i, [P].
        context: as in stage 1.
    """
    masked: Numbers = vector + numbers_of(own_key(own.seed, context), len(vector))
    for client, public in sharing.items():
        _add_pair(masked, own.client, client, pair_key(own.mask, public.mask, context))
    return masked


def unmask(
    own: Secrets,
    letters: Mapping[int, tuple[Public, bytes]],
    summed: Collection[int],
    missing: Collection[int],
    threshold: int,
    context: bytes,
) -> Opening:
    """Stage 3: the shares that a client gives away so that the sum can be read.

    Args:
        own: its secrets.
        letters: from neighbours, with the keys of these.
        summed: whose vectors are in the sum.
        missing: who shared and is not.
        threshold: t.
        context: as in stage 1.

    Raises:
        Unfit: somebody is in both, the client itself is not in the sum, fewer than t of its neighbours are, or a letter
            is not what it should be.
    """
    kept, gone = letters.keys() & set(summed), letters.keys() & set(missing)
    if both := set(summed) & set(missing):
        raise Unfit(f"client {min(both)} is said to be in the sum and to be missing: both of its secrets are asked for")
    if own.client not in set(summed):
        raise Unfit(f"client {own.client} is asked about a sum that it is not in")
    if len(kept) < threshold:
        raise Unfit(f"{len(kept)} neighbours of client {own.client} in the sum, where {threshold} are needed")
    seeds = {client: _opened(own, client, *letters[client], context)[0] for client in sorted(kept)}
    keys = {client: _opened(own, client, *letters[client], context)[1] for client in sorted(gone)}
    return Opening(seeds=seeds, keys=keys)


def opened(
    masked: Numbers,
    keys: Mapping[int, Public],
    neighbours: Mapping[int, Collection[int]],
    summed: Collection[int],
    openings: Mapping[int, Opening],
    threshold: int,
    context: bytes,
) -> Numbers:
    """The sum without masks, at the server.

    Args:
        masked: the sum of masked vectors modulo 2^32, [P]; not changed.
        keys: of all that shared.
        neighbours: of each of them, as far as they shared too.
        summed: whose vectors are in the sum.
        openings: what clients gave away.
        threshold: t.
        context: as in stage 1.

    Raises:
        Unfit: a sum of nobody, fewer than t shares of a secret, or shares of none.
    """
    total, inside = masked.copy(), set(summed)
    if not inside:
        raise Unfit("a sum of nobody")
    for client in sorted(inside):
        seed = _combined({by: o.seeds[client] for by, o in openings.items() if client in o.seeds}, client, threshold)
        total -= numbers_of(own_key(seed, context), len(total))
    for client in sorted(keys.keys() - inside):
        if not (left := sorted(inside.intersection(neighbours[client]))):
            continue
        key = _combined({by: o.keys[client] for by, o in openings.items() if client in o.keys}, client, threshold)
        if _public(key) != keys[client].mask:
            raise Unfit(f"shares of client {client} that are of no key of its own")
        for other in left:  # as the missing client would have added them, so that pairs cancel
            _add_pair(total, client, other, pair_key(key, keys[other].mask, context))
    return total


def helping(
    neighbours: Mapping[int, Collection[int]], summed: Collection[int], there: Collection[int], threshold: int
) -> tuple[int, ...]:
    """Who of those that are there gives its shares away, as `unmask` has it.

    Args:
        neighbours: of all that shared, as far as they shared too.
        summed: whose vectors are in the sum.
        there: who of them is still there.
        threshold: t.
    """
    inside = set(summed)
    return tuple(c for c in there if len(inside.intersection(neighbours[c])) >= threshold)


def readable(
    neighbours: Mapping[int, Collection[int]], summed: Collection[int], helping: Collection[int], threshold: int
) -> bool:
    """Whether their shares are enough, as `opened` has it; arguments as for `helping`."""
    inside, holding = set(summed), set(helping)
    wanted = (c for c in neighbours if c in inside or inside.intersection(neighbours[c]))
    return bool(inside) and all(len(holding.intersection(neighbours[c])) >= threshold for c in wanted)


def numbers_of(key: bytes, length: int) -> Numbers:
    """The pseudo-random numbers of a key, uint32 [length]: AES-256 in counter mode over zeros."""
    ciphers = _library().ciphers
    algorithm, mode = ciphers.algorithms.AES(key), ciphers.modes.CTR(bytes(16))
    return np.frombuffer(ciphers.Cipher(algorithm, mode).encryptor().update(bytes(4 * length)), dtype="<u4")


def own_key(seed: bytes, context: bytes) -> bytes:
    """The key of a client's own mask."""
    return _derived(seed, b"self", context)


def pair_key(private: bytes, public: bytes, context: bytes) -> bytes:
    """The key of the mask that two clients share, from the private s of one and the public one of the other."""
    return _shared(private, public, b"pair", context)


def split(secret: int, points: Sequence[int], threshold: int, random: Random) -> list[int]:
    """Shamir's shares of a secret at some points: values of a random polynomial of degree t - 1 that is it at 0."""
    drawn = [int.from_bytes(random(48), "big") % PRIME for _ in range(threshold - 1)]
    shares = []
    for point in points:
        value = 0
        for coefficient in reversed((secret, *drawn)):
            value = (value * point + coefficient) % PRIME
        shares.append(value)
    return shares


def combine(shares: Mapping[int, int]) -> int:
    """The secret of which these are shares, by point: Lagrange's polynomial at 0."""
    weights = _weights(tuple(shares))
    return sum(weight * value for weight, value in zip(weights, shares.values(), strict=True)) % PRIME


@functools.lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for one in points:
        above = below = 1
        for other in points:
            if other != one:
                above, below = above * other % PRIME, below * (other - one) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(found)


def _combined(shares: Mapping[int, int], client: int, threshold: int) -> bytes:
    """A secret of a client from the first t shares of it, by who held them."""
    if len(shares) < threshold:
        raise Unfit(f"{len(shares)} shares of client {client}, where {threshold} are needed")
    secret = combine({by + 1: shares[by] for by in sorted(shares)[:threshold]})
    if secret >= 1 << 8 * KEY:
        raise Unfit(f"shares of client {client} that are of no secret")
    return secret.to_bytes(KEY, "big")


def _add_pair(vector: Numbers, own: int, other: int, key: bytes) -> None:
    """Adds, in place, what one of two clients adds of the mask that they share."""
    numbers = numbers_of(key, len(vector))
    (np.add if other > own else np.subtract)(vector, numbers, out=vector)


def _opened(own: Secrets, sender: int, public: Public, letter: bytes, context: bytes) -> tuple[int, int]:
    """The shares in a letter."""
    if len(letter) != LETTER:
        raise Unfit(f"a letter of {len(letter)} bytes from client {sender}, where {LETTER} are expected")
    try:
        text = _channel(own, public, context).decrypt(
            letter[:NONCE], letter[NONCE:], _about(sender, own.client, context)
        )
    except _library().InvalidTag as error:
        raise Unfit(f"a letter from client {sender} that was not written with its key") from error
    return int.from_bytes(text[:SHARE], "big"), int.from_bytes(text[SHARE:], "big")


def _channel(own: Secrets, other: Public, context: bytes) -> Any:
    return _library().aead.AESGCM(_shared(own.channel, other.channel, b"channel", context))


def _about(sender: int, receiver: int, context: bytes) -> bytes:
    return b"%d to %d, " % (sender, receiver) + context


def _public(private: bytes) -> bytes:
    key: bytes = _library().x25519.X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return key


def _shared(private: bytes, public: bytes, label: bytes, context: bytes) -> bytes:
    x25519 = _library().x25519
    try:
        secret = x25519.X25519PrivateKey.from_private_bytes(private).exchange(
            x25519.X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:  # of another length, or a point of small order
        raise Unfit(f"a public key that is none: {error}") from error
    return _derived(secret, label, context)


def _derived(secret: bytes, label: bytes, context: bytes) -> bytes:
    """A key of its own for one use, by HKDF-SHA256."""
    library, info = _library(), b"polyrhythm secagg " + label + b" " + context
    hkdf = library.hkdf.HKDF(algorithm=library.hashes.SHA256(), length=KEY, salt=None, info=info)
    key: bytes = hkdf.derive(secret)
    return key


@functools.cache
def _library() -> SimpleNamespace:
    """What is used of the library cryptography.

    Raises:
        UserError: it is not installed.
    """
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.ciphers import aead
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError as error:
        raise UserError(
            "secagg without the package cryptography",
            expected="it, for keys, masks and sealed letters",
            why="nobody should write these by himself",
            fix='pip install "polyrhythm[secagg]"',
        ) from error
    return SimpleNamespace(InvalidTag=InvalidTag, aead=aead, ciphers=ciphers, hashes=hashes, hkdf=hkdf, x25519=x25519)


def check_library() -> None:
    """Refuses to go on where the library is not installed.

    Raises:
        UserError: it is not.
    """
    _library()
