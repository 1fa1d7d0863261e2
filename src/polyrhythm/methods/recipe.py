"""A recipe: one answer to each of the seven questions, plus the local optimiser. A paper is a recipe.

Recipes are built by piping parts onto a paper: `fedprox(mu=0.01) | server_adam(lr=0.01)`. A part takes the place of the
earlier part of a single-choice slot and says so; corrections chain; scales multiply. What cannot work together is
refused when it is put together.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.settings import Count, Settings, canonical_json
from polyrhythm.methods.compression import Compression, Lossless, Lossy
from polyrhythm.methods.correction import ControlVariates, Correction, DynamicRegularisation, Prox, VarianceReduction
from polyrhythm.methods.local.optimisers import LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Schedule
from polyrhythm.methods.mechanism import Mechanism, Need
from polyrhythm.methods.order.base import Order, Shuffled
from polyrhythm.methods.participation.base import Participation, Uniform
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, RandomResize
from polyrhythm.methods.participation.rolling import OnArrival, Rolling
from polyrhythm.methods.release.base import Deadline, MinReports, OverSelect, ReleasePolicy, TimeOut, WhenAll
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.memory import Memory
from polyrhythm.methods.release.robust import ClipUpdates, Middle
from polyrhythm.methods.release.staleness import SampledStaleness
from polyrhythm.methods.server_step import ServerStep, Sgd
from polyrhythm.methods.weighing import BySamples, Equal, PerStep, Scaling, Sharing
from polyrhythm.methods.work.base import Epochs, Work
from polyrhythm.methods.work.budgets import HAIR
from polyrhythm.methods.work.partial_work import PartialWork
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndResendModel, Skipping
from polyrhythm.methods.work.stop_on_drift import StopOnDrift
from polyrhythm.methods.wrapping import Wrapping

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
    notices: tuple[str, ...] = field(default=(), metadata=_NOT_DIGESTED)

    def __post_init__(self) -> None:
        super().__post_init__()
        _keep_to(_RULES, self)

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
        _keep_to(_RULES_OF_THE_WHOLE, self)
        return self

    def called(self, title: str) -> Recipe:
        """The same recipe under a paper's name; what was piped to make it is not worth a notice."""
        return dataclasses.replace(self, title=title, notices=())

    def _replace(self, name: str, part: Settings, title: str) -> Recipe:
        before, around = getattr(self, name), isinstance(part, Wrapping)
        if isinstance(part, Mechanism):
            part = part.over(before)
        notices, old, new = self.notices, _base(before), _base(part)
        if old not in (new, _DEFAULTS[name]) and not around:
            notices = (*notices, f"{new.label()} takes the place of {old.label()} ({name.replace('_', ' ')})")
        change: dict[str, Any] = {name: part, "notices": notices, "title": title}
        return dataclasses.replace(self, **change)

    def mechanisms(self) -> tuple[tuple[str, Mechanism], ...]:
        """Every mechanism with its key, in slot order; the key names its states, briefs and extras."""
        return self._keyed

    @functools.cached_property
    def _keyed(self) -> tuple[tuple[str, Mechanism], ...]:
        slots: tuple[Mechanism, ...] = (
            self.participation,
            self.work,
            self.order,
            *self.corrections,
            self.sharing,
            *self.scalings,
            self.release,
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
        """Every mechanism and all that they wrap."""
        return tuple(itertools.chain.from_iterable(m.parts() for _, m in self.mechanisms()))

    def key_of(self, mechanism: Mechanism) -> str:
        """The key of one of this recipe's own mechanisms."""
        for key, own in self._keyed:
            if own is mechanism:
                return key
        raise KeyError(mechanism)

    def overriding(self, hook: str) -> tuple[tuple[str, Mechanism], ...]:
        """The mechanisms that do something in a hook, such as "accept", with their keys, in slot order."""
        if hook not in self._hooks:
            neutral = (getattr(Mechanism, hook), getattr(Wrapping, hook))
            acting = [(k, m) for k, m in self._keyed if any(getattr(type(p), hook) not in neutral for p in m.parts())]
            self._hooks[hook] = tuple(acting)
        return self._hooks[hook]

    @functools.cached_property
    def _hooks(self) -> dict[str, tuple[tuple[str, Mechanism], ...]]:
        return {}

    @functools.cached_property
    def fills_places(self) -> bool:
        """The participation's; kept, as the next two are, because the server asks for it at every event."""
        return self.participation.fills_places

    @functools.cached_property
    def due(self) -> float | None:
        """The release policy's."""
        return self.release.due

    @functools.cached_property
    def patience(self) -> float | None:
        """The release policy's."""
        return self.release.patience

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


def _base(part: Settings) -> Settings:
    """What policies around it leave of a part."""
    return part.parts()[-1] if isinstance(part, Mechanism) else part


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


def _one_memory_of_drift(recipe: Recipe) -> None:
    memories = [
        c for c in recipe.corrections if isinstance(c, (ControlVariates, VarianceReduction, DynamicRegularisation))
    ]
    if len(memories) > 1:
        first, second = memories[0].label(), memories[1].label()
        raise UserError(
            f"{first} and {second} in one recipe",
            expected="at most one of control_variates, variance_reduction and dynamic_regularisation",
            why="each learns the client's drift from the path it took, and would take the other's correction for drift",
            fix=f"keep {first} or {second}",
        )


def _travel_is_exact(recipe: Recipe) -> None:
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
    pull = sum(c.mu for c in recipe.corrections if isinstance(c, Prox))
    pull += sum(c.alpha for c in recipe.corrections if isinstance(c, DynamicRegularisation))
    back = optimiser.lr * (pull + optimiser.weight_decay)
    if back >= 1:
        raise UserError(
            f"{needing[0]} with lr * (pull + weight_decay) = {optimiser.lr:g} * ({pull:g} + "
            f"{optimiser.weight_decay:g}) = {back:g}",
            expected="less than 1",
            why=f"every step would undo all of the way so far, and {needing[0]} divides by that way",
            fix="lower lr, or the strength of prox, of dynamic_regularisation or of weight decay",
        )


def _no_scaling_twice(recipe: Recipe) -> None:
    labels = [s.label() for s in recipe.scalings]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(
                f"{label} twice in one recipe",
                expected="each scaling once",
                why="scales multiply, so its effect would be squared",
                fix=f"leave one {label} out",
            )


_OF_A_RELEASE = (
    *(ControlVariates, VarianceReduction, DynamicRegularisation),
    *(ClipUpdates, FromCurrent, Lossy, Memory, Middle, Scaling, Skipping, StopOnDrift),
)


def _local_regime_shares_nothing(recipe: Recipe) -> None:
    if recipe.regime != "local":
        return
    shared = [
        m.label() for m in recipe.parts() if isinstance(m, _OF_A_RELEASE) or (isinstance(m, ServerStep) and m != Sgd())
    ]
    if shared:
        raise UserError(
            f"{shared[0]} in a recipe where nothing is exchanged",
            expected="only what a client does on its own",
            why="in local_only there is no release, so nothing would ever come of it",
            fix=f"leave {shared[0]} out, or start from fedavg",
        )


def _one_policy_of_a_kind(recipe: Recipe) -> None:
    """Policies around others that decide the same thing."""
    kinds: tuple[tuple[type[Mechanism], str], ...] = (
        (Skipping, "whether a client skips"),
        (StopOnDrift, "when a client stops"),
        (BudgetSteps, "by how much steps are cut"),
        (PartialWork, "by when a client sends what it has"),
        (CriticalPeriods, "how large the cohort is"),
        (RandomResize, "how large the cohort is"),
        (SampledStaleness, "which version a client works on"),
        (Rolling, "how many are at work"),
        (OnArrival, "how many are at work"),
        (Deadline, "when a version ends at the latest"),
        (OverSelect, "how many more are invited"),
        (MinReports, "how many updates a version needs"),
        (TimeOut, "how long a visit may take"),
        (FromCurrent, "from where an update is measured"),
        (Memory, "which updates the server steps on"),
        (ClipUpdates, "how long an update may be"),
        (Middle, "what the middle of the updates is"),
    )
    decided: dict[str, str] = {}
    for part in recipe.parts():
        for kind, what in kinds:
            if isinstance(part, kind):
                if what in decided:
                    raise UserError(
                        f"{decided[what]} and {part.label()} in one recipe",
                        expected=f"one part that decides {what}",
                        why="they would contradict each other",
                        fix=f"leave {decided[what]} or {part.label()} out",
                    )
                decided[what] = part.label()


def _turns_are_the_servers(recipe: Recipe) -> None:
    delayed = [p.label() for p in recipe.parts() if isinstance(p, SampledStaleness)]
    turning = [
        p.label()
        for p in recipe.parts()
        if isinstance(p, Skipping) and p.schedule == "round_robin" and p.turns == "versions"
    ]
    if delayed and turning:
        raise UserError(
            f"{turning[0]} by round robin over versions with {delayed[0]}",
            expected='turns="visits", or another schedule',
            why="a client that is sent an old version would take that version's turn again, and miss its own",
            fix='set turns="visits" or schedule="ad_hoc"',
        )


def _last_model_has_no_steps(recipe: Recipe) -> None:
    if any(isinstance(p, SkipAndResendModel) for p in recipe.parts()) and any(
        isinstance(s, PerStep) for s in recipe.scalings
    ):
        raise UserError(
            "per_step with skip_and_resend_model",
            expected="skip_and_estimate, whose movement remembers its steps",
            why="the way from the received model to a client's old one was not made in a number of local steps",
            fix="use skip_and_estimate or skip_silently, or leave per_step out",
        )


def _a_model_is_sent_whole(recipe: Recipe) -> None:
    if isinstance(recipe.compression, Lossy) and any(isinstance(p, SkipAndResendModel) for p in recipe.parts()):
        raise UserError(
            f"{recipe.compression.label()} with skip_and_resend_model",
            expected="skip_and_estimate, whose movement is what the client has sent before",
            why="compressed, the way from the received model to an old one would not lead there",
            fix=f"use skip_and_estimate or skip_silently, or leave {recipe.compression.label()} out",
        )


def _places_are_filled_for_a_buffer(recipe: Recipe) -> None:
    if not recipe.participation.fills_places:
        return
    filling = next(p.label() for p in recipe.participation.parts() if getattr(p, "fills_places", False))
    if isinstance(_base(recipe.release), WhenAll) and recipe.release.due is None:
        raise UserError(
            f"{filling} with {recipe.release.label()}",
            expected="a release that does not wait for everybody, such as buffer(size=5)",
            why="somebody is always at work, so that the server would never step",
            fix=f"pipe buffer(size=5) onto the recipe, or leave {filling} out",
        )


def _rounds_are_over_selected(recipe: Recipe) -> None:
    if not any(isinstance(p, OverSelect) for p in recipe.parts()):
        return
    filling = (p.label() for p in recipe.participation.parts() if getattr(p, "fills_places", False))
    other = next(filling, _base(recipe.release).label() if recipe.release.carries_over else None)
    if other is not None:
        raise UserError(
            f"{other} with over_select",
            expected="one of the two",
            why="over-selection gives up whom a round does not need, and there are no rounds here: late updates count",
            fix=f"leave over_select out, or {other}",
        )


def _nobody_else_changes_the_mean_of_all(recipe: Recipe) -> None:
    if not any(isinstance(p, Memory) for p in recipe.parts()):
        return
    neutral = (Mechanism.before_step, Wrapping.before_step, Memory.before_step)
    other = next((p for p in recipe.parts() if type(p).before_step not in neutral), None)
    if other is not None:
        raise UserError(
            f"memory with {other.label()}",
            expected="one of the two",
            why=f"memory steps on the last update of every client, and {other.label()} changes the mean of a release",
            fix=f"leave memory out, or {other.label()}",
        )


def _outliers_have_no_other_way_in(recipe: Recipe) -> None:
    robust = next((p for p in recipe.parts() if isinstance(p, (ClipUpdates, Middle))), None)
    ways = (DynamicRegularisation, FromCurrent, Memory)
    other = next((p for p in recipe.parts() if isinstance(p, ways)), None)
    if robust is not None and other is not None:
        raise UserError(
            f"{robust.label()} with {other.label()}",
            expected="one of the two",
            why=f"{other.label()} adds what clients sent to the step by a way of its own, past {robust.label()}",
            fix=f"leave {robust.label()} out, or {other.label()}",
        )


def _memory_is_of_clients(recipe: Recipe) -> None:
    if any(isinstance(p, Memory) for p in recipe.parts()) and not isinstance(recipe.sharing, Equal):
        raise UserError(
            f"memory with {recipe.sharing.label()}",
            expected="clients that weigh equally",
            why="the mean is over all clients, and how much data those have that were not heard yet nobody has said",
            fix="pipe equal onto the recipe as well",
        )


def _nobody_is_called(recipe: Recipe) -> None:
    sizing = [p.label() for p in recipe.parts() if isinstance(p, (CriticalPeriods, RandomResize))]
    if sizing and not recipe.participation.invites:
        raise UserError(
            f"{sizing[0]} with on_arrival",
            expected="a participation that invites, such as rolling(concurrency=10)",
            why="it decides how many are invited, and here nobody is",
            fix=f"leave {sizing[0]} out, or on_arrival",
        )


def _enough_can_report(recipe: Recipe) -> None:
    part, least = recipe.participation, recipe.release.least
    most = math.ceil(part.size * recipe.release.surplus - HAIR)
    grows = any(isinstance(p, (CriticalPeriods, RandomResize)) for p in recipe.parts())
    if least > most and not part.fills_places and not grows:
        raise UserError(
            f"min_reports(count={least}) where a version invites {most}",
            expected=f"{most} or fewer",
            why="every version would be skipped, and the model would stay as it is",
            fix=f"min_reports(count={most}), or a larger cohort",
        )


_Rules = tuple[Callable[[Recipe], None], ...]


def _keep_to(rules: _Rules, recipe: Recipe) -> None:
    """Goes on if a recipe breaks none of the rules.

    Raises:
        UserError: it does; all of them.
    """
    wrong = Mistakes()
    for rule in rules:
        with wrong.noted():
            rule(recipe)
    wrong.refuse()


_RULES: _Rules = (
    _one_memory_of_drift,
    _travel_is_exact,
    _no_scaling_twice,
    _local_regime_shares_nothing,
    _one_policy_of_a_kind,
    _last_model_has_no_steps,
    _a_model_is_sent_whole,
    _turns_are_the_servers,
    _nobody_else_changes_the_mean_of_all,
    _outliers_have_no_other_way_in,
    _nobody_is_called,
)
# What the next part on the pipe may still put right, so it is asked of the whole.
_RULES_OF_THE_WHOLE: _Rules = (
    _places_are_filled_for_a_buffer,
    _rounds_are_over_selected,
    _memory_is_of_clients,
    _enough_can_report,
)
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Recipe)}
