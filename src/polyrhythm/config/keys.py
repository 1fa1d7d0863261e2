"""The keys of an experiment file: their types, defaults and meaning. All that is said of a key is made from these.

A key is a setting of an experiment, of its execution, or of how data are split and runs are kept. Command-line options,
what an error says that a key takes, the JSON Schema and the reference follow from the annotations and docstrings.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, final, get_args, get_origin

from annotated_types import MinLen

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes
from polyrhythm.base.settings import (
    Count,
    Seed,
    Settings,
    Share,
    Takes,
    annotations_of,
    descriptions,
    listed,
    members_of,
    takes,
)
from polyrhythm.config.defaults import DATA, FLEET, METHOD, PARTITION, default_model
from polyrhythm.config.expressions import Call, Pipe, parse_call
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.settings import Evaluation, Name, Until
from polyrhythm.trackers.base import Folder, Tracking

if TYPE_CHECKING:
    from polyrhythm.config.parts import ResolvedParts

DEFAULT_CLIENTS = 20
DEFAULT_ROUNDS = 30
OF_EXECUTION = tuple(f.name for f in dataclasses.fields(Execution))
OF_NO_NUMBER = (*OF_EXECUTION, "track", "tracking", "out", "name")


@final
@dataclass(frozen=True)
class Names(Takes):
    """Annotation of a text that names something: what it takes in words, which kind, and whether pipes follow."""

    kind: str = ""
    pipes: bool = False


_CALL = "a name, if need be with settings, such as dirichlet(alpha=0.3)"
_SHARE = "a share: a number of at least 0 and less than 1"
OfMethod = Annotated[
    str, Names("a recipe and parts, such as fedavg | prox(mu=0.01), or a list of such texts", "recipe", pipes=True)
]
OfTask = Annotated[str, Names("the task of the data, with its settings, such as multilabel(k=3)", "task")]
OfFleet = Annotated[
    str, Names("a source and parts, such as tiers | faults(dropout=0.1), or a list of such texts", "fleet", pipes=True)
]
OfFaults = Annotated[str, Names("faults and how often each, such as crash=0.05, nan=0.01", "faults")]
OfSamples = Annotated[Share, Takes(_SHARE)]
File = Annotated[str, MinLen(1), Takes("the path of a file")]


@final
@dataclass(frozen=True, kw_only=True)
class Configuration(Settings):
    """Everything that an experiment file may say. Each key but the tables is also an option of `polyrhythm run`.

    Args:
        data: the data set, see `polyrhythm data`.
        clients: how many clients; 20, unless a column of the data says.
        partition: who holds what, see `polyrhythm partitions`.
        model: the model, see `polyrhythm models`; mlp, or what suits the data.
        method: a recipe and parts, see `polyrhythm methods`.
        task: settings of the data's task, such as multilabel(k=3).
        fleet: the devices and parts, see `polyrhythm fleets`.
        faults: what goes wrong, and how often: crash=0.05, nan=0.01, added to the fleet's.
        rounds: versions to make; 30, or no limit with until.
        until: an earlier end: accuracy=0.9, time=3600 (virtual s), updates=1000, patience=10.
        seed: decides every random draw.
        seeds: one run for each: 0-2, or 0,3,5.
        validation: the share of training data held out to choose by.
        local_test: the share of each client's samples held out as its own test, or "natural".
        unseen: the share of clients that never train, and are tested apart in the end; needs local_test.
        init: initial weights, a safetensors file or a state dict (.pt, .pth).
        init_skip: patterns of names that begin as the model makes them all the same, such as head.*.
        expert: a trained model that says how difficult samples are, see `polyrhythm expert`.
        evaluation: what is measured, and how often.
        execution: how it is computed; its settings are keys of their own.
        tracking: who is told how runs go; `track` is a key of its own.
        name: what you call the run.
        out: the folder of the record.
    """

    data: Annotated[str, Names(_CALL, "data_set")] = DATA
    clients: Count | None = None
    partition: Annotated[str, Names(_CALL, "partition")] = PARTITION
    model: Annotated[str, Names(_CALL, "model")] | None = None
    method: OfMethod = METHOD
    task: OfTask | None = None
    fleet: OfFleet = FLEET
    faults: OfFaults | None = None
    rounds: Count | None = None
    until: Until = field(default_factory=Until)
    seed: Seed = 0
    seeds: Annotated[tuple[Seed, ...], MinLen(1), Takes("whole numbers, such as 0-2 or [0, 3, 5]")] | None = None
    validation: OfSamples = 0.0
    local_test: Annotated[OfSamples | Literal["natural"], Takes(f'{_SHARE}, or "natural"')] = 0.0
    unseen: OfSamples = 0.0
    init: File | None = None
    init_skip: Annotated[tuple[str, ...], Takes('patterns of names, such as ["head.*"]')] = ()
    expert: Annotated[str, MinLen(1), Takes("the path of a file, as `polyrhythm expert` makes it")] | None = None
    evaluation: Evaluation = field(default_factory=Evaluation)
    execution: Execution = field(default_factory=Execution)
    tracking: Tracking = field(default_factory=Tracking)
    name: Name = ""
    out: Folder = "runs"
    trust: Trust = NOBODY
    """The modules that whoever runs this has named. It is no key: what is written cannot name them itself."""

    def resolved(self) -> Configuration:
        """The same with every default that depends on other settings filled in."""
        natural = _innermost(Pipe.one(self.partition).calls[0]) == "by_column"
        return dataclasses.replace(
            self,
            clients=self.clients or (None if natural else DEFAULT_CLIENTS),
            model=self.model or Pipe.one(default_model(self.data)),
            rounds=self.rounds or (None if self.until.anything else DEFAULT_ROUNDS),
        )

    @functools.cached_property
    def resolved_parts(self) -> ResolvedParts:
        """What the names in it stand for.

        Raises:
            UserError: names that nobody knows, settings that do not fit; all of them.
        """
        from polyrhythm.config.parts import resolve

        wrong = Mistakes()
        found = resolve(
            named({f.name: getattr(self, f.name) for f in dataclasses.fields(self)}), wrong, str, self.trust
        )
        wrong.refuse()
        return found

    def written(self) -> dict[str, Any]:
        """As plain data, by key."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del values["trust"]
        flat: dict[str, Any] = {}
        for key, value in values.items():
            if key == "execution":
                flat |= {inner: getattr(value, inner) for inner in OF_EXECUTION}
            elif key == "tracking":
                flat |= {"track": value.track, key: value}
            else:
                flat[key] = value
        return {key: _plain(value) for key, value in flat.items()}

    def plain(self) -> dict[str, Any]:
        """The same without what decides no number: how it is computed, where it is kept, what it is called."""
        return {key: value for key, value in self.written().items() if key not in (*OF_NO_NUMBER, "seeds")}


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        plain = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        plain.pop("track", None)
        return plain
    return list(map(_plain, value)) if isinstance(value, tuple) else str(value) if isinstance(value, Pipe) else value


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that name things, with their defaults."""
    found = {key.name: key.default for key in KEYS.values() if key.names is not None}
    found |= {key: value for key, value in values.items() if key in found and value is not None}
    return found | {"model": found["model"] or Pipe.one(default_model(found["data"]))}


def _innermost(partition: Call) -> str:
    """The partition that decides how many clients there are: difficulty leaves that to the one inside."""
    inner = partition.named.get("inner")
    if isinstance(inner, str):
        inner = parse_call(inner)
    return _innermost(inner) if isinstance(inner, Call) else partition.name.replace("-", "_")


@final
@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of a file.

    Args:
        name: it; inside a table with a dot.
        owner: whose setting it is.
        hint: the annotation of the setting.
        default: the value if nothing is said.
        about: what it means; a sentence or more.
    """

    name: str
    owner: type[Settings]
    hint: Any
    default: Any
    about: str

    @property
    def kind(self) -> Any:
        """The annotation without None."""
        members = members_of(self.hint)
        return members[0] if len(members) == 1 else self.hint

    @property
    def names(self) -> Names | None:
        """What it names, if it is such a text."""
        found = [part for part in getattr(self.kind, "__metadata__", ()) if isinstance(part, Names)]
        return found[0] if found else None

    @property
    def several(self) -> bool:
        """Whether it is a list of words, of which one may stand alone."""
        return get_origin(self.kind) is tuple and get_origin(get_args(self.kind)[0]) is Literal

    @property
    def texts(self) -> frozenset[type]:
        """Which of text and numbers it may be: what a text on the command line is read as."""
        kinds = [_bare(member) for member in members_of(_bare(self.kind)) or [self.kind]]
        return frozenset(str if get_origin(kind) is Literal else kind for kind in kinds)

    @property
    def table(self) -> type[Settings] | None:
        """The settings that lie in it, if it is a table."""
        return self.kind if isinstance(self.kind, type) and issubclass(self.kind, Settings) else None

    @property
    def help(self) -> str:
        """A line of help: what it means, the words that it takes, and the default."""
        sentence = re.split(r"\.(?= |$)", self.about)[0]
        words = f": {takes(self.kind)}" if self.several or get_origin(self.kind) is Literal else ""
        told = f"{self.default:g}" if isinstance(self.default, float) else self.default
        default = f"  [default: {told}]" if isinstance(told, str | int) and told != "" else ""
        return f"{sentence[0].upper()}{sentence[1:]}{words}.{default}"


def _bare(hint: Any) -> Any:
    """A type without what is said of it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _keys(owner: type[Settings], inside: str = "", skip: frozenset[str] = frozenset()) -> Iterator[Key]:
    hints, about = annotations_of(owner), descriptions(owner)
    for f in dataclasses.fields(owner):
        if f.name in skip:
            continue
        hint = hints[f.name]
        if hint is Execution:
            yield from _keys(hint)
            continue
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        name, track = f"{inside}{f.name}", frozenset[str]()
        if hint is Tracking:
            track = frozenset({"track"})
            yield from _keys(hint, skip=frozenset({"directory", "project"}))
        yield Key(name=name, owner=owner, hint=hint, default=default, about=about[f.name])
        if isinstance(hint, type) and issubclass(hint, Settings):
            yield from _keys(hint, f"{name}.", track)


KEYS: Mapping[str, Key] = {key.name: key for key in _keys(Configuration, skip=frozenset({"trust"}))}
"""Every key, tables before what lies in them."""


def inside(table: str) -> list[str]:
    """The keys in a table."""
    return [name.removeprefix(f"{table}.") for name in KEYS if name.startswith(f"{table}.")]


TAKES: Mapping[str, str] = {
    name: f"a table with {listed(inside(name))}" if key.table else takes(key.kind) for name, key in KEYS.items()
}
"""What each key takes, for the words of an error."""
