"""Places: data, how they are dealt and to what cohort, with the fleets on which recipes are compared there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.studies.advice.advising import METHODS
from polyrhythm.studies.definition import Search, Study
from polyrhythm.studies.files.maker import Maker
from polyrhythm.studies.space import Setting

LONGER: Mapping[str, int] = {
    "FedBuff": 3,
    "FADAS": 3,
    "HeteroFL": 2,
    "CCFL": 2,
    "Curriculum": 2,
    "FedAvg by sweeps": 2,
}
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
TUNED_ON = (100,)

_LINKS = "links(down=1e6, up=2.5e5, latency=0.05)"
_ENERGY = "energy(joules_per_flop=1e-8)"
_PHONES = "phones | markov(mean_on={on}, mean_off={off}) | " + _ENERGY
FLEETS: Mapping[str, str] = {
    "alike": f"uniform(seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "five tiers": f"tiers(slowdown=[1, 2, 4, 8, 16], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "lognormal": f"lognormal(median=0.05, sigma=1) | {_LINKS} | {_ENERGY}",
    "phones": f"phones | {_ENERGY}",
    "phones, half there": _PHONES.format(on=3600, off=3600),
    "phones, mostly there": _PHONES.format(on=7200, off=1800),
    "phones, briefly there": _PHONES.format(on=240, off=960),
}
"""Of the evidence; there for 20, 50, 80 and 20 % of the time, for an hour or minutes at a stretch."""
OTHER_FLEETS: Mapping[str, str] = {
    "three tiers": f"tiers(slowdown=[1, 3, 10], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "milder lognormal": f"lognormal(median=0.05, sigma=0.6) | {_LINKS} | {_ENERGY}",
    "phones, a third there": _PHONES.format(on=3600, off=7200),
    "phones, often there": _PHONES.format(on=900, off=450),
}
"""Of the held-out places: between those."""


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


def _on(*names: str) -> Mapping[str, str]:
    every = {**FLEETS, **OTHER_FLEETS}
    return {name: every[name] for name in names}


_SKEWS = {
    "iid": "iid",
    "dirichlet 0.5": "dirichlet(alpha=0.5, min_size=4, repair=true)",
    "dirichlet 0.1": "dirichlet(alpha=0.1, min_size=4, repair=true)",
}
_COHORTS: Mapping[int, Mapping[str, Any]] = {3: {"rounds": 60, "every": 3}, 12: {"rounds": 20}}
_ONE_MORE = ("alike", "phones, mostly there", "lognormal", "alike", "phones, mostly there", "lognormal")
_COMMON = ("five tiers", "phones", "phones, half there", "phones, briefly there")
_ONCE = "epochs=1, batch=20, lr=0.1"
_FASHION: Mapping[str, Any] = {"data": "fashion-mnist", "clients": 100, "local": _ONCE}
EVIDENCE: tuple[Place, ...] = (
    *(
        Place(name=f"digits, {skew}, {cohort} of 30", partition=_SKEWS[skew], cohort=cohort, fleets=fleets, **of)
        for ((skew, (cohort, of)), fleets) in zip(
            [(skew, pair) for skew in _SKEWS for pair in _COHORTS.items()],
            [_on(*_COMMON, one) for one in _ONE_MORE],
            strict=True,
        )
    ),
    Place(
        name="Fashion-MNIST, dirichlet 0.1, 4 of 100",
        partition="dirichlet(alpha=0.1)",
        cohort=4,
        rounds=40,
        every=4,
        fleets=_on("five tiers", "phones", "phones, half there"),
        **_FASHION,
    ),
    Place(
        name="Fashion-MNIST, dirichlet 1, 16 of 100",
        partition="dirichlet(alpha=1)",
        cohort=16,
        rounds=20,
        every=2,
        fleets=_on("lognormal", "phones, mostly there", "phones, briefly there"),
        **_FASHION,
    ),
)
"""Places that advice is made from."""
_SPLIT = ("three tiers", "phones, a third there")
_OTHER = ("milder lognormal", "phones, often there")
HELD_OUT: tuple[Place, ...] = (
    Place(
        name="digits, dirichlet 0.3, 6 of 30",
        partition="dirichlet(alpha=0.3, min_size=4, repair=true)",
        cohort=6,
        rounds=32,
        every=2,
        fleets=_on(*_SPLIT),
        held_out=True,
    ),
    Place(
        name="digits, two classes each, 6 of 40",
        partition="shards(per_client=2)",
        clients=40,
        cohort=6,
        rounds=32,
        every=2,
        fleets=_on(*_OTHER),
        held_out=True,
    ),
    Place(
        name="Fashion-MNIST, dirichlet 0.3, 8 of 100",
        partition="dirichlet(alpha=0.3)",
        cohort=8,
        rounds=32,
        every=4,
        fleets=_on("three tiers", *_OTHER),
        held_out=True,
        **_FASHION,
    ),
    Place(
        name="Fashion-MNIST, three classes each, 10 of 200",
        data="fashion-mnist",
        partition="classes_per_client(classes=3)",
        clients=200,
        local=_ONCE,
        cohort=10,
        rounds=24,
        every=2,
        fleets=_on(*_SPLIT),
        held_out=True,
    ),
    Place(
        name="HAPT, a wearer each, 5 of 30",
        data="hapt(path=activity_hapt.npz)",
        partition="by_column(column=wearer)",
        cohort=5,
        rounds=40,
        every=4,
        fleets=_on(*_OTHER),
        held_out=True,
    ),
    Place(
        name="MNIST, a writer each, 10 of 100",
        data="mnist-by-writer(path=mnist_by_writer.npz)",
        partition="by_column(column=writer)",
        clients=100,
        cohort=10,
        rounds=24,
        every=2,
        fleets=_on(*_SPLIT),
        held_out=True,
    ),
    Place(
        name="heart disease, dirichlet 0.5, 4 of 20",
        data="heart-disease(path=heart_disease/heart_disease_4sites.csv)",
        partition="dirichlet(alpha=0.5, min_size=4, repair=true)",
        model="mlp(hidden=[16])",
        clients=20,
        cohort=4,
        rounds=32,
        every=2,
        fleets=_on(*_OTHER),
        held_out=True,
    ),
    Place(
        name="spoken digits, dirichlet 0.5, 8 of 40",
        data="spoken-digits(path=spoken_digits.npz)",
        partition="dirichlet(alpha=0.5, min_size=4, repair=true)",
        clients=40,
        cohort=8,
        rounds=32,
        every=4,
        fleets=_on("milder lognormal", *_SPLIT),
        held_out=True,
    ),
)
"""Places that advice is judged by: other data, skews, cohorts and numbers of clients, on fleets between the known."""
