"""Who was heard: how participation is spread over clients, and what those get out of it who are seldom there.

A client is heard with each of its updates that goes into a version, trained or sent in place of training: the counts of
which `VersionRecord.fairness` is Jain's index.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from polyrhythm.runs.database import read_heard, read_records
from polyrhythm.runs.spread import of_clients, quantile

if TYPE_CHECKING:  # whoever lists runs needs none of it
    import numpy as np

By = Literal["there", "heard"]
"""What clients are put in order by: how long they were there, or how often they were heard."""
QUARTER = 0.25
"""The share of clients at either end of that order whose results are held against each other."""


@final
@dataclass(frozen=True, kw_only=True)
class Heard:
    """Clients of a run that hold data, each array in the order of their numbers.

    Args:
        clients: their numbers, [N].
        updates: how often each was heard, [N].
        samples: that each holds, [N].
        there: the share of the run's time in which each was there; NaN where it is not on record, [N].
        came: the version that each update started from, and its client, in the order they came in, [updates, 2].
        scores, losses: of the newest version on each one's own test; NaN where there is no such result, [N].
        whole: whether these are all that hold data; of a federation of more than 10,000 only those that are measured.
    """

    clients: np.ndarray
    updates: np.ndarray
    samples: np.ndarray
    there: np.ndarray
    came: np.ndarray
    scores: np.ndarray
    losses: np.ndarray
    whole: bool

    @property
    def measured(self) -> bool:
        """Whether results of single clients are on record."""
        import numpy as np

        return not bool(np.isnan(self.losses).all())

    def order(self, by: By) -> np.ndarray:
        """What clients are put in order by, [N]."""
        return self.there if by == "there" else self.updates.astype(float)

    def varies(self, by: By) -> bool:
        """Whether that is on record, and not the same for all."""
        import numpy as np

        known = self.order(by)[~np.isnan(self.order(by))]
        return len(known) > 1 and bool(known.min() < known.max())


class Behind(NamedTuple):
    """Samples behind a version."""

    version: int
    share: float
    """Of the federation's samples, those of the clients whose updates went into it."""
    so_far: float
    """Those of the clients that were heard for it or before: what a method that remembers updates can still hold."""


def heard(folder: Path, number: int, clients: int) -> Heard:
    """Reads what there is.

    Args:
        folder: the output folder.
        number: of the run.
        clients: of its federation.
    """
    import numpy as np

    members = read_records(folder, "clients", number)
    rows = [row for row in members if row["samples"] and not row["unseen"]]
    came, results = read_heard(folder, number), of_clients(folder, number, last=True)
    counts = dict(zip(*(found.tolist() for found in np.unique(came[:, 1], return_counts=True)), strict=True))
    nothing = [math.nan] * len(results.clients)
    _, scores, losses = results.versions[-1] if results.versions else (0, nothing, nothing)
    own = {c: (s, loss) for c, s, loss in zip(results.clients, scores, losses, strict=True)}
    found = [own.get(row["client"], (math.nan, math.nan)) for row in rows]
    return Heard(
        clients=np.array([row["client"] for row in rows], dtype=np.int64),
        updates=np.array([counts.get(row["client"], 0) for row in rows], dtype=np.int64),
        samples=np.array([row["samples"] for row in rows], dtype=np.int64),
        there=np.array([math.nan if row["there"] is None else row["there"] for row in rows]),
        came=came,
        scores=np.array([score for score, _ in found]),
        losses=np.array([loss for _, loss in found]),
        whole=len(members) == clients,
    )


def behind(folder: Path, number: int, held: Heard) -> list[Behind]:
    """The samples behind each version after the initial one; nothing where not all clients are on record.

    A client counts once in a version, however many of its updates went into it.

    Args:
        folder: the output folder.
        number: of the run.
        held: its clients.
    """
    import numpy as np

    made = read_records(folder, "versions", number, ("version", "accepted", "staleness_max"))[1:]
    visits, total = held.came, int(held.samples.sum())
    if not held.whole or not total or not made:
        return []
    if any(row["staleness_max"] for row in made):  # in the order in which they were heard, version after version
        ends = np.cumsum([row["accepted"] for row in made])
        place = np.searchsorted(ends, np.arange(len(visits)), side="right")
    else:
        place = visits[:, 0] - (made[0]["version"] - 1)
    kept = (place >= 0) & (place < len(made)) & np.isin(visits[:, 1], held.clients)
    index = np.searchsorted(held.clients, visits[kept, 1])
    once = np.unique(place[kept] * len(held.clients) + index)  # in order of versions
    places, who = np.divmod(once, len(held.clients))
    share = np.bincount(places, weights=held.samples[who], minlength=len(made)) / total
    first, at = np.unique(who, return_index=True)
    new = np.bincount(places[at], weights=held.samples[first], minlength=len(made)) / total
    return [
        Behind(row["version"], float(now), min(1.0, float(ever)))
        for row, now, ever in zip(made, share, np.cumsum(new), strict=True)
    ]


def numbers(held: Heard, made: Sequence[Behind], by: By) -> dict[str, float | None]:
    """Numbers that say who was heard in a run, and who is served; None for what is not on record.

    `never_heard` is the share of clients without any update in a version, `never_heard_samples` that of the samples
    they hold, `gini` the Gini coefficient of updates over clients, `samples_behind` the mean over versions of the share
    of samples behind them. Of the newest version on clients' own tests: `loss_rare` and `score_rare` are means over the
    quarter of clients that is lowest in an order, `loss_common` and `score_common` over the highest;
    `loss_by_availability` and `loss_by_participation` are Spearman's rank correlation of a client's loss with the share
    of time that it was there, and with how often it was heard: below 0 where the rare are served worse.

    Args:
        held: its clients.
        made: the samples behind its versions.
        by: the order that quarters are of.
    """
    import numpy as np

    total, never = int(held.samples.sum()), held.updates == 0
    whole = held.whole and bool(total)
    found: dict[str, float | None] = {
        "never_heard": float(never.mean()) if whole else None,
        "never_heard_samples": float(held.samples[never].sum() / total) if whole else None,
        "gini": gini(held.updates.tolist()) if whole and held.updates.any() else None,
        "samples_behind": math.fsum(one.share for one in made) / len(made) if made else None,
    }
    rare, common = quarters(held.order(by), held.losses)
    for name, values in (("loss", held.losses), ("score", held.scores)):
        for end, chosen in (("rare", rare), ("common", common)):
            known = values[chosen][~np.isnan(values[chosen])]
            found[f"{name}_{end}"] = math.fsum(known) / len(known) if len(known) else None
    found["loss_by_availability"] = spearman(held.there, held.losses)
    found["loss_by_participation"] = spearman(held.order("heard"), held.losses)
    return found


def quarters(order: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the quarter of clients that is lowest in an order, and of the highest, of those with a value.

    Clients that are alike are in it together, so that either may be more than a quarter. Nobody is in either where all
    are alike.

    Args:
        order: NaN for a client without a place, [N].
        values: NaN for one without a value, [N].
    """
    import numpy as np

    places = np.flatnonzero(~np.isnan(order) & ~np.isnan(values))
    known = np.sort(order[places])
    if not len(known) or known[0] == known[-1]:
        return places[:0], places[:0]
    count = math.ceil(QUARTER * len(known))
    return places[order[places] <= known[count - 1]], places[order[places] >= known[-count]]


def spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """Spearman's rank correlation of two numbers of clients, over those that have both; equal ones share their ranks.

    None with fewer than three, or where one of them is the same for all.

    >>> import numpy as np
    >>> spearman(np.array([0.1, 0.5, 0.9]), np.array([3.0, 2.0, 2.5]))
    -0.5
    """
    import numpy as np

    known = ~np.isnan(one) & ~np.isnan(other)
    if known.sum() < 3:
        return None
    x, y = (_ranks(values[known]) for values in (one, other))
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return max(-1.0, min(1.0, float(x @ y) / size)) if size else None


def _ranks(values: np.ndarray) -> np.ndarray:
    import numpy as np

    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray = (ends - (counts - 1) / 2)[which]
    return ranks


def lorenz(counts: Sequence[int]) -> list[dict[str, float]]:
    """The Lorenz curve: which `share` of clients, the rarest first, made which share `y` of all updates."""
    total, made = sum(counts), 0
    if not total:
        return []
    found = [{"share": 0.0, "y": 0.0}]
    for place, count in enumerate(sorted(counts), start=1):
        made += count
        found.append({"share": place / len(counts), "y": made / total})
    return found


def gini(counts: Sequence[int]) -> float:
    """The Gini coefficient: 0 if all took part alike, near 1 if one alone did; twice the area above a Lorenz curve."""
    known = lorenz(counts)
    area = math.fsum((b["share"] - a["share"]) * (a["y"] + b["y"]) / 2 for a, b in itertools.pairwise(known))
    return 1 - 2 * area if known else 0.0


def by_groups(held: Heard, by: By, groups: int) -> Sequence[Mapping[str, float]]:
    """Clients in groups of like size along an order, the rarest first: mean `place`, `loss`, `score`, and `clients`.

    Those that are alike are in one group. Empty where all are.

    Args:
        held: the clients; those without a result are left out.
        by: the order.
        groups: how many there may be.
    """
    import numpy as np

    order = held.order(by)
    places = np.flatnonzero(~np.isnan(order) & ~np.isnan(held.losses))
    known = np.sort(order[places])
    if not len(known) or known[0] == known[-1]:
        return []
    edges = np.unique([quantile(known.tolist(), g / groups) for g in range(1, groups)])
    group = np.searchsorted(edges, order[places], side="left")
    found = []
    for one in np.unique(group):
        chosen = places[group == one]
        scores = held.scores[chosen][~np.isnan(held.scores[chosen])]
        found.append(
            {
                "place": float(order[chosen].mean()),
                "loss": float(held.losses[chosen].mean()),
                "score": float(scores.mean()) if len(scores) else math.nan,
                "clients": len(chosen),
            }
        )
    return found
