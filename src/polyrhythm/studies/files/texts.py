"""Texts that a file names once, in its table [let], and has in many places: `{name}` stands for what is said there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.config.layers import ConfigSource

_NAME = re.compile(r"\{([^{}]*)\}")
_WORDS = ("reproduces", "paper", "claims")  # are for readers, and have braces of their own
_WHY = "why"  # likewise, in a scale


def filled(said: ConfigSource, wrong: Mistakes) -> dict[str, Any]:
    """What a file says, without [let], and with its texts in the place of their names. Without one, braces are braces.

    Nothing but texts is looked at, and nothing else is done to them, so that the experiments are those of a file in
    which everything is written out.

    Args:
        said: the file, as it is written.
        wrong: takes note of names that are not there, are never used, or lead back to themselves.
    """
    values = {key: value for key, value in said.values.items() if key != "let"}
    if "let" not in said.values:
        return values
    texts = said.values["let"]
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        wrong.add(_no_texts(said.where("let")))
        return values
    used: set[str] = set()
    mistakes: dict[str, UserError] = {}  # one inside a text is made wherever that is used, and told once

    def fill(text: str, path: str, within: tuple[str, ...] = ()) -> str:
        def one(found: re.Match[str]) -> str:
            name = found[1]
            if name in texts and name not in within:
                used.add(name)
                return fill(texts[name], f"let.{name}", (*within, name))
            mistake = _loop(name, path, said) if name in texts else _nameless(name, path, texts, said)
            mistakes[mistake.found] = mistake
            return found[0]

        return _NAME.sub(one, text)

    def through(value: Any, path: str) -> Any:
        if isinstance(value, str):
            return fill(value, path)
        if isinstance(value, dict):
            return {key: own if key == _WHY else through(own, f"{path}.{key}") for key, own in value.items()}
        if isinstance(value, list):
            return [through(own, f"{path}.{place}") for place, own in enumerate(value)]
        return value

    whole = {key: value if key in _WORDS else through(value, key) for key, value in values.items()}
    wrong.add(*mistakes.values(), *(_unused(name, said) for name in texts if name not in used))
    return whole


def _no_texts(where: str) -> UserError:
    return UserError(
        f"{where}: [let] that does not consist of texts",
        expected='lines such as local = "cohort=16, epochs=2"',
        why="each name stands for a piece of text, and is written {local}",
        fix="put what stands there into quotes, or leave it out",
    )


def _nameless(name: str, path: str, texts: Mapping[str, str], said: ConfigSource) -> UserError:
    why = "braces stand for a text that the table [let] gives"
    error = unknown(
        "text", f"{{{name}}}", [f"{{{known}}}" for known in texts], where=f"{said.where(path)} ({path})", why=why
    )
    if texts:
        return error
    return UserError(error.found, expected="names that a table [let] gives", why=why, fix=f'[let] with {name} = "…"')


def _loop(name: str, path: str, said: ConfigSource) -> UserError:
    return UserError(
        f"{said.where(path)} ({path}): {{{name}}} leads back to itself",
        expected="texts that come to an end",
        why="it would never be written out",
        fix=f"write out what is meant, without {{{name}}}",
    )


def _unused(name: str, said: ConfigSource) -> UserError:
    return UserError(
        f"{said.where(f'let.{name}')}: {name} in [let] is never used",
        expected=f"{{{name}}} in a text of the experiment, its rows, columns, tuning or scales",
        why="nothing is made of it, so that another experiment than the one you meant would run",
        fix=f"use {{{name}}}, or leave {name} out",
    )
