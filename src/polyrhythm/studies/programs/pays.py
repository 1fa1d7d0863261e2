"""What pays when: methods by how unlike clients' data are, by devices, by cohort, and by what may be spent.

The runs of a setting are a study of their own, with a fleet in each column; rates are chosen in the first column by the
validation data, and hold in the others, which change no local step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from polyrhythm.studies.definition import Scale, Search, Study
from polyrhythm.studies.files.maker import Maker
from polyrhythm.studies.running.executing import carry_out
from polyrhythm.studies.space import Setting

METHODS: Mapping[str, str] = {
    "FedAvg": "fedavg(cohort={cohort}, {local})",
    "FedProx": "fedprox(mu=0.1, cohort={cohort}, {local})",
    "SCAFFOLD": "scaffold(cohort={cohort}, {local})",
    "FedNova": "fednova(cohort={cohort}, {local})",
    "FedAdam": "fedadam(cohort={cohort}, {local})",
    "FedBuff": "fedbuff(concurrency={cohort}, buffer={cohort}, {local})",
    "FADAS": "fadas(concurrency={cohort}, buffer={cohort}, {local})",
    "ALT": "alt(cohort={cohort}, {local})",
    "CCFL": "ccfl(cohort={cohort}, {local})",
    "FedCL": "fedcl(cohort={cohort}, {local})",
    "CC-FedAdam": "cc_fedadam(cohort={cohort}, {local})",
    "HeteroFL": "heterofl(scaler=false, cohort={cohort}, {local})",
    "Curriculum": "curriculum_fl(score=local, cohort={cohort}, {local})",
}
"""The recipes that are compared, as an experiment file has them; `local` is what all of them do at a client."""

LONGER: Mapping[str, int] = {"FedBuff": 3, "FADAS": 3, "HeteroFL": 2, "CCFL": 2}
"""How many times as many versions those make that spend less on one, so that they reach the others' budgets."""

RATES: Mapping[str, Any] = {"method.lr": (0.03, 0.1, 0.3)}
OWN_RATES: Mapping[str, Mapping[str, Any]] = {
    row: {"method.lr": (0.1,), "method.server_lr": rates}
    for row, rates in {
        "FedAdam": (0.01, 0.03, 0.1),
        "FADAS": (0.01, 0.03, 0.1),
        "CC-FedAdam": (0.01, 0.03, 0.1),
    }.items()
}
"""What is tried for each row: three settings."""

_LINKS = "links(down=1e6, up=2.5e5, latency=0.05)"
_ENERGY = "energy(joules_per_flop=1e-8)"
FLEETS: Mapping[str, str] = {
    "alike": f"uniform(seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "five tiers": f"tiers(slowdown=[1, 2, 4, 8, 16], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "phones": f"phones | {_ENERGY}",
}
OTHER_FLEETS: Mapping[str, str] = {
    "three tiers": f"tiers(slowdown=[1, 3, 10], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "lognormal": f"lognormal(median=0.05, sigma=1) | {_LINKS} | {_ENERGY}",
    "phones, half there": f"phones | markov(mean_on=3600, mean_off=3600) | {_ENERGY}",
}
SEEDS = (0, 1, 2, 3, 4)
TUNED_ON = (100,)


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """Place: data, how they are dealt, and a cohort; what one study is of.

    Args:
        name: of it.
        data, partition, model, local: as an experiment file has them.
        clients, cohort, rounds, every: clients in all, in a round, rounds of FedAvg, and rounds between evaluations.
        fleets: the columns, by name.
        held_out: whether advice is judged by it, instead of made from it.
    """

    name: str
    partition: str
    cohort: int
    rounds: int
    every: int = 1
    data: str = "digits"
    model: str = "mlp(hidden=[32])"
    local: str = "epochs=2, batch=10, lr=0.1"
    clients: int = 30
    fleets: Mapping[str, str]
    held_out: bool = False

    def study(self, methods: Sequence[str], seeds: Sequence[int]) -> Study:
        """The study of it: all methods, with rates that were tried over half as many rounds."""
        shared = {
            "data": self.data,
            "clients": self.clients,
            "partition": self.partition,
            "model": self.model,
            "validation": 0.15,
            "evaluation": {"every": self.every},
        }
        texts = {row: METHODS[row].format(cohort=self.cohort, local=self.local) for row in methods}
        rows = {row: {"method": text, "rounds": self.rounds * LONGER.get(row, 1)} for row, text in texts.items()}
        search = Search(
            kind="grid",
            space=RATES,
            rows={row: space for row, space in OWN_RATES.items() if row in rows},
            seeds=TUNED_ON,
            by="final",
            column=next(iter(self.fleets)),
            over={"rounds": max(1, self.rounds // 2)},
        )
        columns: dict[str, Setting] = {name: {"fleet": text} for name, text in self.fleets.items()}
        return Study(
            name="pays", rows=rows, make=Maker(values=shared), columns=columns, seeds=tuple(seeds), search=search
        )


_SKEWS = {
    "iid": "iid",
    "dirichlet 0.5": "dirichlet(alpha=0.5, min_size=4, repair=true)",
    "dirichlet 0.1": "dirichlet(alpha=0.1, min_size=4, repair=true)",
}
_COHORTS = {3: {"rounds": 60, "every": 3}, 12: {"rounds": 20}}
EVIDENCE: tuple[Place, ...] = tuple(
    Place(name=f"digits, {skew}, {cohort} of 30", partition=partition, cohort=cohort, fleets=FLEETS, **of)
    for skew, partition in _SKEWS.items()
    for cohort, of in _COHORTS.items()
)
HELD_OUT: tuple[Place, ...] = (
    Place(
        name="digits, dirichlet 0.3, 6 of 30",
        partition="dirichlet(alpha=0.3, min_size=4, repair=true)",
        cohort=6,
        rounds=32,
        every=2,
        fleets={key: OTHER_FLEETS[key] for key in ("three tiers", "phones, half there")},
        held_out=True,
    ),
    Place(
        name="digits, two classes each, 6 of 40",
        partition="shards(per_client=2)",
        clients=40,
        cohort=6,
        rounds=32,
        every=2,
        fleets={key: OTHER_FLEETS[key] for key in ("lognormal", "phones, half there")},
        held_out=True,
    ),
    Place(
        name="fashion-mnist, dirichlet 0.3, 15 of 300",
        data="fashion-mnist",
        partition="dirichlet(alpha=0.3, min_size=10, repair=true)",
        clients=300,
        cohort=15,
        rounds=24,
        every=2,
        local="epochs=1, batch=32, lr=0.1",
        fleets={key: OTHER_FLEETS[key] for key in ("lognormal", "phones, half there")},
        held_out=True,
    ),
)


def carried_out(places: Sequence[Place], runs: Path, methods: Sequence[str], seeds: Sequence[int]) -> None:
    """Makes what is not there yet of the runs of some places, each in a folder of its own."""
    for place in places:
        carry_out(plan_of(place, methods, seeds), folder_of(place, runs), 1)


def plan_of(place: Place, methods: Sequence[str], seeds: Sequence[int]) -> Any:
    """The plan of a place's study."""
    from polyrhythm.studies.planning import planned

    return planned(place.study(methods, seeds))


def folder_of(place: Place, runs: Path) -> Path:
    """Where its runs lie."""
    return runs / place.name.replace(", ", "-").replace(" ", "_")
