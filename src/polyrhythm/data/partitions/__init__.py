"""Who holds which samples: every partition is a frozen set of settings with one method, `split`."""

from polyrhythm.data.partitions.base import Deal, Partition, Split, View
from polyrhythm.data.partitions.classes import ClassesPerClient
from polyrhythm.data.partitions.difficulty import Difficulty
from polyrhythm.data.partitions.dirichlet import Dirichlet, DirichletPerClient
from polyrhythm.data.partitions.iid import Iid, IidFraction
from polyrhythm.data.partitions.natural import ByColumn
from polyrhythm.data.partitions.quantity import QuantitySkew
from polyrhythm.data.partitions.shards import Shards

PARTITIONS: dict[str, type[Partition]] = {
    part.label(): part
    for part in (
        Iid,
        Dirichlet,
        DirichletPerClient,
        Shards,
        ClassesPerClient,
        QuantitySkew,
        IidFraction,
        ByColumn,
        Difficulty,
    )
}

__all__ = [
    "PARTITIONS",
    "ByColumn",
    "ClassesPerClient",
    "Deal",
    "Difficulty",
    "Dirichlet",
    "DirichletPerClient",
    "Iid",
    "IidFraction",
    "Partition",
    "QuantitySkew",
    "Shards",
    "Split",
    "View",
]
