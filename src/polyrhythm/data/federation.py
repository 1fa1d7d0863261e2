"""A federation: a data set, who holds which samples, and what was held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base import html
from polyrhythm.base.errors import UserError, check_kind
from polyrhythm.base.plain import plain
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection, Task, counted_targets, shortened, size_of_vocabulary
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.keys import columns_at
from polyrhythm.data.labels import ClassLabels, as_text
from polyrhythm.data.partitions import ByColumn, Partition, View
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.data.samples import Samples, Selected
from polyrhythm.data.structured import Shape, Structure
from polyrhythm.data.text_reading import TextReading
from polyrhythm.data.unseen import check_unseen, drawn_unseen


@final
@dataclass(frozen=True, kw_only=True)
class Shares:
    """Which of some samples each client holds: one index tensor, cut into clients. A hundred thousand are cheap.

    Args:
        samples: what the indices point into.
        order: int64, the indices of all clients one after another.
        sizes: [clients] int64.
        offsets: [clients + 1] int64, where each client begins in `order`.
    """

    samples: Samples
    order: Tensor
    sizes: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, samples: Samples, order: np.ndarray, sizes: np.ndarray) -> Shares:
        """Builds shares from indices in client order and the number of each client."""
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return cls(
            samples=samples,
            order=torch.from_numpy(np.ascontiguousarray(order, dtype=np.int64)),
            sizes=np.asarray(sizes, dtype=np.int64),
            offsets=offsets,
        )

    def indices(self, client: int) -> Tensor:
        """int64 [n_client], a view."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def of_some(self, chosen: np.ndarray) -> Shares:
        """The same for some clients, [clients] bool; all others hold nothing."""
        order = self.order.numpy()[np.repeat(chosen, self.sizes)]
        return Shares.of(self.samples, order, np.where(chosen, self.sizes, 0))

    def __repr__(self) -> str:
        return f"<Shares: {len(self.order):,} samples of {len(self.sizes):,} clients>"


@final
@dataclass(frozen=True, kw_only=True)
class Unseen:
    """Clients that never train for the federation, and are tested in the end as whoever joins it later would be.

    Args:
        share: of the clients with data, as it was asked for.
        train: their training samples, on which each makes a model of its own where the method has some.
        tests: their own tests.
    """

    share: float
    train: Shares
    tests: Shares

    @property
    def clients(self) -> list[int]:
        """Who they are, rising."""
        found: list[int] = np.flatnonzero(self.tests.sizes).tolist()
        return found


@final
@dataclass(frozen=True, kw_only=True)
class Federation:
    """What a run uses: the data, split.

    Args:
        name: of the data set.
        task: as in `Collection`.
        classes: original labels as text, in order of class number.
        shares: the training samples of each client.
        test: what the global model is tested on.
        validation: held out of training, for choosing (best model, sweeps, pruning); None if not asked for.
        local_tests: test samples of each client, None if not asked for.
        unseen: clients that never train; everywhere else they hold nothing. None if not asked for.
        names: a name for each client where the data has one, else ().
        partition: who got which samples.
        notes: what differs from what a reader may expect: relaxed, repaired, unused, empty.
        features: names of the inputs, as in `Collection`.
        target: what is predicted, as in `Collection`.
        preprocessing: as in `Collection`.
        labels: as in `Collection`.
        structure: as in `Collection`.
        texts: as in `Collection`.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    shares: Shares
    test: Samples
    validation: Samples | None
    local_tests: Shares | None
    names: tuple[str, ...]
    partition: Partition
    notes: tuple[str, ...]
    features: tuple[str, ...] = ()
    target: str = ""
    preprocessing: Preprocessing | None = None
    labels: ClassLabels | None = None
    structure: Structure | None = None
    texts: TextReading | None = None
    unseen: Unseen | None = None

    @property
    def train(self) -> Samples:
        """All training samples, shared by all clients; indices of clients point into it."""
        return self.shares.samples

    @property
    def clients(self) -> int:
        """How many clients there are, empty ones included."""
        return len(self.shares.sizes)

    @property
    def sizes(self) -> np.ndarray:
        """[clients] int64, training samples of each client."""
        return self.shares.sizes

    def __repr__(self) -> str:
        return plain(f"<Federation {self.name}: {self.clients:,} clients, {self._held}, {self.partition.text()}>")

    def _repr_html_(self) -> str:
        held_out = 0 if self.validation is None else len(self.validation)
        own = 0 if self.local_tests is None else int(self.local_tests.sizes.sum())
        lines = {
            "clients": f"{self.clients:,}, {self._held}",
            "partition": self.partition.text(),
            "names": shortened(self.names),
            "training samples": f"{int(self.sizes.sum()):,}",
            "validation samples": f"{held_out:,}, held out to choose by" if held_out else "",
            "test samples": f"{len(self.test):,}",
            "clients' own tests": f"{own:,} samples" if own else "",
            "unseen clients": "" if self.unseen is None else f"{len(self.unseen.clients):,}, which never train",
            "task": f"{self.task}, {counted_targets(self.task, self.outputs)}",
            "notes": "; ".join(self.notes),
        }
        return html.framed(html.facts(self.name, {label: text for label, text in lines.items() if text}))

    @property
    def _held(self) -> str:
        return f"with {self.least:,} to {self.sizes.max():,} samples each" if self.clients else "none yet"

    @property
    def least(self) -> int:
        """The fewest training samples that a client holds, but for those that never train."""
        return int((self.sizes if self.unseen is None else np.delete(self.sizes, self.unseen.clients)).min())

    @property
    def elsewhere(self) -> bool:
        """Whether the clients' samples are at nodes of a real federation: here it is known how many, and not which."""
        return len(self.shares.order) < int(self.sizes.sum())

    @property
    def shape(self) -> Shape:
        """Of what a model is given for a sample; of several arrays the shapes of all, by name or in order."""
        return tuple(self.train.shape) if self.structure is None else self.structure.shapes

    @property
    def outputs(self) -> int:
        """How many numbers a model must give for a sample."""
        targets = self.train.targets
        if self.task == "next_token":
            return size_of_vocabulary((self.train, self.test), self.features, self.structure)
        if self.task == "survival":
            return 1
        return len(self.classes) or (1 if targets.dim() == 1 else int(targets.shape[1]))

    def trained(self) -> Tensor:
        """The targets of all clients' training samples.

        Raises:
            UserError: they are at nodes of a real federation, and nobody knows all of them.
        """
        if self.elsewhere:
            raise UserError(
                'class_weights = "balanced" for clients whose samples are at nodes of their own',
                expected="a weight for each class, as numbers",
                why="weights that balance follow from how many samples of each class all clients hold together",
                fix="give class_weights=[…], one number for each class",
            )
        return self.train.targets.index_select(0, self.shares.order)

    def indices(self, client: int) -> Tensor:
        """The training samples of one client, int64, a view."""
        return self.shares.indices(client)

    def label_shares(self) -> Callable[[int], np.ndarray] | None:
        """Gives the share of each class in a client's samples, [classes], where samples have a class."""
        targets = self.train.targets
        if targets.dtype != torch.int64 or targets.dim() != 1:
            return None

        def shares(client: int) -> np.ndarray:
            found = targets[torch.as_tensor(self.indices(client))]
            counts = torch.bincount(found, minlength=self.outputs).double().numpy()
            return np.asarray(counts / max(1.0, counts.sum()))

        return shares

    def by_class(self) -> np.ndarray:
        """How many samples of each class (or tag) all clients hold, [C] int64; C = 0 for regression."""
        targets = self.train.targets.index_select(0, self.shares.order)
        if self.task == "multilabel":
            return targets.long().sum(dim=0).numpy()
        number = len(self.classes)
        return np.bincount(targets.numpy(), minlength=number) if number else np.zeros(0, dtype=np.int64)

    def histogram(self, clients: Sequence[int] | None = None) -> np.ndarray:
        """How many samples of each class (or tag) each client holds, [clients, C] int64; C = 0 for regression.

        Args:
            clients: of whom; None for all.
        """
        some = range(self.clients) if clients is None else clients
        order = self.shares.order if clients is None else torch.cat([self.indices(c) for c in some])
        owner = np.repeat(np.arange(len(some)), self.sizes if clients is None else self.sizes[list(some)])
        targets = self.train.targets.index_select(0, order)
        number = len(self.classes)
        if self.task == "multilabel":
            rows, tags = np.nonzero(targets.numpy())
            cells = owner[rows] * number + tags
        elif number:
            cells = owner * number + targets.numpy()
        else:
            cells = np.zeros(0, dtype=np.int64)
        return np.bincount(cells, minlength=len(some) * number).reshape(len(some), number).astype(np.int64, copy=False)


def federate(
    collection: Collection,
    partition: Partition,
    clients: int | None,
    seed: int,
    *,
    validation: float = 0.0,
    local_test: float | Literal["natural"] = 0.0,
    unseen: float = 0.0,
) -> Federation:
    """Splits a data set over clients.

    Samples for validation leave the training samples first, then the partition deals out the rest, then each client's
    own test samples leave its share. The test set is never touched.

    Args:
        collection: the data set.
        partition: who gets which samples.
        clients: how many; None takes as many as the partition has parts (natural clients).
        seed: names the partition's and the hold-outs' random streams.
        validation: share of the training samples to hold out, spread over the classes, 0 <= share < 1.
        local_test: share of each client's samples to hold out as its own test; or "natural": with `by_column`, the
            test samples that carry the client's own value in that column.
        unseen: share of the clients with data that never train, and are tested apart, 0 <= share < 1; needs
            `local_test`. At least one, unless it is 0.

    Raises:
        UserError: something impossible was asked for.
    """
    check_kind("collection", collection, Collection, "pr.data.digits()")
    check_kind("partition", partition, Partition, "pr.data.Dirichlet(alpha=0.3)")
    check_kind("clients", clients, (int, np.integer, type(None)), "20")
    check_kind("seed", seed, (int, np.integer), "0")
    check_share("validation", validation)
    if not isinstance(local_test, str):
        check_share("local_test", local_test)
    check_unseen(unseen, local_test)
    targets = collection.train.targets.numpy()
    labels = targets if collection.task in ("classification", "next_character") else None
    ordered = bool(collection.ordered_by)

    groups = np.zeros(len(targets), dtype=np.int64)
    if ordered:
        groups = collection.columns[collection.ordered_by].codes
    chosen = held_out(groups, labels, validation, stream(seed, "split", "validation"), ordered=ordered)
    free = np.flatnonzero(~chosen)
    view = View(
        targets=targets[free],
        labelled=labels is not None,
        columns=columns_at(collection.columns, free),
    )
    split = partition.split(view, clients, seed)
    order, sizes = free[split.order], split.sizes

    notes = [*collection.notes, *split.notes]
    local = None
    if local_test == "natural":
        local = _natural_tests(collection, partition, split.names)
    elif isinstance(local_test, str):
        raise _no_such_test(local_test)
    elif local_test:
        owner = np.repeat(np.arange(len(sizes)), sizes)
        own = held_out(
            owner,
            None if labels is None else labels[order],
            local_test,
            stream(seed, "split", "local"),
            ordered=ordered,
        )
        local = Shares.of(collection.train, order[own], np.bincount(owner[own], minlength=len(sizes)))
        order, sizes = order[~own], np.bincount(owner[~own], minlength=len(sizes))
    if local is not None and (without := int(np.count_nonzero(local.sizes == 0))):
        notes.append(f"{without:,} of {len(sizes):,} clients have no test samples of their own")
    if empty := int(np.count_nonzero(sizes == 0)):
        notes.append(f"{empty:,} of {len(sizes):,} clients hold no samples and are never invited")
    shares, apart = Shares.of(collection.train, order, sizes), None
    if unseen and local is not None:
        never = drawn_unseen(sizes > 0, local.sizes > 0, unseen, seed)
        apart = Unseen(share=unseen, train=shares.of_some(never), tests=local.of_some(never))
        shares, local = shares.of_some(~never), local.of_some(~never)
        notes.append(f"{np.count_nonzero(never):,} of {len(sizes):,} clients are unseen: they never train")
    return Federation(
        name=collection.name,
        task=collection.task,
        classes=collection.classes,
        shares=shares,
        test=collection.test,
        validation=Selected(collection.train, torch.from_numpy(np.flatnonzero(chosen))) if validation else None,
        local_tests=local,
        names=split.names,
        partition=partition,
        notes=tuple(notes),
        features=collection.features,
        target=collection.target,
        preprocessing=collection.preprocessing,
        labels=collection.labels,
        structure=collection.structure,
        texts=collection.texts,
        unseen=apart,
    )


def _natural_tests(collection: Collection, partition: Partition, names: tuple[str, ...]) -> Shares:
    if not isinstance(partition, ByColumn) or partition.column not in collection.test_columns:
        raise _no_such_test("natural")
    keys = collection.test_columns[partition.column]
    places = {name: client for client, name in enumerate(names)}
    owner = np.array([places.get(as_text(value), -1) for value in keys.values], dtype=np.int64)[keys.codes]
    order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
    return Shares.of(collection.test, order, np.bincount(owner[owner >= 0], minlength=len(names)))


def _no_such_test(found: str) -> UserError:
    return UserError(
        f"local_test = {found!r}",
        expected='a share such as 0.2, or "natural" with by_column and a test set that has the same column',
        why="a client's own test samples must come from somewhere",
        fix="local_test=0.2 holds a fifth of each client's training samples out",
    )
