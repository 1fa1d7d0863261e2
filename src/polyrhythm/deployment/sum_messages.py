"""Messages of secure aggregation, beside orders: what the server asks in each stage, and what nodes answer.

Keys, letters and shares travel as bytes one after the other, in the order of the clients that are named with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from polyrhythm.methods.secure_sum.protocol import KEY, LETTER, PRIME, SHARE, Opening, Public, Unfit

MOST_NEIGHBOURS = 100_000
"""Of a client: no cohort is larger."""


@dataclass(frozen=True, kw_only=True)
class SumQuestion:
    """Base of what the server asks of a node for the sum of a version.

    Args:
        run: the run's id.
        version: whose sum.
        client: who is asked.
        recipe: digest of the recipe.
    """

    run: str
    version: int
    client: int
    recipe: str


@final
@dataclass(frozen=True, kw_only=True)
class Keys(SumQuestion):
    """Stage 0: the public keys of a node, new ones; whatever it had before is forgotten."""


@final
@dataclass(frozen=True, kw_only=True)
class Shares(SumQuestion):
    """Stage 1: letters to neighbours, who have these public keys.

    Args:
        neighbours: who they are.
        keys: two of each.
        threshold: t, how many of them can make the node's secrets again.
    """

    neighbours: tuple[int, ...]
    keys: bytes
    threshold: int


@final
@dataclass(frozen=True, kw_only=True)
class Unmask(SumQuestion):
    """Stage 3: shares, once.

    Args:
        summed: whose masked updates are in the sum.
        missing: who shared and is not.
    """

    summed: tuple[int, ...]
    missing: tuple[int, ...]


@final
@dataclass(frozen=True, kw_only=True)
class SumAnswer:
    """A node's answer in any stage.

    Args:
        run, version, client: of the question.
        stage: 0, 1 or 3.
        clients: whose letters these are, or shares.
        content: public keys; letters; or shares.
        seeds: how many of the shares, the first ones, are of clients in the sum.
    """

    run: str
    version: int
    client: int
    stage: int
    clients: tuple[int, ...] = ()
    content: bytes = b""
    seeds: int = 0


def parted(clients: tuple[int, ...], content: bytes, size: int) -> dict[int, bytes]:
    """The pieces of a content, by client.

    Raises:
        Unfit: it is not a piece for each of distinct clients.
    """
    if len(set(clients)) != len(clients) or len(clients) > MOST_NEIGHBOURS or len(content) != size * len(clients):
        raise Unfit(f"{len(content):,} bytes for {len(clients):,} clients, where each has {size}")
    return {client: content[size * place : size * (place + 1)] for place, client in enumerate(clients)}


def public_of(content: bytes) -> Public:
    """Two public keys.

    Raises:
        Unfit: it is not two of them.
    """
    if len(content) != 2 * KEY:
        raise Unfit(f"public keys of {len(content):,} bytes, where {2 * KEY} are expected")
    return Public(channel=content[:KEY], mask=content[KEY:])


def keys_of(neighbours: tuple[int, ...], content: bytes) -> dict[int, Public]:
    """The public keys of neighbours."""
    return {client: public_of(part) for client, part in parted(neighbours, content, 2 * KEY).items()}


def letters_of(clients: tuple[int, ...], content: bytes) -> dict[int, bytes]:
    """Letters by client."""
    return parted(clients, content, LETTER)


def keys_in(keys: Mapping[int, Public]) -> bytes:
    """Public keys, one after the other."""
    return b"".join(key.channel + key.mask for key in keys.values())


def shares_in(opening: Opening) -> bytes:
    """Shares, one after the other."""
    return b"".join(value.to_bytes(SHARE, "big") for part in (opening.seeds, opening.keys) for value in part.values())


def opening_of(answer: SumAnswer) -> Opening:
    """The shares in an answer.

    Raises:
        Unfit: it is no such answer.
    """
    if not 0 <= answer.seeds <= len(answer.clients):
        raise Unfit(f"{answer.seeds} shares of {len(answer.clients)}")
    given = parted(answer.clients, answer.content, SHARE)
    shares = {client: int.from_bytes(part, "big") for client, part in given.items()}
    if any(value >= PRIME for value in shares.values()):
        raise Unfit("a share that is no number of the field")
    first = answer.clients[: answer.seeds]
    return Opening(
        seeds={client: shares[client] for client in first},
        keys={client: share for client, share in shares.items() if client not in first},
    )
