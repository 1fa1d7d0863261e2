"""What ends a run, and whether it ever would: what can never be reached is refused before the first round."""

from __future__ import annotations

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.federation import Federation
from polyrhythm.experiments.settings import Until
from polyrhythm.fleet import FixedLinks, Fleet, Uniform
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.metrics import ONE_OF
from polyrhythm.models.task import Task


def check_end(rounds: int | None, until: Until, recipe: Recipe, fleet: Fleet) -> None:
    """Refuses a run that has no end, or none that it can reach."""
    if rounds is None and not until.anything:
        raise UserError(
            "no end: neither rounds nor until",
            expected="rounds=30, or until accuracy, time, updates, patience or epsilon",
            why="the run would go on for ever",
            fix="give rounds=30",
        )
    if until.metric and not until.judges:
        raise UserError(
            f"until metric = {until.metric!r} alone",
            expected="a goal for it, or patience",
            why="a metric by itself ends nothing",
            fix=f'give until={{metric = "{until.metric}", patience = 10}}, or leave the metric out',
        )
    ends = until.judges or until.updates or until.epsilon
    if rounds is None and not ends and _timeless(fleet):
        raise UserError(
            f"until time = {until.time:g} with a fleet whose visits take no time",
            expected="devices or links that take some",
            why="virtual time would never pass, and the run would go on for ever",
            fix="give rounds=30, or devices a speed",
        )
    if rounds is None and "total_rounds" in recipe.needs():
        raise UserError(
            f"{recipe.title} without rounds",
            expected="the number of rounds",
            why="a schedule of this recipe follows the whole length of the run, which must be known from the start",
            fix="give rounds as well; until still ends the run earlier",
        )


def check_budget(until: Until, recipe: Recipe) -> None:
    """Refuses a budget of privacy that nothing is spent of."""
    limit = until.epsilon
    if limit is not None and not recipe.releasing.private:
        raise UserError(
            f"until epsilon = {limit:g} with {recipe.title}",
            expected="a recipe with dp",
            why="nothing is spent where nobody is hidden, and the run would never end by it",
            fix="pipe dp(noise=1, clip=1, delta=1e-5) onto the recipe, or leave epsilon out",
        )


def check_metric(until: Until, federation: Federation, aim: Task) -> None:
    """Refuses an end by a metric that nobody measures, that has no value here, or only one."""
    metric, known = until.metric or aim.headline, ("loss", *aim.metrics_read)
    if metric not in known and not (metric.startswith(ONE_OF) and "class_accuracy" in getattr(aim, "metrics", ())):
        wanted = unknown("metric", metric, known, where=f"the task {aim.name}")
        raise UserError(wanted.found, expected=wanted.expected, why=wanted.why, fix=f"measure it: {_HOW}")
    held = "test" if federation.validation is None else "validation"
    judged = federation.test if federation.validation is None else federation.validation
    if metric in aim.constant(federation.outputs):
        found = f"{metric} of {federation.outputs} outputs, which is the same whatever a model gives"
    elif metric in aim.undefined(judged.targets, federation.outputs):
        found = f"{metric}, which has no value on the {held} data, whatever a model gives"
    else:
        return
    raise UserError(
        f"until goes by {found}",
        expected="a metric that tells versions apart",
        why="the run would end at once, or never by it",
        fix="choose another one with until metric, or other data to test on",
    )


_HOW = 'task=pr.task(…, metrics=(…)), in files task = "classification(metrics=[balanced_accuracy, auc])"'


def _timeless(fleet: Fleet) -> bool:
    """Whether no visit takes any time."""
    return fleet.links == FixedLinks() and fleet.devices == Uniform(seconds_per_sample=0.0)
