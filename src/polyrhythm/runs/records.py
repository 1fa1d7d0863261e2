"""What a run tells its observers: a plan, then one record per client visit and per server version."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

if TYPE_CHECKING:
    from torch import Tensor

VisitStatus = Literal["trained", "measured", "skipped", "dropped", "late", "lost", "unfinished"]
RunStatus = Literal["finished", "stopped", "failed"]
"""How a run ended: as planned, on Ctrl-C, or with an error."""
Measure = Literal["update_similarity", "estimation_error", "sample_losses", "submodels"]
"""What can be measured beside the global model: see `polyrhythm.experiments.experiment.Evaluation`."""


ModelView = Callable[[], Mapping[str, "Tensor"]]
"""Gives a version's full state dict by name, as `nn.Module.load_state_dict` takes it; valid until the next version."""


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything known before round 1.

    Args:
        name: what the user calls the run; need not be unique.
        config: the resolved configuration as plain data.
        recipe: the method, as text.
        recipe_digest: of the recipe, as stamped on every assignment.
        seed: of the experiment.
        rounds: how many versions there will be; None if the run stops on something else.
        notices: deviations and substitutions that the user must know of.
        headline: the metric that `accuracy` stands for, such as "accuracy", "recall_at_5" or "r2"; higher is better.
        parameters: trainable weights of the model.
        clients: clients in the federation.
        driver: who carries out visits.
        workers: how many at once.
        execution: how else it is computed, as plain data: the engine that was asked for and the one that computes,
            the device, the memory of clients, checkpoints.
        classes: what classes are called, in the order of their numbers; () where samples have none.
        base: gives what of the model nobody changes, by its names in a state dict: checkpoints are without it.
    """

    name: str
    config: Mapping[str, Any]
    recipe: str
    recipe_digest: str
    seed: int
    rounds: int | None
    notices: tuple[str, ...]
    headline: str
    parameters: int
    clients: int
    driver: str = "inline"
    workers: int = 1
    execution: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    base: Callable[[], Mapping[str, Tensor]] = dict


@final
@dataclass(frozen=True, kw_only=True)
class VisitRecord:
    """One client visit.

    Args:
        dispatch: the server's running number of the assignment; unique in a run.
        client: whose visit.
        version: the server version that the client was sent.
        visit: the client's own counter.
        status: "trained", "measured" (forward passes only), "skipped" (no training, by plan), "dropped" (report
            refused), "late" (it came when nobody waited for it any more), "lost" (no report, or none that fits what was
            asked) or "unfinished" (the run ended before).
        reason: why it was dropped, late or lost.
        fault: that as a kind (`polyrhythm.base.faults`); "outlier" for one that was accepted and is far longer than
            those before; "" where nothing was wrong.
        steps: optimiser steps truly taken. It and all that follows say what was done, whatever came of it: of a visit
            that broke off, the part until then.
        epochs: passes over the client's samples truly made.
        samples: samples trained on, counted as often as they were used.
        num_samples: samples that the client holds.
        forward_samples: samples of extra forward passes (frozen models, scores, measuring, drawn labels).
        gradient_samples: samples of extra gradients (Fisher trace).
        loss: mean training loss over the samples trained on; None without a report.
        update_norm: Euclidean length of the update; likewise, and where it was refused before anybody read it.
        bytes_down, bytes_up: what travelled.
        flops: floating-point operations on the client.
        forward_flops: those in forward passes.
        backward_flops: those of gradients.
        joules: energy of the device.
        started, finished: virtual seconds since the run began.
        down_seconds: receiving.
        compute_seconds: working.
        up_seconds: sending.
        measures: what mechanisms recorded.
    """

    dispatch: int
    client: int
    version: int
    visit: int
    status: VisitStatus
    reason: str = ""
    fault: str = ""
    steps: int = 0
    epochs: float = 0.0
    samples: int = 0
    num_samples: int = 0
    forward_samples: int = 0
    gradient_samples: int = 0
    loss: float | None = None
    update_norm: float | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    flops: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    joules: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    down_seconds: float = 0.0
    compute_seconds: float = 0.0
    up_seconds: float = 0.0
    measures: Mapping[str, float] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class VersionRecord:
    """One server version; version 0 is the initial model.

    Args:
        version: its number.
        time: virtual seconds since the start.
        wall: wall-clock seconds since the start.
        cohort: clients invited for it.
        accepted: reports that made it.
        dropped: reports refused or lost.
        rate: the local learning rate used.
        train_loss: mean loss during local training, over the visits of this version, weighted by samples.
        test: the global model on the test set, such as {"loss": ..., "accuracy": ...}; None when not evaluated.
        validation: the same on the data held out for choosing.
        train: the same on a sample of all clients' training data.
        clients: the global model on the clients' own test sets, pooled and as the mean over clients.
        groups: the global model for each group of like devices, such as {"tier_1_accuracy": ...}; if asked for.
        spread: how the headline metric on their own tests is spread over clients: `global_mean`, each client counting
            the same, `global_pooled`, each sample, `global_median`, `global_worst_decile` (mean of the worst tenth) and
            `global_sd_over_clients`; and where clients have models of their own the same of these, `personal_mean` and
            so on, with `personal_worse`, the share of clients that do worse with theirs than with the global one. Of
            clients that never train, `unseen_clients` of them, all of it again, apart: `unseen_global_mean`,
            `unseen_personal_mean` and so on.
        staleness_mean: mean over the updates of this version of the versions between the model that one started from
            and the one that it was added to; None without updates.
        staleness_max: their maximum.
        client_updates: visits that trained and were accepted, since the start. It and what follows are cumulative,
            over all visits, whatever came of them, with what those under way had done by then.
        local_steps: optimiser steps.
        samples: samples trained on.
        flops: floating-point operations.
        forward_flops: those in forward passes.
        backward_flops: those of gradients.
        bytes_up, bytes_down: what travelled.
        joules: energy of the devices.
        compute_seconds: virtual seconds that clients worked.
        link_seconds: that they received and sent.
        waiting_seconds: from each accepted report until the version that it went into, or until the client set out
            again if that was earlier.
        visits: those that are over.
        dropped_visits: of them: report refused.
        late_visits: of them: report came when nobody waited for it any more.
        lost_visits: of them: no report.
        faults: what went wrong since the start, counted by kind; also what belongs to no visit, such as reports that
            came twice.
        utilisation: the share of the time of all clients that hold data in which they were on a visit, visits under way
            included; None at the start.
        fairness: Jain's index of participation over the clients that hold data, (sum x)^2 / (N sum x^2) for x_i
            accepted updates of client i: 1 if all took part equally often, 1 / N if one alone did; None before any.
        note: for example why the version changed nothing.
        measures: what mechanisms recorded.
        digest: of the model, as in the summary; "" where nobody keeps it. Where clients keep models of their own it is
            of all of them, and only of versions that were evaluated.
    """

    version: int
    time: float
    wall: float
    cohort: int
    accepted: int
    dropped: int
    rate: float | None
    train_loss: float | None
    test: Mapping[str, float] | None
    validation: Mapping[str, float] | None
    train: Mapping[str, float] | None
    clients: Mapping[str, float] | None
    client_updates: int
    local_steps: int
    samples: int
    flops: int
    bytes_up: int
    bytes_down: int
    forward_flops: int = 0
    backward_flops: int = 0
    joules: float = 0.0
    compute_seconds: float = 0.0
    link_seconds: float = 0.0
    waiting_seconds: float = 0.0
    visits: int = 0
    dropped_visits: int = 0
    late_visits: int = 0
    lost_visits: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    utilisation: float | None = None
    fairness: float | None = None
    groups: Mapping[str, float] | None = None
    spread: Mapping[str, float] | None = None
    staleness_mean: float | None = None
    staleness_max: int | None = None
    note: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    digest: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class ClientRecord:
    """Client: what it was when the run began, and how often it was there until it ended.

    Args:
        client: its number.
        samples: training samples that it holds; of one that never trains those it would make its own model of.
        test_samples: samples of its own test; 0 without one.
        device: the name of its group of like devices, such as "tier 1"; "" where the fleet has none.
        measured: whether its own results are on record: of all clients, or of a sample (`Evaluation.client_results`).
        unseen: whether it never trains, and is tested apart.
        there: the share of the run's virtual time in which it was there, by the availability of its fleet; broken
            devices and empty batteries are not looked at. None until the run ends as planned, and on real nodes.
    """

    client: int
    samples: int
    test_samples: int = 0
    device: str = ""
    measured: bool = False
    unseen: bool = False
    there: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class ClientResultsRecord:
    """Results of clients: what each of those that are measured gets out of one version, on its own test.

    Args:
        version: which one.
        scores: the headline metric of each, in the order of their numbers; NaN where it is undefined on a test.
        losses: the mean loss of each, likewise.
        personal: the headline metric of the model that each of them uses; None where that is the global one, or was not
            measured of this version.
    """

    version: int
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    personal: tuple[float, ...] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class ClassResultsRecord:
    """Results of classes: what one version makes of the test samples of each. Where clients keep models of their own,
    the counts are over all of these.

    Args:
        version: which one.
        present: test samples of each class. [C]
        right: those of them that are put into it. [C]
        confusion: how many of class i are put into class j, row after row; None where it was not kept, which it is of
            the last version, and of each with few classes. [C * C]
    """

    version: int
    present: tuple[int, ...]
    right: tuple[int, ...]
    confusion: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class AnswerRecord:
    """What the server asked about who is there, and was told. With the events, all that a replay needs to know of it.

    Args:
        event: number of the event in the run, from 0, the start.
        place: number of the question in that event.
        question: "draw", "present" or "all".
        clients: the answer, in order; None for "all", which never changes.
    """

    event: int
    place: int
    question: str
    clients: tuple[int, ...] | None


@final
@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """One thing that the server heard. In order, they are all that a replay needs to know of the world.

    Args:
        event: its number in the run; the start is 0 and has no record.
        kind: "visit" (a report, or the news that there will be none), "arrival", "timer", or "beside" (a report that
            nobody waited for, which changed nothing).
        number: the dispatch number of the visit, the client that has come, or 0.
        time: virtual seconds since the run began.
    """

    event: int
    kind: Literal["visit", "arrival", "timer", "beside"]
    number: int
    time: float


def about_loss(record: VersionRecord) -> str:
    """What is to be said of a version whose training loss is no finite number; else nothing."""
    loss = record.train_loss
    if loss is None or math.isfinite(loss):
        return ""
    return (
        f"the training loss of version {record.version} is {loss:g}, though all weights are finite: it is recorded as "
        "it is; a lower learning rate, clip=10 or other inputs may help"
    )
