"""Flower's mods on what a client sends: differential privacy, and others, by name.

A mod of Flower's stands between a message and its answer and expects the model in both. What polyrhythm sends is an
update. So a mod is shown a model of zeros that came and the update as the model that goes, by parameter: their
difference, which is what mods clip and add noise to, is the update to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import flwr.clientapp.mod as flowers
import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor

from polyrhythm.base.consent import Wanted, imported
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.messages import Report
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum.effects import NEEDS_SINGLE

Next = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Next], Message]


def mod(name: str, **settings: Any) -> Mod:
    """A mod by its name.

        mod("LocalDpMod", clipping_norm=1.0, sensitivity=1.0, epsilon=5.0, delta=1e-5)
        mod("fixedclipping_mod", clipping_norm=1.0)

    Args:
        name: of one in `flwr.clientapp.mod`, or "package.module:name" for a class or function of a module of yours.
            Typing it is consent to import that.
        settings: of a class, what it is made with; of a function, what Flower's server strategies would have sent it.

    Raises:
        UserError: there is none of that name, or not with these settings; or it may not be imported, see
            `polyrhythm.base.consent`.
    """
    if ":" in name:
        found = imported(name, Wanted(what="mod"), None)
    elif name in flowers.__all__:
        found = getattr(flowers, name)
    else:
        raise unknown("mod", name, flowers.__all__)
    if not isinstance(found, type):
        return _with(found, settings) if settings else found
    try:
        made: Mod = found(**settings)
    except (TypeError, ValueError) as error:
        raise _unusable(name, f"which cannot be made: {error}") from error
    return made


def _with(function: Mod, settings: dict[str, Any]) -> Mod:
    def told(message: Message, context: Context, following: Next) -> Message:
        message.content.config_records["config"] = ConfigRecord(settings)
        return function(message, context, following)

    return told


def _unusable(name: str, problem: str) -> UserError:
    return UserError(
        f"the mod {name}, {problem}",
        expected="a mod of Flower's, or one of yours as package.module:name, with its settings",
        why="it would change what the node sends",
        fix="correct it, or leave it out",
    )


def check(mods: Sequence[Mod], recipe: Recipe, layout: Layout) -> None:
    """Refuses mods where more than an update would leave the node.

    Raises:
        UserError: it would.
    """
    if mods and recipe.sums_only:
        raise UserError(
            "a mod on what a node sends, with secagg",
            expected="one of the two",
            why=f"a mod {NEEDS_SINGLE}: it would change what a mask hides",
            fix="leave the mod out",
        )
    beside = [part.label() for part in recipe.parts() if part.extra_vectors]
    beside += ["the buffers of BatchNorm"] if layout.buffers else []
    if mods and beside:
        raise UserError(
            f"a mod on what a node sends, which is an update and what belongs to {', '.join(beside)}",
            expected="a recipe and a model that send no vectors but the update",
            why="a mod changes the update alone, and the rest would leave as it is",
            fix="leave the mod out, or use FedAvg, FedProx or a server optimiser, and a model without BatchNorm",
        )


def changed(mods: Sequence[Mod], layout: Layout, report: Report, message: Message, context: Context) -> Report:
    """A report as it leaves a chain of mods, the first of them outermost.

    Raises:
        UserError: a mod refuses.
    """
    if not mods or report.update is None:
        return report
    sent = {name: part.numpy() for name, part in layout.named(report.update).items()}
    call: Next = lambda came, _: Message(_records(sent), reply_to=came)  # noqa: E731
    for one in reversed(mods):
        call = _around(one, call)
    zeros = {name: np.zeros_like(part) for name, part in sent.items()}
    answer = call(Message(_records(zeros), reply_to=message), context)
    if answer.has_error():
        raise _unusable("of this node", f"which says: {answer.error.reason}")
    update = layout.zeros()
    for name, part in layout.named(update).items():
        part.copy_(_read(answer, name, part))
    return replace(report, update=update, packed=None, checksum=None)


def _read(answer: Message, name: str, like: Tensor) -> Tensor:
    """A parameter in what mods have left of an answer."""
    arrays = answer.content.array_records.get("arrays", {})
    left = torch.from_numpy(np.array(arrays[name].numpy())) if name in arrays else None
    if left is None or left.shape != like.shape or not left.is_floating_point():
        shape = "nothing" if left is None else f"{left.dtype} of shape {tuple(left.shape)}"
        raise _unusable("of this node", f"which leaves {shape} of {name}")
    return left


def _records(arrays: dict[str, np.ndarray]) -> RecordDict:
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return RecordDict({"arrays": record, "config": ConfigRecord(), "metrics": MetricRecord()})


def _around(one: Mod, following: Next) -> Next:
    return lambda message, context: one(message, context, following)
