"""An experiment as it is written: defaults, under a TOML file, under the command line, under `--set`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polyrhythm.cli.expressions import parse_call, parse_value
from polyrhythm.errors import UserError, unknown

Share = Annotated[float, Ge(0), Lt(1)]
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
DEFAULT_CLIENTS = 20
DEFAULT_ROUNDS = 30
_MODELS = {"shakespeare": "char-lstm", "stackoverflow_tags": "multilabel-logistic"}


@final
class UntilSettings(BaseModel):
    """When to stop early."""

    model_config = _STRICT
    accuracy: Annotated[float, Le(1)] | None = None
    time: Annotated[float, Gt(0)] | None = None
    updates: Annotated[int, Ge(1)] | None = None


@final
class EvaluationSettings(BaseModel):
    """What is measured, and how often."""

    model_config = _STRICT
    every: Annotated[int, Ge(1)] = 1
    train_samples: Annotated[int, Ge(0)] = 0


@final
class Configuration(BaseModel):
    """Everything that an experiment file may say. Each key is also an option of `polyrhythm run`."""

    model_config = _STRICT
    data: str = "digits"
    clients: Annotated[int, Ge(1)] | None = None
    partition: str = "dirichlet(alpha=0.3)"
    model: str | None = None
    method: str = "fedavg"
    fleet: str = "uniform"
    rounds: Annotated[int, Ge(1)] | None = None
    until: UntilSettings = Field(default_factory=UntilSettings)
    seed: Annotated[int, Ge(0)] = 0
    seeds: tuple[Annotated[int, Ge(0)], ...] | None = None
    validation: Share = 0.0
    local_test: Share | Literal["natural"] = 0.0
    init: str | None = None
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    name: str = ""
    out: str = "runs"

    def resolved(self) -> Configuration:
        """The same with every default that depends on other settings filled in."""
        natural = parse_call(self.partition).name.replace("-", "_") == "by_column"
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
        """As plain data, without what does not decide any number (where it is kept, what it is called)."""
        return self.model_dump(mode="json", exclude={"out", "name", "seeds"})


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
    values |= {key: value for key, value in options.items() if value is not None}
    for setting in settings:
        _put(values, setting)
    for key, read in (("until", _until), ("seeds", _seeds)):
        if isinstance(values.get(key), str):
            values[key] = read(values[key])
    if isinstance(values.get("method"), list):
        values["method"] = " | ".join(str(part) for part in values["method"])
    if isinstance(values.get("seeds"), list):
        values["seeds"] = tuple(values["seeds"])
    if isinstance(values.get("local_test"), str):
        values["local_test"] = parse_value(values["local_test"])
    try:
        return Configuration.model_validate(values).resolved()
    except ValidationError as error:
        raise _explained(error, str(file) if file else "the command line") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError(
            f"{file}: {'no such file' if missing else error}",
            expected='an experiment file in TOML, such as\n              method = "fedavg(cohort=10)"',
            why="the experiment is described there",
            fix="check the path" if missing else "correct the file at that place",
        ) from None


def _put(values: dict[str, Any], setting: str) -> None:
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
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
            raise unknown("key", path, Configuration.model_fields, where="--set")
    # Expressions stay text: `--set method=fedprox(mu=1)`.
    field = Configuration.model_fields.get(keys[0])
    textual = len(keys) == 1 and field is not None and field.annotation in (str, str | None)
    inside[keys[-1]] = text.strip() if textual else parse_value(text)


def _until(text: str) -> dict[str, Any]:
    ends: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(
                f"--until {text}",
                expected="accuracy=0.9, time=3600 (virtual seconds) or updates=1000, or several with commas",
                why="it says what ends the run",
                fix="write the name, an equals sign and a number",
            )
        ends[key.strip()] = parse_value(value)
    return ends


def _seeds(text: str) -> tuple[int, ...]:
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise UserError(
                f"--seeds {text}",
                expected="seeds such as 0-2, or 0,3,5",
                why="one run is made for each",
                fix="write a range with a hyphen or a list with commas",
            )
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(seeds))


def _explained(error: ValidationError, where: str) -> UserError:
    problems = error.errors()
    if len(problems) == 1 and problems[0]["type"] == "extra_forbidden":
        *path, name = (str(part) for part in problems[0]["loc"])
        return unknown("key", name, _keys(path), where=".".join([where, *path]) if path else where)
    lines = []
    for problem in problems:
        *path, name = (str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(unknown("key", name, _keys(path)).found)
        else:
            lines.append(f"{'.'.join([*path, name])} = {problem['input']!r}: {_lower(problem['msg'])}")
    return UserError(
        f"{where}: " + "\n  and       ".join(dict.fromkeys(lines)),
        expected="keys and values as `polyrhythm run --help` lists them",
        why="another experiment than the one you meant would run",
        fix="correct " + ("it" if len(lines) == 1 else "them"),
    )


def _keys(path: list[str]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {"until": UntilSettings, "evaluation": EvaluationSettings}
    return list((nested[path[0]] if path and path[0] in nested else Configuration).model_fields)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
