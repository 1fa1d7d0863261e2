"""What a federation looks like: a summary in numbers, and what its label picture shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from polyrhythm.data.federation import Federation

if TYPE_CHECKING:
    from rich.table import Table

MOST_CLIENTS = 100
MOST_CLASSES = 40


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """A federation in numbers. Three numbers are smallest, median and largest over the clients that hold samples.

    Args:
        name: of the data set.
        task: as in `Collection`.
        partition: as one would write it.
        clients: how many, empty ones included.
        empty: clients without samples.
        train: training samples in all.
        validation: samples held out for choosing.
        test: samples of the test set.
        sizes: samples a client.
        classes: number of classes in all.
        held: distinct classes a client.
        entropy: bits of a client's label distribution.
        entropy_all: bits of the label distribution of all clients together.
        distance: mean total-variation distance of a client's label distribution from that of all, weighted by samples;
            0 is IID, close to 1 is one rare class each.
        notes: what differs from what a reader may expect.
    """

    name: str
    task: str
    partition: str
    clients: int
    empty: int
    train: int
    validation: int
    test: int
    sizes: tuple[int, float, int]
    classes: int
    held: tuple[int, float, int]
    entropy: tuple[float, float, float]
    entropy_all: float
    distance: float
    notes: tuple[str, ...]


def summary(federation: Federation) -> Summary:
    """Counts sizes, classes and entropy of a federation."""
    counts = federation.histogram()
    filled = federation.sizes > 0
    sizes = federation.sizes[filled] if filled.any() else np.zeros(1, dtype=np.int64)
    labels = counts[filled] if filled.any() else counts[:1]
    total = labels.sum(axis=1, keepdims=True)  # equals the sizes, except where a sample has several tags
    mixes = labels / np.maximum(total, 1)
    overall = labels.sum(axis=0) / max(int(labels.sum()), 1)
    distances = 0.5 * np.abs(mixes - overall).sum(axis=1)
    return Summary(
        name=federation.name,
        task=federation.task,
        partition=federation.partition.text(),
        clients=federation.clients,
        empty=int((~filled).sum()) - (0 if federation.unseen is None else len(federation.unseen.clients)),
        train=int(federation.sizes.sum()),
        validation=len(federation.validation) if federation.validation is not None else 0,
        test=len(federation.test),
        sizes=_three(sizes, int),
        classes=counts.shape[1],
        held=_three((labels > 0).sum(axis=1), int),
        entropy=_three(_entropy(mixes), float),
        entropy_all=float(_entropy(overall[None])[0]),
        distance=float(np.average(distances, weights=sizes)) if sizes.any() and labels.size else 0.0,
        notes=federation.notes,
    )


def summary_table(found: Summary) -> Table:
    """The summary as a Rich table of two columns."""
    from rich.table import Table

    table = Table(
        show_header=False, title=f"{found.name}, {found.partition}, {found.clients:,} clients", title_justify="left"
    )
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("samples", f"{found.train:,} train, {found.validation:,} validation, {found.test:,} test")
    table.add_row("empty clients", f"{found.empty:,}")
    rows: list[tuple[str, tuple[Any, Any, Any], str]] = [("samples a client", found.sizes, ",g")]
    if found.classes:
        rows.append((f"{_kind(found.task)} a client (of {found.classes:,})", found.held, ",g"))
        rows.append((f"label entropy (of {found.entropy_all:.2f} bits)", found.entropy, ".2f"))
    for label, (low, middle, high), form in rows:
        table.add_row(label, f"smallest {low:{form}}, median {middle:{form}}, largest {high:{form}}")
    if found.classes:
        table.add_row("distance from IID", f"{found.distance:.3f} (mean total variation; 0 is IID)")
    for note in found.notes:
        table.add_row("note", note)
    return table


def label_counts(federation: Federation) -> dict[str, Any]:
    """Who holds how many samples of which class, as plain data: what the label picture shows.

    More than 100 clients or 40 classes are thinned: evenly spread clients, the most frequent classes; the title says
    so.
    """
    shown = np.unique(
        np.linspace(0, federation.clients - 1, min(federation.clients, MOST_CLIENTS)).astype(int)
    ).tolist()
    counts = federation.histogram(shown)  # not of all: of a million clients with hundreds of tags it would be gigabytes
    few = f"{len(shown):,} of {federation.clients:,} clients" if len(shown) < federation.clients else (
        f"{federation.clients:,} clients"
    )  # fmt: skip
    title = f"{federation.name}: {federation.partition.text()}, {few}"
    frequent = np.sort(np.argsort(-federation.by_class(), kind="stable")[: min(MOST_CLASSES, len(federation.classes))])
    if len(frequent) < len(federation.classes):
        title += f", the {len(frequent)} most frequent of {len(federation.classes):,} {_kind(federation.task)}"
    return {
        "title": title,
        "clients": [federation.names[i] if federation.names else str(i) for i in shown],
        "sizes": [int(federation.sizes[i]) for i in shown],
        "classes": [_visible(federation.classes[c]) for c in frequent],
        "of": "tag" if federation.task == "multilabel" else "class",
        "counts": [[int(row[c]) for c in frequent] for row in counts],
    }


def _entropy(mixes: np.ndarray) -> np.ndarray:
    """Bits of each row of shares [n, C]."""
    logs: np.ndarray = np.log2(mixes, out=np.zeros_like(mixes), where=mixes > 0)
    bits: np.ndarray = np.abs((mixes * logs).sum(axis=1))  # abs, not a minus sign: no -0.0 for a single class
    return bits


def _three(values: np.ndarray, kind: type) -> Any:
    return kind(values.min()), float(np.median(values)), kind(values.max())


def _kind(task: str) -> str:
    return "tags" if task == "multilabel" else "classes"


def _visible(label: str) -> str:
    return {" ": "␣", "\n": "↵", "": "(none)"}.get(label, label)
