"""From names to data: sources of data sets and partitions, built in or of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from polyrhythm.base.consent import NOBODY, Trust, Wanted, imported
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.config.calls import key_of, make_from, plain, settings_of
from polyrhythm.config.data_paths import refuse_path
from polyrhythm.config.expressions import Call, Pipe, parse_call
from polyrhythm.data import PARTITIONS, SOURCES, Collection, Partition

_OWN_SOURCE = Wanted(what="data set")
_OWN_PARTITION = Wanted(what="partition", base=Partition, kind="pr.data.Partition")


def source(text: str, trust: Trust = NOBODY) -> Callable[[], Collection]:
    """What loads a data set, from its name or import path and settings.

    Args:
        text: them.
        trust: the modules that the user has named; no other one is imported.

    Raises:
        UserError: unknown names or settings, or a path that may not be imported.
    """
    refuse_path(text)
    call = Pipe.one(text).calls[0]
    if ":" in call.name:
        make = imported(call.name, _OWN_SOURCE, trust)
        return functools.partial(_loaded, call.name, make, settings_of(call, make, plain))
    known = {key_of(name): made for name, made in SOURCES.items()}
    if key_of(call.name) not in known:
        raise unknown("data set", call.name, SOURCES)
    make = known[key_of(call.name)]
    return functools.partial(make, **settings_of(call, make, plain))


def _loaded(path: str, make: Callable[..., Any], settings: dict[str, Any]) -> Collection:
    """What a source of the user's own gives, if it is a data set."""
    found = make(**settings)
    if isinstance(found, Collection):
        return found
    raise UserError(
        f"{path} has given a {type(found).__name__}",
        expected="what pr.data.arrays, pr.data.dataset or another function of pr.data gives",
        why="that is a data set: training and test samples, with what is to be predicted",
        fix="end the function with return pr.data.arrays(inputs, targets, test=0.2), for example",
    )


def partition(text: str, trust: Trust = NOBODY) -> Partition:
    """A partition from its name or import path and settings.

    Args:
        text: them.
        trust: the modules that the user has named; no other one is imported.

    Raises:
        UserError: unknown names or settings, or a path that may not be imported.
    """
    return _partition(trust, Pipe.one(text).calls[0])


def _partition(trust: Trust, call: Call) -> Partition:
    convert = functools.partial(_of_partition, trust)
    if ":" in call.name:
        found: object = make_from(call, imported(call.name, _OWN_PARTITION, trust), convert)
        if isinstance(found, Partition):
            return found
        raise UserError(
            f"{call.name} has given a {type(found).__name__}",
            expected="a pr.data.Partition",
            why="it says who holds what",
            fix="return one, or name a class that is one",
        )
    known = {key_of(name): made for name, made in PARTITIONS.items()}
    if key_of(call.name) not in known:
        raise unknown("partition", call.name, PARTITIONS)
    return make_from(call, known[key_of(call.name)], convert)


def _of_partition(trust: Trust, name: str, value: Any) -> Any:
    """A setting of a partition; `inner` is a partition itself."""
    if name == "inner" and isinstance(value, (str, Call)):
        return _partition(trust, value if isinstance(value, Call) else parse_call(value))
    return plain(name, value)
