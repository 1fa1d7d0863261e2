"""Settings in a record as one writes them, whether they were recorded as text or as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm.base.settings import label_of

_OF_DATA = ("data", "clients", "partition", "model")


def settings_lines(config: Mapping[str, Any]) -> dict[str, str]:
    """What a run was of, by label; settings that were not recorded are left out.

    Args:
        config: of the record.
    """
    lines = {key: text(config[key]) for key in _OF_DATA if config.get(key) is not None}
    devices = _fleet(config.get("fleet"))
    return {**lines, **({"devices": devices} if devices else {})}


def text(value: object) -> str:
    """A setting as one writes it."""
    if not isinstance(value, dict) or "name" not in value:
        return str(value)
    given = ", ".join(f"{key}={text(held)}" for key, held in value.items() if key != "name" and held not in (None, ""))
    return f"{label_of(str(value['name']))}({given})" if given else label_of(str(value["name"]))


def _fleet(recorded: object) -> str:
    """The parts of a fleet that are other than of a fleet that nobody chose; "" for that one."""
    if not isinstance(recorded, dict):
        return "" if recorded in (None, "uniform") else str(recorded)
    from polyrhythm.fleet import Fleet  # which loads more than a record of text needs

    default = Fleet().describe()
    return " | ".join(
        text(part) for key, part in recorded.items() if key != "name" and part is not None and part != default.get(key)
    )
