"""What a job asks of its optimiser, its pushes and its terms, as C++ takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyrhythm.core.protocols import Job
from polyrhythm.engines.looking import View
from polyrhythm.methods.correction import Push, Term
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


def slopes_of(terms: Sequence[Term], view: View, current: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of some terms at the representations that they read."""
    for features in current.values():
        features.requires_grad_()
    found = [extra for term in terms if (extra := term.term(view)) is not None]
    if not found:
        return {}
    slopes = torch.autograd.grad(torch.stack(found).sum(), list(current.values()), allow_unused=True)
    return {name: g.contiguous() for name, g in zip(current, slopes, strict=True) if g is not None}
