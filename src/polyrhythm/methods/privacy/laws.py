"""The law by which the clients of a recipe come into its versions, if there is one that can be accounted for."""

from __future__ import annotations

from typing import Protocol

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.methods.privacy.effects import Law, PrivacyEffect


class Part(Protocol):
    """A mechanism, as far as privacy goes."""

    def under_privacy(self) -> PrivacyEffect: ...

    @classmethod
    def label(cls) -> str: ...


class Method(Protocol):
    """A recipe, as far as privacy goes."""

    @property
    def regime(self) -> str: ...

    def parts(self) -> tuple[Part, ...]: ...


def law_of(recipe: Method, *, steady: bool = True) -> Law:
    """The law of a recipe's draws.

    Args:
        recipe: the method.
        steady: whether everybody is always there, and every visit comes to its end.

    Raises:
        UserError: a part that cannot be accounted for, or a combination of parts; all of them.
    """
    wrong = Mistakes()
    if recipe.regime != "federated":
        wrong.add(_not_federated(recipe.regime))
    effects = [(part.label(), part.under_privacy()) for part in recipe.parts()]
    for label, effect in effects:
        if effect.refused:
            wrong.add(_refused(label, effect))
    who, law = next(((label, e.draws) for label, e in effects if e.draws is not None), ("", "bounded"))
    if law == "fixed_size" and not steady:
        law = "bounded"
    for label, effect in effects:
        if not effect.refused and law in effect.excludes:
            wrong.add(_apart(who, label, effect))
    if any(law not in effect.keeps for _, effect in effects):
        law = "bounded"
    wrong.refuse()
    return law


def _refused(label: str, effect: PrivacyEffect) -> UserError:
    return UserError(
        f"{label} with dp",
        expected="parts whose effect on privacy can be accounted for",
        why=effect.words,
        fix=effect.fix or f"leave {label} out, or dp",
    )


def _apart(who: str, label: str, effect: PrivacyEffect) -> UserError:
    return UserError(
        f"{label} with {who} and dp",
        expected="one of the two",
        why=effect.words,
        fix=effect.fix or f"leave {label} out, or take uniform in place of {who}",
    )


def _not_federated(regime: str) -> UserError:
    found, why = (
        ("a recipe where nothing is exchanged", "nothing is released in which a client could be hidden")
        if regime == "local"
        else ("a recipe where one client holds all data", "there is nobody among whom it could be hidden")
    )
    return UserError(f"dp in {found}", expected="a federation", why=why, fix="start from fedavg, or leave dp out")
