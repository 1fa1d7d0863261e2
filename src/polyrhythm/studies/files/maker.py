"""The maker of a file's experiments: what is written for all of them, under the keys of each."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from polyrhythm.base.consent import NOBODY, Trust
from polyrhythm.base.errors import Mistakes
from polyrhythm.config.configuration import configured
from polyrhythm.config.keys import OF_NO_NUMBER, Configuration
from polyrhythm.config.layers import ConfigSource
from polyrhythm.config.overrides import put
from polyrhythm.data import Collection
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.studies.space import Setting


@final
@dataclass(frozen=True, kw_only=True)
class Maker:
    """Maker of the experiments of a file. The data are loaded once in each process.

    Args:
        values: what is written for all of them, by key.
        lines: where.
        file: of the lines.
        trust: the modules that the user has named; it goes along to other processes.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None
    trust: Trust = NOBODY

    @property
    def own(self) -> dict[str, Any]:
        """What is written that decides a number, as plain data."""
        return {key: _plain(value) for key, value in self.values.items() if key not in OF_NO_NUMBER}

    def written(self, setting: Setting) -> dict[str, Any]:
        """The experiment file of a setting, as plain data, without what decides no number."""
        values = copy.deepcopy(self.own)
        for key, value in setting.items():
            put(values, key, _plain(value))
        return values

    def place(self, row: str, key: str) -> str:
        """Where the values are written that are tried for a key of a row; "" if nobody knows."""
        of_row = (f"sweep.methods.{row}.space", f"tuning.methods.{row}.space", f"tuning.rows.{row}.space")
        for inside in (*of_row, f"sweep.rows.{row}.space", "sweep.space", "tuning.space"):
            if (line := self.lines.get(f"{inside}.{key}")) is not None:
                return f"{self.file}, line {line}"
        return ""

    def configuration(self, setting: Setting, seed: int) -> Configuration:
        """The experiment of a setting, as if it had been written.

        Raises:
            UserError: something in it is wrong.
        """
        wrong = Mistakes()
        values = copy.deepcopy(dict(self.values)) | {"seed": seed}
        for key, value in setting.items():
            with wrong.noted():
                put(values, key, tuple(value) if isinstance(value, list) else value)
        for key in ("method", "seeds"):
            if isinstance(values.get(key), list):
                values[key] = tuple(values[key])
        lines = {key: line for key, line in self.lines.items() if key not in setting}  # which stand elsewhere
        return configured(ConfigSource(values, self.file, lines, set()), wrong, self.trust)

    def __call__(self, setting: Setting, seed: int) -> tuple[Experiment, Execution]:
        from polyrhythm.config.assembly import assemble

        configuration = self.configuration(setting, seed)
        things = configuration.resolved_parts
        vars(configuration)["resolved_parts"] = replace(
            things, load=functools.partial(_loaded, configuration.data, self.trust)
        )
        (experiment,) = assemble(configuration)
        return experiment, configuration.execution


@functools.lru_cache(maxsize=2)
def _loaded(data: str, trust: Trust) -> Collection:
    from polyrhythm.config.data_names import source

    return source(data, trust)()


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value
