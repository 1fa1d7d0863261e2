"""What cannot stand in one recipe with parts of a model that are a client's own, or with privacy of clients."""

from __future__ import annotations

from polyrhythm.base.errors import UserError
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.participation.critical_periods import HOW_MANY
from polyrhythm.methods.participation.cycle import Cycle
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.scope import Everything
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.privacy.laws import law_of
from polyrhythm.methods.release.base import OverSelect
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.weighing import BySamples, Equal, Sharing
from polyrhythm.methods.work.base import OfWork


def coins_are_for_versions(recipe: Answers) -> None:
    if not recipe.participation.may_be_empty:
        return
    coins = recipe.participation.label()
    sizing = next((p.label() for p in recipe.parts() if p.decides == HOW_MANY), "")
    surplus = next((p.label() for p in recipe.parts() if isinstance(p, OverSelect)), "")
    if other := recipe.filling or sizing or surplus:
        raise UserError(
            f"{other} with {coins}",
            expected="one of the two",
            why="a coin decides for each client whether it is in a version: there is no cohort to fill or resize",
            fix=f"leave {other} out, or take uniform in place of {coins}",
        )


def privacy_is_accounted_for(recipe: Answers) -> None:
    if not recipe.releasing.private:
        return
    law_of(recipe)
    weighs = recipe.sharing
    for _, dp in recipe.of(Dp):
        _weighs_alike(dp, weighs)
        if dp.correlates:
            _in_turns(dp, recipe)


def _in_turns(dp: Dp, recipe: Answers) -> None:
    other, why, fix = "", "", "leave bands out"
    sizing = next((p.label() for p in recipe.parts() if p.decides == HOW_MANY or isinstance(p, OverSelect)), "")
    if not isinstance(recipe.participation, Cycle):
        other, fix = recipe.participation.label(), "pipe cycle(cohort=…) onto the recipe, or leave bands out"
        why = "noise that is taken back later hides only clients whose visits are so many versions apart"
    elif recipe.fills_places or not recipe.release.waits_for_all:
        other, why = recipe.filling or recipe.release.label(), "an update may land in a version that is not its turn's"
    elif sizing:
        other, why = sizing, "a turn that grows begins before the one after it is over, and clients come back too early"
    elif isinstance(dp.clip, Adaptive):
        other, why = "an adaptive clip", "what is taken back later must be as long as what was added"
    if other:
        raise UserError(
            f"dp(bands={dp.bands}) with {other}", expected="cycle, in rounds, and a fixed clip", why=why, fix=fix
        )


def _weighs_alike(dp: Dp, weighs: Sharing) -> None:
    if dp.cap is None and not isinstance(weighs, Equal):
        raise UserError(
            f"dp with {weighs.label()}",
            expected="clients that weigh equally, or a cap",
            why="one client may move the mean by no more than another, however much data it holds",
            fix="pipe equal onto the recipe as well, or give dp(cap=…), samples beyond which a client counts no more",
        )
    if dp.cap is not None and not isinstance(weighs, BySamples):
        raise UserError(
            f"dp(cap={dp.cap}) with {weighs.label()}",
            expected="by_samples, or no cap",
            why="the cap bounds what a client's number of samples does, and here that does nothing",
            fix="leave cap out",
        )


def phases_have_no_early_end(recipe: Answers) -> None:
    phases = next((p.label() for p in recipe.parts() if isinstance(p, PersonalFirst)), "")
    if phases and recipe.may_stop:
        stopping = next(part.label() for part in recipe.parts() if isinstance(part, OfWork) and part.may_stop)
        raise UserError(
            f"{stopping} with {phases}",
            expected="one of the two",
            why="an early end is judged by how the representation drifts, which it does not while the head is trained",
            fix=f"leave {stopping} out, or {phases}",
        )


def no_factor_of_personal_gradients(recipe: Answers) -> None:
    if recipe.scope != Everything() and any(isinstance(part, ClientMomentum) for part in recipe.parts()):
        label, scope = ClientMomentum.label(), recipe.scope.label()
        raise UserError(
            f"{label} with {scope}",
            expected="one of the two",
            why="it takes only a share of each gradient, and the rest from the server, which knows nothing of what is "
            "personal: that would learn more slowly and no more",
            fix=f"leave {label} out, or {scope}",
        )


def steps_are_along_gradients(recipe: Answers) -> None:
    own = recipe.personal
    label = own.label()
    asking = next((part.label() for part in recipe.parts() if "travel" in part.needs()), "")
    if asking and (own.bends or own.moves):
        elsewhere = "they go elsewhere" if own.bends else "an update is more than what they went"
        raise UserError(
            f"{asking} with {label}",
            expected="one of the two",
            why=f"{asking} divides by the sum of local steps, as if each were along the gradient at the weights; under "
            f"{label} {elsewhere}",
            fix=f"leave {asking} out, or {label}, or take personal_copy, which does not change local steps",
        )
    term = next((part.label() for part in recipe.corrections if part.layers is not None), "")
    if own.bends and (term or recipe.may_stop):
        other = term or next(part.label() for part in recipe.parts() if isinstance(part, OfWork) and part.may_stop)
        raise UserError(
            f"{other} with {label}",
            expected="one of the two",
            why=f"{other} looks at representations under the local weights, and {label} takes gradients elsewhere",
            fix=f"leave {other} out, or {label}",
        )


def one_part_goes_along(recipe: Answers) -> None:
    phases = next((p.label() for p in recipe.parts() if isinstance(p, PersonalFirst)), "")
    if phases and (recipe.personal.gradients > 1 or recipe.personal.bends):
        label = recipe.personal.label()
        raise UserError(
            f"{label} with {phases}",
            expected="one of the two",
            why=f"each step of {label} is of the whole model, and in {phases} a part of it is held",
            fix=f"leave {label} out, or {phases}",
        )


def prototypes_are_made(recipe: Answers) -> None:
    wanted, own = recipe.personal.asks, recipe.personal.label()
    if wanted and all(part.label() != wanted for part in recipe.parts()):
        raise UserError(
            f"{own} without {wanted}",
            expected=f"{wanted}, which makes what {own} compares with",
            why="there would be nothing to compare a sample with",
            fix=f"pipe {wanted} onto the recipe as well, or leave {own} out",
        )


def phases_are_of_two_parts(recipe: Answers) -> None:
    phases = next((p.label() for p in recipe.parts() if isinstance(p, PersonalFirst)), "")
    if phases and recipe.scope == Everything():
        raise UserError(
            f"{phases} in a recipe in which all of the model is shared",
            expected="a personal part, which is trained first",
            why="there would be nothing to train in the first phase, and nothing to hold in the second",
            fix=f"pipe personal_layers(layers=['head']) onto the recipe as well, or leave {phases} out",
        )
