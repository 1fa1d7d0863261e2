"""The life cycle that the mechanisms of all seven slots share.

Rules:

- A mechanism is a frozen value. What it remembers lies in two states, one at the server and one at each client, which
  it never changes in place: every hook returns the new state.
- Hooks have neutral defaults, so a mechanism writes only those that its equations need.
- What others must know of it, it says itself (`needs`, `watches`, `guesses`, …): nobody outside of `methods` asks which
  class it is of, so that one of a user's own is treated like any other.
- Vectors are [..., P] and hooks are written elementwise over them.

The order of a version: `brief` for every client invited; at the client `finish` after training; for each report
`fill`, `refuses` and, if it is accepted, `accept`; `before_step` once the release is complete; the server step;
`after_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from immutables import Map
from torch import Tensor

from polyrhythm.base.adapters import Adapter
from polyrhythm.base.messages import Fault, Model, Report, State
from polyrhythm.base.portions import Cuts, FixedParts, Portion
from polyrhythm.base.settings import Settings
from polyrhythm.base.vectors import Spans
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.effects import UNSAID, PrivacyEffect
from polyrhythm.methods.secure_sum import effects as sums
from polyrhythm.methods.secure_sum.effects import SumEffect
from polyrhythm.methods.work.budgets import Budgets

DEFAULT_COHORT = 10

Need = Literal[
    "previous",
    "travel",
    "total_rounds",
    "gradient_square",
    "squared_loss",
    "fisher",
    "fisher_model",
    "expert",
    "base",
    "class_means",
]
"""What a mechanism asks of the cores:

- "previous": the client's last local model, stored once for all who ask;
- "travel": an exact `Report.travel`, so no local Adam and no local state kept over visits;
- "total_rounds": the number of versions, known before the run starts;
- "gradient_square": the mean squared norm of the clipped gradients of a visit, as a measure of its report;
- "squared_loss": the mean over all samples trained on of the squared loss of each, as a measure of the report;
- "fisher": the trace of the empirical Fisher information at the received model, as a measure of the report;
- "fisher_model": the trace of the Fisher information itself, for labels drawn from that model, as another measure;
- "expert": the loss of each sample under an expert, a model trained before, which every client then has;
- "base": in a release, the weights that every client was sent, kept at the server while somebody works on them;
- "class_means": at the client, after training, the mean representation of each class, as `Outcome.class_means`.
"""


@final
@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is fixed for a whole run.

    Args:
        size: P, elements of a vector, padding included.
        dtype: of the vectors.
        population: N, the clients that the federation declares.
        total_rounds: number of versions, if known.
        seed: the experiment's seed.
        budgets: how much each client can afford, where the fleet says so.
        eligible: how many of the clients hold data; None for all.
        cohort: m, how many a version invites as far as the settings say; in `server_start` that of the recipe.
        places: where parameters lie in a vector; () where it is not said, and all of it is one.
        steady: whether everybody is always there, and every visit comes to its end.
        sampling: how clients come into versions, as accounting for privacy has it; in `server_start` of a recipe with
            `dp`.
        table: makes an empty table of vectors by client, which the server may keep; persistent, as a `Map` is.
        cuts: along what the model is cut, where clients train parts of it.
        levels: how much of the model each client's device can hold, where devices say so; of every client.
        most_samples: max n_i, the samples of the client that holds most.
        members: the clients that may ever be heard; None for all.
        fixed_parts: what clients hold of the model on all their visits; None where each holds all of it, or that
            changes.
        adapters: where the low-rank adapters of the model lie in a vector, those of which both factors learn.
        secret: from what a real server draws what nobody else may know, the noise and the coins of `dp`; None in a
            simulation, where all draws are of the seed.
    """

    size: int
    dtype: torch.dtype
    population: int
    total_rounds: int | None
    seed: int
    budgets: Budgets | None = None
    eligible: int | None = None
    cohort: int = DEFAULT_COHORT
    places: Spans = ()
    steady: bool = False
    sampling: Sampling | None = None
    table: Callable[[], Map[int, Tensor]] = field(default=Map, compare=False, repr=False)
    cuts: Cuts | None = field(default=None, compare=False, repr=False)
    levels: tuple[float, ...] | None = field(default=None, repr=False)
    most_samples: int = 1
    members: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    fixed_parts: FixedParts | None = field(default=None, compare=False, repr=False)
    adapters: tuple[Adapter, ...] = field(default=(), repr=False)
    secret: int | None = field(default=None, compare=False, repr=False)

    @property
    def holders(self) -> int:
        """How many clients hold data, and may ever be heard."""
        return self.population if self.eligible is None else self.eligible

    def zeros(self, *, wide: bool = False) -> Tensor:
        """A zero vector [P]; wide: float32 where the model has half precision, for sums over many versions."""
        half = self.dtype in (torch.float16, torch.bfloat16)
        return torch.zeros(self.size, dtype=torch.float32 if wide and half else self.dtype)


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a client knows when it has trained.

    Args:
        version: of the received weights.
        received: w0, where training started, [P].
        update: w_K - w0, [P].
        sent: the update as the server will have it, [P]: the same one unless it travels compressed.
        packed, steps, travel, pull, rate, idle: as in `Report`.
        moments: the state of the local optimiser after its last step, by name; not to be changed.
        class_means: gives the mean representation, in the layer of that name and under the model as trained, of each
            class of which the client has samples, [c, F], and whether it has some of each class, bool [C]; where a
            mechanism needs "class_means".
    """

    version: int
    received: Tensor
    update: Tensor
    sent: Tensor
    steps: int
    travel: float
    pull: float
    rate: float
    idle: Spans = ()
    packed: int | None = None
    moments: Mapping[str, Tensor | int] = field(default_factory=dict)
    class_means: Callable[[str], tuple[Tensor, Tensor]] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """The updates that one server step is made of, in dispatch order.

    Args:
        version: the server's version before the step.
        reports: one per update.
        shares: one per update, summing to 1.
        scales: one per update, not normalised.
        weights: the server's weights before the step, [P].
        bases: the weights that each report started from, [P], if a mechanism needs the "base"; otherwise empty.
        rate: the local learning rate, in its first step, of a visit to this version.
        portions: of each report what its client held of the model, None if all of it; empty if all held all of it.
        total: where the server knows the sum of updates only, and none in the reports, sum_i w_i * update_i, float64
            [P]; else None.
        counted: by what it is divided to be the mean; sum_i w_i where nothing scales updates.
        tally: the sum of what clients add beside their updates, where they do.
        wanted: how many clients it was to have, where that changes from version to version.
        spread: the standard deviation of the noise on each weight of the mean, in `before_step`.

    Where clients are hidden in the sum, the total is in clips, and nothing divides it.
    """

    version: int
    reports: tuple[Report, ...]
    shares: tuple[float, ...]
    scales: tuple[float, ...]
    weights: Tensor
    bases: tuple[Tensor, ...] = ()
    rate: float = 1.0
    portions: tuple[Portion | None, ...] = ()
    total: Tensor | None = None
    counted: float = 1.0
    tally: float = 0.0
    wanted: int | None = None
    spread: float = 0.0

    @property
    def fresh(self) -> tuple[Report, ...]:
        """The reports of visits that trained."""
        return tuple(r for r in self.reports if r.fresh)

    def updates(self) -> list[Tensor]:
        """The update vectors, in dispatch order."""
        return [r.update for r in self.reports if r.update is not None]

    def extras(self, key: str) -> list[State]:
        """What the mechanism under `key` sent up with each report, in dispatch order."""
        return [r.extras.get(key, {}) for r in self.reports]


_TOLD: frozenset[Need] = frozenset({"gradient_square", "squared_loss", "fisher", "fisher_model"})


@dataclass(frozen=True, kw_only=True)
class Mechanism(Settings):
    """Base of every mechanism: all hooks neutral."""

    def needs(self) -> frozenset[Need]:
        """What this mechanism asks of the cores."""
        return frozenset()

    decides: ClassVar[str] = ""
    """The question that it alone answers, in words, such as "when a client stops"; empty if there is none.

    Two parts of a recipe that decide the same thing are refused.
    """

    @property
    def watches(self) -> tuple[str, ...]:
        """The representations that it reads in training. They are looked for in the model before the run starts."""
        return ()

    @property
    def guesses(self) -> bool:
        """Whether it decides by what training gives, so that a dry run can only guess what it will do."""
        return False

    of_a_release: ClassVar[bool] = False
    """Whether it means something only where clients' updates become a version of the model."""

    past_the_mean: ClassVar[bool] = False
    """Whether it adds what clients sent to the server's step by a way of its own, past the mean of the updates."""

    of_all_clients: ClassVar[bool] = False
    """Whether it means over all clients that hold data, heard or not, so that they must weigh equally."""

    of_adapters: ClassVar[bool] = False
    """Whether it means something only for a model with low-rank adapters."""

    both_factors: ClassVar[bool] = False
    """Whether it needs adapters of which both factors learn."""

    moves_base: ClassVar[bool] = False
    """Whether it changes the weights under adapters, so that clients are sent them as well."""

    privacy: ClassVar[PrivacyEffect] = UNSAID
    """What it does to the privacy of clients, which `dp` must know: a part that says nothing is refused with it."""

    def under_privacy(self) -> PrivacyEffect:
        """The same, where that depends on its settings."""
        return self.privacy

    sees: ClassVar[tuple[str, ...]] = ("fill", "refuses", "accept", "before_step", "after_step", "finish")
    """Hooks by which a part sees single reports, or sends more up than an update; a base with others names them too."""

    in_sums: ClassVar[SumEffect | None] = None
    """What becomes of it where the server has nothing but the sum of updates (`secagg`); None where that follows from
    its hooks: a part that looks at reports and says nothing is refused there.
    """

    def under_secagg(self) -> SumEffect:
        """The same, also where it follows from its hooks or settings."""
        if self.in_sums is not None:
            return self.in_sums
        if self.extra_vectors:
            return sums.needs_single("it sends vectors of its own beside the update")
        if told := sorted(self.needs() & _TOLD):
            return sums.needs_single(f"clients would tell their own {', '.join(told)}")
        looked = ((base, hook) for base in type(self).__mro__ for hook in vars(base).get("sees", ()))
        looks = any(getattr(type(self), hook) is not getattr(base, hook) for base, hook in looked)
        return sums.UNSAID if looks else sums.BLIND

    by_coordinate: ClassVar[Literal["no", "fixed", "any"]] = "no"
    """Whether it takes each coordinate over the clients that hold it, where clients train parts of the model: "fixed"
    if it needs each of them to hold the same part on all its visits."""

    why_whole: ClassVar[str] = "takes updates for whole ones, and clients here have parts of different shapes"
    """Why it cannot, in words that follow its name."""

    @property
    def takes_mean(self) -> bool:
        """Whether it changes, or reads, the mean update that the server steps on."""
        return type(self).before_step is not Mechanism.before_step

    @property
    def of_whole_models(self) -> bool:
        """Whether it looks at models or updates, and so has to say `by_coordinate` what becomes of parts of them."""
        return self.past_the_mean or self.takes_mean

    @property
    def extra_vectors(self) -> int:
        """How many vectors [P] it sends up beside an update, at most."""
        return 0

    @property
    def sends_alike(self) -> bool:
        """Whether every visit that takes steps sends up exactly its `extra_vectors`, and nothing else."""
        return type(self).finish is Mechanism.finish

    def server_start(self, setup: Setup) -> State:
        """The server's state before the first version."""
        return {}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        """What is sent down to one client beside the weights."""
        return {}

    def fill(self, setup: Setup, state: State, report: Report) -> Report:
        """May complete a report of a client that did not train, before it is checked."""
        return report

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        """What is wrong with a report that looks right: with what this mechanism sent up in it, or with its update."""
        return None

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        """May learn from a report once it has been checked and accepted."""
        return state

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        """May change the mean update [P] that the server step is about to take."""
        return state, mean

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        """May learn from the release once the server has stepped."""
        return state

    def measures(self, state: State) -> Mapping[str, float]:
        """Named numbers for the record of a version, from the server's state."""
        return {}

    def client_start(self, setup: Setup) -> State:
        """A client's state before its first visit."""
        return {}

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        """After training, at the client: the new client state, and what is sent up beside the update."""
        return state, {}


@dataclass(frozen=True, kw_only=True)
class Modifier(Mechanism):
    """Base of what changes what another part decides, rather than to take its place.

    A recipe has any number of them. Each changes something else, so their order does not matter.
    """


@final
@dataclass(frozen=True, kw_only=True)
class Visit:
    """What a client knows when a training visit begins.

    Args:
        seed: the experiment's seed.
        client, visit, version, total_rounds: of the assignment.
        num_samples: n_i, samples held.
        batch: samples in a full batch.
        epoch_steps: steps in one pass over the client's samples.
        least: samples in the smallest batch that the model can train on: 2 with BatchNorm.
    """

    seed: int
    client: int
    visit: int
    version: int
    total_rounds: int | None
    num_samples: int
    batch: int
    epoch_steps: int
    least: int = 1


__all__ = ["DEFAULT_COHORT", "Mechanism", "Model", "Modifier", "Need", "Outcome", "Release", "Setup", "States", "Visit"]

States = Mapping[str, State]
"""States, briefs or extras of all mechanisms, by key."""
