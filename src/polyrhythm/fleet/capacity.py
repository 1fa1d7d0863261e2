"""Speeds and links measured on real devices."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, final

import numpy as np

from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.fleet.draws import Rows, row_of
from polyrhythm.fleet.files import ABOVE_ZERO, damaged, digest_of, read_clients, read_csv
from polyrhythm.fleet.links import RatesOfClients
from polyrhythm.fleet.parts import Device, Devices, Line, Links, Place, Way

_BYTES_PER_KBIT = 125.0
_COLUMNS = {"computation_ms_per_sample": ABOVE_ZERO, "communication_kbps": ABOVE_ZERO}
_FORM = 'JSON such as {"1": {"computation": 153.0, "communication": 2209.6}}, by client'


@final
@dataclass(frozen=True, kw_only=True)
class DeviceTrace(Devices, Links):
    """The capacities of real devices: how fast each computes, and how fast it receives and sends.

    A file in the form of FedScale's client_device_capacity: JSON by client, with computation in milliseconds per sample
    and communication in kbit/s, or CSV with the columns client_id, computation_ms_per_sample, communication_kbps. It is
    the speed and the link of a fleet in one. Costs two numbers a row.

    Args:
        path: the file; .json or .csv, also .gz.
        rows: "file" gives client i the i-th device of the file, and clients beyond it drawn ones; "drawn" draws all.
        training_factor: how many times the file's time it takes to train on a sample. The file has times of inference,
            and FedScale trains in three times as long.
        latency: seconds before the first byte, each way.

    Raises:
        UserError: a damaged file, with the place.

    Departure: FedScale takes a kbit for 1,024 bits, here it is 1,000.

    Reference: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
    2022; fedscale/cloud/internal/client_metadata.py.
    """

    path: str | Path
    rows: Rows = "file"
    training_factor: Positive = 3.0
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table  # noqa: B018  # read now, so that a damaged file is refused before anything runs

    @functools.cached_property
    def table(self) -> np.ndarray:
        """Milliseconds per sample and kbit/s, as they are in the file, float64 [rows, 2]."""
        place = Path(self.path)
        if ".csv" in place.suffixes:
            return np.array([values for _, values in read_csv(place, _COLUMNS)])
        return np.array(_from_json(place))

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=float(self._row(place, client)[0]) / 1000 * self.training_factor)

    def bind(self, place: Place) -> Line:
        def rate(client: int, way: Way) -> float:
            return float(self._row(place, client)[1]) * _BYTES_PER_KBIT

        return RatesOfClients(rate, self.latency)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"sha256": digest_of(self.path)}

    def _row(self, place: Place, client: int) -> np.ndarray:
        row: np.ndarray = self.table[row_of(place.seed, "capacity", client, len(self.table), self.rows)]
        return row


def _from_json(place: Path) -> list[tuple[float, ...]]:
    return [_capacity(place, client, entry) for client, entry in read_clients(place, _FORM).items()]


def _capacity(place: Path, client: str, entry: Any) -> tuple[float, ...]:
    if not isinstance(entry, dict):
        raise damaged(place, f"client {client}", repr(entry), _FORM)
    values = []
    for name in ("computation", "communication"):
        value = entry.get(name)
        if not _is_above_zero(value):
            raise damaged(place, f"client {client}", f"{name} = {value!r}", ABOVE_ZERO.words)
        values.append(float(value))
    return tuple(values)


def _is_above_zero(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
