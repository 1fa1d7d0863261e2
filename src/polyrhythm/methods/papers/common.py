"""The settings that every recipe takes by the same names, with one shared set of defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict, cast

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.methods.local.optimisers import LocalAdam, LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Schedule
from polyrhythm.methods.participation.base import Uniform
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Epochs, Steps, Work


class Common(TypedDict, total=False):
    """Settings of every recipe.

    cohort: clients per version (10).
    epochs: passes over a client's samples per visit (2); fractions allowed. Give `epochs` or `steps`.
    steps: optimiser steps per visit, going on through the data from visit to visit.
    batch: samples per step (10); None for all of a client's samples.
    lr: local learning rate (0.1; 0.001 for Adam).
    momentum: local momentum (0).
    nesterov: Nesterov's form of it (False).
    weight_decay: local L2 strength (0).
    clip: largest gradient norm (None: no clipping).
    schedule: of the local rate (constant).
    drop_last: leaves out the last, short batch (False).
    optimiser: "sgd" (default), "adam" or "adamw".
    keep_state: optimiser state persists over a client's visits (False).
    """

    cohort: int
    epochs: float
    steps: int
    batch: int | None
    lr: float
    momentum: float
    nesterov: bool
    weight_decay: float
    clip: float | None
    schedule: Schedule
    drop_last: bool
    optimiser: Literal["sgd", "adam", "adamw"]
    keep_state: bool


Preset = Literal["paper"] | None

DEFAULTS = Common(cohort=10, epochs=2.0, batch=10)


def recipe(title: str, common: Common, *, preset: Preset = None, paper: Common | None = None, **slots: Any) -> Recipe:
    """A recipe from the common settings and the slots that make the method.

    Args:
        title: the method's name.
        common: what the caller gave.
        preset: "paper" puts the paper's own settings under what the caller gave.
        paper: those settings.
        slots: answers that differ from FedAvg's, by field of `Recipe`.

    Raises:
        UserError: an unknown setting, both epochs and steps, a setting that the local optimiser does not have, or a
            preset that does not exist.
    """
    given = dict(common)
    for name in given:
        if name not in Common.__annotations__:
            wrong = unknown("setting", name, Common.__annotations__, where=title)
            own = f"help(pr.{title}) lists them"
            raise UserError(
                wrong.found,
                expected=f"a setting of {title} alone, or {wrong.expected}",
                why=wrong.why,
                fix=wrong.fix if wrong.fix.startswith("did you mean") else own,
            )
    if "epochs" in given and "steps" in given:
        raise UserError(
            f"{title}: epochs={given['epochs']} and steps={given['steps']}",
            expected="epochs or steps",
            why="each says how much a client does, and they disagree for clients of unequal size",
            fix="leave one of them out",
        )
    if preset == "paper" and paper is not None:
        given = _under(paper, given)
    elif preset is not None:
        raise UserError(
            f"{title}: preset={preset!r}",
            expected="preset='paper', for a recipe whose paper states its settings"
            if paper is None
            else "preset='paper'",
            why="a preset is a paper's own set of settings",
            fix="leave preset out",
        )
    settings = cast(Common, _under(DEFAULTS, given))
    slots.setdefault("participation", Uniform(cohort=settings["cohort"]))
    return Recipe(
        title=title,
        work=_work(settings),
        optimiser=_optimiser(title, given, common),
        schedule=settings.get("schedule", Constant()),
        batch=settings["batch"],
        drop_last=settings.get("drop_last", False),
        **slots,
    )


def at_work(title: str, concurrency: int | None, common: Common) -> Common:
    """The common settings with a concurrency, which is the cohort under another name.

    Raises:
        UserError: both are given.
    """
    if concurrency is None:
        return common
    if "cohort" in common:
        raise UserError(
            f"{title}: concurrency={concurrency} and cohort={common['cohort']}",
            expected="one of them",
            why="both say how many clients are at work",
            fix="leave one of them out",
        )
    return cast(Common, {**common, "cohort": concurrency})


def rolling(made: Recipe) -> Recipe:
    """The recipe with its cohort at work all the time."""
    return replace(made, modifiers=(*made.modifiers, Rolling()))


def _under(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The base settings, overridden by those given; steps and epochs exclude each other."""
    other = {"steps": "epochs", "epochs": "steps"}
    hidden = {other[name] for name in given if name in other}
    return {k: v for k, v in base.items() if k not in hidden} | dict(given)


def _work(settings: Common) -> Work:
    return Steps(steps=settings["steps"]) if "steps" in settings else Epochs(epochs=settings["epochs"])


def _optimiser(title: str, given: Mapping[str, Any], asked: Collection[str]) -> LocalOptimiser:
    """From all settings given, some by a preset; `asked` are those that the caller gave."""
    kind = given.get("optimiser", "sgd")
    classes = {"sgd": LocalSgd, "adam": LocalAdam, "adamw": LocalAdam}
    if kind not in classes:
        raise unknown("optimiser", str(kind), classes, where=title)
    names = ("lr", "weight_decay", "clip", "keep_state", "momentum", "nesterov")
    settings = {name: given[name] for name in names if name in given}
    if kind == "sgd":
        return LocalSgd(**settings)
    foreign = [name for name in ("momentum", "nesterov") if settings.pop(name, None) and name in asked]
    if foreign:
        raise UserError(
            f"{title}: {foreign[0]} with optimiser={kind!r}",
            expected="momentum only with optimiser='sgd'",
            why="Adam has moments of its own, so the setting would be ignored",
            fix=f"leave {foreign[0]} out",
        )
    return LocalAdam(decoupled=kind == "adamw", **settings)
