"""Who computes an experiment, and with what: nothing of it decides a number beyond an engine's rounding.

Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, final

from annotated_types import Ge, Le, MinLen

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.settings import Count, Settings, Takes
from polyrhythm.engines import kinds
from polyrhythm.runs.checkpoints import Checkpoint
from polyrhythm.simulation.client_store.amount import budget
from polyrhythm.simulation.workers import drivers

Cluster = Annotated[str, MinLen(1), Takes("the address of a Ray cluster, such as 10.0.0.1:6379, or auto")]


@final
@dataclass(frozen=True, kw_only=True)
class Execution(Settings):
    """How an experiment is computed. A run may go on with another one, and its record keeps which it had.

    Args:
        driver: who carries out visits. "inline": one after the other in this process; "processes", "threads" and "ray":
            several at once; "auto": by a fixed rule (`polyrhythm.simulation.workers.choosing`). Changes no number.
        workers: how many visits run at once, which changes no number. None for as many as there are processors. Two or
            more ask for workers by themselves.
        address: of a Ray cluster, or auto on one of its machines. With driver="ray", such as "10.0.0.1:6379"; None to
            start one here, which ends with the run.
        gpus: the share of a GPU that each of Ray's workers takes, such as 0.25. There the stacked engine computes their
            visits, and `device` is where models are measured. None for workers on processors.
        engine: what computes local steps. "torch"; "native", which is C++; "stacked", a cohort at once, for GPUs; or
            "auto", by a fixed rule (`polyrhythm.engines.selection`). What one of them cannot take is torch's. Another
            one rounds otherwise.
        device: where cohorts are stacked: auto, cpu or cuda. There models are measured, too; "cuda:1" is the second
            GPU, "auto" a GPU if there is one. Other engines than the stacked one compute on the processor.
        stack: how many visits the stacked engine takes at once. Of those that begin at once: None for all of them, and
            on Ray for as many as give each worker the same, which follows from `workers` and is in the record. A
            client's last bits may depend on it, and for the same `stack` not on who carries visits out.
        precision: of the stacked engine's products. "float32"; "tf32", with 10 bits of mantissa, on a GPU; "bfloat16",
            as torch's autocast does. Both are faster on a GPU made for them, and round coarsely. Weights, gradients and
            whatever is measured stay float32.
        micro_batch: how many samples of a batch are in memory at once. The gradient is that of the batch to rounding:
            pieces are weighed by samples, or by answer tokens where the loss is a mean over these. Dropout draws other
            masks. For the torch engine. None for whole batches.
        recompute: whether what is inside of a model's repeated blocks is computed anew for the gradient in place of
            being kept, which takes a third more time. For the torch engine. Changes no number.
        client_memory: how much of what clients remember is in memory, such as 1GiB; the rest is in files. Those of the
            clients that took part longest ago, and checkpoints only name them. "all" for no files. Changes no number.
        checkpoint: how often it writes down what it needs to go on after its process was killed. Changes no number.

    Raises:
        UserError: values out of range, or that contradict each other.
    """

    driver: drivers.Asked = "auto"
    workers: Count | None = None
    address: Cluster | None = None
    # Ray tells ten-thousandths of a GPU from each other.
    gpus: Annotated[float, Ge(1e-4), Le(1), Takes("a share of a GPU: a number from 0.0001 to 1")] | None = None
    engine: kinds.Asked = "auto"
    device: Annotated[str, MinLen(1), Takes("auto, cpu, cuda, or cuda:1 for the second GPU")] = "auto"
    stack: Count | None = None
    precision: kinds.Precision = "float32"
    micro_batch: Count | None = None
    recompute: bool = False
    client_memory: Annotated[str, Takes('an amount with its unit, such as "1 GiB", or "all"')] = "all"
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = Mistakes()
        for check in (_check_driver, _check_gpus, _check_address, _check_engine, _check_memory):
            with wrong.noted():
                check(self)
        wrong.refuse()


def _check_driver(execution: Execution) -> None:
    driver, workers = execution.driver, execution.workers
    if driver == "inline" and (workers or 1) > 1:
        raise UserError(
            f"driver=inline with workers={workers}",
            expected="one of them",
            why="in line, visits run one after the other",
            fix="driver=processes, or leave workers out",
        )


def _check_gpus(execution: Execution) -> None:
    gpus, driver, workers = execution.gpus, execution.driver, execution.workers
    if gpus is None:
        return
    if driver != "ray":
        raise UserError(
            f"gpus={gpus:g} with driver={driver}",
            expected="driver=ray",
            why="Ray's workers share GPUs; this process takes a whole one",
            fix="driver=ray, or leave gpus out: the stacked engine computes on a GPU, if there is one, by itself",
        )
    if workers is None:
        raise UserError(
            f"gpus={gpus:g} without workers",
            expected="how many workers take so much of a GPU each",
            why="how many there are room for is known only once the cluster is",
            fix=f"workers={max(1, int(1 / gpus + 1e-9))}, for example: so many share one GPU",
        )


def _check_address(execution: Execution) -> None:
    driver, workers = execution.driver, execution.workers
    if execution.address is None:
        return
    if driver != "ray":
        raise UserError(
            f"address={execution.address!r} with driver={driver}",
            expected="driver=ray",
            why="it is the address of a Ray cluster",
            fix="driver=ray, or leave the address out",
        )
    if workers is None:
        raise UserError(
            f"address={execution.address!r} without workers",
            expected="how many visits run at once",
            why="a cluster is shared, and how many of its processors are yours nobody else knows",
            fix="workers=8, for example",
        )


def _check_engine(execution: Execution) -> None:
    engine, device, stack = execution.engine, execution.device, execution.stack
    if stack is not None and engine not in ("auto", "stacked"):
        raise UserError(
            f"stack={stack} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine takes one visit after the other",
            fix="engine=stacked, or leave stack out",
        )
    if execution.gpus is not None and engine not in ("auto", "stacked"):
        raise UserError(
            f"gpus={execution.gpus:g} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine computes on processors",
            fix="engine=stacked, or leave gpus out",
        )
    if execution.driver == "ray" and execution.gpus is None and device.startswith("cuda"):
        raise UserError(
            f"device={device} with driver=ray, and no gpus",
            expected="gpus, the share of a GPU that each worker takes",
            why="Ray gives its workers no GPU that was not asked for: visits would be computed on processors",
            fix="gpus=1 for a GPU for each worker, or gpus=0.25 for four on one; or leave the device out",
        )
    if execution.precision != "float32" and engine not in ("auto", "stacked"):
        raise UserError(
            f"precision={execution.precision} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine computes in float32",
            fix="engine=stacked, or leave precision out",
        )
    _check_frugal(execution)
    if execution.precision == "tf32" and device == "cpu":
        raise tf32_on_a_processor()
    if engine not in ("auto", "stacked") and device not in ("auto", "cpu"):
        raise UserError(
            f"device={device} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine computes on the processor",
            fix="engine=stacked, or leave the device out",
        )


def _check_frugal(execution: Execution) -> None:
    asked = "" if execution.micro_batch is None else f"micro_batch={execution.micro_batch}"
    asked = asked or ("recompute=true" if execution.recompute else "")
    by = f"engine={execution.engine}" if execution.engine not in ("auto", "torch") else ""
    by = by or ("" if execution.precision == "float32" else f"precision={execution.precision}")
    by = by or ("" if execution.gpus is None else f"gpus={execution.gpus:g}")
    if asked and by:
        raise UserError(
            f"{asked} with {by}",
            expected="engine=torch, or auto",
            why="only the torch engine takes steps in less memory; the others have kernels and stacks of their own",
            fix=f"leave {by.partition('=')[0]} out",
        )


def tf32_on_a_processor() -> UserError:
    """What is wrong with asking a processor for what only GPUs compute in."""
    return UserError(
        "precision=tf32 on a processor",
        expected="a GPU, or another precision",
        why="only GPUs compute in TF32",
        fix="precision=bfloat16, or leave precision out",
    )


def _check_memory(execution: Execution) -> None:
    budget(execution.client_memory)


AUTO = Execution()
"""Everything by the fixed rules."""
