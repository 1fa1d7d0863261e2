"""The layers that an experiment is written in: a TOML file, under the command line, under `--set`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.base.input_file import text_of
from polyrhythm.config.expressions import parse_value
from polyrhythm.config.keys import KEYS
from polyrhythm.config.lines import check_keys, lines_of
from polyrhythm.config.overrides import names_something, put_inside


def layered(
    file: Path | None,
    options: Mapping[str, Any],
    settings: list[str],
    wrong: Mistakes,
    known: Iterable[str],
    written_out: Callable[[ConfigSource, Mistakes], dict[str, Any]] | None = None,
) -> ConfigSource:
    """Lays them over each other. Text that stands for something else is read as that.

    Args:
        file: a TOML file, or None.
        options: from the command line, by key; None means not given.
        settings: `key=value` texts.
        wrong: takes note of what cannot be read; that key is left out.
        known: all keys.
        written_out: gives what a file says, from how it is written, before anything else is made of it.

    Raises:
        UserError: no such file, or it is not TOML.
    """
    values, lines = ({}, {}) if file is None else _read(file)
    if written_out is not None:
        values = written_out(ConfigSource(values, file, lines, set()), wrong)
    given = dict[str, Any]()
    for key, value in options.items():
        if value is not None:
            with wrong.noted(f"the command line: {key}"):
                given[key] = from_text(key, value) if isinstance(value, str) else value
    for layer in (values, given):
        if "seed" in layer and "seeds" in layer:
            wrong.add(_two_seeds(layer))
    _make_way(values, given)
    values |= given
    said = ConfigSource(values, file, lines, set(given))
    for setting in settings:
        with wrong.noted():
            said.here.add(_put(values, setting, known))
    for path, reader in _READERS.items():
        *outer, key = path.split(".")
        table = values.get(outer[0]) if outer else values
        if isinstance(table, dict) and isinstance(table.get(key), str):
            with wrong.noted(said.where(path)):
                table[key] = reader(table.pop(key))
    return said


_MANY = 1000  # seeds in a range: more is a slip of the finger


@final
class ConfigSource:
    """What was said, and where: on the command line, or on which line of the file.

    Args:
        values: by key.
        file: where lines are.
        lines: of each key of the file, by its path with dots.
        here: the paths of the keys that the command line gave.
    """

    def __init__(self, values: dict[str, Any], file: Path | None, lines: Mapping[str, int], here: set[str]) -> None:
        self.values, self.file, self.lines, self.here = values, file, lines, here

    def where(self, path: str) -> str:
        """Where a key was written; a key inside keys stands where they do, if nowhere else."""
        if any(part in self.here for part in _upwards(path)):
            return "the command line"
        line = next((self.lines[part] for part in _upwards(path) if part in self.lines), None)
        if line is not None:
            return f"{self.file}, line {line}"
        return "the command line" if self.file is None else str(self.file)

    def in_file(self, key: str) -> bool:
        """Whether the value of a key is the file's."""
        return key in self.lines and key not in self.here

    def what(self, path: str) -> str:
        """The same, with the key."""
        return f"{self.where(path)}: {path.partition('.')[0]}"


def _upwards(path: str) -> Iterator[str]:
    """A path, and those that it lies in."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _two_seeds(layer: Mapping[str, Any]) -> UserError:
    return UserError(
        f"seed = {layer['seed']!r} and seeds = {layer['seeds']!r}",
        expected="one of them",
        why="seeds makes one run for each of its seeds, and nothing would be made of the other one",
        fix="leave one of them out",
    )


def _make_way(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Whoever says `seed` over a file with `seeds` wants that one, and the other way round."""
    for one, other in (("seed", "seeds"), ("seeds", "seed")):
        if one in over:
            values.pop(other, None)


def _read(file: Path) -> tuple[dict[str, Any], Mapping[str, int]]:
    """What a file says, and on which line each key stands."""
    try:
        text = text_of(file, pipes=True)
        check_keys(text)
        return tomllib.loads(text), lines_of(text)
    except FileNotFoundError:
        raise _unreadable(file, "no such file", _instead(file) or _CHECK) from None
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error), "give the path of a file that can be read") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number with thousands of digits
        raise _unreadable(file, str(error), _instead(file) or "correct the file at that place") from None
    except RecursionError:
        raise _unreadable(file, "brackets in too many brackets", "write it with fewer of them") from None


_CHECK = "check the path; relative paths start at the folder you run in"


def _instead(file: Path) -> str:
    from polyrhythm.config.not_a_file import instead_of_file  # which loads everything that has a name

    return instead_of_file(str(file))


def _unreadable(file: Path, problem: str, fix: str) -> UserError:
    return UserError(
        f"{file}: {problem}",
        expected='an experiment file in TOML, with lines such as method = "fedavg(cohort=10)"',
        why="the experiment is described there",
        fix=fix,
    )


def _put(values: dict[str, Any], setting: str, known: Iterable[str]) -> str:
    """Puts a setting over the values; gives its key."""
    path, text = key_and_text(setting)
    keys = path.split(".")
    if names_something(keys[0]) and len(keys) > 1:
        put_inside(values, path, parse_value(text))
        return keys[0]
    inside = values
    for key in keys[:-1]:
        inside = inside.setdefault(key, {})
        if not isinstance(inside, dict):
            raise unknown("key", path, known, where="--set")
    _make_way(values, {path: text})
    inside[keys[-1]] = from_text(path, text)
    return path


def key_and_text(setting: str) -> tuple[str, str]:
    """The key, with its dots, and the text of the value of a setting `key=value`.

    Raises:
        UserError: it is none.
    """
    path, equals, text = (part.strip() for part in setting.partition("="))
    if not equals or not text or not all(path.split(".")):
        raise UserError(
            f"--set {setting}",
            expected="key=value, such as evaluation.every=5",
            why="it says which setting of the experiment gets which value",
            fix="write the key, an equals sign and the value",
        )
    return path, text


def from_text(path: str, text: str) -> Any:
    """A text on the command line as the value that it stands for, by what its key takes."""
    key = KEYS.get(path)
    if key is None or text.startswith("["):
        return parse_value(text)
    is_text = key.names is not None or key.table is not None or path in _READERS or str in key.texts
    return text if is_text else parse_value(text)


def _until(text: str) -> dict[str, Any]:
    ends: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not value or key in ends:
            raise UserError(
                f"until {text!r}",
                expected="accuracy=0.9, time=3600 (virtual s), updates=1000, patience=10, or several with commas",
                why="it says what ends the run",
                fix="write each name once, an equals sign and a number",
            )
        ends[key] = number_or_text(value)
    return ends


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of a text such as 0-2 or 0,3,5."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,30})(?:-(\d{1,30}))?\s*", part)
        if match is None or not 0 <= int(match[2] or match[1]) - int(match[1]) < _MANY:
            raise UserError(
                f"seeds {text!r}",
                expected="seeds such as 0-2, or 0,3,5",
                why="one run is made for each",
                fix="write a range with a hyphen, the smaller number first and no more than a thousand, or a list with "
                "commas",
            )
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(seeds))


def number_or_text(text: str) -> Any:
    """A text as the number that it is, else as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# What may be written as text, on the command line or in a file, and stands for something else.
_READERS: dict[str, Callable[[str], Any]] = {"until": _until, "seeds": seeds_of}
_READERS |= {key.name: _names for key in KEYS.values() if key.several}
_READERS |= {key.name: number_or_text for key in KEYS.values() if {str} < key.texts}
