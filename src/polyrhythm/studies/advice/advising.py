"""Advice for an experiment: the recipes worth trying, by the evidence of the settings that are like it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

from polyrhythm.base.errors import UserError, check_kind, unknown
from polyrhythm.config import names
from polyrhythm.config.expressions import Pipe
from polyrhythm.experiments.dry_run import DryRun, dry_run
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.settings import Until
from polyrhythm.methods.local.optimisers import LocalAdam, LocalSgd
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Epochs, Steps
from polyrhythm.studies.advice.evidence import (
    FAR,
    FIRST,
    RESOURCES,
    RULE,
    Resource,
    Standing,
    Tried,
    evidence,
    nearest,
    standings,
    tried,
)
from polyrhythm.studies.advice.situation import Situation, situation

METHODS: Mapping[str, str] = {
    "FedAvg": "fedavg(cohort={cohort}, {local})",
    "FedProx": "fedprox(mu=0.1, cohort={cohort}, {local})",
    "SCAFFOLD": "scaffold(cohort={cohort}, {local})",
    "FedNova": "fednova(cohort={cohort}, {local})",
    "FedAdam": "fedadam(cohort={cohort}, {local})",
    "FedBuff": "fedbuff(concurrency={cohort}, buffer={cohort}, {local})",
    "FADAS": "fadas(concurrency={cohort}, buffer={cohort}, {local})",
    "ALT": "alt(cohort={cohort}, {local})",
    "CCFL": "ccfl(cohort={cohort}, {local})",
    "FedCL": "fedcl(cohort={cohort}, {local})",
    "CC-FedAdam": "cc_fedadam(cohort={cohort}, {local})",
    "HeteroFL": "heterofl(scaler=false, cohort={cohort}, {local})",
    "Curriculum": "curriculum_fl(score=local, cohort={cohort}, {local})",
    "FedAvg by sweeps": "fedavg(cohort={cohort}, {local}) | sweep",
}
"""The recipes that were compared, as an experiment file has them; `local` is what all of them do at a client."""
SHOWN = 3
"""Of the settings that advice rests on, the nearest ones, which it shows."""
_VISITS = 6_000  # that are counted at most to know what a recipe costs; not seconds, so that all machines count alike
_ROUNDS = 30  # by which that is foreseen


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """Budget: what a run may spend.

    Args:
        resource: "updates", client updates; "time", virtual seconds; "bytes", both ways; or "joules".
        amount: of it, above 0.
    """

    resource: Resource
    amount: float

    @classmethod
    def of(cls, given: str | Mapping[str, float] | Budget) -> Budget:
        """A budget from a text such as "time=3600", or {"time": 3600}.

        Raises:
            UserError: it is neither.
        """
        if isinstance(given, Budget):
            return given
        check_kind("budget", given, (str, Mapping), '{"time": 3600}')
        pairs = [given.partition("=")[::2]] if isinstance(given, str) else [*given.items()]
        try:
            ((name, amount),) = pairs
            found = float(amount)
        except (TypeError, ValueError):
            name, found = "", 0.0
        if not name or not 0.0 < found < float("inf"):
            raise UserError(
                f"a budget of {given!r}",
                expected="one of updates, time, bytes and joules, and how much, more than 0",
                why="advice depends on what is scarce",
                fix='say "time=3600" for an hour of virtual time, or "bytes=1e9"',
            )
        name = str(name).strip()
        if name not in RESOURCES:
            raise unknown("resource", name, RESOURCES, where="the budget")
        return cls(resource=name, amount=found)  # type: ignore[arg-type]  # as was looked up

    def spent(self, dry: DryRun) -> float:
        """How much of it a dry run has spent."""
        return float(
            {
                "updates": dry.updates,
                "time": dry.virtual_seconds,
                "bytes": dry.bytes_up + dry.bytes_down,
                "joules": dry.joules,
            }[self.resource]
        )

    def __str__(self) -> str:
        return f"{self.resource}={self.amount:g}"


@final
@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A recipe with its evidence.

    Args:
        recipe: what people call it.
        method: it, as an experiment file has it, with the experiment's cohort and local settings.
        standing: in the settings that are nearest.
    """

    recipe: str
    method: str
    standing: Standing


@final
@dataclass(frozen=True, kw_only=True)
class Near:
    """A setting of the evidence, and what it counts.

    Args:
        distance: from the experiment; about 1 is one step of the evidence.
        share: of it in the mean by which recipes are ordered.
        setting: what recipes gave there.
    """

    distance: float
    share: float
    setting: Tried


@final
@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice: recipes in the order in which they are worth trying, and what that rests on.

    Args:
        situation: of the experiment.
        budget: what a run may spend.
        near: the nearest settings of those that it rests on.
        suggestions: all recipes that were compared and that the experiment's model, data and local settings allow.
        notes: where the evidence does not reach, and what is left out, in words.
        made: when and by what the evidence was made.
    """

    situation: Situation
    budget: Budget
    near: tuple[Near, ...]
    suggestions: tuple[Suggestion, ...]
    notes: tuple[str, ...]
    made: Mapping[str, Any]

    @property
    def reaches(self) -> bool:
        """Whether a setting that was tried is like the experiment."""
        return self.near[0].distance <= FAR

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "situation": self.situation.plain(),
            "budget": asdict(self.budget),
            "reaches": self.reaches,
            "near": [
                {
                    "setting": one.setting.words,
                    "distance": one.distance,
                    "share": one.share,
                    "situation": one.setting.situation.plain(),
                }
                for one in self.near
            ],
            "suggestions": [
                {"recipe": one.recipe, "method": one.method, "best": one.standing.best, **asdict(one.standing.gain)}
                for one in self.suggestions
            ],
            "notes": list(self.notes),
            "evidence": dict(self.made),
        }


def advise(
    experiment: Experiment, budget: str | Mapping[str, float] | None = None, *, execution: Execution = AUTO
) -> Advice:
    """Names the recipes that are worth trying for an experiment. Nothing is trained.

        found = pr.advise(experiment, budget="time=3600")
        found.suggestions[0].method, found.notes

    Data skew, speeds, presence, cohort, and the rounds that FedAvg makes of the budget are measured, and compared with
    those of the settings in a table that comes with the package; recipes are ordered by their mean gain over FedAvg
    there, of which near settings have more. `notes` says where the table does not reach.

    Args:
        experiment: whose data, model, fleet, cohort and local settings count. Its method is what is advised on.
        budget: what a run may spend, such as "time=3600" or {"bytes": 1e9}; None for what the experiment says: `until`
            a time or updates, or its rounds.
        execution: how it is computed.

    Raises:
        UserError: a budget that is none, or that does not pay for a round; or something is wrong with the experiment.
    """
    check_kind("experiment", experiment, Experiment, "pr.Experiment(…)")
    table = evidence()
    spend = _own_budget(experiment) if budget is None else Budget.of(budget)
    recipe = experiment.recipe
    local = local_settings(recipe)
    first = replace(experiment, recipe=made(METHODS[FIRST].format(cohort=recipe.cohort, local=local)), config=None)
    rounds, seconds = _within(first, spend, spend.amount, execution)
    of = situation(experiment, recipe.cohort, rounds, seconds)
    every = nearest(of, tried(table, spend.resource))
    weights = RULE.weights([distance for distance, _ in every])
    near = [Near(distance=d, share=share, setting=one) for (d, one), share in zip(every, weights, strict=True)]
    suggestions, gone = list[Suggestion](), list[str]()
    for one in standings([setting for _, setting in every], weights):
        method = method_of(one.recipe, recipe, near[0].setting)
        try:
            prepare(replace(first, recipe=made(method), rounds=rounds, until=Until()), execution)
        except UserError as error:
            gone.append(f"{one.recipe} is left out: {error.found}")
        else:
            suggestions.append(Suggestion(recipe=one.recipe, method=method, standing=one))
    return Advice(
        situation=of,
        budget=spend,
        near=tuple(near[:SHOWN]),
        suggestions=tuple(suggestions),
        notes=(*_notes(experiment, near[0], of, [one.method for one in suggestions]), *gone),
        made=table["made"],
    )


def _own_budget(experiment: Experiment) -> Budget:
    """What the experiment itself may spend."""
    until = experiment.until
    if until.time is not None:
        return Budget(resource="time", amount=until.time)
    if until.updates is not None:
        return Budget(resource="updates", amount=until.updates)
    if experiment.rounds is not None:
        return Budget(resource="updates", amount=float(experiment.rounds * experiment.recipe.cohort))
    raise UserError(
        "an experiment whose end nobody knows",
        expected="rounds, until.time or until.updates; or a budget",
        why="what pays depends on how much may be spent",
        fix="--budget time=3600, in Python budget={'time': 3600}",
    )


def made(method: str) -> Recipe:
    """The recipe of a text of ours."""
    return names.piped([names.piece(call, method, begins=n == 0) for n, call in enumerate(Pipe.of(method).calls)])


def method_of(name: str, recipe: Recipe, at: Tried) -> str:
    """A recipe with the cohort and the local settings of another one, and the server's rate that was best nearby."""
    text = METHODS[name].format(cohort=recipe.cohort, local=local_settings(recipe))
    rate = at.rates.get(name, {}).get("method.server_lr")
    return text if rate is None else f"{text[:-1]}, server_lr={rate:g})"


def local_settings(recipe: Recipe) -> str:
    """What a recipe does at a client, as the settings of every recipe."""
    optimiser, work = recipe.optimiser, recipe.work
    told: dict[str, Any] = {"epochs": 2.0}
    if isinstance(work, Epochs):
        told = {"epochs": work.epochs}
    elif isinstance(work, Steps):
        told = {"steps": work.steps}
    told |= {"batch": "none" if recipe.batch is None else recipe.batch, "lr": optimiser.lr}
    told |= {"weight_decay": optimiser.weight_decay} if optimiser.weight_decay else {}
    told |= {"clip": optimiser.clip} if optimiser.clip is not None else {}
    if isinstance(optimiser, LocalSgd) and optimiser.momentum:
        told |= {"momentum": optimiser.momentum, "nesterov": str(optimiser.nesterov).lower()}
    if isinstance(optimiser, LocalAdam):
        told |= {"optimiser": "adamw" if optimiser.decoupled else "adam"}
    return ", ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in told.items()
    )


def rounds_within(experiment: Experiment, budget: Budget, amount: float, execution: Execution) -> int:
    """How many versions of an experiment an amount of the budget pays for, counted without training.

    Raises:
        UserError: not for one; or it costs nothing of what the budget is of.
    """
    return _within(experiment, budget, amount, execution)[0]


def _within(experiment: Experiment, budget: Budget, amount: float, execution: Execution) -> tuple[int, float]:
    """The same, and the virtual seconds that they take."""
    dry = _counted(experiment, _ROUNDS, execution)
    each = budget.spent(dry) / max(1, dry.versions)
    if each <= 0.0:
        if budget.resource == "updates":
            raise UserError(
                f"a budget of {budget}, and a round brings no update",
                expected="devices of which some answer",
                why="nothing would be trained",
                fix="look at the faults and the presence of the fleet",
            )
        raise UserError(
            f"a budget of {budget}, of which a round costs nothing",
            expected="a fleet that says what it costs",
            why="everything would fit into it",
            fix="pipe energy onto the fleet: fleet = 'phones | energy'"
            if budget.resource == "joules"
            else "give a budget of something else",
        )
    rounds = int(amount / each + 1e-9)
    while 0 < rounds <= _countable(experiment):  # not all cost the same, as where the last of a sweep is smaller
        dry = _counted(experiment, rounds, execution)
        if budget.spent(dry) <= amount * (1 + 1e-9):
            break
        rounds -= max(1, int((budget.spent(dry) - amount) / each))
    if rounds < 1:
        raise UserError(
            f"{budget.resource}={amount:g}, of which a round of {experiment.recipe.title} costs {each:.4g}",
            expected="enough for a round",
            why="nothing would be trained",
            fix=f"a larger budget: {budget.resource}={each * 10:.2g} is ten rounds",
        )
    return rounds, dry.virtual_seconds * rounds / max(1, dry.versions)


def _counted(experiment: Experiment, rounds: int, execution: Execution) -> DryRun:
    """A dry run of so many rounds, or of as many as are counted at most."""
    least = min(rounds, _countable(experiment))
    return dry_run(prepare(replace(experiment, rounds=least, until=Until()), execution))


def _countable(experiment: Experiment) -> int:
    return max(1, _VISITS // experiment.recipe.cohort)


def _notes(experiment: Experiment, near: Near, of: Situation, methods: Sequence[str]) -> Iterator[str]:
    distance = near.distance
    if distance > FAR:
        parts = near.setting.situation.apart(of)
        worst = ", ".join(key for key, value in sorted(parts.items(), key=lambda pair: -pair[1]) if value > 1.0)
        yield (
            f"the evidence does not reach this experiment: the nearest setting is {distance:.1f} away ({worst}), where "
            f"more than {FAR:g} is another kind of setting; take the order as a guess, and try"
        )
    if of.skew is None:
        yield "samples have no classes, so that nobody knows how unlike clients are; the evidence is of ten classes"
    if left_out := [*_left_out(experiment.recipe, methods)]:
        yield f"no recipe has these parts of the experiment's method, which you may put in: {'; '.join(left_out)}"
    yield (
        "the evidence is of small images and perceptrons: on other data and models the order is less sure than its "
        "intervals say"
    )


def _left_out(recipe: Recipe, methods: Sequence[str]) -> Iterator[str]:
    """The parts and settings of a recipe that none of some methods has, as they are written."""
    offered = [one for method in methods for one in _described(made(method))]
    for label, own in _described(recipe):
        alike = [other for name, other in offered if name == label]
        if own not in alike:
            told = [f"{k}={v}" for k, v in own.items() if k != "name" and not (alike and alike[0].get(k) == v)]
            yield f"{label}({', '.join(told)})" if told else label


def _described(recipe: Recipe) -> list[tuple[str, Mapping[str, Any]]]:
    """All that a recipe is made of, by the names that these have."""
    parts = [(part.label(), part.describe()) for part in (*recipe.parts(), recipe.optimiser, recipe.schedule)]
    return [*parts, ("recipe", {"drop_last": recipe.drop_last, "regime": recipe.regime})]
