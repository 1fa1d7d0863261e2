"""An experiment as it is written: defaults, under a TOML file, under the command line, under `--set`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from polyrhythm.base.consent import NOBODY, Trust, check_cluster
from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.config.defaults import DATA, FLEET, METHOD, PARTITION, default_model
from polyrhythm.config.expressions import Call, parse_call
from polyrhythm.config.layers import Said, layered, number_or_text
from polyrhythm.config.mistakes import explained
from polyrhythm.config.paths import check_inside
from polyrhythm.runs.records import Measure

if TYPE_CHECKING:
    from polyrhythm.config.parts import Things
    from polyrhythm.trackers import Tracking

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
DEFAULT_CLIENTS = 20
DEFAULT_ROUNDS = 30
OF_THE_MACHINE = ("driver", "workers", "address", "gpus", "client_memory")
OF_NO_NUMBER = (*OF_THE_MACHINE, "checkpoint", "track", "tracking", "out", "name")
OF_STUDIES = ("sweep", "tuning", "rows", "columns", "claims", "scales", "reproduces", "paper", "let", "expert_training")
_NAMED = ("data", "partition", "model", "method", "task", "fleet", "faults")

Positive = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Text = Annotated[str, MinLen(1)]


@final
class UntilSettings(BaseModel):
    """When to stop early."""

    model_config = _STRICT
    accuracy: Annotated[float, Le(1)] | None = None
    time: Annotated[float, Gt(0)] | None = None
    updates: Positive | None = None


@final
class EvaluationSettings(BaseModel):
    """What is measured, and how often."""

    model_config = _STRICT
    every: Positive = 1
    train_samples: Whole = 0
    groups: bool = False
    measure: tuple[Measure, ...] = ()

    @field_validator("measure", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return (value,)
        # In a list of `--set`, a word without quotes is read as the call of something.
        return tuple(v.name if isinstance(v, Call) and v == Call(v.name, (), {}) else v for v in value)


@final
class CheckpointSettings(BaseModel):
    """How often a run writes down what it needs to go on."""

    model_config = _STRICT
    every: Positive | Text = "5 min"
    keep: Positive = 2

    @field_validator("every", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return number_or_text(value) if isinstance(value, str) else value


@final
class TrackingSettings(BaseModel):
    """What trackers are told besides."""

    model_config = _STRICT
    directory: Text | None = None
    project: Text = "polyrhythm"


@final
class Configuration(BaseModel):
    """Everything that an experiment file may say. Each key is also an option of `polyrhythm run`."""

    model_config = _STRICT
    data: Text = DATA
    clients: Positive | None = None
    partition: Text = PARTITION
    model: Text | None = None
    method: Text = METHOD
    task: Text | None = None
    fleet: Text = FLEET
    faults: Text | None = None
    rounds: Positive | None = None
    until: UntilSettings = Field(default_factory=UntilSettings)
    seed: Whole = 0
    seeds: Annotated[tuple[Whole, ...], MinLen(1)] | None = None
    validation: Share = 0.0
    local_test: Share | Literal["natural"] = 0.0
    init: Text | None = None
    expert: Text | None = None
    driver: Literal["auto", "inline", "processes", "threads", "ray"] = "auto"
    workers: Positive | None = None
    address: Text | None = None
    gpus: Annotated[float, Gt(0), Le(1)] | None = None
    engine: Literal["auto", "torch", "native", "stacked"] = "auto"
    device: Text = "auto"
    stack: Positive | None = None
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    client_memory: Text = "all"
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    track: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ()
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)
    name: Annotated[str, MaxLen(200)] = ""
    out: Text = "runs"
    _trust: Trust = PrivateAttr(default=NOBODY)

    @property
    def trust(self) -> Trust:
        """The modules that whoever runs this has named. It is no key: what is written cannot name them itself."""
        return self._trust

    def trusting(self, trust: Trust) -> Configuration:
        """The same for somebody who has named these modules."""
        made = self.model_copy()
        made._trust = trust
        return made

    def resolved(self) -> Configuration:
        """The same with every default that depends on other settings filled in."""
        natural = _innermost(parse_call(self.partition)) == "by_column"
        open_ended = any(v is not None for v in self.until.model_dump().values())
        return self.model_copy(
            update={
                "clients": self.clients or (None if natural else DEFAULT_CLIENTS),
                "model": self.model or default_model(self.data),
                "rounds": self.rounds or (None if open_ended else DEFAULT_ROUNDS),
            }
        )

    @functools.cached_property
    def things(self) -> Things:
        """What the names in it stand for.

        Raises:
            UserError: names that nobody knows, settings that do not fit; all of them.
        """
        from polyrhythm.config.parts import things

        wrong = Mistakes()
        found = things(_named(self.model_dump()), wrong, lambda path: path.partition(".")[0], self.trust)
        wrong.refuse()
        return found

    @property
    def trackers(self) -> Tracking:
        """Who is told how runs go."""
        from polyrhythm.trackers import Tracking

        return Tracking(track=self.track, **self.tracking.model_dump())

    def plain(self) -> dict[str, Any]:
        """As plain data, without what decides no number: who computes, where it is kept, what it is called; and without
        what the experiment says itself, `stack`, which may follow from the rest."""
        return self.model_dump(mode="json", exclude=set(OF_NO_NUMBER) | {"seeds", "stack"})


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that name things, with their defaults."""
    given = {key: values[key] for key in _NAMED if values.get(key) is not None}
    defaults = {key: Configuration.model_fields[key].default for key in _NAMED}
    named = defaults | given
    return named | {"model": named["model"] or default_model(named["data"])}


def _innermost(partition: Call) -> str:
    """The partition that decides how many clients there are: difficulty leaves that to the one inside."""
    inner = partition.named.get("inner")
    if isinstance(inner, str):
        inner = parse_call(inner)
    return _innermost(inner) if isinstance(inner, Call) else partition.name.replace("-", "_")


# What each key takes, for the words of an error.
_CALL = "a name, if need be with settings, such as dirichlet(alpha=0.3)"
_POSITIVE, _WHOLE = "a whole number, 1 or more", "a whole number, 0 or more"
_SHARE = "a share: a number of at least 0 and less than 1"
TAKES = {
    "data": _CALL,
    "clients": _POSITIVE,
    "partition": _CALL,
    "model": _CALL,
    "method": "a recipe and parts, such as fedavg | prox(mu=0.01), or a list of such texts",
    "task": "the task of the data, with its settings, such as multilabel(k=3)",
    "fleet": "a source and parts, such as tiers | faults(dropout=0.1), or a list of such texts",
    "faults": "faults and how often each, such as crash=0.05, nan=0.01",
    "rounds": _POSITIVE,
    "until": "accuracy, time or updates, each with a number",
    "until.accuracy": "a number, 1 or less",
    "until.time": "virtual seconds: a number of more than 0",
    "until.updates": _POSITIVE,
    "seed": _WHOLE,
    "seeds": "whole numbers, such as 0-2 or [0, 3, 5]",
    "validation": _SHARE,
    "local_test": f'{_SHARE}, or "natural"',
    "init": "the path of a file",
    "expert": "the path of a file, as `polyrhythm expert` makes it",
    "driver": "auto, inline, processes, threads or ray",
    "workers": _POSITIVE,
    "address": "the address of a Ray cluster, such as 10.0.0.1:6379, or auto",
    "gpus": "a share of a GPU: a number from 0.0001 to 1",
    "engine": "auto, torch, native or stacked",
    "device": "auto, cpu, cuda, or cuda:1 for the second GPU",
    "stack": _POSITIVE,
    "evaluation": "every or train_samples, each with a number, groups, true or false, or measure, a list of names",
    "evaluation.every": _POSITIVE,
    "evaluation.train_samples": _WHOLE,
    "evaluation.groups": "true or false",
    "evaluation.measure": "update_similarity, estimation_error or sample_losses, or a list of them",
    "client_memory": 'an amount with its unit, such as "1 GiB", or "all"',
    "checkpoint": "every, keep or both",
    "checkpoint.every": 'versions, such as 10, or a time, such as "5 min", or "never"',
    "checkpoint.keep": _POSITIVE,
    "track": "tensorboard, mlflow or wandb, or a list of them",
    "tracking": "directory, project or both",
    "tracking.directory": "the path of a folder, in a file one inside the folder that you run in",
    "tracking.project": "a text",
    "name": "a text of at most 200 characters",
    "out": "the path of a folder, in a file one inside the folder that you run in",
}


def configure(
    file: Path | None, options: Mapping[str, Any], settings: list[str], trust: Trust = NOBODY
) -> Configuration:
    """Puts an experiment together.

    Args:
        file: a TOML file, or None.
        options: from the command line, by key; None means not given.
        settings: `key=value` texts, with dots for keys inside keys; they win over everything else.
        trust: the modules that the user has named.

    Raises:
        UserError: no such file, not TOML, unknown keys, wrong types, names that nobody knows, settings that do not fit;
            all of them at once, each with its place.
    """
    wrong = Mistakes()
    said = layered(file, options, settings, wrong, TAKES)
    if tables := [key for key in OF_STUDIES if key in said.values]:
        wrong.add(_a_study(f"{said.where(tables[0])}: [{tables[0]}]"))
        for key in tables:
            del said.values[key]
    return configured(said, wrong, trust)


def configured(said: Said, wrong: Mistakes, trust: Trust) -> Configuration:
    """Puts together what was said.

    Args:
        said: it.
        wrong: what was noted as wrong before.
        trust: the modules that the user has named.

    Raises:
        UserError: unknown keys, wrong types and so on, and what was noted as wrong before.
    """
    from polyrhythm.config.parts import things

    try:
        made: Configuration | None = Configuration.model_validate(_joined(said.values))
        faulty: frozenset[str] = frozenset()
    except ValidationError as error:
        made, faulty = None, frozenset(str(problem["loc"][0]) for problem in error.errors())
        wrong.add(*explained(error, TAKES, said.where))
    if made is not None:
        for key, folder in (("out", made.out), ("tracking.directory", made.tracking.directory)):
            if folder is not None and said.in_file(key):
                with wrong.noted(said.where(key)):
                    check_inside(key, folder)
        if "address" not in said.here:
            with wrong.noted():
                check_cluster(made.address, trust, said.where("address"))
    sound = {key: value for key, value in said.values.items() if key not in faulty}
    if "fleet" in sound:
        sound["fleet"] = _joined({"fleet": sound["fleet"]})["fleet"]
    found = things(_named(sound), wrong, said.what, trust)
    wrong.refuse()
    assert made is not None
    whole = made.resolved().trusting(trust)
    vars(whole)["things"] = found  # they need not be made a second time
    return whole


def _a_study(found: str) -> UserError:
    return UserError(
        found,
        expected="an experiment",
        why="many runs with other settings are no single one",
        fix="polyrhythm study FILE, or polyrhythm check FILE",
    )


def _joined(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with lists of parts as the pipes that they stand for."""
    joined = dict(values)
    for key in ("method", "fleet"):
        parts = values.get(key)
        if isinstance(parts, (list, tuple)) and parts and all(isinstance(part, str) for part in parts):
            joined[key] = " | ".join(parts)
    return joined
