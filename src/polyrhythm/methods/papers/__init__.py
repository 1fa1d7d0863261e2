"""One file per paper: citation and recipe."""

from polyrhythm.methods.papers.afl import afl
from polyrhythm.methods.papers.alt import alt
from polyrhythm.methods.papers.bounds import centralised, local_only
from polyrhythm.methods.papers.ccfl import ccfl
from polyrhythm.methods.papers.client_centric import (
    cc_fedadagrad,
    cc_fedadam,
    cc_fedams,
    cc_fedavg,
    cc_fedsgd,
    cc_fedyogi,
)
from polyrhythm.methods.papers.clustered_sampling import clustered_sampling
from polyrhythm.methods.papers.common import Common
from polyrhythm.methods.papers.curriculum_fl import curriculum_fl
from polyrhythm.methods.papers.divfl import divfl
from polyrhythm.methods.papers.f3ast import f3ast
from polyrhythm.methods.papers.fadas import fadas
from polyrhythm.methods.papers.fedasync import fedasync
from polyrhythm.methods.papers.fedau import fedau
from polyrhythm.methods.papers.fedavg import fedavg
from polyrhythm.methods.papers.fedawe import fedawe
from polyrhythm.methods.papers.fedbuff import fedbuff
from polyrhythm.methods.papers.fedcl import fedcl
from polyrhythm.methods.papers.fedcm import fedcm
from polyrhythm.methods.papers.feddyn import feddyn
from polyrhythm.methods.papers.fedexp import fedexp
from polyrhythm.methods.papers.fedlalr import fedlalr
from polyrhythm.methods.papers.fednova import fednova
from polyrhythm.methods.papers.fedopt import fedadagrad, fedadam, fedams, fedavgm, fedyogi
from polyrhythm.methods.papers.fedprox import fedprox
from polyrhythm.methods.papers.lora import (
    fedex_lora,
    fedit,
    fedsa_lora,
    ffa_lora,
    flexlora,
    flora,
    hetlora,
    rolora,
)
from polyrhythm.methods.papers.mifa import mifa
from polyrhythm.methods.papers.moon import moon
from polyrhythm.methods.papers.oort import oort
from polyrhythm.methods.papers.optimal_sampling import optimal_sampling
from polyrhythm.methods.papers.personal import (
    apfl,
    ditto,
    fedala,
    fedavg_ft,
    fedbabu,
    fedbn,
    fedper,
    fedproto,
    fedrep,
    knn_per,
    lg_fedavg,
    per_fedavg,
    pfedme,
)
from polyrhythm.methods.papers.power_of_choice import power_of_choice
from polyrhythm.methods.papers.refl import refl
from polyrhythm.methods.papers.scaffold import scaffold
from polyrhythm.methods.papers.stale import ace, aced, area, ca2fl, fedstale, fedvarp
from polyrhythm.methods.papers.submodels import depthfl, federated_dropout, fedrolex, fiarse, heterofl
from polyrhythm.methods.papers.tifl import tifl
from polyrhythm.methods.papers.vrl_sgd import vrl_sgd

__all__ = [
    "Common",
    "ace",
    "aced",
    "afl",
    "alt",
    "apfl",
    "area",
    "ca2fl",
    "cc_fedadagrad",
    "cc_fedadam",
    "cc_fedams",
    "cc_fedavg",
    "cc_fedsgd",
    "cc_fedyogi",
    "ccfl",
    "centralised",
    "clustered_sampling",
    "curriculum_fl",
    "depthfl",
    "ditto",
    "divfl",
    "f3ast",
    "fadas",
    "fedadagrad",
    "fedadam",
    "fedala",
    "fedams",
    "fedasync",
    "fedau",
    "fedavg",
    "fedavg_ft",
    "fedavgm",
    "fedawe",
    "fedbabu",
    "fedbn",
    "fedbuff",
    "fedcl",
    "fedcm",
    "feddyn",
    "federated_dropout",
    "fedex_lora",
    "fedexp",
    "fedit",
    "fedlalr",
    "fednova",
    "fedper",
    "fedproto",
    "fedprox",
    "fedrep",
    "fedrolex",
    "fedsa_lora",
    "fedstale",
    "fedvarp",
    "fedyogi",
    "ffa_lora",
    "fiarse",
    "flexlora",
    "flora",
    "heterofl",
    "hetlora",
    "knn_per",
    "lg_fedavg",
    "local_only",
    "mifa",
    "moon",
    "oort",
    "optimal_sampling",
    "per_fedavg",
    "pfedme",
    "power_of_choice",
    "refl",
    "rolora",
    "scaffold",
    "tifl",
    "vrl_sgd",
]
