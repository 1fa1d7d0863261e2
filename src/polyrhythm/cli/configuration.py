"""An experiment as it is written: defaults, under a TOML file, under the command line, under `--set`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polyrhythm.cli.expressions import Call, parse_call, parse_value
from polyrhythm.cli.mistakes import explained
from polyrhythm.errors import UserError, unknown

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
DEFAULT_CLIENTS = 20
DEFAULT_ROUNDS = 30
_MODELS = {"shakespeare": "char-lstm", "stackoverflow_tags": "multilabel-logistic"}

Positive = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Text = Annotated[str, MinLen(1)]


@final
class UntilSettings(BaseModel):
    """When to stop early."""

    model_config = _STRICT
    accuracy: Annotated[float, Le(1)] | None = None
    time: Annotated[float, Gt(0)] | None = None
    updates: Positive | None = None


@final
class EvaluationSettings(BaseModel):
    """What is measured, and how often."""

    model_config = _STRICT
    every: Positive = 1
    train_samples: Whole = 0
    groups: bool = False


@final
class Configuration(BaseModel):
    """Everything that an experiment file may say. Each key is also an option of `polyrhythm run`."""

    model_config = _STRICT
    data: Text = "digits"
    clients: Positive | None = None
    partition: Text = "dirichlet(alpha=0.3)"
    model: Text | None = None
    method: Text = "fedavg"
    task: Text | None = None
    fleet: Text = "uniform"
    rounds: Positive | None = None
    until: UntilSettings = Field(default_factory=UntilSettings)
    seed: Whole = 0
    seeds: Annotated[tuple[Whole, ...], MinLen(1)] | None = None
    validation: Share = 0.0
    local_test: Share | Literal["natural"] = 0.0
    init: Text | None = None
    expert: Text | None = None
    driver: Literal["auto", "inline", "processes", "threads"] = "auto"
    workers: Positive | None = None
    engine: Literal["auto", "torch", "native", "stacked", "compiled"] = "auto"
    device: Text = "auto"
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    name: Annotated[str, MaxLen(200)] = ""
    out: Text = "runs"

    def resolved(self) -> Configuration:
        """The same with every default that depends on other settings filled in."""
        natural = _innermost(parse_call(self.partition)) == "by_column"
        model = _MODELS.get(parse_call(self.data).name.replace("-", "_"), "mlp")
        open_ended = any(v is not None for v in self.until.model_dump().values())
        return self.model_copy(
            update={
                "clients": self.clients or (None if natural else DEFAULT_CLIENTS),
                "model": self.model or model,
                "rounds": self.rounds or (None if open_ended else DEFAULT_ROUNDS),
            }
        )

    def plain(self) -> dict[str, Any]:
        """As plain data, without what decides no number: who computes, where it is kept, what it is called."""
        return self.model_dump(mode="json", exclude={"driver", "workers", "out", "name", "seeds"})


def _innermost(partition: Call) -> str:
    """The partition that decides how many clients there are: difficulty leaves that to the one inside."""
    inner = partition.named.get("inner")
    if isinstance(inner, str):
        inner = parse_call(inner)
    return _innermost(inner) if isinstance(inner, Call) else partition.name.replace("-", "_")


# What each key takes, for the words of an error.
_CALL = "a name, if need be with settings, such as dirichlet(alpha=0.3)"
_POSITIVE, _WHOLE = "a whole number, 1 or more", "a whole number, 0 or more"
_SHARE = "a share: a number of at least 0 and less than 1"
TAKES = {
    "data": _CALL,
    "clients": _POSITIVE,
    "partition": _CALL,
    "model": _CALL,
    "method": "a recipe and parts, such as fedavg | prox(mu=0.01), or a list of such texts",
    "task": "the task of the data, with its settings, such as multilabel(k=3)",
    "fleet": _CALL,
    "rounds": _POSITIVE,
    "until": "accuracy, time or updates, each with a number",
    "until.accuracy": "a number, 1 or less",
    "until.time": "virtual seconds: a number of more than 0",
    "until.updates": _POSITIVE,
    "seed": _WHOLE,
    "seeds": "whole numbers, such as 0-2 or [0, 3, 5]",
    "validation": _SHARE,
    "local_test": f'{_SHARE}, or "natural"',
    "init": "the path of a file",
    "expert": "the path of a file, as `polyrhythm expert` makes it",
    "driver": "auto, inline, processes or threads",
    "workers": _POSITIVE,
    "engine": "auto, torch, native, stacked or compiled",
    "device": "auto, cpu, cuda, or cuda:1 for the second GPU",
    "evaluation": "every or train_samples, each with a number, or groups, true or false",
    "evaluation.every": _POSITIVE,
    "evaluation.train_samples": _WHOLE,
    "evaluation.groups": "true or false",
    "name": "a text of at most 200 characters",
    "out": "the path of a folder",
}


def configure(file: Path | None, options: Mapping[str, Any], settings: list[str]) -> Configuration:
    """Puts an experiment together.

    Args:
        file: a TOML file, or None.
        options: from the command line, by key; None means not given.
        settings: `key=value` texts, with dots for keys inside keys; they win over everything else.

    Raises:
        UserError: no such file, not TOML, unknown keys, wrong types; all of them at once.
    """
    values: dict[str, Any] = {} if file is None else _read(file)
    given = {key: value for key, value in options.items() if value is not None}
    for layer in (values, given):
        if "seed" in layer and "seeds" in layer:
            raise UserError(
                f"seed = {layer['seed']!r} and seeds = {layer['seeds']!r}",
                expected="one of them",
                why="seeds makes one run for each of its seeds, and nothing would be made of the other one",
                fix="leave one of them out",
            )
    _make_way(values, given)
    values |= given
    for setting in settings:
        _put(values, setting)
    try:
        return Configuration.model_validate(_with_texts_read(values)).resolved()
    except ValidationError as error:
        here = given.keys() | {setting.partition("=")[0].split(".")[0].strip() for setting in settings}
        raise explained(error, TAKES, lambda key: _place(key in here, file)) from None


def _place(here: bool, file: Path | None) -> str:
    return "the command line" if here or file is None else str(file)


def _make_way(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Whoever says `seed` over a file with `seeds` wants that one, and the other way round."""
    for one, other in (("seed", "seeds"), ("seeds", "seed")):
        if one in over:
            values.pop(other, None)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _unreadable(
            file, "no such file", "check the path; relative paths start at the folder you run in"
        ) from None
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error), "give the path of a file that can be read") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(file, str(error), "correct the file at that place") from None


def _unreadable(file: Path, problem: str, fix: str) -> UserError:
    return UserError(
        f"{file}: {problem}",
        expected='an experiment file in TOML, with lines such as method = "fedavg(cohort=10)"',
        why="the experiment is described there",
        fix=fix,
    )


def _put(values: dict[str, Any], setting: str) -> None:
    path, equals, text = (part.strip() for part in setting.partition("="))
    keys = path.split(".")
    if not equals or not text or not all(keys):
        raise UserError(
            f"--set {setting}",
            expected="key=value, such as evaluation.every=5",
            why="it says which setting of the experiment gets which value",
            fix="write the key, an equals sign and the value",
        )
    inside = values
    for key in keys[:-1]:
        inside = inside.setdefault(key, {})
        if not isinstance(inside, dict):
            raise unknown("key", path, TAKES, where="--set")
    _make_way(values, {path: text})
    inside[keys[-1]] = text if path in _TEXTS and not text.startswith("[") else parse_value(text)


# Keys whose value stays text until it is read as what it stands for: `--set method=fedprox(mu=1)`.
_TEXTS = {
    *("data", "partition", "model", "method", "task", "fleet", "init"),
    *("driver", "device", "expert", "engine", "name", "out", "until", "seeds", "local_test"),
}


def _with_texts_read(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with what was written as text, on the command line or in the file, as what it stands for."""
    read = dict(values)
    for key, reader in (("until", _until), ("seeds", _seeds), ("local_test", _number_or_text)):
        if isinstance(read.get(key), str):
            read[key] = reader(read[key])
    parts = read.get("method")
    if isinstance(parts, (list, tuple)) and parts and all(isinstance(part, str) for part in parts):
        read["method"] = " | ".join(parts)
    if isinstance(read.get("seeds"), list):
        read["seeds"] = tuple(read["seeds"])
    return read


def _until(text: str) -> dict[str, Any]:
    ends: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not value or key in ends:
            raise UserError(
                f"until {text!r}",
                expected="accuracy=0.9, time=3600 (virtual seconds) or updates=1000, or several of them with commas",
                why="it says what ends the run",
                fix="write each name once, an equals sign and a number",
            )
        ends[key] = _number_or_text(value)
    return ends


def _seeds(text: str) -> tuple[int, ...]:
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise UserError(
                f"seeds {text!r}",
                expected="seeds such as 0-2, or 0,3,5",
                why="one run is made for each",
                fix="write a range with a hyphen, the smaller number first, or a list with commas",
            )
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(seeds))


def _number_or_text(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
