"""The command `polyrhythm` itself, which says of an option or a command that is not there what was meant."""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import typer
from typer.core import TyperGroup

from polyrhythm.base.errors import UserError

if TYPE_CHECKING:
    from polyrhythm.config.homes import Home

_VERY_NEAR, _NEAR = 0.85, 0.6
_EXTRA = re.compile(r"Got unexpected extra arguments? ?\(?s?\)? ?\(?(.*?)\)?$")
_CALLED = {
    **{"help": "--help", "version": "--version", "list": "runs", "ls": "runs", "train": "run", "dashboard": "ui"},
    **{"remove": "delete", "rm": "delete", "hide": "archive", "baseline": "pin", "mv": "rename"},
}
"""What commands are called elsewhere."""
_MISUSED = {
    "MissingParameter": "without it there is nothing to be done",
    "BadParameter": "it has no meaning with such a value",
    "BadOptionUsage": "options that take a value stand before it, and others alone",
}
"""Click's errors, or typer's, and why that is one."""


class Group(TyperGroup):
    """A group of commands, such as `polyrhythm data`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads what stands before a command."""
        with _explained(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Reads the options of a command, and carries it out."""
        with _explained(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise _refused(_no_such_command(args, ctx))
        return super().resolve_command(ctx, args)


@final
class Root(Group):
    """The group of all commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for command in (self, *_below(self)):
            command.context_class = _plain(command.context_class)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command; a file in its place was meant to be run."""
        if args and args[0].endswith(".toml") and args[0] not in self.commands:
            raise _refused(
                UserError(
                    f"unknown command {args[0]!r}",
                    expected=f"one of {', '.join(self.commands)}",
                    why="a file can be run, checked or carried out as a study",
                    fix=f"polyrhythm run {shlex.join(args)}",
                )
            )
        return super().resolve_command(ctx, args)


def _below(group: Any) -> Iterator[Any]:
    """All commands of a group, and of the groups in it."""
    for command in getattr(group, "commands", {}).values():
        yield command
        yield from _below(command)


@functools.cache
def _plain(context: Any) -> Any:
    """A context whose help is plain text: typer up to 0.20 writes `\\[default: 1]`, as if rich would read it."""

    class Formatter(context.formatter_class):  # type: ignore[misc]
        def write_dl(self, rows: Any, *how: Any, **named: Any) -> None:
            plain = [(first, text.replace("\\[", "[")) for first, text in rows]
            super().write_dl(plain, *how, **named)

    return type(context.__name__, (context,), {"formatter_class": Formatter})


@contextlib.contextmanager
def _explained(ctx: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        at: Any = error
        if type(error).__name__ == "NoSuchOption":  # which typer has from Click, or of its own, by its version
            raise _refused(_no_such_option(at.option_name, at.ctx or ctx)) from None
        if type(error).__name__ == "UsageError" and (extra := _EXTRA.match(at.message)):
            raise _refused(_too_much(extra[1], at.ctx or ctx)) from None
        if type(error).__name__ in _MISUSED:
            raise _refused(_misused(at, at.ctx or _at_work(ctx))) from None
        raise


def _no_such_command(args: Sequence[str], ctx: Any) -> UserError:
    """The error for a command that there is not: what it is called here, or what was meant."""
    group, (command, *rest) = ctx.command_path, args
    known, top = list(ctx.command.commands), ctx.parent is None
    near = difflib.get_close_matches(command, known, n=2, cutoff=_NEAR)
    fix = f"did you mean {' or '.join(near)}?" if near else f"`{group} -h` says what each of them does"
    if top and command in _CALLED:
        fix = f"{group} {shlex.join([_CALLED[command], *rest])}"
    elif not near and not top and f"--{ctx.info_name}" in _options(ctx.command.commands.get("show"), ctx):
        fix = f"{group} show --{ctx.info_name} {shlex.join(args)}, if that is what to show"
    return UserError(
        f"unknown command {command if top else f'{group} {command}'!r}",
        expected=f"one of {', '.join(known)}",
        why="nothing is done by that name",
        fix=fix,
    )


def _at_work(ctx: Any) -> Any:
    """The context of the command that was being read, which not all of Click's errors name."""
    name = ctx.invoked_subcommand
    command = getattr(ctx.command, "commands", {}).get(name)
    return ctx if command is None else command.context_class(command, info_name=name, parent=ctx)


def _misused(error: Any, ctx: Any) -> UserError:
    """The error for a command that was given too little, or what is none of its values, in Click's words."""
    usage = " ".join(ctx.get_usage().split()).removeprefix("Usage: ")
    words = error.format_message().rstrip(".")
    return UserError(
        f"`{ctx.command_path}`: {words[:1].lower()}{words[1:]}",
        expected=usage,
        why=_MISUSED[type(error).__name__],
        fix=f"`{ctx.command_path} --help` says what is meant",
    )


def _too_much(words: str, ctx: Any) -> UserError:
    """The error for words that a command has no place for; a folder of runs was meant for `--out`."""
    takes_folder = "--out" in _options(ctx.command, ctx)
    return UserError(
        f"`{ctx.command_path}` with {words}",
        expected=f"what it takes; `{ctx.command_path} --help` says what that is",
        why="it would be passed over",
        fix=f"--out {words}, if that is the folder of the runs" if takes_folder else f"leave {words} out",
    )


def _refused(error: UserError) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2)


def _no_such_option(option: str, ctx: Any) -> UserError:
    """The error for an option that a command has not: an option near to it, or where the setting of that name is."""
    command, own = ctx.command_path, _options(ctx.command, ctx)
    about = f"`{command} --help` lists what there is"
    why, fix = "an option that is passed over would be another experiment than the one you meant", about
    commands = getattr(ctx.command, "commands", {})
    near, close = (difflib.get_close_matches(option, own, n=2, cutoff=cutoff) for cutoff in (_VERY_NEAR, _NEAR))
    if "run" in commands and option in _options(commands["run"], ctx):
        why, fix = "it is an option of a command", f"did you forget the command? {command} run {_typed(1)}"
    elif option == "--out" and any(getattr(param, "metavar", "") == "DIR" for param in ctx.command.get_params(ctx)):
        why, fix = "the folder stands by itself here", f"{command} {_value(option)}"
    elif near:
        fix = f"did you mean {' or '.join(near)}?"
    elif places := _places(option, own, exactly=True) or ([] if close else _places(option, own, exactly=False)):
        name = option.lstrip("-").replace("-", "_")
        why = f"{name} is {', or '.join(dict.fromkeys(home.words for home, _ in places))}"
        fix = ", or ".join(text for _, text in places)
    elif close:
        fix = f"did you mean {' or '.join(close)}?"
    return UserError(
        f"`{command}` has no option {option}", expected=f"an option that it has; {about}", why=why, fix=fix
    )


def _places(option: str, own: Sequence[str], *, exactly: bool) -> list[tuple[Home, str]]:
    """Where the setting of that name, or the one nearest to it, is; and how a command's options say it."""
    if "--set" not in own:
        return []
    from polyrhythm.config.homes import homes, nearest

    name, value = option.lstrip("-"), _value(option)
    found: list[tuple[Home, str]] = []
    for home in homes(name) if exactly else nearest(name):
        texts = [home.override(value)] if home.of_every_method or f"--{home.key}" not in own else []
        if f"--{home.key}" in own or not home.owner:
            texts.append(home.option(value))
        found.append((home, ", or ".join(dict.fromkeys(texts))))
    return found


def _options(command: Any, ctx: Any) -> list[str]:
    if command is None:
        return []
    options = (param for param in command.get_params(ctx) if param.param_type_name == "option")
    return [name for param in options for name in param.opts if "--help" not in param.opts]


def _typed(start: int) -> str:
    return shlex.join(sys.argv[start:])


def _value(option: str) -> str:
    """What was typed after an option, or "…"."""
    for place, word in enumerate(sys.argv):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and place + 1 < len(sys.argv) and not sys.argv[place + 1].startswith("--"):
            return sys.argv[place + 1]
    return "…"
