"""What a job asks of its optimiser and of its pushes, as C++ takes it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from polyrhythm.core.protocols import Job
from polyrhythm.methods.correction import Push
from polyrhythm.methods.local.optimisers import LocalAdam, LocalSgd


def moments_of(job: Job) -> dict[str, Any] | None:
    """The optimiser's settings and state as C++ takes them; None of an optimiser that it does not know."""
    given, optimiser = job.moments, job.optimiser
    none = {"momentum": 0.0, "nesterov": False, "beta2": 0.0, "epsilon": 0.0, "taken": 0, "decoupled": False}
    if type(optimiser) is LocalSgd:
        moment = given.get("momentum")
        vectors = {"moment": moment.numpy() if isinstance(moment, Tensor) else None, "second": None}
        return {**none, **vectors, "momentum": optimiser.momentum, "nesterov": optimiser.nesterov}
    if type(optimiser) is LocalAdam and isinstance(given["steps"], int):
        first, second = given["first"], given["second"]
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        vectors = {"moment": first.numpy(), "second": second.numpy()}
        adam = {
            "momentum": optimiser.beta1,
            "beta2": optimiser.beta2,
            "epsilon": optimiser.epsilon,
            "decoupled": optimiser.decoupled,
        }
        return {**none, **vectors, **adam, "taken": given["steps"]}
    return None


def divided(push: Push) -> Push:
    """A push with its factor taken out."""
    return Push(pull=push.pull / push.factor, shift=None if push.shift is None else push.shift / push.factor)
