"""From names to things: recipes, parts, data, partitions, models, tasks, fleets. The only place with names as text."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from torch import nn

from polyrhythm import fleet as of_fleets
from polyrhythm import papers, parts
from polyrhythm.cli.expressions import Call, parse_call, parse_pipeline
from polyrhythm.data import PARTITIONS, SOURCES, Collection, Partition
from polyrhythm.errors import UserError, unknown
from polyrhythm.fleet import Devices, Fleet
from polyrhythm.fleet.sources import recordings
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import MODELS, Builder, find
from polyrhythm.models.projection import with_projection
from polyrhythm.recipe import Recipe
from polyrhythm.schedules import Schedule
from polyrhythm.settings import Settings
from polyrhythm.slots.budgets import Budgets, Levels, Listed, SlowShare
from polyrhythm.slots.critical import Detector, FisherTrace, GradientNorm
from polyrhythm.slots.pacing import Pacing
from polyrhythm.tasks import TASKS, Task

RECIPES: Mapping[str, Callable[..., Recipe]] = {
    name: getattr(papers, name) for name in papers.__all__ if inspect.isfunction(getattr(papers, name))
}
PARTS: Mapping[str, type[Settings]] = {name: getattr(parts, name) for name in parts.__all__}
DEVICES: Mapping[str, type[Devices]] = {
    "uniform": of_fleets.Uniform,
    "tiers": of_fleets.Tiers,
    "lognormal": of_fleets.Lognormal,
    "zipf": of_fleets.Zipf,
    "half_normal": of_fleets.HalfNormal,
    "exponential": of_fleets.Exponential,
    "listed_devices": of_fleets.ListedDevices,
    "device_trace": of_fleets.DeviceTrace,
}
FLEETS: Mapping[str, Callable[..., Fleet]] = {"trace": of_fleets.trace, "phones": of_fleets.phones}
BUDGETS: Mapping[str, type[Budgets]] = {"budgets": Levels, "slow_share": SlowShare, "listed": Listed}
OF_FLEETS: Mapping[str, type[Settings]] = {
    "links": of_fleets.FixedLinks,
    "lognormal_links": of_fleets.LognormalLinks,
    "user_speeds": of_fleets.UserSpeeds,
    "bandwidth": of_fleets.BandwidthTrace,
    "periodic": of_fleets.Periodic,
    "markov": of_fleets.Markov,
    "by_labels": of_fleets.ByLabels,
    "availability": of_fleets.AvailabilityTrace,
    "faults": of_fleets.Faults,
    "energy": of_fleets.Energy,
    "poisson": of_fleets.Poisson,
    "every": of_fleets.Every,
    "arrivals": of_fleets.ArrivalTrace,
    **BUDGETS,
}
DETECTORS: Mapping[str, type[Detector]] = {"gradient_norm": GradientNorm, "fisher_trace": FisherTrace}

# Settings that are things with names of their own, by the setting's name.
_INSIDE: Mapping[str, Mapping[str, type[Settings]]] = {
    "schedule": {name: made for name, made in PARTS.items() if issubclass(made, Schedule)},
    "budgets": BUDGETS,
    "detector": DETECTORS,
    "watch": DETECTORS,
    "pacing": {"pacing": Pacing},
}


def recipe(text: str) -> Recipe:
    """A recipe from `recipe | part | part`.

    Raises:
        UserError: an unknown name or setting, or parts that cannot work together.
    """
    first, *rest = parse_pipeline(text)
    name = _key(first.name)
    if name not in RECIPES:
        if name in PARTS:
            raise UserError(
                f"{text!r} begins with a part, {first.name}",
                expected=f"a recipe first: {', '.join(sorted(RECIPES))}",
                why="a part answers one question; a recipe answers all of them",
                fix=f'write "fedavg | {text}"',
            )
        raise unknown("recipe", first.name, RECIPES)
    made: Recipe = _make(first, RECIPES[name], _value)
    for call in rest:
        made = made | _part(call)
    return made.whole()


def _part(call: Call) -> object:
    name = _key(call.name)
    if name in RECIPES and name not in PARTS:
        return _make(call, RECIPES[name], _value)  # the pipe refuses it, and says why
    if name not in PARTS:
        raise _elsewhere(call, OF_FLEETS, "a method", "a fleet (--fleet)") or unknown("part", call.name, PARTS)
    return _make(call, PARTS[name], _of_part(PARTS[name]))


def _of_part(part: type[Settings]) -> Callable[[str, Any], Any]:
    """A setting that is a choice of words is a word: the schedule of a part that skips is no learning rate's."""
    hints = typing.get_type_hints(part)
    words = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.Literal}
    return lambda name, value: _plain(name, value) if name in words else _value(name, value)


def partition(text: str) -> Partition:
    """A partition from its name and settings."""
    return _partition(parse_call(text))


def _partition(call: Call) -> Partition:
    known = {_key(name): made for name, made in PARTITIONS.items()}
    if _key(call.name) not in known:
        raise unknown("partition", call.name, PARTITIONS)
    made: Partition = _make(call, known[_key(call.name)], _of_partition)
    return made


def _of_partition(name: str, value: Any) -> Any:
    """A setting of a partition; `inner` is a partition itself."""
    if name == "inner" and isinstance(value, (str, Call)):
        return _partition(value if isinstance(value, Call) else parse_call(value))
    return _plain(name, value)


def source(text: str) -> Collection:
    """A data set from its name and settings; this loads it."""
    call = parse_call(text)
    known = {_key(name): made for name, made in SOURCES.items()}
    if _key(call.name) not in known:
        raise unknown("data set", call.name, SOURCES)
    made: Collection = _make(call, known[_key(call.name)], _plain)
    return made


def model(text: str) -> Builder:
    """A model builder from its name or import path and settings."""
    return _model(parse_call(text))


def _model(call: Call) -> Builder:
    if _key(call.name) == "with_projection":
        inner, *more = call.positional or (None,)
        if not isinstance(inner, Call) or more:
            raise UserError(
                f"{call}",
                expected="the model that gets a projection head, as in with_projection(lenet5, size=256)",
                why="the head is put on a model",
                fix="write that model first inside the brackets",
            )
        return with_projection(_model(inner), **_settings(call, with_projection, _plain, skip=1))
    _no_positional(call)
    known = {_key(name): name for name in MODELS}
    name = call.name if ":" in call.name else known.get(_key(call.name), call.name)
    find(name)  # a name that does not exist is refused before the data are loaded
    return _Configured(name, {k: _plain(k, v) for k, v in call.named.items()})


@final
@dataclass(frozen=True, eq=False)  # the same only as itself, so that it can be looked up
class _Configured:
    """A model with its settings, which `build` checks once the shape of the data is known."""

    name: str
    settings: Mapping[str, Any]

    def __call__(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return build(self.name, shape, outputs, **self.settings)


def task(text: str) -> Task:
    """A task from its name and settings: `multilabel(k=3)`."""
    call = parse_call(text)
    if _key(call.name) not in TASKS:
        raise unknown("task", call.name, TASKS)
    made: Task = _make(call, TASKS[_key(call.name)], _plain)
    return made


def fleet(text: str) -> Fleet:
    """A fleet from a source and parts after pipes: `tiers | markov(mean_on=600, mean_off=600) | budgets(levels=4)`."""
    first, *rest = parse_pipeline(text)
    key = _key(first.name)
    if key in FLEETS:
        made: Fleet = _make(first, FLEETS[key], _plain)
    elif key in DEVICES:
        made = Fleet() | _make(first, DEVICES[key], _plain)
    elif key in OF_FLEETS:
        raise UserError(
            f"{text!r} begins with a part, {first.name}",
            expected=f"a source first: {', '.join([*DEVICES, *FLEETS])}",
            why="a source says which devices there are; a part changes something about them",
            fix=f'write "uniform | {text}"',
        )
    else:
        raise unknown("fleet", first.name, [*DEVICES, *FLEETS])
    for call in rest:
        for part in _of_fleet(call):
            made = made | part
    return made


def _of_fleet(call: Call) -> Iterable[object]:
    """What stands after a pipe in a fleet: one part, or those that a trace has recordings of."""
    key = _key(call.name)
    if key in OF_FLEETS:
        return (_make(call, OF_FLEETS[key], _plain),)
    if key == "trace":
        parts: Iterable[object] = _make(call, recordings, _plain)
        return parts
    if key in DEVICES or key in FLEETS:
        raise UserError(
            f"the source {call.name} after a pipe",
            expected=f"one source, which comes first, and then parts: {', '.join([*OF_FLEETS, 'trace'])}",
            why="a source says which devices there are, and nothing of the one before it would remain",
            fix=f"begin with {call.name}, and pipe the parts onto it",
        )
    raise _elsewhere(call, PARTS, "a fleet", "a method (--method)") or unknown("part of a fleet", call.name, OF_FLEETS)


def _elsewhere(call: Call, known: Container[str], here: str, there: str) -> UserError | None:
    """The error for a part of the one in the other, a fleet or a method; None if it is neither's."""
    if _key(call.name) not in known:
        return None
    return UserError(
        f"{call.name} in {here}",
        expected=f"parts of {here}; {call.name} is one of {there}",
        why="a method is what is compared, and a fleet what it cannot change",
        fix=f"move it to {there}",
    )


def _make(call: Call, make: Callable[..., Any], convert: Callable[[str, Any], Any]) -> Any:
    return make(**_settings(call, make, convert))


def _settings(
    call: Call, make: Callable[..., Any], convert: Callable[[str, Any], Any], skip: int = 0
) -> dict[str, Any]:
    """The settings of a call, checked against what it takes."""
    if not skip:
        _no_positional(call)
    parameters = list(inspect.signature(make).parameters.values())[skip:]
    known = {p.name: p for p in parameters if p.kind is not p.VAR_KEYWORD}
    names = [*known, *_shared(make, parameters)]
    for name in call.named:
        if name not in names:
            raise unknown("setting", name, names, where=call.name)
    missing = [name for name, p in known.items() if p.default is p.empty and name not in call.named]
    if missing:
        raise UserError(
            f"{call.name} without {missing[0]}",
            expected=f"{call.name}({', '.join(f'{name}=…' for name in missing)})",
            why=f"{missing[0]} has no default",
            fix=f"give {missing[0]} a value",
        )
    return {name: convert(name, value) for name, value in call.named.items()}


def _shared(make: Callable[..., Any], parameters: list[inspect.Parameter]) -> list[str]:
    """The settings that a recipe shares with others: the keys of its `**common: Unpack[...]`."""
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            hint = typing.get_type_hints(make)[parameter.name]
            names += typing.get_type_hints(typing.get_args(hint)[0])
    return names


def _no_positional(call: Call) -> None:
    if call.positional:
        raise UserError(
            f"{call}: {call.positional[0]!s} has no name",
            expected="settings as name=value",
            why="which setting it belongs to would be a guess",
            fix=f"write {call.name}(name={call.positional[0]!s})",
        )


def _value(name: str, value: Any) -> Any:
    """A setting of a recipe or a part. Some settings are things with a name of their own; elsewhere a name is text."""
    known = _INSIDE.get(name)
    if isinstance(value, tuple):
        return tuple(_value(name, v) for v in value)
    if known is None or not isinstance(value, (str, Call)):
        return _plain(name, value)
    call = value if isinstance(value, Call) else parse_call(value)
    if _key(call.name) in known:
        return _make(call, known[_key(call.name)], _plain)
    if name == "pacing":  # a family's name, where the recipe makes the pacing
        return _plain(name, value)
    raise unknown(name, call.name, known)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(name, v) for v in value)
    if not isinstance(value, Call):
        return value
    if value.positional or value.named:
        raise UserError(
            f"{name}={value}",
            expected="a number, a text, true, false, none, or a list of them",
            why=f"{name} takes no settings of its own",
            fix="leave the brackets out; a text with brackets needs quotes",
        )
    return value.name


def _key(name: str) -> str:
    return name.replace("-", "_")
