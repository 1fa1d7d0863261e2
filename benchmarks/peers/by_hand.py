"""The job in plain PyTorch, in two processes with one thread each."""

import time

import bare
import job as jobs
from torch import nn


class Holder(bare.Trainer):
    """The bare loop's trainer, on the job's data."""

    def __init__(self, job: jobs.Job) -> None:
        self.work, self.model = job.work, job.model()
        self.inputs, self.targets = job.inputs, job.targets
        self.parameters = list(self.model.parameters())


def main() -> None:
    job = jobs.load(jobs.path())
    bare.Trainer = lambda work: Holder(job)
    crew = bare.Together(job.work, job.weights, workers=2)
    ends = []
    for number in range(job.rounds):
        crew.round(bare.own_round(job.work, number))
        ends.append(time.time())
    model: nn.Module = job.model()
    for parameter, weight in zip(model.parameters(), crew.weights, strict=True):
        parameter.data.copy_(weight)
    jobs.tell("bare loop", ends, job.accuracy(model))
    crew.close()


if __name__ == "__main__":
    main()
