"""One file per paper: citation and recipe."""

from polyrhythm.papers.afl import afl
from polyrhythm.papers.alt import alt
from polyrhythm.papers.bounds import centralised, local_only
from polyrhythm.papers.ccfl import ccfl
from polyrhythm.papers.client_centric import cc_fedadagrad, cc_fedadam, cc_fedams, cc_fedavg, cc_fedsgd, cc_fedyogi
from polyrhythm.papers.common import Common
from polyrhythm.papers.curriculum_fl import curriculum_fl
from polyrhythm.papers.fedasync import fedasync
from polyrhythm.papers.fedavg import fedavg
from polyrhythm.papers.fedbuff import fedbuff
from polyrhythm.papers.fedcl import fedcl
from polyrhythm.papers.feddyn import feddyn
from polyrhythm.papers.fednova import fednova
from polyrhythm.papers.fedopt import fedadagrad, fedadam, fedams, fedavgm, fedyogi
from polyrhythm.papers.fedprox import fedprox
from polyrhythm.papers.mifa import mifa
from polyrhythm.papers.moon import moon
from polyrhythm.papers.oort import oort
from polyrhythm.papers.power_of_choice import power_of_choice
from polyrhythm.papers.scaffold import scaffold
from polyrhythm.papers.tifl import tifl
from polyrhythm.papers.vrl_sgd import vrl_sgd

__all__ = [
    "Common",
    "afl",
    "alt",
    "cc_fedadagrad",
    "cc_fedadam",
    "cc_fedams",
    "cc_fedavg",
    "cc_fedsgd",
    "cc_fedyogi",
    "ccfl",
    "centralised",
    "curriculum_fl",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedasync",
    "fedavg",
    "fedavgm",
    "fedbuff",
    "fedcl",
    "feddyn",
    "fednova",
    "fedprox",
    "fedyogi",
    "local_only",
    "mifa",
    "moon",
    "oort",
    "power_of_choice",
    "scaffold",
    "tifl",
    "vrl_sgd",
]
