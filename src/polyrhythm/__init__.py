"""Polyrhythm: federated learning where every client keeps its own tempo.

    import polyrhythm as pr

    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)
    recipe = pr.fedprox(mu=0.01, cohort=10) | pr.server_adam(lr=0.03)
    run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=30))

Names are imported when they are first used, so that `import polyrhythm` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Before the first BLAS call of the process: without it MKL picks its kernels by memory alignment, and equal weights at
# another address give other bits. Setting the variable yourself overrides this.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from polyrhythm import data as data
    from polyrhythm import fleet as fleet
    from polyrhythm import models as models
    from polyrhythm.base.errors import PolyrhythmError as PolyrhythmError
    from polyrhythm.base.errors import RunFailed as RunFailed
    from polyrhythm.base.errors import UserError as UserError
    from polyrhythm.data import federate as federate
    from polyrhythm.experiments.difficulty import sample_difficulty as sample_difficulty
    from polyrhythm.experiments.execution import Execution as Execution
    from polyrhythm.experiments.experiment import Experiment as Experiment
    from polyrhythm.experiments.expert import train_expert as train_expert
    from polyrhythm.experiments.replay import replay as replay
    from polyrhythm.experiments.run import resume as resume
    from polyrhythm.experiments.run import run as run
    from polyrhythm.experiments.settings import Evaluation as Evaluation
    from polyrhythm.experiments.settings import Until as Until
    from polyrhythm.experiments.verify import verify as verify
    from polyrhythm.fleet import Fleet as Fleet
    from polyrhythm.methods import parts as parts
    from polyrhythm.methods.papers import afl as afl
    from polyrhythm.methods.papers import alt as alt
    from polyrhythm.methods.papers import cc_fedadagrad as cc_fedadagrad
    from polyrhythm.methods.papers import cc_fedadam as cc_fedadam
    from polyrhythm.methods.papers import cc_fedams as cc_fedams
    from polyrhythm.methods.papers import cc_fedavg as cc_fedavg
    from polyrhythm.methods.papers import cc_fedsgd as cc_fedsgd
    from polyrhythm.methods.papers import cc_fedyogi as cc_fedyogi
    from polyrhythm.methods.papers import ccfl as ccfl
    from polyrhythm.methods.papers import centralised as centralised
    from polyrhythm.methods.papers import curriculum_fl as curriculum_fl
    from polyrhythm.methods.papers import fedadagrad as fedadagrad
    from polyrhythm.methods.papers import fedadam as fedadam
    from polyrhythm.methods.papers import fedams as fedams
    from polyrhythm.methods.papers import fedasync as fedasync
    from polyrhythm.methods.papers import fedavg as fedavg
    from polyrhythm.methods.papers import fedavgm as fedavgm
    from polyrhythm.methods.papers import fedbuff as fedbuff
    from polyrhythm.methods.papers import fedcl as fedcl
    from polyrhythm.methods.papers import feddyn as feddyn
    from polyrhythm.methods.papers import fednova as fednova
    from polyrhythm.methods.papers import fedprox as fedprox
    from polyrhythm.methods.papers import fedyogi as fedyogi
    from polyrhythm.methods.papers import local_only as local_only
    from polyrhythm.methods.papers import mifa as mifa
    from polyrhythm.methods.papers import moon as moon
    from polyrhythm.methods.papers import oort as oort
    from polyrhythm.methods.papers import power_of_choice as power_of_choice
    from polyrhythm.methods.papers import scaffold as scaffold
    from polyrhythm.methods.papers import tifl as tifl
    from polyrhythm.methods.papers import vrl_sgd as vrl_sgd
    from polyrhythm.methods.parts import budget_steps as budget_steps
    from polyrhythm.methods.parts import buffer as buffer
    from polyrhythm.methods.parts import by_samples as by_samples
    from polyrhythm.methods.parts import client_curriculum as client_curriculum
    from polyrhythm.methods.parts import clip_updates as clip_updates
    from polyrhythm.methods.parts import compress_int8 as compress_int8
    from polyrhythm.methods.parts import compress_top_k as compress_top_k
    from polyrhythm.methods.parts import constant as constant
    from polyrhythm.methods.parts import control_variates as control_variates
    from polyrhythm.methods.parts import cosine as cosine
    from polyrhythm.methods.parts import critical_periods as critical_periods
    from polyrhythm.methods.parts import curriculum as curriculum
    from polyrhythm.methods.parts import deadline as deadline
    from polyrhythm.methods.parts import dynamic_regularisation as dynamic_regularisation
    from polyrhythm.methods.parts import epochs as epochs
    from polyrhythm.methods.parts import equal as equal
    from polyrhythm.methods.parts import exponential as exponential
    from polyrhythm.methods.parts import from_current as from_current
    from polyrhythm.methods.parts import geometric_median as geometric_median
    from polyrhythm.methods.parts import local_adam as local_adam
    from polyrhythm.methods.parts import local_sgd as local_sgd
    from polyrhythm.methods.parts import lossless as lossless
    from polyrhythm.methods.parts import median as median
    from polyrhythm.methods.parts import memory as memory
    from polyrhythm.methods.parts import min_reports as min_reports
    from polyrhythm.methods.parts import model_contrast as model_contrast
    from polyrhythm.methods.parts import normalised_averaging as normalised_averaging
    from polyrhythm.methods.parts import on_arrival as on_arrival
    from polyrhythm.methods.parts import over_select as over_select
    from polyrhythm.methods.parts import partial_work as partial_work
    from polyrhythm.methods.parts import per_step as per_step
    from polyrhythm.methods.parts import power as power
    from polyrhythm.methods.parts import prox as prox
    from polyrhythm.methods.parts import random_epochs as random_epochs
    from polyrhythm.methods.parts import random_resize as random_resize
    from polyrhythm.methods.parts import rolling as rolling
    from polyrhythm.methods.parts import sampled_staleness as sampled_staleness
    from polyrhythm.methods.parts import server_adagrad as server_adagrad
    from polyrhythm.methods.parts import server_adam as server_adam
    from polyrhythm.methods.parts import server_amsgrad as server_amsgrad
    from polyrhythm.methods.parts import server_momentum as server_momentum
    from polyrhythm.methods.parts import server_sgd as server_sgd
    from polyrhythm.methods.parts import server_yogi as server_yogi
    from polyrhythm.methods.parts import shuffled as shuffled
    from polyrhythm.methods.parts import skip_and_estimate as skip_and_estimate
    from polyrhythm.methods.parts import skip_and_resend_model as skip_and_resend_model
    from polyrhythm.methods.parts import skip_silently as skip_silently
    from polyrhythm.methods.parts import staleness as staleness
    from polyrhythm.methods.parts import step_decay as step_decay
    from polyrhythm.methods.parts import steps as steps
    from polyrhythm.methods.parts import stop_on_drift as stop_on_drift
    from polyrhythm.methods.parts import time_out as time_out
    from polyrhythm.methods.parts import trimmed_mean as trimmed_mean
    from polyrhythm.methods.parts import uniform as uniform
    from polyrhythm.methods.parts import variance_reduction as variance_reduction
    from polyrhythm.methods.parts import when_all as when_all
    from polyrhythm.methods.recipe import Recipe as Recipe
    from polyrhythm.models.tasks import task as task
    from polyrhythm.results import Run as Run
    from polyrhythm.results import compare as compare
    from polyrhythm.runs import Checkpoint as Checkpoint
    from polyrhythm.studies import searches as _searches
    from polyrhythm.studies.searches import sweep as sweep
    from polyrhythm.trackers import Tracking as Tracking

    sweeps = _searches

_HOMES = {
    "polyrhythm.base.errors": "PolyrhythmError RunFailed UserError",
    "polyrhythm.data": "federate",
    "polyrhythm.experiments.difficulty": "sample_difficulty",
    "polyrhythm.experiments.execution": "Execution",
    "polyrhythm.experiments.experiment": "Experiment",
    "polyrhythm.experiments.settings": "Evaluation Until",
    "polyrhythm.experiments.expert": "train_expert",
    "polyrhythm.fleet": "Fleet",
    "polyrhythm.methods.recipe": "Recipe",
    "polyrhythm.experiments.replay": "replay",
    "polyrhythm.experiments.run": "resume run",
    "polyrhythm.results": "Run compare",
    "polyrhythm.runs": "Checkpoint",
    "polyrhythm.studies.searches": "sweep",
    "polyrhythm.models.tasks": "task",
    "polyrhythm.trackers": "Tracking",
    "polyrhythm.experiments.verify": "verify",
    "polyrhythm.methods.papers": (
        "afl alt cc_fedadagrad cc_fedadam cc_fedams cc_fedavg cc_fedsgd cc_fedyogi ccfl centralised curriculum_fl "
        "fedadagrad fedadam fedams fedasync fedavg fedavgm fedbuff fedcl feddyn fednova fedprox fedyogi local_only "
        "mifa moon oort power_of_choice scaffold tifl vrl_sgd"
    ),
    "polyrhythm.methods.parts": (
        "budget_steps buffer by_samples client_curriculum clip_updates compress_int8 compress_top_k constant "
        "control_variates cosine critical_periods curriculum deadline dynamic_regularisation epochs equal exponential "
        "from_current geometric_median local_adam local_sgd lossless median memory min_reports model_contrast "
        "normalised_averaging on_arrival over_select partial_work per_step power prox random_epochs random_resize "
        "rolling sampled_staleness server_adagrad server_adam server_amsgrad server_momentum server_sgd server_yogi "
        "shuffled skip_and_estimate skip_and_resend_model skip_silently staleness step_decay steps stop_on_drift "
        "time_out trimmed_mean uniform variance_reduction when_all"
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = {
    "data": "polyrhythm.data",
    "fleet": "polyrhythm.fleet",
    "models": "polyrhythm.models",
    "parts": "polyrhythm.methods.parts",
    "sweeps": "polyrhythm.studies.searches",
}

__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'polyrhythm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
