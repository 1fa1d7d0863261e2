"""Looks at everything that a study will run, before any of it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.experiments.prepared import prepare, what_and_how
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.claims import OF_CLIENTS
from polyrhythm.studies.definition import Judge
from polyrhythm.studies.planning import Arm, CellMaker, Plan, in_words
from polyrhythm.studies.space import Range, Setting


def check(plan: Plan) -> None:
    """Goes on if every cell and every setting that is tried makes an experiment, and what is tried can be judged.

    All settings are looked at that are known beforehand. Of a search by results ("tpe") it is each value of a list, and
    both ends of a range, with the first values of all others.

    Raises:
        UserError: some do not; each mistake once, with the value that all settings with that mistake share, or with the
            first cell that has it.
    """
    plan.check()
    wrong, told = Mistakes(), set[str]()
    arms = plan.arms
    for cell in plan.cells:
        if cell.arm is not None and cell.make == arms[cell.arm].make:
            continue  # it is looked at with its settings, without which it may be none
        for mistake in _mistakes(cell.make, {}, (*plan.seeds, 0)[0], measured=plan.of.measure):
            if str(mistake) not in told:
                told.add(str(mistake))
                wrong.add(mistake.at(": ".join(filter(None, (plan.of.name, cell.name)))))
    wrong.refuse()
    for arm in arms.values():
        wrong.add(*_of_arm(arm, alone=len(plan.rows) * len(plan.columns) == 1))
    wrong.refuse()


def _mistakes(
    make: CellMaker, setting: Setting, seed: int, *, judged: Judge | Literal[""] = "", measured: str = ""
) -> tuple[UserError, ...]:
    try:
        experiment, execution = what_and_how(make(setting, seed))
        if measured in OF_CLIENTS and experiment.federation.local_tests is None:
            raise UserError(
                f'measure = "{measured}", of clients who have no tests of their own',
                expected="local_test, too",
                why="the result is what clients' models do on these",
                fix="set local_test = 0.25",
            )
        if judged == "clients" and experiment.federation.local_tests is None:
            raise UserError(
                'a search by "clients", who have no tests of their own',
                expected="local_test, too",
                why="settings are chosen by what clients' models do on these",
                fix="set local_test = 0.25",
            )
        if judged not in ("", "clients") and experiment.federation.validation is None:
            raise no_validation()
        prepare(experiment, execution)  # builds the model, and checks it against the data
    except UserError as error:
        return error.mistakes
    return ()


def no_validation() -> UserError:
    """The mistake of whoever lets settings be chosen by data that are not there."""
    return UserError(
        "a search without validation data (validation = 0)",
        expected="a share of the training data that is held out to choose by",
        why="a setting chosen on the test set looks better there than it is, and nothing would be left to tell",
        fix="set validation = 0.1 (in Python federate(..., validation=0.1))",
    )


def _of_arm(arm: Arm, *, alone: bool) -> Iterator[UserError]:
    known = arm.known()
    settings = list(_corners(arm)) if known is None else known
    found: dict[str, tuple[UserError, list[int]]] = {}
    for number, setting in enumerate(settings):
        for mistake in _mistakes(arm.make, setting, arm.search.seeds[0], judged=arm.search.by):
            found.setdefault(str(mistake), (mistake, []))[1].append(number)
    for mistake, numbers in found.values():
        place = ": ".join(filter(None, ("" if alone else arm.name, _place(arm, settings, numbers))))
        yield mistake.at(place) if place else mistake


def _place(arm: Arm, settings: list[Setting], numbers: list[int]) -> str:
    """What settings with a mistake share and no others have; in words."""
    if len(numbers) == len(settings) > 1:
        return ""
    first, rest = settings[numbers[0]], [s for i, s in enumerate(settings) if i not in {*numbers}]
    for key, value in first.items():
        text = to_json(value)
        shared = all(to_json(settings[i].get(key)) == text for i in numbers)
        if shared and not any(to_json(other.get(key)) == text for other in rest):
            return ": ".join(filter(None, (arm.make.place(arm.row, key), in_words({key: value}))))
    many = f"{len(numbers)} of {len(settings)} trials, such as " if len(numbers) > 1 else ""
    return f"{many}{in_words(first)}"


def _corners(arm: Arm) -> Iterator[Setting]:
    """Each value on its own, with the first of all others."""
    ends = {key: (v.low, v.high) if isinstance(v, Range) else v for key, v in arm.space.items()}
    first = {key: values[0] for key, values in ends.items()}
    yield first
    for key, values in ends.items():
        yield from ({**first, key: value} for value in values[1:])
