"""Where a name belongs that was written elsewhere: `lr` is a setting of the method, `alpha` one of a partition."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.config import names
from polyrhythm.config.calls import key_of
from polyrhythm.config.keys import KEYS
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.methods.papers import Common
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.tasks import TASKS

_OTHERS = {"learning_rate": "lr", "local_lr": "lr", "rate": "lr", "batch_size": "batch", "local_epochs": "epochs"}
"""What settings are called elsewhere."""
_GIVEN_BY_DATA = {"shape", "outputs"}
_FAULTS = "faults"
_MOST = 3


@final
@dataclass(frozen=True)
class Home:
    """A place where a name means something.

    Args:
        key: of a file, in whose text or table it stands.
        owner: whose setting it is, such as "dirichlet"; "" in a table.
        setting: the setting; "" if the name is the owner itself.
        piped: whether the owner stands after a pipe.
        needs: what else has to be said there.
    """

    key: str
    owner: str
    setting: str
    piped: bool = False
    needs: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What it is there."""
        if not self.setting:
            return f"a name for {self.key}"
        return "a setting of every method" if self.of_every_method else f"a setting of {self.owner or self.key}"

    @property
    def of_every_method(self) -> bool:
        """Whether all recipes have it."""
        return self.key == "method" and not self.piped and self.setting in Common.__annotations__

    def option(self, value: str) -> str:
        """How one writes it on the command line."""
        if self.key in (_FAULTS, "until"):
            return f"--{self.key} {self.setting}={value}"
        return f'--{self.key} "{self._text(value)}"' if self.owner else f"--set {self.key}.{self.setting}={value}"

    def line(self, value: str) -> str:
        """How one writes it in a file."""
        if self.key == _FAULTS:
            return f'{self.key} = "{self.setting}={value}"'
        return f'{self.key} = "{self._text(value)}"' if self.owner else f"[{self.key}] with {self.setting} = {value}"

    def override(self, value: str) -> str:
        """How one writes it with `--set`."""
        if self.key == _FAULTS:
            return f"--set {self.key}={self.setting}={value}"
        part = f".{self.owner}" if self.piped else ""
        return f"--set {self.key}{part}.{self.setting}={value}" if self.setting else f"--set {self.key}={self.owner}"

    def _text(self, value: str) -> str:
        given = [f"{name}=…" for name in self.needs] + ([f"{self.setting}={value}"] if self.setting else [])
        call = f"{self.owner}({', '.join(given)})" if given else self.owner
        first = "fedavg | " if self.key == "method" else "uniform | "
        return f"{first}{call}" if self.piped else call


def homes(name: str) -> Sequence[Home]:
    """Where a name means something: one place for each key, the likeliest first, and settings before names."""
    name = key_of(name)
    found = [*_homes().get(name, ()), *_homes().get(_OTHERS.get(name, ""), ())]
    return tuple({home.key: home for home in reversed(found)}.values())[::-1][:_MOST]


def nearest(name: str) -> Sequence[Home]:
    """The same for the name that is nearest to one that means nothing."""
    near = difflib.get_close_matches(key_of(name), _homes(), n=1, cutoff=0.7)
    return homes(near[0]) if near else ()


@functools.cache
def _homes() -> Mapping[str, Sequence[Home]]:
    found: dict[str, list[Home]] = {}
    for home in sorted(_all(), key=lambda home: not home.setting):
        found.setdefault(home.setting or key_of(home.owner), []).append(home)
    return found


def _all() -> Iterator[Home]:
    inside = (path.rpartition(".") for path in KEYS if "." in path)
    yield from (Home(table, "", setting) for table, _, setting in inside)
    yield from (Home("method", "fedavg", setting) for setting in Common.__annotations__)
    yield from (Home(_FAULTS, "", setting) for setting in _settings(names.OF_FLEETS[_FAULTS]))
    tables = {name: SOURCES[name] for name in ("table", "npz")}  # which have the path of most people's own data
    kinds: Sequence[tuple[str, Mapping[str, Callable[..., Any]], bool]] = (
        ("method", names.RECIPES, False),
        ("method", names.PARTS, True),
        ("partition", PARTITIONS, False),
        ("model", MODELS, False),
        ("data", tables | SOURCES, False),
        ("fleet", names.DEVICES, False),
        ("fleet", names.FLEETS, False),
        ("fleet", names.OF_FLEETS, True),
        ("task", TASKS, False),
    )
    for key, known, piped in kinds:
        for owner, make in known.items():
            if owner == _FAULTS:
                continue
            settings = _settings(make)
            needed = [name for name, default in settings.items() if default is inspect.Parameter.empty]
            for setting in ("", *settings):
                yield Home(key, owner, setting, piped, tuple(name for name in needed if name != setting))


def _settings(make: Callable[..., Any]) -> Mapping[str, object]:
    """What something takes, with defaults."""
    parameters = inspect.signature(make).parameters.items()
    return {n: p.default for n, p in parameters if p.kind is not p.VAR_KEYWORD and n not in _GIVEN_BY_DATA}
