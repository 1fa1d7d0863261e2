"""What cannot be combined in a recipe, and why."""

from __future__ import annotations

import math
from collections.abc import Callable

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.compression import Lossy
from polyrhythm.methods.correction import DRIFT
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.participation.critical_periods import HOW_MANY
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.personal.scope import Everything
from polyrhythm.methods.release.base import OverSelect
from polyrhythm.methods.release.robust import ClipUpdates, Middle
from polyrhythm.methods.rules_of_adapters import (
    adapters_are_averaged_once,
    adapters_are_of_one_version,
    factors_that_rest_are_not_sent,
    last_ranks_are_pulled_along_no_gradient,
    models_lie_over_one_base,
    new_adapters_have_no_past,
    ranks_are_of_both_factors,
)
from polyrhythm.methods.rules_of_own import (
    coins_are_for_versions,
    no_factor_of_personal_gradients,
    one_part_goes_along,
    phases_are_of_two_parts,
    phases_have_no_early_end,
    privacy_is_accounted_for,
    prototypes_are_made,
    steps_are_along_gradients,
)
from polyrhythm.methods.rules_of_parts import parts_of_models_are_enough
from polyrhythm.methods.rules_of_sums import sums_have_enough
from polyrhythm.methods.server_step import ServerStep, Sgd
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import Equal, PerStep
from polyrhythm.methods.work.base import WorkModifier
from polyrhythm.methods.work.budgets import EPSILON
from polyrhythm.methods.work.skip_and_estimate import SkipAndResendModel, Skipping


def _one_memory_of_drift(recipe: Answers) -> None:
    memories = [part for part in recipe.parts() if part.decides == DRIFT]
    if len(memories) > 1:
        first, second = memories[0].label(), memories[1].label()
        raise UserError(
            f"{first} and {second} in one recipe",
            expected="at most one of control_variates, variance_reduction, dynamic_regularisation and client_momentum",
            why="each learns the client's drift from the path it took, and would take the other's correction for drift",
            fix=f"keep {first} or {second}",
        )


def _travel_is_exact(recipe: Answers) -> None:
    needing = [m.label() for m in recipe.parts() if "travel" in m.needs()]
    if not needing:
        return
    optimiser = recipe.optimiser
    if not optimiser.linear:
        raise UserError(
            f"{needing[0]} with {optimiser.label()}",
            expected="plain or momentum SGD as the local optimiser",
            why=f"{needing[0]} divides by the effective sum of local steps, which Adam's path does not have",
            fix="use optimiser='sgd', or a method without it (fedprox, moon, feddyn, fedadam) with local Adam",
        )
    if optimiser.keep_state and isinstance(optimiser, LocalSgd) and optimiser.momentum:
        raise UserError(
            f"{needing[0]} with momentum kept over visits (keep_state=true)",
            expected="momentum that starts afresh with every visit",
            why="the path of a visit would depend on gradients of earlier ones, so no sum of steps divides it exactly",
            fix="set keep_state=false or momentum=0",
        )
    pull = sum(correction.pull for correction in recipe.corrections)
    back = optimiser.lr * (pull + optimiser.weight_decay)
    if back >= 1:
        raise UserError(
            f"{needing[0]} with lr * (pull + weight_decay) = {optimiser.lr:g} * ({pull:g} + "
            f"{optimiser.weight_decay:g}) = {back:g}",
            expected="less than 1",
            why=f"every step would undo all of the way so far, and {needing[0]} divides by that way",
            fix="lower lr, or the strength of prox, of dynamic_regularisation or of weight decay",
        )


def _moments_can_be_shared(recipe: Answers) -> None:
    sharing = next((part.label() for part in recipe.corrections if isinstance(part, SharedMoments)), "")
    optimiser = recipe.optimiser
    if sharing and not optimiser.shareable:
        raise UserError(
            f"{sharing} with {optimiser.label()}",
            expected="local_amsgrad as the local optimiser",
            why="its moments are what clients share, and another optimiser has others, or none",
            fix="pipe local_amsgrad(lr=0.01) onto the recipe as well, or leave shared_moments out",
        )
    if sharing and recipe.scope != Everything():
        scope = recipe.scope.label()
        raise UserError(
            f"{sharing} with {scope}",
            expected="one of the two",
            why="moments are means over clients of every parameter, and those of what is personal are a client's own",
            fix=f"leave {sharing} out, or {scope}",
        )
    if sharing and optimiser.keep_state:
        raise UserError(
            f"{sharing} with moments kept over visits (keep_state=true)",
            expected="keep_state=false",
            why="every visit begins with the server's moments, so those kept would be thrown away",
            fix="set keep_state=false",
        )


def _no_scaling_twice(recipe: Answers) -> None:
    labels = [s.label() for s in recipe.scalings]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(
                f"{label} twice in one recipe",
                expected="each scaling once",
                why="scales multiply, so its effect would be squared",
                fix=f"leave one {label} out",
            )


def _local_regime_shares_nothing(recipe: Answers) -> None:
    if recipe.regime != "local":
        return
    shared = [m.label() for m in recipe.parts() if m.of_a_release or (isinstance(m, ServerStep) and m != Sgd())]
    if shared:
        raise UserError(
            f"{shared[0]} in a recipe where nothing is exchanged",
            expected="only what a client does on its own",
            why="in local_only there is no release, so nothing would ever come of it",
            fix=f"leave {shared[0]} out, or start from fedavg",
        )


def _one_part_decides(recipe: Answers) -> None:
    decided: dict[str, str] = {}
    for part in recipe.parts():
        question = _question(part)
        if not question or question == DRIFT:  # which has words of its own
            continue
        if question in decided:
            raise UserError(
                f"{decided[question]} and {part.label()} in one recipe",
                expected=f"one part that decides {question}",
                why="they would contradict each other",
                fix=f"leave {decided[question]} or {part.label()} out",
            )
        decided[question] = part.label()


def _question(part: Mechanism) -> str:
    """The question that a part alone answers, in words."""
    if isinstance(part, WorkModifier) and not part.decides:
        return "when a client stops" if part.may_stop else "whether a client skips" if part.substitutes else ""
    return part.decides


def _turns_are_the_servers(recipe: Answers) -> None:
    delayed = [p.label() for p in recipe.parts() if isinstance(p, SampledStaleness)]
    turning = [p.label() for p in recipe.parts() if isinstance(p, Skipping) and p.by_versions]
    if delayed and turning:
        raise UserError(
            f"{turning[0]} by round robin over versions with {delayed[0]}",
            expected='turns="visits", or another schedule',
            why="a client that is sent an old version would take that version's turn again, and miss its own",
            fix='set turns="visits" or schedule="ad_hoc"',
        )


def _last_model_has_no_steps(recipe: Answers) -> None:
    if any(isinstance(p, SkipAndResendModel) for p in recipe.parts()) and any(
        isinstance(s, PerStep) for s in recipe.scalings
    ):
        raise UserError(
            "per_step with skip_and_resend_model",
            expected="skip_and_estimate, whose movement remembers its steps",
            why="the way from the received model to a client's old one was not made in a number of local steps",
            fix="use skip_and_estimate or skip_silently, or leave per_step out",
        )


def _a_model_is_sent_whole(recipe: Answers) -> None:
    if isinstance(recipe.compression, Lossy) and any(isinstance(p, SkipAndResendModel) for p in recipe.parts()):
        raise UserError(
            f"{recipe.compression.label()} with skip_and_resend_model",
            expected="skip_and_estimate, whose movement is what the client has sent before",
            why="compressed, the way from the received model to an old one would not lead there",
            fix=f"use skip_and_estimate or skip_silently, or leave {recipe.compression.label()} out",
        )


def _places_are_filled_for_a_buffer(recipe: Answers) -> None:
    if recipe.filling and recipe.release.waits_for_all and recipe.due is None:
        raise UserError(
            f"{recipe.filling} with {recipe.release.label()}",
            expected="a release that does not wait for everybody, such as buffer(size=5)",
            why="somebody is always at work, so that the server would never step",
            fix=f"pipe buffer(size=5) onto the recipe, or leave {recipe.filling} out",
        )


def _cohorts_are_chosen_whole(recipe: Answers) -> None:
    if recipe.filling and recipe.participation.of_rounds:
        chosen = recipe.participation.label()
        raise UserError(
            f"{recipe.filling} with {chosen}",
            expected="rounds, or a buffer without it",
            why=f"places are filled one by one, and {chosen} weighs the clients of a cohort against each other",
            fix=f"leave {recipe.filling} out, or invite by uniform, loss_sampling or utility_sampling",
        )


def _rounds_are_over_selected(recipe: Answers) -> None:
    if not any(isinstance(p, OverSelect) for p in recipe.parts()):
        return
    other = recipe.filling or (recipe.release.label() if recipe.release.carries_over else "")
    if other:
        raise UserError(
            f"{other} with over_select",
            expected="one of the two",
            why="over-selection gives up whom a round does not need, and there are no rounds here: late updates count",
            fix=f"leave over_select out, or {other}",
        )


def _nobody_else_changes_the_mean_of_all(recipe: Answers) -> None:
    changing = [p for p in recipe.parts() if p.takes_mean]
    one = next((p for p in changing if p.of_all_clients), None)
    other = next((p for p in changing if one is not None and p.decides != one.decides), None)
    if one is not None and other is not None:
        raise UserError(
            f"{one.label()} with {other.label()}",
            expected="one of the two",
            why=f"the one steps on what all clients said last, and {other.label()} changes the mean of a release",
            fix=f"leave {one.label()} out, or {other.label()}",
        )


def _outliers_have_no_other_way_in(recipe: Answers) -> None:
    robust = next((p for p in recipe.parts() if isinstance(p, (ClipUpdates, Middle))), None)
    other = next((p for p in recipe.parts() if p.past_the_mean), None)
    if robust is not None and other is not None:
        raise UserError(
            f"{robust.label()} with {other.label()}",
            expected="one of the two",
            why=f"{other.label()} adds what clients sent to the step by a way of its own, past {robust.label()}",
            fix=f"leave {robust.label()} out, or {other.label()}",
        )


def _memory_is_of_clients(recipe: Answers) -> None:
    of_all = next((p for p in recipe.parts() if p.of_all_clients), None)
    if of_all is not None and not isinstance(recipe.sharing, Equal):
        raise UserError(
            f"{of_all.label()} with {recipe.sharing.label()}",
            expected="clients that weigh equally",
            why="the mean is over all clients, and how much data those have that were not heard yet nobody has said",
            fix="pipe equal onto the recipe as well",
        )


def _nobody_is_called(recipe: Answers) -> None:
    sizing = [p.label() for p in recipe.parts() if p.decides == HOW_MANY]
    if sizing and not recipe.participation.invites:
        raise UserError(
            f"{sizing[0]} with on_arrival",
            expected="a participation that invites, such as rolling(concurrency=10)",
            why="it decides how many are invited, and here nobody is",
            fix=f"leave {sizing[0]} out, or on_arrival",
        )


def _enough_can_report(recipe: Answers) -> None:
    least, most = recipe.releasing.least, math.ceil(recipe.cohort * recipe.releasing.surplus - EPSILON)
    grows = any(p.decides == HOW_MANY for p in recipe.parts())
    if least > most and not recipe.fills_places and not grows:
        raise UserError(
            f"min_reports(count={least}) where a version invites {most}",
            expected=f"{most} or fewer",
            why="every version would be skipped, and the model would stay as it is",
            fix=f"min_reports(count={most}), or a larger cohort",
        )


Rules = tuple[Callable[[Answers], None], ...]


def keep_to(rules: Rules, recipe: Answers) -> None:
    """Goes on if a recipe breaks none of the rules.

    Raises:
        UserError: it does; all of them.
    """
    wrong = Mistakes()
    for rule in rules:
        try:  # not `noted`, whose context costs more than most rules
            rule(recipe)
        except UserError as error:
            wrong.add(error)
    wrong.refuse()


RULES: Rules = (
    _one_memory_of_drift,
    _travel_is_exact,
    _no_scaling_twice,
    _local_regime_shares_nothing,
    _one_part_decides,
    _last_model_has_no_steps,
    _a_model_is_sent_whole,
    _turns_are_the_servers,
    _nobody_else_changes_the_mean_of_all,
    _outliers_have_no_other_way_in,
    _nobody_is_called,
    phases_have_no_early_end,
    no_factor_of_personal_gradients,
    one_part_goes_along,
    steps_are_along_gradients,
    parts_of_models_are_enough,
    adapters_are_averaged_once,
    adapters_are_of_one_version,
    new_adapters_have_no_past,
    models_lie_over_one_base,
    factors_that_rest_are_not_sent,
    ranks_are_of_both_factors,
    last_ranks_are_pulled_along_no_gradient,
)
# What the next part on the pipe may still put right, so it is asked of the whole.
OF_THE_WHOLE: Rules = (
    _moments_can_be_shared,
    _places_are_filled_for_a_buffer,
    _cohorts_are_chosen_whole,
    _rounds_are_over_selected,
    _memory_is_of_clients,
    coins_are_for_versions,
    privacy_is_accounted_for,
    sums_have_enough,
    _enough_can_report,
    phases_are_of_two_parts,
    prototypes_are_made,
)
