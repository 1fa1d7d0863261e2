"""How results are spread over clients and classes: what is on record of them, and numbers that say how fair it is."""

from __future__ import annotations

import collections
import contextlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar, final

from polyrhythm.base.metric_names import in_words as named
from polyrhythm.runs.database import FILE, damaged, read_records, unpacked, unpacked_floats
from polyrhythm.runs.records import ClassResultsRecord
from polyrhythm.runs.schema import Table

T = TypeVar("T")
MOST_GROUPS = 6
"""Groups of devices that are named in a line."""


class ClientResults(NamedTuple):
    """Results of the clients that are measured."""

    clients: tuple[int, ...]
    """Their numbers, rising."""
    devices: tuple[str, ...]
    """The group of like devices of each."""
    versions: Sequence[tuple[int, tuple[float, ...], tuple[float, ...]]]
    """Of each evaluated version its number, and the headline metric and the loss of each client; NaN is undefined."""
    having: int
    """Clients with a test of their own, so that it is known whether these are a sample."""
    personal: Sequence[tuple[int, tuple[float, ...]]] = ()
    """Of each version of which it was measured its number, and the headline metric of the model that each client uses;
    none where that is the global one."""


@final
@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over clients, larger being better: how it is spread.

    Args:
        clients: of how many it is defined.
        mean: over them, each counting the same.
        sd: their standard deviation (of all there are, so n and not n - 1); 0 for one client.
        worst: the mean over the worst tenth of them, at least one.
        median: of them.
        best: the mean over the best tenth.
        lowest: of the worst one.
    """

    clients: int
    mean: float
    sd: float
    worst: float
    median: float
    best: float
    lowest: float


def spread(values: Sequence[float]) -> Spread | None:
    """How some clients' values are spread; those that are undefined (NaN) are left out. None if all are.

    The worst tenth is that of the literature on fairness: Li et al., "Fair Resource Allocation in Federated Learning",
    ICLR 2020, table 1.
    """
    known = sorted(value for value in values if not math.isnan(value))
    if not known:
        return None
    n, tenth = len(known), math.ceil(len(known) / 10)
    mean = math.fsum(known) / n
    return Spread(
        clients=n,
        mean=mean,
        sd=math.sqrt(math.fsum((value - mean) ** 2 for value in known) / n),
        worst=math.fsum(known[:tenth]) / tenth,
        median=(known[(n - 1) // 2] + known[n // 2]) / 2,
        best=math.fsum(known[-tenth:]) / tenth,
        lowest=known[0],
    )


def quantile(known: Sequence[float], share: float) -> float:
    """The value below which a share of some rising values lie, between two of them in proportion."""
    place = share * (len(known) - 1)
    low = math.floor(place)
    high = min(low + 1, len(known) - 1)
    return known[low] + (place - low) * (known[high] - known[low])


def by_device(devices: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """The mean of each group of like devices, by name, over those of its clients for which it is defined."""
    found: dict[str, list[float]] = {}
    for device, value in zip(devices, values, strict=True):
        if device and not math.isnan(value):
            found.setdefault(device, []).append(value)
    return {device: math.fsum(found[device]) / len(found[device]) for device in sorted(found)}


def of_clients(folder: Path, number: int, *, last: bool = False) -> ClientResults:
    """What is on record of single clients of a run.

    Args:
        folder: the output folder.
        number: of the run.
        last: whether only the newest of its versions is wanted.
    """
    rows = read_records(folder, "clients", number)
    single = [row for row in rows if row["measured"]]
    results = read_records(folder, "client_results", number, last=1 if last else None)
    with _readable(folder, "client_results"):
        versions = [
            (
                row["version"],
                *(_all(unpacked_floats(row[name]), len(single)) for name in ("scores", "losses")),
            )
            for row in results
        ]
        personal = [
            (row["version"], _all(unpacked_floats(row["personal"]), len(single)))
            for row in results
            if row["personal"] is not None
        ]
    return ClientResults(
        clients=tuple(row["client"] for row in single),
        devices=tuple(row["device"] for row in single),
        versions=versions,
        having=sum(row["test_samples"] > 0 and not row["unseen"] for row in rows),
        personal=personal,
    )


def of_classes(folder: Path, number: int, classes: int, *, last: bool = False) -> list[ClassResultsRecord]:
    """What is on record of classes, version by version.

    Args:
        folder: the output folder.
        number: of the run.
        classes: how many there are.
        last: whether only the newest of its versions is wanted.
    """
    with _readable(folder, "class_results"):
        return [
            ClassResultsRecord(
                version=row["version"],
                present=_all(unpacked(row["present"]), classes),
                right=_all(unpacked(row["right"]), classes),
                confusion=None if row["confusion"] is None else _all(unpacked(row["confusion"]), classes**2),
            )
            for row in read_records(folder, "class_results", number, last=1 if last else None)
        ]


def newest(folder: Path, number: int, headline: str) -> str:
    """How the newest results are spread over clients, and over groups of like devices, in words; "" without any.

    Args:
        folder: the output folder.
        number: of the run.
        headline: the metric.
    """
    found = of_clients(folder, number, last=True)
    if not found.versions or (over := spread(found.versions[-1][1])) is None:
        return ""
    few = f" of a sample of {len(found.clients):,}" if len(found.clients) < found.having else ""
    words = f"worst tenth of clients{few} {over.worst:.4f}, median {over.median:.4f}, best tenth {over.best:.4f}"
    groups, counts = by_device(found.devices, found.versions[-1][1]), collections.Counter(found.devices)
    of_groups = [f"{name} {value:.4f} (n = {counts[name]})" for name, value in groups.items()]
    apart = f"; {', '.join(of_groups)}" if 1 < len(groups) <= MOST_GROUPS else ""
    return f"{named(headline)}: {words}{apart}"


def in_words(found: Mapping[str, float], headline: str) -> str:
    """What clients' own models can do on their own tests, in words; "" where they have none, or it was not measured.

    Args:
        found: of a version, as `VersionRecord.spread`.
        headline: the metric.
    """
    if "personal_mean" not in found:
        return ""
    over = {name.removeprefix("personal_"): value for name, value in found.items() if name.startswith("personal_")}
    worse = (
        f"; {over['worse']:.0%} of clients do worse with theirs than with the global model" if "worse" in over else ""
    )
    return (
        f"{named(headline)} {over['mean']:.4f} as a mean over clients, {over['pooled']:.4f} over samples, worst tenth "
        f"{over['worst_decile']:.4f}, median {over['median']:.4f}, sd over clients {over['sd_over_clients']:.4f}{worse}"
    )


def unseen_in_words(found: Mapping[str, float], headline: str) -> str:
    """What clients that never train get out of a version, in words; "" without any, or where it was not measured.

    Args:
        found: of a version, as `VersionRecord.spread`.
        headline: the metric.
    """
    told = [
        f"{found[f'unseen_{which}_mean']:.4f} with {whose} (worst tenth {found[f'unseen_{which}_worst_decile']:.4f})"
        for which, whose in (("global", "the global model"), ("personal", "their own"))
        if f"unseen_{which}_mean" in found
    ]
    if not told:
        return ""
    many = int(found["unseen_clients"])
    return f"{named(headline)} of the {many:,} that never train, as a mean over them: {', '.join(told)}"


@contextlib.contextmanager
def _readable(folder: Path, table: Table) -> Iterator[None]:
    """Explains what is in a table that we did not write."""
    try:
        yield
    except (struct.error, TypeError, ValueError) as error:
        raise damaged(folder / FILE, f"{table}: {error}") from None


def _all(values: tuple[T, ...], wanted: int) -> tuple[T, ...]:
    if len(values) != wanted:
        raise ValueError(f"{len(values):,} numbers where {wanted:,} belong")
    return values


def spans(versions: Sequence[int]) -> str:
    """Versions in words: "0 to 20"."""
    return f"{versions[0]}" if len(versions) == 1 else f"{min(versions)} to {max(versions)}"
