"""The answers that a recipe gives to its questions, and what follows from all of them together."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from polyrhythm.base.adapters import Factor
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Settings, canonical_json
from polyrhythm.methods.capacity.base import WHOLE, Capacity
from polyrhythm.methods.compression import Compression, Lossless
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.local.optimisers import LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Schedule
from polyrhythm.methods.mechanism import Mechanism, Modifier, Need, Setup
from polyrhythm.methods.order.base import Order, Shuffled
from polyrhythm.methods.participation.base import OfParticipation, Participation, ParticipationModifier, Uniform
from polyrhythm.methods.personal.models import GlobalModel, PersonalModel
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.scope import Everything, Scope
from polyrhythm.methods.privacy import accounting
from polyrhythm.methods.privacy.account import Account
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.laws import law_of
from polyrhythm.methods.release.base import ReleaseModifier, ReleasePolicy, WhenAll
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.server_step import ServerStep, Sgd
from polyrhythm.methods.together import Inviting, Planning, Releasing
from polyrhythm.methods.weighing import BySamples, Scaling, Sharing
from polyrhythm.methods.work.base import Epochs, OfWork, Work, WorkModifier

M = TypeVar("M")
_NOT_DIGESTED = {"digest": False}


@dataclass(frozen=True, kw_only=True)
class Answers(Settings):
    """The settings of a `Recipe`, where they are explained, and what follows from them."""

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
    scope: Scope = Everything()
    personal: PersonalModel = GlobalModel()
    optimiser: LocalOptimiser = LocalSgd()
    schedule: Schedule = Constant()
    batch: Count | None = 10
    drop_last: bool = False
    regime: Literal["federated", "centralised", "local"] = "federated"
    modifiers: tuple[Modifier, ...] = ()
    capacity: Capacity = WHOLE
    notices: tuple[str, ...] = field(default=(), metadata=_NOT_DIGESTED)

    def mechanisms(self) -> tuple[tuple[str, Mechanism], ...]:
        """Every mechanism with its key, in slot order; the key names its states, briefs and extras."""
        return self._keyed

    @functools.cached_property
    def _keyed(self) -> tuple[tuple[str, Mechanism], ...]:
        def of(kind: type[Modifier]) -> list[Modifier]:
            return [modifier for modifier in self.modifiers if isinstance(modifier, kind)]

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
            *(() if self.scope == Everything() else (self.scope,)),
            *(() if self.personal == GlobalModel() else (self.personal,)),
            *(() if self.capacity.whole else (self.capacity,)),
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
        return self._parts

    @functools.cached_property
    def _parts(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for _, mechanism in self._keyed)

    def of(self, kind: type[M]) -> tuple[tuple[str, M], ...]:
        """The mechanisms of a kind with their keys, in slot order."""
        return tuple((key, mechanism) for key, mechanism in self._keyed if isinstance(mechanism, kind))

    def server_start(self, setup: Setup) -> dict[str, State]:
        """The server's states of all mechanisms before the first version, by key."""
        sampling = self.sampling(setup) if self.releasing.private else None
        setup = dataclasses.replace(setup, cohort=self.cohort, sampling=sampling)
        return {key: mechanism.server_start(setup) for key, mechanism in self._keyed}

    def sampling(self, setup: Setup) -> Sampling:
        """How clients come into versions, for the accounting of `dp`.

        Raises:
            UserError: a part or a combination of parts that cannot be accounted for.
        """
        law, holders = law_of(self, steady=setup.steady), setup.holders
        bands = next((part.bands or 1 for _, part in self.of(Dp) if part.correlates), 1)
        rate = self.participation.chance(holders) if self.participation.may_be_empty else 1.0
        size = self.cohort
        if self.release.release_size is not None:  # without places that are filled, no more than a cohort is waited for
            size = self.release.release_size if self.fills_places else min(size, self.release.release_size)
        if bands > 1:
            law = "banded"
            _apart_enough(bands, holders, self.cohort)
        return Sampling(
            law=law,
            population=holders,
            cohort=rate * holders if self.participation.may_be_empty else float(min(size, holders)),
            rate=rate if law == "poisson" else 1.0,
            bands=bands,
            most=self.most_visits,
            adapts=any(part.under_privacy().adapts for part in self.parts()),
            resized=self.resized,
        )

    def account(self, setup: Setup) -> Account | None:
        """The account of its clients' privacy; None if nobody is hidden.

        Raises:
            UserError: there is none that could be kept, or dp-accounting is not installed.
        """
        hiding = self.of(Dp)
        if not hiding:
            return None
        accounting.library()
        key, part = hiding[0]
        return part.account(key, self.sampling(setup), setup.total_rounds, sums_only=self.sums_only)

    @functools.cached_property
    def sums_only(self) -> bool:
        """Whether the server is to know the sum of updates, and no single one."""
        return self.compression.sums_only

    def most_in_a_sum(self, setup: Setup) -> int:
        """K: how many updates a version may be made of, at most."""
        if self.participation.may_be_empty:
            return setup.holders
        return min(math.ceil(self.cohort * self.releasing.surplus), setup.holders)

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
    def resized(self) -> bool:
        """Whether each version is to have so many clients as a part says, and is made of those."""
        sizing = any(type(m).wanted is not ParticipationModifier.wanted for _, m in self.of(ParticipationModifier))
        return sizing and not self.fills_places and self.release.release_size is None

    @functools.cached_property
    def most_visits(self) -> int | None:
        """How often a client is invited at most in the whole run; None for any number."""
        limits = [most for _, part in self.of(ParticipationModifier) if (most := part.most) is not None]
        return min(limits, default=None)

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
    def moves_base(self) -> str:
        """The part that changes the weights under adapters; empty if there is none."""
        return next((part.label() for part in self.parts() if part.moves_base), "")

    def rests(self, version: int) -> Factor | None:
        """The factor of adapters that visits to a version leave as it is."""
        return next((rests for part in self._resting if (rests := part.rests(version)) is not None), None)

    @functools.cached_property
    def _resting(self) -> tuple[OfWork, ...]:
        return tuple(part for _, part in self.of(OfWork) if type(part).rests is not OfWork.rests)

    @functools.cached_property
    def extra_vectors(self) -> int:
        """How many vectors its parts send up beside an update."""
        return sum(part.extra_vectors for part in self.parts())

    @functools.cached_property
    def foreseeable(self) -> bool:
        """Whether the samples and bytes of a visit that trains follow from its plan, unless that may end it early.

        Which frozen models a loss term looks at, and when, is its own affair.
        """
        alike = all(part.sends_alike for part in self.parts()) and self.compression.sizes_alike
        return alike and self.order.complete and all(term.layers is None for term in self.corrections)

    @functools.cached_property
    def has_personal(self) -> bool:
        """Whether a client uses another model than the global one."""
        return self.scope != Everything() or self.personal != GlobalModel()

    @functools.cached_property
    def passes_beside(self) -> float:
        """Passes over its samples that a visit makes beside its work for the server, at most."""
        first = sum(part.passes for part in self.modifiers if isinstance(part, PersonalFirst))
        return self.personal.passes + first

    def needs(self) -> frozenset[Need]:
        """What the parts ask of the cores, together."""
        return self._needs

    @functools.cached_property
    def _needs(self) -> frozenset[Need]:
        asked: set[Need] = set()
        for mechanism in self.parts():
            asked |= mechanism.needs()
        if self.schedule.needs_horizon:
            asked.add("total_rounds")
        if self.regime == "local":
            asked.add("previous")
        return frozenset(asked)

    def rate(self, version: int, total_rounds: int | None) -> float:
        """The local learning rate of the first step of a visit to a version."""
        factor = self.schedule.factor(version, total_rounds) if self.schedule.unit == "version" else 1.0
        return self.optimiser.lr * factor

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over every setting that can change a number; the same for the same method, however it was built."""
        return hashlib.sha256(canonical_json(self.describe()).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The recipe as plain data; its modifiers in an order of their own.

        Without what came later, where it is as it was before: so a recipe has the digest that it had then.
        """
        described = super().describe() | {"modifiers": [m.describe() for m in sorted(self.modifiers, key=in_order)]}
        for name, neutral in (("scope", Everything()), ("personal", GlobalModel()), ("capacity", WHOLE)):
            if getattr(self, name) == neutral:
                del described[name]
        return described


def _apart_enough(bands: int, holders: int, cohort: int) -> None:
    apart = holders // cohort
    if bands > apart:
        raise UserError(
            f"dp(bands={bands}), where {holders:,} clients take turns of {cohort:,}",
            expected=f"{max(1, apart)} bands at most",
            why=f"a client comes back after {apart} versions, and noise on its visits may have nothing in common",
            fix=f"bands={max(1, apart)}, a smaller cohort, or more clients",
        )


def in_order(modifier: Modifier) -> tuple[str, str]:
    """By which modifiers are put in the one order in which they are kept, whatever that in which they were piped."""
    return modifier.label(), canonical_json(modifier.describe())
