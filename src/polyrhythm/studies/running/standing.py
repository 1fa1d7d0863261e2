"""A study as it stands: what its runs have made so far, over or not."""

from __future__ import annotations

from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.studies.planning import Plan
from polyrhythm.studies.running.executing import record_of, restored
from polyrhythm.studies.running.performing import Job, begun
from polyrhythm.studies.running.trials import Record, best


def as_it_stands(plan: Plan, out: Path | str) -> Record:
    """The record of a study with the runs of its cells that have been begun; nothing is run, or written.

    Args:
        plan: what is looked at.
        out: the folder of all records.

    Raises:
        UserError: no run of it has been begun, or another study of this name is there.
    """
    folder, record = plan.folder(out), record_of(plan, out)
    runs, failed = dict[str, dict[int, str]](), dict[str, dict[int, str]]()
    for cell in plan.cells:
        setting = {}
        if cell.arm is not None:
            chosen = best(record.trials, cell.arm)
            if chosen is None:
                continue
            setting = dict(restored(plan.arms[cell.arm], chosen.setting))
        for seed in plan.seeds:
            job = Job(of=cell.called, name=cell.called, setting=setting, seed=seed, out=str(plan.runs_folder(out)))
            found = begun(job, cell.make)
            if found is None:
                continue
            if found.status == "failed":
                failed.setdefault(cell.name, {})[seed] = found.reason
            else:
                runs.setdefault(cell.name, {})[seed] = found.id
    if not runs and not failed and (plan.seeds or not any(trial.over for trial in record.trials)):
        raise UserError(
            f"nothing has been made of {plan.of.name} in {folder}",
            expected="a run of it that has made a version",
            why="its page shows what there is",
            fix="polyrhythm study makes its runs; --out FOLDER and --set as they were made with",
        )
    record.runs, record.failed = runs, failed
    return record
