"""From names to things: recipes, parts, models, tasks, fleets; of data and partitions `data_names` has them."""

from __future__ import annotations

import functools
import inspect
import operator
import typing
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, final

from torch import nn

from polyrhythm import fleet as of_fleets
from polyrhythm import parts
from polyrhythm.base.consent import NOBODY, Trust, Wanted, imported
from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.base.settings import Settings
from polyrhythm.config.calls import key_of, make_from, plain, refuse_positional, settings_of
from polyrhythm.config.expressions import Call, Pipe, parse_call
from polyrhythm.config.model_calls import folded
from polyrhythm.config.setting_checks import hints_of
from polyrhythm.fleet import Devices, Fleet
from polyrhythm.fleet.parts import Arrivals, Availability, Links
from polyrhythm.fleet.sources import recordings
from polyrhythm.methods import papers
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.local.schedules import Schedule
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.critical_periods import FisherTrace, GradientNorm, ReleasedNorm, Signal
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.budgets import Budgets, Levels, Listed, SlowShare
from polyrhythm.models.building import build, checked_settings
from polyrhythm.models.catalogue import AROUND, MODELS, Builder, find
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import TASKS

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
DETECTORS: Mapping[str, type[Signal]] = {
    "gradient_norm": GradientNorm,
    "fisher_trace": FisherTrace,
    "released_norm": ReleasedNorm,
}

# Settings that are things with names of their own, by the setting's name.
_INSIDE: Mapping[str, Mapping[str, type[Settings]]] = {
    "schedule": {name: made for name, made in PARTS.items() if issubclass(made, Schedule)},
    "budgets": BUDGETS,
    "detector": DETECTORS,
    "watch": DETECTORS,
    "pacing": {"pacing": Pacing},
    "clip": {"adaptive": Adaptive},
}


def recipe(text: str, trust: Trust = NOBODY) -> Recipe:
    """A recipe from `recipe | part | part`, each a name or an import path.

    Args:
        text: them.
        trust: the modules that the user has named; no other one is imported.

    Raises:
        UserError: unknown names or settings, paths that may not be imported, or parts that cannot work together; as
            many of them as can be known.
    """
    wrong, made = Mistakes(), list[Any]()
    for number, call in enumerate(Pipe.of(text).calls):
        with wrong.noted():
            made.append(piece(call, text, trust, begins=number == 0))
    wrong.refuse()
    return piped(made)


def piece(call: Call, text: str, trust: Trust = NOBODY, *, begins: bool) -> Any:
    """What stands between two pipes of a text: a recipe where it begins, else a part.

    Raises:
        UserError: an unknown name or setting, or a path that may not be imported.
    """
    return _recipe(call, text, trust) if begins else _part(call, trust)


def piped(made: Iterable[Any]) -> Recipe:
    """A recipe and parts, put together.

    Raises:
        UserError: parts that cannot work together.
    """
    whole: Recipe = functools.reduce(operator.or_, made)
    return whole.whole()


def _recipe(call: Call, text: str, trust: Trust) -> Recipe:
    name = key_of(call.name)
    if name in RECIPES:
        return make_from(call, RECIPES[name], _inside(trust))
    own = _own(call, trust) if ":" in call.name else None
    if isinstance(own, Recipe):
        return own
    if name in PARTS or own is not None:
        raise UserError(
            f"{text!r} begins with a part, {call.name}",
            expected=f"a recipe first: {', '.join(sorted(RECIPES))}",
            why="a part answers one question; a recipe answers all of them",
            fix=f'write "fedavg | {text}"',
        )
    raise unknown("recipe", call.name, RECIPES)


def _part(call: Call, trust: Trust) -> object:
    name = key_of(call.name)
    if ":" in call.name:
        return _own(call, trust)
    if name in RECIPES and name not in PARTS:
        return make_from(call, RECIPES[name], _inside(trust))  # the pipe refuses it, and says why
    if name not in PARTS:
        raise _elsewhere(call, OF_FLEETS, "a method", "a fleet (--fleet)") or unknown("part", call.name, PARTS)
    return make_from(call, PARTS[name], _of_part(PARTS[name], trust))


_OWN_PART = Wanted(
    what="part", base=(Mechanism, LocalOptimiser, Schedule, Budgets, Signal), kind="one of the bases in pr.extend"
)


def _own(call: Call, trust: Trust) -> object:
    """A part of the user's own, or a recipe that a function makes, from its import path and settings."""
    make = imported(call.name, _OWN_PART, trust)
    return make_from(call, make, _of_part(make, trust))


def _of_part(make: Callable[..., Any], trust: Trust) -> Callable[[str, Any], Any]:
    """A setting that is no thing by its annotation is a word: a part that skips has a schedule of another kind."""
    things = {name for name, hint in hints_of(make).items() if _names_a_thing(hint)}
    inside = _inside(trust)
    return lambda name, value: inside(name, value) if name in things else plain(name, value)


def _names_a_thing(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, Settings)
    return any(_names_a_thing(inner) for inner in typing.get_args(hint))


def model(text: str, trust: Trust = NOBODY) -> Builder:
    """A model builder from its name or import path and settings, and what is put around it after pipes.

    Args:
        text: them.
        trust: the modules that the user has named; no other one is imported.

    Raises:
        UserError: unknown names or settings, or a path that may not be imported.
    """
    return _model(folded(Pipe.of(text).calls), trust)


_EXAMPLES = {"with_projection": "with_projection(lenet5, size=256)", "with_lora": "with_lora(mlp, rank=8)"}


def _model(call: Call, trust: Trust) -> Builder:
    if (around := key_of(call.name)) in AROUND:
        inner, *more = call.positional or (None,)
        if not isinstance(inner, Call) or more:
            raise UserError(
                f"{call}",
                expected=f"the model that it is put around, as in {_EXAMPLES[around]}",
                why="it is part of a model",
                fix="write that model first inside the brackets",
            )
        return AROUND[around](_model(inner, trust), **settings_of(call, AROUND[around], plain, skip=1))
    known = {key_of(name): name for name in MODELS}
    name = call.name if ":" in call.name else known.get(key_of(call.name), call.name)
    made = find(name, trust)
    refuse_positional(call, made, frozenset({"shape", "outputs"}))
    settings = {k: plain(k, v) for k, v in call.named.items()}
    checked_settings(name, made, settings)  # what cannot be is refused before the data are loaded
    return _Configured(name, settings)


@final
@dataclass(frozen=True, eq=False)  # the same only as itself, so that it can be looked up
class _Configured:
    """A model with its settings, built once the shape of the data is known."""

    name: str
    settings: Mapping[str, Any]

    def __call__(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return build(self.name, shape, outputs, **self.settings)


def task(text: str, trust: Trust = NOBODY) -> Task:
    """A task from its name and settings: `multilabel(k=3)`, `classification(metrics=[auc, mine:kappa])`.

    Args:
        text: them.
        trust: the modules that the user has named; no other one is imported for a loss or a metric.

    Raises:
        UserError: unknown names or settings, or paths that may not be imported.
    """
    call = Pipe.one(text).calls[0]
    if key_of(call.name) not in TASKS:
        raise unknown("task", call.name, TASKS)
    return make_from(call, TASKS[key_of(call.name)], functools.partial(_of_task, trust))


def _of_task(trust: Trust, name: str, value: Any) -> Any:
    """A setting of a task, in which an import path is a loss or a metric of the user's own."""
    if name == "metrics" and not isinstance(value, tuple):
        value = (value,)
    if isinstance(value, tuple):
        return tuple(_of_task(trust, "metric" if name == "metrics" else name, v) for v in value)
    path = value.name if isinstance(value, Call) else value
    if name not in ("metric", "loss_function") or not isinstance(path, str) or ":" not in path:
        return plain(name, value)
    found = imported(path, Wanted(what=name.replace("_function", "")), trust)
    if inspect.isclass(found):
        return make_from(value if isinstance(value, Call) else parse_call(path), found, plain)
    return plain(name, value) if isinstance(value, Call) and (value.named or value.positional) else found


def fleet(text: str, trust: Trust = NOBODY) -> Fleet:
    """A fleet from a source and parts after pipes: `tiers | markov(mean_on=600, mean_off=600) | budgets(levels=4)`.

    Args:
        text: them, each a name or an import path.
        trust: the modules that the user has named; no other one is imported.

    Raises:
        UserError: unknown names or settings, paths that may not be imported, or files that cannot be read; all of them.
    """
    wrong, made = Mistakes(), Fleet()
    for place, call in enumerate(Pipe.of(text).calls):
        with wrong.noted():
            if not place:
                made = _source_of_devices(call, text, trust)
                continue
            for part in _of_fleet(call, trust):
                made = made | part
    wrong.refuse()
    return made


_OWN_OF_FLEET = Wanted(
    what="part of a fleet",
    base=(Fleet, Devices, Links, Availability, Arrivals, Budgets),
    kind="Devices, Links, Availability, Arrivals or Budgets",
)


def _own_of_fleet(call: Call, trust: Trust) -> Any:
    return make_from(call, imported(call.name, _OWN_OF_FLEET, trust), plain)


def _source_of_devices(call: Call, text: str, trust: Trust) -> Fleet:
    key = key_of(call.name)
    if ":" in call.name:
        own = _own_of_fleet(call, trust)
        return own if isinstance(own, Fleet) else Fleet() | own
    if key in FLEETS:
        return make_from(call, FLEETS[key], plain)
    if key in DEVICES:
        return Fleet() | make_from(call, DEVICES[key], plain)
    if key in OF_FLEETS:
        raise UserError(
            f"{text!r} begins with a part, {call.name}",
            expected=f"a source first: {', '.join([*DEVICES, *FLEETS])}",
            why="a source says which devices there are; a part changes something about them",
            fix=f'write "uniform | {text}"',
        )
    raise unknown("fleet", call.name, [*DEVICES, *FLEETS])


def with_faults(made: Fleet, text: str) -> Fleet:
    """A fleet with more faults, from `crash=0.05, nan=0.01`: what is not named stays as the fleet has it."""
    call = Pipe.one(text, "faults").calls[0]
    if key_of(call.name) != "faults":
        raise UserError(
            f"faults {text!r}",
            expected="faults and how often, such as crash=0.05, nan=0.01",
            why="they are added to the fleet's",
            fix="leave out everything else; other parts go to the fleet, after pipes",
        )
    unsaid = [one.name for one in call.positional if isinstance(one, Call) and one == Call(one.name, (), {})]
    known = [field.name for field in fields(of_fleets.Faults)]
    for name in (*unsaid, *call.named):
        if key_of(name) not in known:
            raise unknown("fault", name, known)
    if unsaid and len(unsaid) == len(call.positional):
        given = [*(f"{name}=0.05" for name in unsaid), *(f"{name}={value}" for name, value in call.named.items())]
        raise UserError(
            f"faults {', '.join(unsaid)} without how often",
            expected="a name and a probability, such as crash=0.05, nan=0.01",
            why="a fault befalls each visit with that probability",
            fix=f'write "{", ".join(given)}", for example',
        )
    return made | replace(made.faults, **settings_of(call, of_fleets.Faults, plain))


def _of_fleet(call: Call, trust: Trust) -> Iterable[object]:
    """What stands after a pipe in a fleet: one part, or those that a trace has recordings of."""
    key = key_of(call.name)
    if ":" in call.name:
        return (_own_of_fleet(call, trust),)
    if key in OF_FLEETS:
        return (make_from(call, OF_FLEETS[key], plain),)
    if key == "trace":
        parts: Iterable[object] = make_from(call, recordings, plain)
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
    if key_of(call.name) not in known:
        return None
    return UserError(
        f"{call.name} in {here}",
        expected=f"parts of {here}; {call.name} is one of {there}",
        why="a method is what is compared, and a fleet what it cannot change",
        fix=f"move it to {there}",
    )


def _inside(trust: Trust) -> Callable[[str, Any], Any]:
    return functools.partial(_value, trust)


def _value(trust: Trust, name: str, value: Any) -> Any:
    """A setting of a recipe or a part. Some settings are things with a name of their own; elsewhere a name is text."""
    known = _INSIDE.get(name)
    if isinstance(value, tuple):
        return tuple(_value(trust, name, v) for v in value)
    if isinstance(value, Call) and ":" in value.name:
        return _own(value, trust)
    if known is None or not isinstance(value, (str, Call)):
        return plain(name, value)
    call = value if isinstance(value, Call) else parse_call(value)
    if key_of(call.name) in known:
        return make_from(call, known[key_of(call.name)], plain)
    if name == "pacing":  # a family's name, where the recipe makes the pacing
        return plain(name, value)
    raise unknown(name, call.name, known)
