"""Whose code the user has named on the command line: modules, with `--trust` or in the path of a model that was typed;
and Ray clusters, by their address."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import UserError
from polyrhythm.config.expressions import Call, parse_call, parse_pipeline
from polyrhythm.config.layers import key_and_text


def consented(
    named: Sequence[str] | None,
    options: Mapping[str, str] = MappingProxyType({}),
    settings: Sequence[str] | None = None,
) -> Trust:
    """The modules and clusters that a command line names.

    Args:
        named: with --trust.
        options: keys that were given as options. Of them those count in which an import path may stand, and the
            address of a cluster.
        settings: those of --set. Of them the same: `model.width=3` names none.

    Raises:
        UserError: something else than a module with --trust.
    """
    texts = {
        key: [*filter(None, [options.get(key)]), *_values(key, settings or ())]
        for key in (*_NAMING, "model", "address")
    }
    clusters = texts.pop("address")
    models, others = texts.pop("model"), itertools.chain(*texts.values())
    typed = itertools.chain(*map(_modules, models), *map(_modules_of_parts, others))
    before, after = _again()
    modules = [module for module in typed if not module.endswith(".py")]  # a file, which is refused where it is used
    return Trust(tuple(dict.fromkeys([*(named or ()), *modules])), before, after, tuple(clusters))


_NAMING = ("method", "data", "partition", "fleet", "task")
"""Keys, beside the model, in whose texts import paths may stand."""


def modules_of(texts: Mapping[str, Any]) -> list[str]:
    """The modules that the import paths of an experiment lead into.

    Args:
        texts: of the experiment, by key.
    """
    others = (_modules_of_parts(str(texts.get(key) or "")) for key in _NAMING)
    return list(dict.fromkeys(itertools.chain(_modules(str(texts.get("model") or "")), *others)))


def again_with(option: str) -> str:
    """The command line of this process with one more option at its end; "" if it was not typed."""
    program, words = Path(sys.argv[0]), sys.argv[1:]
    typed = program.stem == "polyrhythm" or program.parts[-2:] == ("polyrhythm", "__main__.py")
    return f"{shlex.join(['polyrhythm', *words])} {option}" if typed and "--" not in words else ""


def _values(wanted: str, settings: Sequence[str]) -> Iterator[str]:
    for setting in settings:
        try:
            key, text = key_and_text(setting)
        except UserError:  # which is said where all mistakes are
            continue
        if key == wanted:
            yield text


def _modules(text: str) -> Iterator[str]:
    """The modules of the import paths in the text of a model."""
    try:
        call: Call | None = parse_call(text)
    except UserError:  # likewise
        return
    while call is not None:
        if ":" in call.name:
            yield call.name.partition(":")[0]
        call = next((inner for inner in call.positional if isinstance(inner, Call)), None)


def _modules_of_parts(text: str) -> Iterator[str]:
    """The modules of the import paths in any other text: of recipes, parts, and what is given to them."""
    try:
        left: list[Any] = [*parse_pipeline(text)]
    except UserError:  # likewise
        return
    while left:
        match left.pop(0):
            case Call() as call:
                if ":" in call.name:
                    yield call.name.partition(":")[0]
                left += [*call.positional, *call.named.values()]
            case tuple() as values:
                left += values


def _again() -> tuple[str, str]:
    """The command line of this process up to the name of one more module, and what comes after that."""
    program = Path(sys.argv[0])
    if program.stem != "polyrhythm" and program.parts[-2:] != ("polyrhythm", "__main__.py"):
        return "the same command with --trust ", ""
    words = ["polyrhythm", *sys.argv[1:]]
    end = words.index("--") if "--" in words else len(words)
    return f"{shlex.join(words[:end])} --trust ", f" {shlex.join(words[end:])}".rstrip()
