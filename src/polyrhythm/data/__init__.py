"""Data: where it comes from, who holds it, and what a run reads of it.

A source returns a `Collection`; `federate(collection, partition, clients, seed)` makes it a `Federation`.
"""

from collections.abc import Callable

from polyrhythm.data.collection import Collection
from polyrhythm.data.federation import Federation, Shares, federate
from polyrhythm.data.keys import Keys
from polyrhythm.data.partitions import (
    PARTITIONS,
    ByColumn,
    ClassesPerClient,
    Deal,
    Difficulty,
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
from polyrhythm.data.picture import Summary, summary, summary_table
from polyrhythm.data.samples import ArraySamples, BagSamples, DatasetSamples, Samples, Selected, WindowSamples
from polyrhythm.data.sources.cifar import cifar10, cifar100
from polyrhythm.data.sources.digits import digits
from polyrhythm.data.sources.hospitals import heart_disease
from polyrhythm.data.sources.hub import hub
from polyrhythm.data.sources.idx import fashion_mnist, mnist
from polyrhythm.data.sources.image_folder import image_folder
from polyrhythm.data.sources.memory import arrays, dataset
from polyrhythm.data.sources.npz import npz
from polyrhythm.data.sources.regions import tcga_brca
from polyrhythm.data.sources.roles import roles
from polyrhythm.data.sources.shakespeare import shakespeare
from polyrhythm.data.sources.sites import sites
from polyrhythm.data.sources.speakers import spoken_digits
from polyrhythm.data.sources.stations import beijing_air
from polyrhythm.data.sources.table import table
from polyrhythm.data.sources.tags import stackoverflow_tags
from polyrhythm.data.sources.text import text
from polyrhythm.data.sources.tiny_imagenet import tiny_imagenet
from polyrhythm.data.sources.wearers import hapt
from polyrhythm.data.sources.writers import mnist_by_writer
from polyrhythm.data.structured import Padding

SOURCES: dict[str, Callable[..., Collection]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "mnist": mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny-imagenet": tiny_imagenet,
    "shakespeare": shakespeare,
    "roles": roles,
    "stackoverflow-tags": stackoverflow_tags,
    "sites": sites,
    "hapt": hapt,
    "beijing-air": beijing_air,
    "spoken-digits": spoken_digits,
    "heart-disease": heart_disease,
    "mnist-by-writer": mnist_by_writer,
    "tcga-brca": tcga_brca,
    "text": text,
    "table": table,
    "npz": npz,
    "image-folder": image_folder,
    "hub": hub,
}

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "ArraySamples",
    "BagSamples",
    "ByColumn",
    "ClassesPerClient",
    "Collection",
    "DatasetSamples",
    "Deal",
    "Difficulty",
    "Dirichlet",
    "DirichletPerClient",
    "Federation",
    "Iid",
    "IidFraction",
    "Keys",
    "Padding",
    "Partition",
    "QuantitySkew",
    "Samples",
    "Selected",
    "Shards",
    "Shares",
    "Split",
    "Summary",
    "View",
    "WindowSamples",
    "arrays",
    "beijing_air",
    "cifar10",
    "cifar100",
    "dataset",
    "digits",
    "fashion_mnist",
    "federate",
    "hapt",
    "heart_disease",
    "hub",
    "image_folder",
    "mnist",
    "mnist_by_writer",
    "npz",
    "roles",
    "shakespeare",
    "sites",
    "spoken_digits",
    "stackoverflow_tags",
    "summary",
    "summary_table",
    "table",
    "tcga_brca",
    "text",
    "tiny_imagenet",
]
