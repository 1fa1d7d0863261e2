"""Sums that hide single updates, in an experiment: what can be known of them before the first round."""

from __future__ import annotations

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.vectors import Layout
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.report_metrics import GAUGES
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum import protocol, summands
from polyrhythm.methods.secure_sum.effects import NEEDS_SINGLE
from polyrhythm.methods.secure_sum.secagg import Ceremony


def check(experiment: Experiment, setup: Setup, layout: Layout) -> None:
    """Refuses an experiment whose updates cannot be summed as its recipe says, or that looks at single ones.

    Raises:
        UserError: it does; all of them.
    """
    recipe, wrong = experiment.recipe, Mistakes()
    if not recipe.sums_only:
        if any(experiment.fleet.faults.secagg_dropout):
            raise UserError(
                f"faults with secagg_dropout, and {recipe.title}",
                expected="a recipe with secagg",
                why="there are no stages at which a client could be gone",
                fix="pipe secagg onto the recipe, or leave secagg_dropout out; dropout loses clients in their work",
            )
        return
    shared = recipe.scope.shared(layout)
    if shared.buffers:
        wrong.add(
            UserError(
                f"secagg with a model that has buffers, such as {shared.buffers[0].name}",
                expected="a model whose weights are all that clients send",
                why="running statistics are a client's own, and would leave bare beside the sum",
                fix='norm="group" in place of BatchNorm, or personal_layers(layers=["norms"])',
            )
        )
    if looking := [name for name in experiment.evaluation.measure if name in GAUGES]:
        wrong.add(
            UserError(
                f"secagg with measure = {looking[0]}",
                expected="measures of models",
                why=f"{looking[0]} {NEEDS_SINGLE}",
                fix=f"leave {looking[0]} out",
            )
        )
    for refuses in (_check_sizes, _check_rounding, _check_library):
        try:
            refuses(recipe, setup, shared)
        except UserError as error:
            wrong.add(error)
    wrong.refuse()


def _check_rounding(recipe: Recipe, setup: Setup, shared: Layout) -> None:
    if recipe.releasing.private:
        summands.longest_of(recipe, setup, shared)


def _check_sizes(recipe: Recipe, setup: Setup, shared: Layout) -> None:
    summands.part_of(recipe).check_cohort(_expected(recipe, setup))
    summands.steps_of(recipe, setup)


def _check_library(recipe: Recipe, setup: Setup, shared: Layout) -> None:
    if summands.part_of(recipe).real:
        protocol.check_library()


def _expected(recipe: Recipe, setup: Setup) -> int:
    """How many are invited for a version, on average where coins decide."""
    if recipe.participation.may_be_empty:
        return round(recipe.participation.chance(setup.holders) * setup.holders)
    return recipe.most_in_a_sum(setup)


def ceremony(recipe: Recipe, setup: Setup, layout: Layout) -> Ceremony | None:
    """What travels around a visit, in a cohort as large as expected; None where single updates are sent.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of what travels.
    """
    if not recipe.sums_only:
        return None
    return summands.part_of(recipe).ceremony(max(2, _expected(recipe, setup)), layout.parameters)


def check_log() -> None:
    """Refuses a log of single updates.

    Raises:
        UserError: always.
    """
    raise UserError(
        "log_updates with secagg",
        expected="one of the two",
        why=f"the log {NEEDS_SINGLE}",
        fix="leave log_updates out: a run is replayed by computing its visits again",
    )
