"""Devices given one by one."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.fleet.files import damaged, digest_of, read_json
from polyrhythm.fleet.parts import Device, Devices, Place

_FORM = 'a JSON list of devices, such as [{"seconds_per_sample": 0.001, "memory": 4e9, "group": "phone"}]'


@final
@dataclass(frozen=True, kw_only=True)
class ListedDevices(Devices):
    """One device per client, as a list; repeated if there are more clients.

    Args:
        devices: in Python, `Device(seconds_per_sample=0.001)` and so on.
        path: a JSON file instead: a list of such devices, each with the settings of one by name.

    Raises:
        UserError: neither or both, a damaged file, or a device without a speed.
    """

    devices: tuple[Device, ...] = ()
    path: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.devices) == (self.path is not None):
            raise UserError(
                "listed_devices: both devices and path" if self.devices else "listed_devices: no device",
                expected="devices, or the path of a file that lists them",
                why="the list is repeated over the clients, and there must be one",
                fix='path="devices.json", or in Python devices=(Device(seconds_per_sample=0.001),)',
            )
        for number, device in enumerate(self._all):
            _check(device, f"{self.path}, device {number + 1}" if self.path else f"listed_devices: device {number + 1}")

    @functools.cached_property
    def _all(self) -> tuple[Device, ...]:
        return self.devices if self.path is None else tuple(_read(Path(self.path)))

    @property
    def bounded(self) -> bool:
        return any(device.memory is not None for device in self._all)

    def device(self, place: Place, client: int) -> Device:
        return self._all[client % len(self._all)]

    def describe(self) -> dict[str, Any]:
        if self.path is not None:
            return super().describe() | {"sha256": digest_of(self.path)}
        return super().describe() | {"devices": [dataclasses.asdict(device) for device in self.devices]}


def _read(place: Path) -> list[Device]:
    entries = read_json(place, _FORM)
    if not isinstance(entries, list) or not entries:
        raise damaged(place, "line 1", f"a {type(entries).__name__}" if entries != [] else "no device", _FORM)
    known = {field.name for field in dataclasses.fields(Device)}
    devices = []
    for number, entry in enumerate(entries, start=1):
        odd = sorted(entry.keys() - known) if isinstance(entry, dict) else [repr(entry)]
        if odd:
            raise damaged(place, f"device {number}", str(odd[0]), f"an object with {', '.join(sorted(known))}")
        devices.append(Device(**entry))
    return devices


def _check(device: Device, where: str) -> None:
    speeds = {"seconds_per_sample": device.seconds_per_sample, "flops_per_second": device.flops_per_second}
    numbers = speeds | {"memory": device.memory, "joules_per_flop": device.joules_per_flop}
    wrong = [f"{name} = {value!r}" for name, value in numbers.items() if not _fits(name, value)]
    if not isinstance(device.group, str):
        wrong.append(f"group = {device.group!r}")
    if set(speeds.values()) == {None}:
        wrong.append("no speed")
    if wrong:
        raise UserError(
            f"{where}: {wrong[0]}",
            expected="seconds_per_sample (0 or more) or flops_per_second (above 0), in numbers; if need be memory "
            "(above 0), joules_per_flop (0 or more) and group, a name",
            why="the time and the energy of a visit follow from its device",
            fix='for example {"seconds_per_sample": 0.001, "joules_per_flop": 1e-10, "group": "phone"}',
        )


def _fits(name: str, value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    return value > 0 or (value == 0 and name in ("seconds_per_sample", "joules_per_flop"))
