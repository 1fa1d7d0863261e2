"""The clients of a run as they are recorded, and which of them are measured one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from polyrhythm.experiments.experiment import Experiment
from polyrhythm.runs.records import ClientRecord

MOST = 10_000
"""Clients of which there is a record each; of more, those that are measured."""


def measured(experiment: Experiment) -> list[int]:
    """The clients whose own results are kept, by number: all that have a test, or a sample of them by device.

    None where all samples are one client's: those who have tests then are no clients of the run.
    """
    tests, most = experiment.federation.local_tests, experiment.evaluation.client_results
    if tests is None or not most or experiment.recipe.regime == "centralised":
        return []
    having = np.flatnonzero(tests.sizes).tolist()
    if len(having) <= most:
        return list(having)
    return stratified(having, devices(experiment, having), tests.sizes, most)


def devices(experiment: Experiment, clients: Sequence[int]) -> dict[int, str]:
    """The group of like devices of each of some clients."""
    world = experiment.world(np.array(clients, dtype=np.int64))
    return {client: world.device(client).group for client in clients}


def members(experiment: Experiment, chosen: Sequence[int], *, until: float | None = None) -> list[ClientRecord]:
    """All clients, or of a large federation those that are measured.

    Args:
        experiment: whose.
        chosen: the clients that are measured.
        until: virtual seconds that the run has taken; None while that is not known.
    """
    federation = experiment.federation
    clients = range(federation.clients) if federation.clients <= MOST else chosen
    group, single = devices(experiment, clients), set(chosen)
    never = set[int]() if federation.unseen is None else set(federation.unseen.clients)
    world = None if until is None else experiment.world(np.array(clients, dtype=np.int64))
    found = []
    for client in clients:
        held, tests = federation.shares, None if experiment.recipe.regime == "centralised" else federation.local_tests
        if federation.unseen is not None and client in never:
            held, tests = federation.unseen.train, federation.unseen.tests
        record = ClientRecord(
            client=client,
            samples=int(held.sizes[client]),
            test_samples=0 if tests is None else int(tests.sizes[client]),
            device=group[client],
            measured=client in single,
            unseen=client in never,
            there=None if world is None or until is None else world.share_there(client, until),
        )
        found.append(record)
    return found


def stratified(clients: Sequence[int], groups: Mapping[int, str], sizes: np.ndarray, most: int) -> list[int]:
    """So many of some clients: of each group in proportion, at least one if there is room, small and large ones alike.

    Nothing is drawn: within a group, clients are taken at even distances by their number of samples.

    Args:
        clients: by number.
        groups: of each, its group.
        sizes: samples, by number.
        most: how many, no more than there are.
    """
    strata: dict[str, list[int]] = {}
    for client in sorted(clients, key=lambda c: (int(sizes[c]), c)):
        strata.setdefault(groups[client], []).append(client)
    shares = _shares({name: len(strata[name]) for name in sorted(strata)}, most)
    return sorted(
        strata[name][(2 * i + 1) * len(strata[name]) // (2 * share)]
        for name, share in shares.items()
        for i in range(share)
    )


def _shares(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """How many of each group: by largest remainders, over what each has at least."""
    least = 1 if most >= len(sizes) else 0
    left, total = most - least * len(sizes), sum(sizes.values()) - least * len(sizes)
    exact = {name: left * (size - least) / total if total else 0.0 for name, size in sizes.items()}
    found = {name: least + math.floor(value) for name, value in exact.items()}
    by_rest = sorted(exact, key=lambda name: math.floor(exact[name]) - exact[name])
    for name in by_rest[: most - sum(found.values())]:
        found[name] += 1
    return found
