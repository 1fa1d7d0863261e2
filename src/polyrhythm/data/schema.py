"""What the numbers of a sample mean, part by part: two data sets are of use to one model only where these agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from polyrhythm.data.federation import Federation
from polyrhythm.data.samples import Samples
from polyrhythm.data.transforms import Normalise

_BESIDE = re.compile(r" at 0x[0-9a-fA-F]+|, fitted=False")  # what says nothing of a transform
_SHOWN = 8  # names in an error


@final
@dataclass(frozen=True, kw_only=True)
class Schema:
    """What a sample and its target are.

    Args:
        task: as in `Collection`.
        classes: the labels in order of class number.
        target: what is predicted, where the source says so.
        outputs: how many numbers a model gives for a sample.
        shape: of one input, as the model gets it.
        dtype: likewise.
        features: names of the inputs in order (columns, values of text columns, words); () where they have none.
        transforms: what is done to stored inputs, in order, as text.
        scaling: (means, standard deviations) of the training samples, where inputs are scaled by those; else ().
    """

    task: str
    classes: tuple[str, ...]
    target: str
    outputs: int
    shape: tuple[int, ...]
    dtype: str
    features: tuple[str, ...]
    transforms: tuple[str, ...]
    scaling: tuple[tuple[float, ...], ...]


def schema_of(federation: Federation) -> Schema:
    """The schema of a federation's samples."""
    train = federation.train
    given: Sequence[Any] = getattr(train, "transforms", ())
    inputs, _ = train.batch(torch.arange(min(1, len(train))))
    fitted = scaling_of(train)
    return Schema(
        task=federation.task,
        classes=federation.classes,
        target=federation.target,
        outputs=federation.outputs,
        shape=tuple(train.shape),
        dtype=str(inputs.dtype).removeprefix("torch."),
        features=federation.features,
        transforms=tuple(_BESIDE.sub("", repr(step)) for step in given if step is not fitted),
        scaling=() if fitted is None else (fitted.mean, fitted.std),
    )


def scaling_of(samples: Samples) -> Normalise | None:
    """How samples are scaled by statistics of the training samples, if they are."""
    given: Sequence[Any] = getattr(samples, "transforms", ())
    return next((step for step in given if isinstance(step, Normalise) and step.fitted), None)


def differences(own: Schema, server: Schema) -> list[str]:
    """What differs in a schema from the server's, in words; nothing where they agree."""
    found = [
        f"{what} {_text(mine)}, where the server has {_text(its)}"
        for what, mine, its in (
            ("the task", own.task, server.task),
            ("the target", own.target, server.target),
            ("inputs of shape", own.shape, server.shape),
            ("inputs of dtype", own.dtype, server.dtype),
            ("inputs prepared by", own.transforms, server.transforms),
        )
        if mine != its
    ]
    found += _between("classes", own.classes, server.classes)
    if own.classes == server.classes == () and own.outputs != server.outputs:
        found.append(f"{own.outputs} numbers to predict, where the server has {server.outputs}")
    found += _between("features", own.features, server.features)
    if bool(own.scaling) != bool(server.scaling):
        scaled = "by the mean and standard deviation of its training samples", "not by statistics of samples"
        mine, its = scaled if own.scaling else scaled[::-1]
        found.append(f"inputs scaled {mine}, where the server's are scaled {its}")
    elif own.scaling and not same_scaling(own.scaling, server.scaling):
        found.append("inputs scaled by another mean and standard deviation")
    return found


def same_scaling(one: tuple[tuple[float, ...], ...], other: tuple[tuple[float, ...], ...]) -> bool:
    """Whether two scalings are of the same numbers, as far as processors of other kinds compute the same."""
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=1e-5, atol=1e-9))


def _text(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "nothing"
    return str(value) or "nothing"


def _between(what: str, own: tuple[str, ...], server: tuple[str, ...]) -> list[str]:
    """How two lists of names differ. Values that only the node has may be a person's, and are counted, not named."""
    if own == server:
        return []
    if not own or not server:
        return [f"{len(own) or 'no'} names of {what}, where the server has {len(server) or 'none'}"]
    here, there = set(own), set(server)
    missing, strange = [name for name in server if name not in here], [name for name in own if name not in there]
    if not missing and not strange and len(own) == len(server):
        place = next(i for i, (mine, its) in enumerate(zip(own, server, strict=True)) if mine != its)
        near = slice(place, place + _SHOWN)
        return [f"the same {what} in another order: {_some(own[near])}, where the server has {_some(server[near])}"]
    words = [f"{len(own)} {what}, where the server has {len(server)}"] if len(own) != len(server) else []
    words += [f"no {_some(missing)} among its {what}"] if missing else []
    words += [f"{_counted(what, strange)} that the server has not"] if strange else []
    return words


def _counted(what: str, names: Sequence[str]) -> str:
    """How many names there are: of features by their column, of others alone."""
    if what != "features":
        return f"{len(names)} {what}"
    columns = Counter(name.partition("=")[0] for name in names if "=" in name)
    plain = [name for name in names if "=" not in name]
    texts = [f"{count} value{'s' if count > 1 else ''} of {_some([column])}" for column, count in columns.items()]
    return " and ".join([*texts[:_SHOWN], *([f"the features {_some(plain)}"] if plain else [])])


def _some(names: Sequence[str]) -> str:
    short = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:_SHOWN]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, short)) + more
