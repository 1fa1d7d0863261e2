"""A recipe: one answer to each of the eight questions, plus the local optimiser. A paper is a recipe.

Recipes are built by piping parts onto a paper: `fedprox(mu=0.01) | server_adam(lr=0.01)`. A part takes the place of the
earlier part of a single-choice slot and says so; modifiers change what such a part decides; corrections chain; scales
multiply. What cannot work together is refused when it is put together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base import html
from polyrhythm.base.errors import UserError, in_short, not_called
from polyrhythm.base.settings import Settings
from polyrhythm.methods.answers import Answers, in_order
from polyrhythm.methods.capacity.base import Capacity
from polyrhythm.methods.compression import Compression
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.local.schedules import Schedule
from polyrhythm.methods.mechanism import Modifier
from polyrhythm.methods.order.base import Order
from polyrhythm.methods.participation.base import OfParticipation, Participation, ParticipationModifier
from polyrhythm.methods.personal.models import PersonalModel
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.release.base import ReleasePolicy
from polyrhythm.methods.rules import OF_THE_WHOLE, RULES, keep_to
from polyrhythm.methods.rules_of_sums import keeps_sums
from polyrhythm.methods.server_step import ServerStep
from polyrhythm.methods.weighing import Scaling, Sharing
from polyrhythm.methods.work.base import Work


@final
@dataclass(frozen=True, kw_only=True)
class Recipe(Answers):
    """A federated-learning method.

    Args:
        title: what people call it; changes nothing.
        participation: who is invited.
        work: how much a client does.
        order: which samples, in which order.
        corrections: in which direction; they chain.
        sharing: how much an update counts, normalised.
        scalings: by how much updates are scaled; they multiply.
        release: when the server steps.
        server_step: how it steps.
        compression: how updates travel to the server.
        scope: what is shared, and what stays at each client.
        personal: which model a client uses in the end.
        optimiser: the local optimiser.
        schedule: of the local learning rate.
        batch: samples per local step; None is all of a client's samples.
        drop_last: whether the last, short batch of a pass is left out. A client with less than one batch keeps it.
        regime: "federated"; or one of the two bounds: "centralised" (one client holds all the data) and "local" (nobody
            exchanges anything).
        modifiers: what changes who is invited, how much a client does, or when the server steps, and on what; in any
            order.
        capacity: which coordinates a client trains and sends.
        notices: what was replaced while the recipe was built; changes nothing.

    Raises:
        UserError: two parts that cannot work together, with the reason and what to use instead.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_to(RULES, self)

    def __or__(self, part: object) -> Recipe:
        """This recipe with one more part."""
        if isinstance(part, Recipe):
            invites = part.participation
            own = f"; or pipe only whom it invites, in Python pr.parts.{invites.label()}()"
            raise UserError(
                f"a whole recipe ({part.title}) on the right of a pipe",
                expected="one part, such as prox(mu=0.01) or server_adam(lr=0.01)",
                why="a recipe answers every question, so nothing of what stands on the left would remain",
                fix=f"start from {part.title} and pipe the parts of {self.title} onto it"
                + ("" if isinstance(invites, type(_DEFAULTS["participation"])) else own),
            )
        title = f"{self.title} | {part.label()}" if isinstance(part, Settings) else self.title
        if isinstance(part, Correction):
            return dataclasses.replace(self, corrections=(*self.corrections, part), title=title)
        if isinstance(part, Scaling):
            return dataclasses.replace(self, scalings=(*self.scalings, part), title=title)
        if isinstance(part, Modifier):
            return self._modified(part, title)
        for name, base in _SINGLE.items():
            if isinstance(part, base):
                return self._replace(name, part, title)
        raise UserError(
            f"{in_short(part)} on the right of a pipe",
            expected="a part of a recipe: a mechanism of one of the eight slots, a local optimiser or a schedule",
            why="only parts answer one of a recipe's questions",
            fix=not_called(part)
            or "see `polyrhythm methods` for all parts; in Python they are in pr.parts: pr.parts.prox()",
        )

    def whole(self) -> Recipe:
        """This recipe, with nothing more to come.

        Raises:
            UserError: a part that needs another one, which is not there.
        """
        keep_to(OF_THE_WHOLE, self)
        return self

    def called(self, title: str) -> Recipe:
        """The same recipe under a paper's name; what was piped to make it is not worth a notice."""
        return dataclasses.replace(self, title=title, notices=())

    @property
    def in_words(self) -> str:
        """Its parts as one writes them, without those and the settings that are at their defaults."""
        given = [part.text() for name, part in self._answered() if part != _DEFAULTS[name]]
        return ", ".join(given) or "everything at its default"

    def __repr__(self) -> str:
        return f"<Recipe {self.title}: {self.in_words}>"

    def _repr_html_(self) -> str:
        lines: dict[str, str] = {}
        for name, part in self._answered():
            said, label = part.text(every=True), _QUESTIONS[name]
            lines[label] = f"{lines[label]}, {said}" if label in lines else said
        lines["batch"] = "all of a client's samples" if self.batch is None else f"{self.batch:,} samples"
        return html.framed(html.facts(self.title, lines))

    def _answered(self) -> Iterator[tuple[str, Settings]]:
        """Every part with the setting that holds it, in the order of the eight questions."""
        for name in _QUESTIONS:
            held = getattr(self, name)
            if name == "capacity" and self.capacity.whole:
                continue
            for part in held if isinstance(held, tuple) else (held,):
                yield name, part

    def _replace(self, name: str, part: Settings, title: str) -> Recipe:
        before, modifiers = getattr(self, name), self.modifiers
        if isinstance(part, Participation):
            part = part.over(self.participation.resized(self.cohort))
            if not part.invites:  # then nothing fills places but who comes
                modifiers = tuple(m for m in modifiers if not (isinstance(m, OfParticipation) and m.fills_places))
        if name == "compression" and before != _DEFAULTS[name]:
            keeps_sums(before, part)
        notices, gone = self.notices, before
        if isinstance(part, Schedule):
            part, gone = part.over(self.schedule)
        if gone not in (part, _DEFAULTS[name]):
            notices = (*notices, f"{part.label()} takes the place of {gone.label()} ({name.replace('_', ' ')})")
        change: dict[str, Any] = {name: part, "notices": notices, "title": title, "modifiers": modifiers}
        return dataclasses.replace(self, **change)

    def _modified(self, part: Modifier, title: str) -> Recipe:
        participation = self.participation
        if isinstance(part, ParticipationModifier):
            participation, part = part.piped(participation)
        modifiers = tuple(sorted((*self.modifiers, part), key=in_order))
        return dataclasses.replace(self, participation=participation, modifiers=modifiers, title=title)


_SINGLE: dict[str, type[Settings]] = {
    "participation": Participation,
    "work": Work,
    "order": Order,
    "sharing": Sharing,
    "release": ReleasePolicy,
    "server_step": ServerStep,
    "compression": Compression,
    "scope": Scope,
    "personal": PersonalModel,
    "capacity": Capacity,
    "optimiser": LocalOptimiser,
    "schedule": Schedule,
}
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Recipe)}
_QUESTIONS = {
    "participation": "who is invited",
    "work": "how much a client does",
    "order": "in which order",
    "corrections": "in which direction",
    "sharing": "how much an update counts",
    "scalings": "how much an update counts",
    "release": "when the server steps",
    "modifiers": "what changes these",
    "server_step": "how the server steps",
    "optimiser": "local optimiser",
    "schedule": "schedule of its rate",
    "compression": "compression",
    "scope": "what is shared",
    "personal": "which model a client uses",
    "capacity": "which coordinates",
}
