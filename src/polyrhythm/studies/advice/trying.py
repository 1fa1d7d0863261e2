"""Trying what is advised: successive halving on the validation data, within the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.config.expressions import Call, Pipe
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Planned, what_and_how
from polyrhythm.experiments.settings import Until
from polyrhythm.results import Run
from polyrhythm.runs.costs import COSTS
from polyrhythm.studies.advice.advising import Advice, Budget, made, rounds_within
from polyrhythm.studies.advice.evidence import FIRST, RESOURCES
from polyrhythm.studies.checking import check, no_validation
from polyrhythm.studies.definition import Search, Study
from polyrhythm.studies.planning import planned
from polyrhythm.studies.running.executing import Listener, carry_out
from polyrhythm.studies.running.trials import Trial
from polyrhythm.studies.space import Setting

RECIPES = 4
"""How many recipes are tried, the first of the advice; FedAvg is always one of them."""
RATES = (1.0, 3.0, 1 / 3)
"""What the rate of each is multiplied by: the server's where it has one of its own, else the local one."""
LEAST = 5
"""Rounds of FedAvg that the share of a candidate pays for in the first rung: with fewer, nothing can be told apart."""
_RUNGS = ((12, 6, 3), (8, 4, 2), (4, 2), (2,))  # candidates in each: the first that the budget pays for


@final
@dataclass(frozen=True, kw_only=True)
class Rung:
    """Rung: the candidates that were left, and what they gave.

    Args:
        name: of its study, whose runs are called `NAME/1` and so on.
        trials: their trials, the best first.
        spent: of the budget, by its runs.
    """

    name: str
    trials: tuple[Trial, ...]
    spent: float


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """Choice: what came of trying.

    Args:
        method: the candidate that is left, as an experiment file has it.
        rounds: that it makes of the whole budget.
        score: on the validation data, in the last rung.
        rungs: all of them, in order.
    """

    method: str
    rounds: int
    score: float
    rungs: tuple[Rung, ...]

    @property
    def spent(self) -> float:
        """Of the budget, by all tries."""
        return math.fsum(rung.spent for rung in self.rungs)


def attempt(
    advice: Advice,
    experiment: Experiment,
    *,
    make: Callable[[Setting, int], Planned] | None = None,
    name: str = "",
    out: Path | str = "runs",
    workers: int | None = 1,
    execution: Execution = AUTO,
    listener: Listener | None = None,
) -> Choice:
    """Tries the first recipes of an advice, with up to three rates each, by successive halving.

    Each rung has the same part of the budget, evenly over the candidates that are left; the better half by the
    validation data goes on to the next, and begins anew there, with twice as many rounds. There are as many candidates,
    up to 12, as have the worth of five rounds of FedAvg in the first rung. All tries together stay within the budget,
    as far as their costs are known beforehand. Each is a run in the record. Called again it goes on where it was
    stopped.

    Reference: Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS
    2016, but that candidates begin anew.

    Args:
        advice: what to try.
        experiment: for which; it needs validation data.
        make: makes the experiment of a setting, of "method" and "rounds", and a seed; None for `experiment` with these.
        name: what the runs are called; "" for the experiment's own.
        out: the folder of the record.
        workers: runs at once, if `make` can be imported by other processes.
        execution: how it is computed.
        listener: whoever wants to know how it goes.

    Raises:
        UserError: no validation data, or a budget that does not pay for two candidates; or another attempt of this name
            is in the folder.
    """
    check_validation(experiment)
    make = make or _Replaced(experiment, execution)
    sizes = _sizes(advice)
    left, rungs = candidates(advice)[: sizes[0]], list[Rung]()
    for number, size in enumerate(sizes, start=1):
        left = left[:size]
        share = advice.budget.amount / len(sizes) / len(left)
        rounds = {text: _rounds(experiment, text, advice, share, execution) for text in left}
        settings = tuple({"method": text, "rounds": rounds[text]} for text in left)
        called = f"{name or experiment.name or 'advised'} rung {number}"
        search = Search(kind="list", settings=settings, seeds=(experiment.seed,))
        plan = planned(Study(name=called, rows={"": make}, search=search))
        if number == 1:
            check(plan)
        record = carry_out(plan, out, workers, listener=listener)
        order = sorted(record.trials, key=lambda t: (-(t.score if t.score is not None else -math.inf), t.number))
        rungs.append(Rung(name=called, trials=tuple(order), spent=_spent(order, out, advice.budget)))
        if order[0].score is None:
            raise _none_finished(order[0])
        left = [str(trial.setting["method"]) for trial in order if trial.score is not None]
    best = rungs[-1].trials[0]
    assert best.score is not None
    rounds_in_all = _rounds(experiment, left[0], advice, advice.budget.amount, execution)
    return Choice(method=left[0], rounds=rounds_in_all, score=best.score, rungs=tuple(rungs))


def check_validation(experiment: Experiment) -> None:
    """Goes on if candidates can be judged, which is known before anything is measured.

    Raises:
        UserError: there are no validation data.
    """
    if experiment.federation.validation is None:
        raise no_validation()


def candidates(advice: Advice) -> list[str]:
    """The methods that may be tried: the first recipes, FedAvg among them, first as they are, then at other rates."""
    chosen = [*advice.suggestions[:RECIPES]]
    if all(one.recipe != FIRST for one in chosen):
        chosen = [chosen[0], next(one for one in advice.suggestions if one.recipe == FIRST), *chosen[1:-1]]
    return [_with_rate(one.method, factor) for factor in RATES for one in chosen]


def _sizes(advice: Advice) -> tuple[int, ...]:
    """How many candidates each rung has.

    Raises:
        UserError: the budget does not pay for two.
    """
    rounds = advice.situation.rounds
    for sizes in _RUNGS:
        if rounds >= LEAST * len(sizes) * sizes[0]:
            return sizes
    raise UserError(
        f"tries within {advice.budget}, which pays for {rounds:.0f} rounds of FedAvg",
        expected=f"{2 * LEAST} rounds or more",
        why=f"two candidates would have less than {LEAST} rounds each, after which nothing can be told apart",
        fix="a larger budget, or leave --try out and take the advice as it is",
    )


def _with_rate(method: str, factor: float) -> str:
    """A method with its rate multiplied: the server's where one is given, else the local one."""
    call, *piped = Pipe.of(method).calls
    key = "server_lr" if "server_lr" in call.named else "lr"
    rate = float(f"{call.named[key] * factor:.3g}")
    return str(Pipe([Call(call.name, call.positional, {**call.named, key: rate}), *piped]))


def _rounds(experiment: Experiment, method: str, advice: Advice, amount: float, execution: Execution) -> int:
    alike = replace(experiment, recipe=made(method), until=Until(), config=None)
    return rounds_within(alike, advice.budget, amount, execution)


def _spent(trials: Sequence[Trial], out: Path | str, budget: Budget) -> float:
    """What the runs of trials have spent of a budget."""
    runs = [Run.open(run, out).versions for trial in trials for run in trial.runs.values()]
    return math.fsum(float(COSTS[RESOURCES[budget.resource]].of(rows[-1]) or 0.0) for rows in runs if rows)


@final
@dataclass(frozen=True)
class _Replaced:
    """The maker of an experiment with another method, rounds and seed."""

    experiment: Experiment
    execution: Execution

    @property
    def own(self) -> Mapping[str, Any]:
        """What distinguishes it from the maker of another experiment, as plain data."""
        return self.experiment.describe()

    def __call__(self, setting: Mapping[str, Any], seed: int) -> Planned:
        recipe = made(setting["method"])
        other = replace(self.experiment, recipe=recipe, rounds=setting["rounds"], until=Until(), seed=seed, config=None)
        return what_and_how((other, self.execution))


def _none_finished(trial: Trial) -> UserError:
    return UserError(
        f"no candidate came to an end: {trial.reason.partition(chr(10))[0]}",
        expected="one that gives a number on the validation data",
        why="nothing can be chosen",
        fix="a smaller local rate in the experiment's method",
    )


def told(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    """What was tried, as plain data."""
    return [
        {
            "rung": number,
            "study": rung.name,
            "spent": rung.spent,
            "tried": [{**trial.setting, "score": trial.score, "state": trial.state} for trial in rung.trials],
        }
        for number, rung in enumerate(rungs, start=1)
    ]
