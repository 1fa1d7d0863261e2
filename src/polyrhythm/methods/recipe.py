"""A recipe: one answer to each of the seven questions, plus the local optimiser. A paper is a recipe.

Recipes are built by piping parts onto a paper: `fedprox(mu=0.01) | server_adam(lr=0.01)`. A part takes the place of the
earlier part of a single-choice slot and says so; modifiers change what such a part decides; corrections chain; scales
multiply. What cannot work together is refused when it is put together.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Settings, canonical_json
from polyrhythm.methods.compression import Compression, Lossless
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.local.optimisers import LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Schedule
from polyrhythm.methods.mechanism import Mechanism, Modifier, Need, Setup
from polyrhythm.methods.order.base import Order, Shuffled
from polyrhythm.methods.participation.base import OfParticipation, Participation, ParticipationModifier, Uniform
from polyrhythm.methods.release.base import ReleaseModifier, ReleasePolicy, WhenAll
from polyrhythm.methods.rules import OF_THE_WHOLE, RULES, keep_to
from polyrhythm.methods.server_step import ServerStep, Sgd
from polyrhythm.methods.together import Inviting, Planning, Releasing
from polyrhythm.methods.weighing import BySamples, Scaling, Sharing
from polyrhythm.methods.work.base import Epochs, OfWork, Work, WorkModifier

M = TypeVar("M")
_NOT_DIGESTED = {"digest": False}


@final
@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
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
        optimiser: the local optimiser.
        schedule: of the local learning rate.
        batch: samples per local step; None is all of a client's samples.
        drop_last: whether the last, short batch of a pass is left out. A client with less than one batch keeps it.
        regime: "federated"; or one of the two bounds: "centralised" (one client holds all the data) and "local" (nobody
            exchanges anything).
        modifiers: what changes who is invited, how much a client does, or when the server steps, and on what; in any
            order.
        notices: what was replaced while the recipe was built; changes nothing.

    Raises:
        UserError: two parts that cannot work together, with the reason and what to use instead.
    """

    title: str = field(default="recipe", metadata=_NOT_DIGESTED)
    participation: Participation = Uniform()
    work: Work = Epochs()
    order: Order = Shuffled()
    corrections: tuple[Correction, ...] = ()
    sharing: Sharing = BySamples()
    scalings: tuple[Scaling, ...] = ()
    release: ReleasePolicy = WhenAll()
    server_step: ServerStep = Sgd()
    compression: Compression = Lossless()
    optimiser: LocalOptimiser = LocalSgd()
    schedule: Schedule = Constant()
    batch: Count | None = 10
    drop_last: bool = False
    regime: Literal["federated", "centralised", "local"] = "federated"
    modifiers: tuple[Modifier, ...] = ()
    notices: tuple[str, ...] = field(default=(), metadata=_NOT_DIGESTED)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_to(RULES, self)

    def __or__(self, part: object) -> Recipe:
        """This recipe with one more part."""
        if isinstance(part, Recipe):
            of_that_name = part.title in {own.label() for own in part.parts()}
            raise UserError(
                f"a whole recipe ({part.title}) on the right of a pipe",
                expected="one part, such as prox(mu=0.01) or server_adam(lr=0.01)",
                why="a recipe answers every question, so nothing of what stands on the left would remain",
                fix=f"start from {part.title} and pipe the parts of {self.title} onto it"
                + (f"; or pipe the part of that name, in Python pr.parts.{part.title}()" if of_that_name else ""),
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
            f"{part!r} on the right of a pipe",
            expected="a part of a recipe: a mechanism of one of the seven slots, a local optimiser or a schedule",
            why="only parts answer one of a recipe's questions",
            fix="see `polyrhythm methods` for the names of all parts",
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

    def _replace(self, name: str, part: Settings, title: str) -> Recipe:
        before, modifiers = getattr(self, name), self.modifiers
        if isinstance(part, Participation):
            part = part.over(self.participation.resized(self.cohort))
            if not part.invites:  # then nothing fills places but who comes
                modifiers = tuple(m for m in modifiers if not (isinstance(m, OfParticipation) and m.fills_places))
        notices = self.notices
        if before not in (part, _DEFAULTS[name]):
            notices = (*notices, f"{part.label()} takes the place of {before.label()} ({name.replace('_', ' ')})")
        change: dict[str, Any] = {name: part, "notices": notices, "title": title, "modifiers": modifiers}
        return dataclasses.replace(self, **change)

    def _modified(self, part: Modifier, title: str) -> Recipe:
        participation = self.participation
        if isinstance(part, ParticipationModifier):
            participation, part = part.piped(participation)
        modifiers = tuple(sorted((*self.modifiers, part), key=_in_order))
        return dataclasses.replace(self, participation=participation, modifiers=modifiers, title=title)

    def mechanisms(self) -> tuple[tuple[str, Mechanism], ...]:
        """Every mechanism with its key, in slot order; the key names its states, briefs and extras."""
        return self._keyed

    @functools.cached_property
    def _keyed(self) -> tuple[tuple[str, Mechanism], ...]:
        def of(kind: type[Modifier]) -> list[Modifier]:
            return sorted((m for m in self.modifiers if isinstance(m, kind)), key=_in_order)

        slots: tuple[Mechanism, ...] = (
            *(self.participation, *of(ParticipationModifier)),
            *(self.work, *of(WorkModifier)),
            self.order,
            *self.corrections,
            self.sharing,
            *self.scalings,
            *(self.release, *of(ReleaseModifier)),
            self.server_step,
            self.compression,
        )
        keyed: dict[str, Mechanism] = {}
        for part in slots:
            key, number = part.label(), 2
            while key in keyed:
                key, number = f"{part.label()}#{number}", number + 1
            keyed[key] = part
        return tuple(keyed.items())

    def parts(self) -> tuple[Mechanism, ...]:
        """Every mechanism."""
        return tuple(mechanism for _, mechanism in self._keyed)

    def of(self, kind: type[M]) -> tuple[tuple[str, M], ...]:
        """The mechanisms of a kind with their keys, in slot order."""
        return tuple((key, mechanism) for key, mechanism in self._keyed if isinstance(mechanism, kind))

    def server_start(self, setup: Setup) -> dict[str, State]:
        """The server's states of all mechanisms before the first version, by key."""
        setup = dataclasses.replace(setup, cohort=self.cohort)
        return {key: mechanism.server_start(setup) for key, mechanism in self._keyed}

    def key_of(self, mechanism: Mechanism) -> str:
        """The key of one of this recipe's own mechanisms."""
        for key, own in self._keyed:
            if own is mechanism:
                return key
        raise KeyError(mechanism)

    def overriding(self, hook: str) -> tuple[tuple[str, Mechanism], ...]:
        """The mechanisms that do something in a hook, such as "accept", with their keys, in slot order."""
        if hook not in self._hooks:
            neutral = getattr(Mechanism, hook)
            self._hooks[hook] = tuple((k, m) for k, m in self._keyed if getattr(type(m), hook) is not neutral)
        return self._hooks[hook]

    @functools.cached_property
    def _hooks(self) -> dict[str, tuple[tuple[str, Mechanism], ...]]:
        return {}

    @functools.cached_property
    def inviting(self) -> Inviting:
        """Who is invited, by the participation and its modifiers."""
        return Inviting(self.key_of(self.participation), self.participation, self.of(ParticipationModifier))

    @functools.cached_property
    def planning(self) -> Planning:
        """What a client does, by work and its modifiers."""
        return Planning(self.key_of(self.work), self.work, self.of(WorkModifier))

    @functools.cached_property
    def releasing(self) -> Releasing:
        """When the server steps, and on what, by the release policy and its modifiers."""
        return Releasing(self.release, self.of(ReleaseModifier))

    @functools.cached_property
    def cohort(self) -> int:
        """How many clients one version invites, as far as the settings say."""
        sizes = (m.size for _, m in self.of(ParticipationModifier))
        return next((size for size in sizes if size is not None), self.participation.size)

    @functools.cached_property
    def filling(self) -> str:
        """The part because of which a client whose visit has ended is replaced at once; empty if there is none."""
        return next((part.label() for _, part in self.of(OfParticipation) if part.fills_places), "")

    @functools.cached_property
    def fills_places(self) -> bool:
        """Whether one is; kept, as the others are, because the server asks for it at every event."""
        return bool(self.filling)

    @functools.cached_property
    def one_at_a_time(self) -> bool:
        """Whether a client whose update waits for the next version is not invited before it."""
        return any(part.one_at_a_time for _, part in self.of(OfParticipation))

    @functools.cached_property
    def due(self) -> float | None:
        """Of the release modifiers."""
        return self.releasing.due

    @functools.cached_property
    def patience(self) -> float | None:
        """Of the release modifiers."""
        return self.releasing.patience

    @functools.cached_property
    def watches(self) -> tuple[str, ...]:
        """The representations that the parts read in training, in order."""
        return tuple(sorted({layer for part in self.parts() for layer in part.watches}))

    @functools.cached_property
    def may_stop(self) -> bool:
        """Whether a visit may end before its plan does."""
        return any(part.may_stop for _, part in self.of(OfWork))

    @functools.cached_property
    def foreseeable(self) -> bool:
        """Whether the samples and bytes of a visit that trains follow from its plan, unless that may end it early.

        Which frozen models a loss term looks at, and when, is its own affair.
        """
        alike = all(part.sends_alike for part in self.parts()) and self.compression.sizes_alike
        return alike and self.order.complete and all(term.layers is None for term in self.corrections)

    def needs(self) -> frozenset[Need]:
        """What the parts ask of the cores, together."""
        return self._needs

    @functools.cached_property
    def _needs(self) -> frozenset[Need]:
        asked: set[Need] = set()
        for mechanism in self.parts():
            asked |= mechanism.needs()
        if self.schedule.needs_horizon:
            asked.add("horizon")
        if self.regime == "local":
            asked.add("previous")
        return frozenset(asked)

    def rate(self, version: int, horizon: int | None) -> float:
        """The local learning rate of the first step of a visit to a version."""
        factor = self.schedule.factor(version, horizon) if self.schedule.unit == "version" else 1.0
        return self.optimiser.lr * factor

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over every setting that can change a number; the same for the same method, however it was built."""
        return hashlib.sha256(canonical_json(self.describe()).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The recipe as plain data; its modifiers in an order of their own."""
        return super().describe() | {"modifiers": [m.describe() for m in sorted(self.modifiers, key=_in_order)]}


def _in_order(modifier: Modifier) -> tuple[str, str]:
    """By which modifiers are put in the one order in which they are kept, whatever that in which they were piped."""
    return modifier.label(), canonical_json(modifier.describe())


_SINGLE: dict[str, type[Settings]] = {
    "participation": Participation,
    "work": Work,
    "order": Order,
    "sharing": Sharing,
    "release": ReleasePolicy,
    "server_step": ServerStep,
    "compression": Compression,
    "optimiser": LocalOptimiser,
    "schedule": Schedule,
}
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Recipe)}
