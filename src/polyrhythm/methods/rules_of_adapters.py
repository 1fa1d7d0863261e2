"""What cannot be combined with how adapters are averaged, or with which of their factors is trained, and why."""

from __future__ import annotations

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import SubstituteKind
from polyrhythm.methods.adapters.base import AdapterAverage
from polyrhythm.methods.adapters.factors import AlternateFactors
from polyrhythm.methods.answers import Answers
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.personal.models import GlobalModel
from polyrhythm.methods.personal.scope import Everything
from polyrhythm.methods.release.robust import ClipUpdates, Middle
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.work.base import OfWork, WorkModifier


def _average(recipe: Answers) -> AdapterAverage | None:
    return next((p for p in recipe.modifiers if isinstance(p, AdapterAverage)), None)


def adapters_are_averaged_once(recipe: Answers) -> None:
    """Refuses what changes the mean of updates beside a part that says what becomes of adapters."""
    average = _average(recipe)
    if average is None:
        return
    own = average.label()
    if recipe.server_step != Sgd():
        raise UserError(
            f"{own} with {recipe.server_step.text()}",
            expected="server_sgd(lr=1), which takes what it is given",
            why=f"{own} says where adapters are in the next version, and another step would not lead there",
            fix=f"leave {recipe.server_step.label()} out, or {own}",
        )
    changing = (
        *(p for p in recipe.parts() if p is not average and p.takes_mean),
        *(p for p in recipe.parts() if isinstance(p, (Middle, ClipUpdates))),
        *recipe.scalings,
    )
    if changing:
        other = changing[0].label()
        raise UserError(
            f"{own} with {other}",
            expected="one of the two",
            why=f"{other} changes or reads a mean of updates, and {own} steps on products of factors, which are none",
            fix=f"leave {own} out, or {other}",
        )
    if not recipe.capacity.whole and recipe.capacity.cuts != "ranks":
        raise UserError(
            f"{own} with {recipe.capacity.label()}",
            expected="rank_prefix, or clients that train all of the model",
            why="factors of which clients hold other parts than ranks have no product",
            fix=f"use rank_prefix, or leave {recipe.capacity.label()} out",
        )
    if recipe.scope != Everything():
        raise UserError(
            f"{own} with {recipe.scope.label()}",
            expected="one of the two",
            why="what stays at clients is in no product that the server knows",
            fix=f"leave {own} out, or {recipe.scope.label()}",
        )


def adapters_are_of_one_version(recipe: Answers) -> None:
    """Refuses updates that began at other versions, where factors of one version are put together."""
    part = _average(recipe) or next((p for p in recipe.modifiers if isinstance(p, AlternateFactors)), None)
    if part is None:
        return
    delayed = next((p.label() for p in recipe.parts() if isinstance(p, SampledStaleness)), "")
    late = delayed or recipe.filling or (recipe.release.label() if recipe.release.carries_over else "")
    if late:
        raise UserError(
            f"{part.label()} with {late}",
            expected="rounds: everybody begins at the same version",
            why="it puts factors together that clients have begun from the same ones",
            fix=f"leave {late} out, or {part.label()}",
        )


def new_adapters_have_no_past(recipe: Answers) -> None:
    """Refuses what clients remember in coordinates of adapters that begin each version in other ones.

    A last local model that is looked at, as MOON and some curricula do, is no such thing: it computes what it did.
    """
    average = _average(recipe)
    if average is None or not average.new_coordinates:
        return
    own = average.label()
    kept = next((p.label() for p in recipe.parts() if p is not average and _remembers(p)), "")
    if not kept and recipe.compression.remembers:
        kept = recipe.compression.label()
    if not kept and recipe.optimiser.keep_state:
        kept = f"{recipe.optimiser.label()}(keep_state=true)"
    if not kept and recipe.personal != GlobalModel():
        kept = recipe.personal.label()
    if kept:
        raise UserError(
            f"{own} with {kept}",
            expected="residual_in_base, under which adapters go on from version to version",
            why=f"adapters begin each version in other coordinates, and {kept} goes on from an earlier one",
            fix=f"use residual_in_base, or leave {kept} out",
        )


def _remembers(part: Mechanism) -> bool:
    """Whether it keeps vectors from one visit to the next, to be added to others."""
    return part.extra_vectors > 0 or part.of_all_clients or part.past_the_mean or "movement" in _sent_again(part)


def _sent_again(part: Mechanism) -> frozenset[SubstituteKind]:
    return part.substitutes if isinstance(part, OfWork) else frozenset()


def models_lie_over_one_base(recipe: Answers) -> None:
    """Refuses a model that is sent again, where what lies under its adapters has changed since."""
    again = next((p.label() for p in recipe.parts() if "model" in _sent_again(p)), "")
    if recipe.moves_base and again:
        raise UserError(
            f"{recipe.moves_base} with {again}",
            expected="skip_silently, with which a client that skips is left out",
            why="adapters of an earlier version were trained over another base, and are no such model over this one",
            fix=f"use skip_silently, or leave {again} out",
        )


def factors_that_rest_are_not_sent(recipe: Answers) -> None:
    """Refuses what brings in the factor that rests, or compares versions of which each has trained another one."""
    alternating = next((p for p in recipe.modifiers if isinstance(p, AlternateFactors)), None)
    if alternating is None:
        return
    own = alternating.label()
    again = next((p.label() for p in recipe.parts() if _sent_again(p) - {"silence"} or p.of_all_clients), "")
    if again:
        raise UserError(
            f"{own} with {again}",
            expected="skip_silently, with which a client that skips is left out",
            why=f"what {again} takes from an earlier version may be of the factor that rests in this one",
            fix=f"use skip_silently or freeze_factor, or leave {again} out",
        )
    comparing = next((p for p in recipe.modifiers if isinstance(p, CriticalPeriods) and p.act), None)
    if comparing is not None and not isinstance(comparing.detector, FisherTrace):
        raise UserError(
            f"{own} with {comparing.label()}(detector={comparing.detector.label()})",
            expected="detector=fisher_trace, whose gradients are of both factors; or act=false, to watch alone",
            why="one version's number is of B and the next one's of A, so that its growth says which of them it was",
            fix="set detector=fisher_trace, use freeze_factor, or leave critical_periods out",
        )


def ranks_are_of_both_factors(recipe: Answers) -> None:
    """Refuses ranks by client where one factor of adapters stays as it was drawn."""
    frozen = next((p.label() for p in recipe.modifiers if isinstance(p, WorkModifier) and p.freezes is not None), "")
    if frozen and recipe.capacity.cuts == "ranks" and not recipe.capacity.whole:
        own = recipe.capacity.label()
        raise UserError(
            f"{own} with {frozen}",
            expected="adapters of which both factors learn",
            why="a client of a smaller rank has fewer rows of A and columns of B, and a frozen A is held whole",
            fix=f"leave {own} out, or {frozen}",
        )


def last_ranks_are_pulled_along_no_gradient(recipe: Answers) -> None:
    """Refuses what divides by the sum of local steps, where the last ranks of adapters decay."""
    capacity = recipe.capacity
    dividing = next((p.label() for p in recipe.parts() if "travel" in p.needs()), "")
    if isinstance(capacity, RankPrefix) and capacity.tail_decay and dividing:
        raise UserError(
            f"{capacity.label()}(tail_decay={capacity.tail_decay:g}) with {dividing}",
            expected="tail_decay=0, or a method that does not divide by the sum of local steps",
            why="the last ranks are pulled along no gradient of the data, which that sum does not know of",
            fix=f"leave tail_decay or {dividing} out",
        )
