"""The job on PFLlib's FedAvg, which runs in one process.

PFLlib has no package: the environment's PFLLIB names a checkout of github.com/TsingZ0/PFLlib. It reads a client's
samples from a file of its own whenever it trains, as it always does. In its favour: nothing is evaluated but at the
end, where by default it evaluates all clients' training data in every round; --evaluated has it do so. What it
imports for pictures and results in HDF5 is not used here, and need not be installed.
"""

import contextlib
import io
import json
import os
import time
from pathlib import Path

import job as jobs
import numpy as np
import pfllib


def write(job: jobs.Job, folder: Path) -> None:
    """The job's samples as PFLlib's own programs leave them."""
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
    size = len(job.test_inputs) // job.work.clients
    for client in range(job.work.clients):
        piece = slice(client * size, (client + 1) * size)
        test = {"x": job.test_inputs[piece].numpy(), "y": job.test_targets[piece].numpy()}
        inputs, targets = job.held(client)
        np.savez_compressed(folder / "train" / f"{client}.npz", data={"x": inputs.numpy(), "y": targets.numpy()})
        np.savez_compressed(folder / "test" / f"{client}.npz", data=test)
    (folder / "config.json").write_text(json.dumps({"num_clients": job.work.clients}))


def main() -> None:
    pfllib.importable("system", [*pfllib.NOT_USED, *(() if jobs.EVALUATES else pfllib.MEASURES)])
    from flcore.servers.serveravg import FedAvg

    job = jobs.load(jobs.path())
    work = job.work
    write(job, Path("dataset") / "job")
    Path("system").mkdir()
    os.chdir("system")
    settings = pfllib.settings(
        **{"dataset": "job", "num_classes": work.classes, "model": job.model(), "algorithm": "FedAvg"},
        **{"global_rounds": job.rounds - 1, "local_epochs": work.epochs, "batch_size": work.batch},
        **{"local_learning_rate": job.lr, "num_clients": work.clients, "join_ratio": work.cohort / work.clients},
    )
    ends: list[float] = []

    class Timed(FedAvg):  # type: ignore[misc,valid-type]
        def evaluate(self, acc: object = None, loss: object = None) -> None:
            """Nothing, unless programs are to evaluate every version."""
            if jobs.EVALUATES:
                super().evaluate(acc, loss)
            else:
                self.rs_test_acc = [0.0]

        def aggregate_parameters(self) -> None:
            super().aggregate_parameters()
            ends.append(time.time())

    with contextlib.redirect_stdout(io.StringIO()):
        server = Timed(settings, 0)
        server.train()
    jobs.tell("PFLlib", ends, job.accuracy(server.global_model))


if __name__ == "__main__":
    main()
