"""Settings in a record as one writes them, whether they were recorded as text or as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrhythm.base.settings import label_of
from polyrhythm.runs.portrait import labels_of

UNCHOSEN = "uniform"
# What `Fleet().describe()` gives, to which tests hold it; the fleet itself loads much more than a text needs.
USUAL_FLEET: Mapping[str, Any] = {
    "devices": {"name": "Uniform", "seconds_per_sample": 0.001, "flops_per_second": None, "memory": None},
    "links": {"name": "FixedLinks", "down": None, "up": None, "latency": 0},
    "availability": {"name": "Always"},
    "faults": {
        "name": "Faults",
        **dict.fromkeys(("dropout", "crash", "slow", "nan", "inflate", "malformed"), 0),
        **dict.fromkeys(("lost", "duplicate", "stray", "corrupt"), 0),
        **{"downtime": 600, "slowdown": 10, "inflation": 1000, "checksum": True, "secagg_dropout": []},
    },
    "energy": {
        "name": "Energy",
        **{"joules_per_flop": 1e-10, "joules_per_byte": 1e-7, "battery": None, "charging": 0, "reserve": 0.2},
    },
}
_OF_DATA = ("data", "clients", "partition", "model")


def settings_lines(config: Mapping[str, Any]) -> dict[str, str]:
    """What a run was of, by label; settings that were not recorded are left out.

    Args:
        config: of the record.
    """
    lines = {key: text(config[key]) for key in _OF_DATA if config.get(key) is not None}
    fleet = _fleet(config["fleet"]) if "fleet" in config else ""
    return {**lines, **({"devices": fleet} if fleet else {})}


def made_of(row: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The same with how much each client holds, and how large the model is.

    Args:
        row: of the run.
        path: the folder of its own files.
    """
    sizes = (labels_of(path) or {}).get("sizes")
    held = ""
    if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
        least, most = min(sizes), max(sizes)
        held = f", with {f'{least:,} to {most:,}' if least < most else f'{most:,}'} samples each"
    lines = settings_lines(row["config"])
    clients = {"clients": f"{row['clients']:,}{held}"}
    model = {"model": f"{lines.get('model', 'a model')}: {row['parameters']:,} parameters"}
    first: dict[str, str] = {key: lines[key] for key in ("data", "partition") if key in lines}
    return {**first, **clients, **model, **({"devices": lines["devices"]} if "devices" in lines else {})}


def text(value: object) -> str:
    """A setting as one writes it."""
    if not isinstance(value, dict) or "name" not in value:
        return str(value)
    said = {key: held for key, held in value.items() if key != "name" and held not in (None, "", [])}
    given = ", ".join(f"{key}={text(held)}" for key, held in said.items())
    return f"{label_of(str(value['name']))}({given})" if given else label_of(str(value["name"]))


def _fleet(recorded: object) -> str:
    """A fleet as one writes it: the parts that are other than of one that nobody chose, which is uniform."""
    if not isinstance(recorded, dict):
        return str(recorded or UNCHOSEN)
    parts = [text(part) for key, part in recorded.items() if key != "name" and part and part != USUAL_FLEET.get(key)]
    return " | ".join(parts) or UNCHOSEN
