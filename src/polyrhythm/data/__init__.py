"""Data: where it comes from, who holds it, and what a run reads of it.

A source returns a `Collection`; `federate(collection, partition, clients, seed)` makes it a `Federation`.
"""

from collections.abc import Callable

from polyrhythm.data.collection import Collection
from polyrhythm.data.federation import Federation, Shares, federate
from polyrhythm.data.partitions import (
    PARTITIONS,
    ByColumn,
    ClassesPerClient,
    Dirichlet,
    DirichletPerClient,
    Iid,
    IidFraction,
    Partition,
    QuantitySkew,
    Shards,
    Split,
    View,
)
from polyrhythm.data.samples import ArraySamples, BagSamples, DatasetSamples, Samples, Selected, WindowSamples
from polyrhythm.data.sources.digits import digits
from polyrhythm.data.sources.idx import fashion_mnist, mnist
from polyrhythm.data.sources.memory import arrays, dataset

SOURCES: dict[str, Callable[..., Collection]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "mnist": mnist,
}
