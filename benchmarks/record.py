"""What recording costs: seconds per version and rows per second, for quick versions with ten visits each."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord, VisitRecord
from polyrhythm.runs.recorder import Recorder

VERSIONS, COHORT, PARAMETERS = 5_000, 10, 10_000


def main() -> None:
    weights = {"weight": torch.zeros(PARAMETERS)}
    plan = Plan(
        name="benchmark",
        config={},
        recipe="none",
        recipe_digest="",
        seed=0,
        rounds=VERSIONS,
        notices=(),
        headline="accuracy",
        parameters=PARAMETERS,
        clients=COHORT,
    )
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        recorder.begin(plan)
        start = time.perf_counter()
        for number in range(VERSIONS):
            for client in range(COHORT):
                dispatch = number * COHORT + client
                recorder.visit(
                    VisitRecord(dispatch=dispatch, client=client, version=number, visit=number, status="trained")
                )
            recorder.version(_version(number), lambda: weights)
        recorder.end("finished", "", {})
        seconds = time.perf_counter() - start
        rows = VERSIONS * (COHORT + 1)
        size = (Path(folder) / "runs.sqlite").stat().st_size
        each = seconds / VERSIONS * 1e6
        print(f"record: {each:.0f} us per version, {rows / seconds:,.0f} rows/s, {size / rows:.0f} bytes/row")
        start = time.perf_counter()
        run = Run.open("benchmark", folder)
        assert len(run.visits) + len(run.history) == rows
        print(f"read back as frames: {time.perf_counter() - start:.2f} s")


def _version(number: int) -> VersionRecord:
    return VersionRecord(
        version=number,
        time=float(number),
        wall=0.0,
        cohort=COHORT,
        accepted=COHORT,
        dropped=0,
        rate=0.1,
        train_loss=1.0,
        test={"loss": 1.0, "accuracy": min(number / VERSIONS, 0.5)},  # half of the versions are a new best
        validation=None,
        train=None,
        clients=None,
        client_updates=number * COHORT,
        local_steps=0,
        samples=0,
        flops=0,
        bytes_up=0,
        bytes_down=0,
    )


if __name__ == "__main__":
    main()
