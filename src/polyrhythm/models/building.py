"""Builds a model from a name or a builder, and refuses settings that it does not have."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from torch import nn

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.base.settings import allowed
from polyrhythm.data.structured import Shape
from polyrhythm.models.catalogue import MODELS, Builder, find

_GIVEN = ("shape", "outputs")  # what the data decide; the rest of a builder's parameters are settings
_STRICT = ConfigDict(arbitrary_types_allowed=True)


def build(model: str | Builder, shape: Shape, outputs: int, /, **settings: Any) -> nn.Module:
    """A new model for samples of a shape.

    Its weights come from torch's default generator: seed that around the call (`streams.seeded_torch`).

    Args:
        model: a name of `MODELS`, the import path "package.module:Name" of a class or function of the user's own, or a
            builder. A user's own is given `shape` and `outputs` if it has parameters of these names, and the settings.
        shape: of one sample, e.g. (1, 28, 28); of samples of several arrays those of all, in a mapping or a tuple.
        outputs: number of classes, labels or predicted numbers.
        settings: the builder's own; lists are taken as tuples where it wants tuples.

    Raises:
        UserError: unknown model or setting, a setting of the wrong type or out of range, a missing setting, a shape
            that the model does not take, or a builder that does not give an nn.Module.
    """
    builder = find(model) if isinstance(model, str) else model
    name = model if isinstance(model, str) else getattr(model, "__name__", repr(model))
    checked = checked_settings(name, builder, settings)
    shape = shape if isinstance(shape, dict) else tuple(shape)  # type: ignore[assignment]  # of one array or of several
    if (
        isinstance(model, str)
        and model in MODELS
        and model != "hf"
        and not all(isinstance(side, int) for side in shape)
    ):
        raise UserError(
            f"the model {model} for samples of several arrays: {shape}",
            expected="a model of your own, or samples of one array",
            why="the models that come along read one array",
            fix="give a module, or what builds one, whose forward takes these arrays",
        )
    given = {"shape": shape, "outputs": outputs}
    parameters = _parameters(builder)
    try:
        module = builder(**{key: given[key] for key in _GIVEN if key in parameters}, **checked)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own class raises, said in our words
        raise UserError(
            f"the model {name} could not be built: {type(error).__name__}: {error}",
            expected=f"a model for samples of shape {shape} with {outputs} outputs",
            why="there is nothing to train without it",
            fix="check the model's settings and its own code",
        ) from error
    if not isinstance(module, nn.Module):
        raise UserError(
            f"the model {name} gave a {type(module).__name__}",
            expected="an nn.Module",
            why="clients train its parameters",
            fix="return the network itself",
        )
    return module


def settings_of(builder: Builder) -> dict[str, inspect.Parameter]:
    """The settings that a builder takes, by name, beyond shape and outputs."""
    return {name: parameter for name, parameter in _parameters(builder).items() if name not in _GIVEN}


def checked_settings(name: str, builder: Builder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the builder takes them.

    Raises:
        UserError: settings that are missing or unknown, that follow from the data, of the wrong type or out of range.
    """
    wrong, known = Mistakes(), settings_of(builder)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    missing = [key for key, parameter in known.items() if _required(parameter) and key not in settings]
    if missing:
        wrong.add(
            UserError(
                f"the model {name} was not given {', '.join(missing)}",
                expected=f"a value for {', '.join(missing)}",
                why="it has no default",
                fix=f"write it as a setting, e.g. {name}({missing[0]}=…)",
            )
        )
    checked = {}
    for key, value in settings.items():
        with wrong.noted():
            checked[key] = _setting(name, builder, key, value, known.get(key), open_ended)
    wrong.refuse()
    return checked


def _setting(
    name: str, builder: Builder, key: str, value: Any, parameter: inspect.Parameter | None, open_ended: bool
) -> Any:
    if key in _GIVEN:
        raise UserError(
            f"the model {name} was given {key} = {value!r}",
            expected="no such setting",
            why=f"{key} follows from the data",
            fix=f"leave {key} out",
        )
    if parameter is None and not open_ended:
        raise unknown("setting", key, settings_of(builder), where=f"the model {name}")
    hint = _hints(builder).get(key)
    return value if hint is None or parameter is None else _value(name, key, value, hint, parameter)


def _value(name: str, key: str, value: Any, hint: Any, parameter: inspect.Parameter) -> Any:
    try:
        adapter = _adapter(hint)
    except PydanticUserError:
        return value  # a user's own annotation of a kind that cannot be checked
    with contextlib.suppress(ValidationError):
        return adapter.validate_python(value, strict=True)
    try:
        # TOML and the command line have lists where a builder may want a tuple.
        return adapter.validate_python(_as_tuples(value), strict=True)
    except ValidationError as error:
        default = "none" if parameter.default is parameter.empty else repr(parameter.default)
        raise UserError(
            f"{name}: {key} = {value!r}",
            expected=allowed(error),
            why=f"{name} cannot be built with such a value",
            fix=f"give {key} another value; its default is {default}",
        ) from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    # pydantic takes no configuration for a class with fields of its own.
    has_fields = hasattr(hint, "__pydantic_config__") or hasattr(hint, "__dataclass_fields__")
    return TypeAdapter(hint, config=None if has_fields else _STRICT)


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


@functools.cache
def _parameters(builder: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(builder).parameters


@functools.cache
def _hints(builder: Callable[..., Any]) -> dict[str, Any]:
    target = builder.__init__ if inspect.isclass(builder) else builder
    try:
        return typing.get_type_hints(inspect.unwrap(target), include_extras=True)
    except (NameError, TypeError):
        return {}  # a user's own annotations need not be types that exist at run time
