"""Options of commands that are keys of an experiment file, made from those keys when a command is called.

Not before: what says which keys there are takes longer to import than `--help` may take.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from polyrhythm.config.keys import Key

ALL = "all"
"""Every key that has an option."""
EXECUTION = "execution"
"""Those that say how an experiment is computed."""
_GIVEN = "polyrhythm.given"


def taking(*names: str) -> type[TyperCommand]:
    """A command with these keys as options.

    Args:
        names: of the keys; `ALL` and `EXECUTION` stand for several.
    """

    class Taking(TyperCommand):
        keys = names

        def get_params(self, ctx: Any) -> list[Any]:
            own = super().get_params(ctx)
            return [
                *(param for param in own if param.param_type_name == "argument"),
                *_options(names),
                *(param for param in own if param.param_type_name != "argument"),
            ]

        def invoke(self, ctx: Any) -> Any:
            given = {param.name: ctx.params.pop(param.name) for param in _options(names)}
            ctx.meta[_GIVEN] = {name: value for name, value in given.items() if value is not None}
            return super().invoke(ctx)

    return Taking


def taken_by(command: object) -> Sequence[Key]:
    """The keys that a command has as options."""
    return tuple(_keys(getattr(command, "keys", ())))


def given(context: typer.Context) -> dict[str, Any]:
    """The keys that were given to a command as options, with their texts."""
    found: dict[str, Any] = context.meta[_GIVEN]
    return found


@functools.cache
def _options(names: Sequence[str]) -> Sequence[Any]:
    """Options as typer makes them: of a command with nothing else."""

    def takes_them(**options: str | None) -> None: ...

    signature = [
        inspect.Parameter(key.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(key))
        for key in _keys(names)
    ]
    takes_them.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command()(takes_them)
    return [param for param in typer.main.get_command(alone).params if param.name != "help"]


def _keys(names: Sequence[str]) -> Iterator[Key]:
    from polyrhythm.config.keys import KEYS, OF_EXECUTION

    for key in KEYS.values():
        asked = ALL in names or key.name in names or (EXECUTION in names and key.name in OF_EXECUTION)
        if asked and "." not in key.name and (key.table is None or key.name == "until"):
            yield key


def _option(key: Key) -> Any:
    name = f"--{key.name.replace('_', '-')}"
    kind = next(iter(key.texts)) if len(key.texts) == 1 else str
    metavar = f"<{kind.__name__ if kind in (int, float) else 'str'}>"
    return Annotated[str | None, typer.Option(name, metavar=metavar, help=key.help, show_default=False)]
