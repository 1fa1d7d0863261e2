"""Small runs of every kind, to be killed: a recipe on a fleet, with a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polyrhythm as pr
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.session import carry_out
from polyrhythm.experiments.settings import Evaluation
from small import federation, ready

TIERS = pr.fleet.Tiers()
COMING_AND_GOING = pr.fleet.Markov(mean_on=0.4, mean_off=0.2)


FAULTS: Any = ("dropout", "crash", "slow", "nan", "inflate", "malformed", "lost", "duplicate", "stray", "corrupt")


def _rolling(concurrency: int = 3, size: int = 2) -> pr.Recipe:
    return pr.fedavg(epochs=1, batch=5) | pr.parts.rolling(concurrency=concurrency) | pr.parts.buffer(size=size)


def _fleet(**parts: Any) -> pr.Fleet:
    return pr.Fleet(**({"devices": TIERS} | parts))


MAKE: Mapping[str, Callable[[], dict[str, Any]]] = {
    "fedavg": lambda: {"recipe": pr.fedavg(cohort=2, epochs=2, batch=5)},
    "scaffold": lambda: {"recipe": pr.scaffold(cohort=3, epochs=2, batch=5, momentum=0.5)},
    "rolling, coming and going": lambda: {
        "recipe": _rolling() | pr.parts.server_adam(lr=0.03) | pr.parts.staleness(),
        "fleet": _fleet(availability=COMING_AND_GOING, faults=pr.fleet.Faults(dropout=0.1, crash=0.1, downtime=0.3)),
    },
    "rolling, in processes": lambda: {
        "recipe": _rolling() | pr.parts.control_variates() | pr.parts.equal(),
        "fleet": _fleet(links=pr.fleet.LognormalLinks()),
        **{"driver": "processes", "workers": 2},
    },
    "whoever comes": lambda: {
        "recipe": pr.afl(batch=5) | pr.parts.on_arrival(),
        "fleet": _fleet(arrivals=pr.fleet.Poisson(rate=5.0)),
    },
    "whoever comes back": lambda: {
        "recipe": pr.fedavg(batch=5, epochs=1) | pr.parts.on_arrival() | pr.parts.buffer(size=2),
        "fleet": _fleet(availability=COMING_AND_GOING),
    },
    "a deadline and over-selection": lambda: {
        "recipe": pr.fedavg(cohort=3, epochs=2, batch=5)
        | pr.parts.deadline(seconds=0.2)
        | pr.parts.compress_top_k(share=0.3),
        "fleet": _fleet(energy=pr.fleet.Energy(battery=0.1, charging=0.2, reserve=0.1)),
    },
    "skipping and a curriculum": lambda: {
        "recipe": pr.ccfl(cohort=3, batch=5, epochs=2) | pr.parts.curriculum() | pr.parts.server_yogi(),
    },
    "stopping on drift": lambda: {
        "recipe": pr.alt(cohort=3, batch=5, epochs=3, representation="logits"),
    },
    "remembered by all": lambda: {
        "recipe": pr.mifa(cohort=2, batch=5) | pr.parts.sampled_staleness(max_delay=2),
    },
    "chosen by loss": lambda: {"recipe": pr.oort(cohort=2, batch=5), "fleet": _fleet()},
    "asked for their loss": lambda: {"recipe": pr.power_of_choice(cohort=2, batch=5) | pr.parts.critical_periods()},
    "contrast": lambda: {"recipe": pr.moon(cohort=2, batch=5, layer="logits")},
    "all kinds of faults": lambda: {
        "recipe": _rolling()
        | pr.parts.control_variates()
        | pr.parts.clip_updates(times=2, refuse=50)
        | pr.parts.trimmed_mean(share=0.3),
        "fleet": _fleet(faults=pr.fleet.Faults(**dict.fromkeys(FAULTS, 0.15), downtime=0.3)),
    },
    "remembered in files": lambda: {
        "recipe": pr.scaffold(cohort=3, epochs=1, batch=5) | pr.parts.compress_top_k(share=0.3),
        "fleet": _fleet(faults=pr.fleet.Faults(dropout=0.2, nan=0.1)),
        "client_memory": "500 KB",
    },
    "all of it in files": lambda: {
        "recipe": pr.ccfl(cohort=2, batch=5, storage="mixed") | pr.parts.compress_int8(),
        "client_memory": "0 B",
    },
    "alone": lambda: {"recipe": pr.local_only(batch=5)},
}


def prepared(name: str, **changes: Any) -> Prepared:
    """The scenario of that name: 20 versions on 6 clients."""
    values: dict[str, Any] = {
        "federation": federation(clients=6, validation=0.2, local_test=0.2),
        "model": "mlp",
        "rounds": 20,
        "evaluation": Evaluation(every=3),
        "name": name,
    }
    return ready(pr.Experiment, **values | MAKE[name]() | changes)


def digests(names: Iterable[str], rounds: int = 5) -> dict[str, str]:
    """The digest of each scenario, run here in this order."""
    plain: dict[str, Any] = {"rounds": rounds, "driver": "inline", "workers": None}
    return {name: carry_out(prepared(name, **plain), [])["digest"] for name in names}
