"""Which settings come next, and which runs are behind: from results of earlier batches alone.

Trials come in batches. Those of a batch are chosen, and their runs stopped early, by what all batches before it gave,
never by each other. So it makes no difference which of them ends first, or in how many pieces the study was run.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.planning import Arm
from polyrhythm.studies.running.trials import Trial
from polyrhythm.studies.space import Range, Setting, Space

History = Sequence[tuple[int, float]]
"""The score of every evaluated version: (version, score)."""
_STARTUP = 8  # trials that TPE draws at random before it believes that it knows something
_FEWEST = 3  # trials that a median is taken of


def next_batch(arm: Arm, before: Sequence[Trial]) -> list[Setting]:
    """The settings of an arm's next batch of trials; none if all have been chosen.

    Args:
        arm: for which settings are tried.
        before: its trials so far, all of them over.
    """
    search, many, there = arm.search, arm.many, len(before)
    start = there // search.batch * search.batch  # of this batch: more trials were asked for than when it ended
    known = arm.known()
    if known is not None:
        return known[there : start + search.batch if search.prune else many]
    if there >= many:
        return []
    seed = int(stream(search.seed, "search", "tpe", start).integers(2**31))
    return by_tpe(arm.space, before[:start], search.batch, seed)[there - start : many - start]


def by_tpe(space: Space, before: Sequence[Trial], many: int, seed: int) -> list[Setting]:
    """Settings that Optuna's tree of Parzen estimators chooses.

    A pruned trial counts with its last score, as Optuna has it; a failed one does not. Between the choices of a batch
    each one chosen counts as if it had given the lowest score so far ("constant liar"), so that they are not alike.
    """
    import optuna

    with _quiet(optuna):
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {key: _distribution(optuna, values) for key, values in space.items()}
        for trial in before:
            if (told := _told(optuna, space, distributions, trial)) is not None:
                study.add_trial(told)
        lie = min((t.score for t in before if t.score is not None), default=0.0)
        chosen: list[Setting] = []
        for _ in range(many):
            asked = study.ask(distributions)
            chosen.append({key: _value(values, asked.params[key]) for key, values in space.items()})
            study.tell(asked, lie)
    return chosen


def check_optuna() -> None:
    """Goes on if Optuna is there.

    Raises:
        UserError: it is not.
    """
    if find_spec("optuna") is None:
        raise UserError(
            'search = "tpe", but Optuna is not installed',
            expected="the package optuna",
            why="it chooses the settings",
            fix="pip install 'polyrhythm[sweep]', or use search = \"random\"",
        )


def bars(histories: Sequence[History], after: int) -> dict[int, float]:
    """For each version the score that a run must have reached by then, to go on.

    That is the median over earlier runs, of the best that each had reached by that version; of those alone that went on
    as long, and only where there are at least three.

    Args:
        histories: of earlier trials' first runs.
        after: versions until which nothing is stopped.
    """
    climbs = [list(_climb(history)) for history in histories if history]
    found = {}
    for version in sorted({v for climb in climbs for v, _ in climb if v >= after}):
        there = [max(s for v, s in climb if v <= version) for climb in climbs if climb[0][0] <= version <= climb[-1][0]]
        if len(there) >= _FEWEST:
            found[version] = statistics.median(there)
    return found


def _climb(history: History) -> Iterator[tuple[int, float]]:
    """The best score so far, at each version."""
    highest = float("-inf")
    for version, score in history:
        highest = max(highest, score)
        yield version, highest


def _distribution(optuna: Any, values: Range | tuple[Any, ...]) -> Any:
    if isinstance(values, tuple):  # by their places, as Optuna knows few kinds of values
        return optuna.distributions.CategoricalDistribution(range(len(values)))
    kind = optuna.distributions.IntDistribution if values.whole else optuna.distributions.FloatDistribution
    return kind(values.low, values.high, log=values.log)


def _value(values: Range | tuple[Any, ...], given: Any) -> Any:
    if isinstance(values, tuple):
        return values[given]
    return int(given) if values.whole else values.rounded(given)


def _told(optuna: Any, space: Space, distributions: Mapping[str, Any], trial: Trial) -> Any:
    """A trial as Optuna knows it; None if it has nothing to tell."""
    states = {"finished": optuna.trial.TrialState.COMPLETE, "pruned": optuna.trial.TrialState.PRUNED}
    if trial.state not in states or trial.score is None:
        return None
    params = {}
    for key, values in space.items():
        value = trial.setting[key]
        params[key] = [to_json(v) for v in values].index(to_json(value)) if isinstance(values, tuple) else value
    pruned = trial.state == "pruned"
    return optuna.trial.create_trial(
        state=states[trial.state],
        value=None if pruned else trial.score,
        params=params,
        distributions=dict(distributions),
        intermediate_values={1: trial.score} if pruned else {},
    )


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Lets Optuna say only what is wrong."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
