"""The job on polyrhythm: engine and workers as `polyrhythm bench` sets them, and the record of the run."""

import dataclasses
import tempfile
import time

import job as jobs
import more
import numpy as np

import polyrhythm as pr
from polyrhythm.bench import bare
from polyrhythm.bench.works import experiment
from polyrhythm.data import ArraySamples
from polyrhythm.data.federation import Shares
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.records import ModelView, VersionRecord


class Clock(Observer):
    """Notes when each version was complete."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.accuracy = 0.0

    def version(self, record: VersionRecord, model: ModelView) -> None:
        if record.version:
            self.ends.append(time.time())
        if record.test is not None:
            self.accuracy = record.test["accuracy"]


def main() -> None:
    job = jobs.load(jobs.path())
    more.add(bare)
    of = experiment(job.name, job.rounds)
    samples = ArraySamples(job.inputs, job.targets)
    federation = dataclasses.replace(
        of.federation,
        shares=Shares.of(samples, np.arange(len(samples)), np.full(job.work.clients, job.work.samples)),
        test=ArraySamples(job.test_inputs, job.test_targets),
    )
    recipe = of.recipe | pr.parts.local_sgd(lr=job.lr)
    of = dataclasses.replace(of, federation=federation, model=job.model(), recipe=recipe, config=None)
    if jobs.EVALUATES:
        of = dataclasses.replace(of, evaluation=pr.Evaluation(every=1, train_samples=len(samples)))
    prepared = prepare(of, Execution(workers=2))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        carry_out(prepared, [Recorder(folder), clock])
    # The last version is evaluated, and nobody trains for a next one meanwhile: it is not like the others.
    jobs.tell(f"polyrhythm {pr.__version__}", clock.ends, clock.accuracy, engine=prepared.chosen.name)


if __name__ == "__main__":
    main()
