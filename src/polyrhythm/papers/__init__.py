"""One file per paper: citation and recipe."""

from polyrhythm.papers.bounds import centralised, local_only
from polyrhythm.papers.common import Common
from polyrhythm.papers.fedavg import fedavg
from polyrhythm.papers.feddyn import feddyn
from polyrhythm.papers.fednova import fednova
from polyrhythm.papers.fedopt import fedadagrad, fedadam, fedams, fedavgm, fedyogi
from polyrhythm.papers.fedprox import fedprox
from polyrhythm.papers.moon import moon
from polyrhythm.papers.scaffold import scaffold
from polyrhythm.papers.vrl_sgd import vrl_sgd

__all__ = [
    "Common",
    "centralised",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedavg",
    "fedavgm",
    "feddyn",
    "fednova",
    "fedprox",
    "fedyogi",
    "local_only",
    "moon",
    "scaffold",
    "vrl_sgd",
]
