"""A round or two on data as they were given: the same weights whoever computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polyrhythm as pr
from drawn.arrays import drawn_arrays
from drawn.case import Case, Draw
from drawn.sets import drawn_set
from drawn.tables import drawn_table
from polyrhythm.base.errors import PolyrhythmError

KINDS = (drawn_table, drawn_arrays, drawn_set)


def drawn_run(draw: Draw, folder: Path) -> Case:
    """An experiment on one of the other inputs, which is carried out in this process and in two others."""
    case = draw.choice(KINDS)(draw, folder)
    while case.must == "refuse":
        case = draw.choice(KINDS)(draw, folder)
    rounds, seed = draw.choice([1, 2]), draw.randrange(100)

    def read() -> tuple[str, str]:
        digests = []
        for driver, workers in (("inline", 1), ("processes", 2)):
            federation = pr.federate(case.read(), pr.data.Iid(), clients=3, seed=seed)
            experiment = pr.Experiment(
                federation=federation,
                model="logistic",
                recipe=pr.fedavg(cohort=2, batch=8, lr=0.01, epochs=1),
                rounds=rounds,
                seed=seed,
            )
            execution = pr.Execution(driver=driver, workers=workers)
            digests.append(_outcome(experiment, execution, folder / driver))
        return digests[0], digests[1]

    def judge(found: tuple[str, str]) -> str:
        if "cannot be sent to another process" in found[1]:  # such as a data set with a lambda
            return ""
        return "" if found[0] == found[1] else f"inline {found[0]}, processes {found[1]}"

    return Case(told=f"{rounds} rounds of {case.told}", read=read, judge=judge, runs=True)


def _outcome(experiment: Any, execution: Any, out: Path) -> str:
    """The digest of a run, or why it had none."""
    try:
        return str(pr.run(experiment, execution=execution, out=out).summary["digest"])
    except PolyrhythmError as error:
        return str(error).split("\n")[0]
