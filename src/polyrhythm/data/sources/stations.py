"""Air quality by station: what fine dust will be some hours later, from the hours before."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.members import members
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.npz import stored_arrays

REFERENCE = (
    'Zhang et al., "Cautionary Tales on Air-Quality Improvement in Beijing", Proc. R. Soc. A 473, 2017; '
    "Chen, UCI Beijing Multi-Site Air Quality, CC BY 4.0"
)
MEASURED = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
DIRECTIONS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
CHANNELS = (*MEASURED, "wind north", "wind east", "sin hour", "cos hour", "sin year", "cos year")
HEADER = ("No", "year", "month", "day", "hour", *MEASURED[:-1], "wd", "WSPM", "station")
WHAT = "PRSA_Data_STATION_20130301-20170228.csv of each station, in a folder or the .zip of UCI"
START = np.datetime64("2013-03-01T00", "h")
TEST_FROM = int((np.datetime64("2016-03-01T00", "h") - START).astype(np.int64))
"""The first hour of the test year, after the start: three years train, the fourth tests."""
UNIT = 100.0
"""µg/m³ in one of the target."""
_LONGEST = 2**18
"""Hours of a station, at most: thirty years."""


class Station(NamedTuple):
    """A station's hours: `values` [hours, 11] and `wind` [hours, 2], NaN where nothing was measured."""

    name: str
    values: np.ndarray
    wind: np.ndarray


def beijing_air(
    path: str | Path,
    *,
    hours: int = 24,
    horizon: int = 6,
    stride: int = 6,
    predict: Literal["change", "level"] = "change",
) -> Collection:
    """Beijing air quality (UCI): 12 stations, 2013 to 2017; regression of PM2.5 some hours later.

    Reads the .csv files as UCI publishes them, in the .zip or unpacked; or an .npz file with stations, station, hours,
    columns, values, directions and direction. An input is `hours` hours of 11 measurements, the wind's direction, the
    time of day and of year, [17, hours]; the target is in 100 µg/m³. Windows that end before March 2016 train, windows
    that lie in the year after it test: they share no hour. What was not measured is what the station measured last, at
    the beginning the mean of the training hours; a window whose last or target hour has no PM2.5 is left out. Channels
    are scaled by the training windows of all stations. Partition with `by_column(column="station")`.

    The notes say what persistence, the forecast that nothing changes, reaches on the test windows; to beat it is to
    have learnt something. Of "change" it is the output 0, and R² is then near to 1 − MSE / MSE of persistence.

    Args:
        path: of the .zip, the folder or the .npz file.
        hours: that a model sees.
        horizon: hours from the last one seen to the one predicted.
        stride: hours from one window to the next. Below `hours` windows overlap, and validation takes the end of each
            station's.
        predict: "change" since the last hour, or "level"; their errors are the same.

    Raises:
        UserError: no such files, other columns, or cells that are no numbers.

    Reference: Zhang et al., "Cautionary Tales on Air-Quality Improvement in Beijing", Proc. R. Soc. A 473, 2017.
    """
    if min(hours, horizon, stride) < 1 or hours + horizon > TEST_FROM // 2 or predict not in ("change", "level"):
        raise UserError(
            f"beijing-air: hours={hours}, horizon={horizon}, stride={stride}, predict={predict!r}",
            expected='hours, horizon and stride of 1 or more, predict "change" or "level"',
            why="a window is cut from a station's hours, and three years of them train",
            fix="hours=24, horizon=6, stride=6",
        )
    place = existing(path, what=WHAT)
    stations = list(_of_npz(place) if place.suffix == ".npz" else _of_files(place))
    means = _means(stations)
    parts: dict[bool, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {False: [], True: []}
    names: dict[bool, list[str]] = {False: [], True: []}
    for station in stations:
        series = _channels(station, means)
        seen = np.lib.stride_tricks.sliding_window_view(series, hours, axis=0)  # [windows, 17, hours]
        dust = station.values[:, 0]
        ends = np.arange(hours - 1, len(dust) - horizon, stride)
        ends = ends[~np.isnan(dust[ends]) & ~np.isnan(dust[ends + horizon])]
        for tested in (False, True):
            chosen = ends[ends - hours + 1 >= TEST_FROM] if tested else ends[ends + horizon < TEST_FROM]
            parts[tested].append((seen[chosen - hours + 1], dust[chosen], dust[chosen + horizon]))
            names[tested] += [station.name] * len(chosen)
    train, test = ([np.concatenate(of) for of in zip(*parts[tested], strict=True)] for tested in (False, True))
    if not len(train[0]) or not len(test[0]):
        raise corrupt(place, "has no windows to train or to test on", "hours before and after March 2016")
    goals = [((after - last * (predict == "change")) / UNIT).astype(np.float32) for _, last, after in (train, test)]
    made = arrays(
        train[0].astype(np.float32),
        goals[0],
        test=(test[0].astype(np.float32), goals[1]),
        task="regression",
        scaling="train",
        columns={"station": np.array(names[False])},
        test_columns={"station": np.array(names[True])},
        name="beijing-air",
        reference=REFERENCE,
        notes=(
            f"the target is the {predict} of PM2.5 after {horizon} hours in {UNIT:g} µg/m³",
            "windows before March 2016 train, those of the year after it test",
            persistence((test[2] - test[1]) / UNIT, np.array(names[True])),
        ),
    )
    return replace(made, target="PM2.5", ordered_by="station" if stride < hours else "")


def persistence(changes: np.ndarray, stations: np.ndarray) -> str:
    """What the forecast that nothing changes reaches, in words: over all windows, and at the worst station.

    Args:
        changes: from the last hour seen to the one predicted. [n]
        stations: of each. [n]
    """
    found = {name: float(np.sqrt(np.mean(changes[stations == name] ** 2))) for name in np.unique(stations).tolist()}
    worst = max(found, key=lambda name: found[name])
    mae, rmse = float(np.abs(changes).mean()), float(np.sqrt(np.mean(changes**2)))
    return f"persistence has MAE {mae:.4f} and RMSE {rmse:.4f} on the test windows, RMSE {found[worst]:.4f} at {worst}"


def _means(stations: list[Station]) -> np.ndarray:
    """The mean of each measurement over the training hours of all stations; 0 without any. [11]"""
    rows = np.concatenate([station.values[:TEST_FROM] for station in stations])
    known = ~np.isnan(rows)
    found: np.ndarray = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return found


def _channels(station: Station, means: np.ndarray) -> np.ndarray:
    """All channels of a station without gaps. [hours, 17] float32"""
    values = _filled(station.values, means)
    hours = np.arange(len(values))
    day, year = 2 * np.pi * hours / 24, 2 * np.pi * hours / (24 * 365.25)
    turns = np.stack([np.sin(day), np.cos(day), np.sin(year), np.cos(year)], axis=1)
    return np.concatenate([values, _filled(station.wind, np.zeros(2)), turns], axis=1).astype(np.float32)


def _filled(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Each gap as what was there last, and before anything was, `first`. [hours, columns]"""
    rows = np.concatenate([first[None], values])
    places = np.where(np.isnan(rows), 0, np.arange(len(rows))[:, None])
    found: np.ndarray = np.take_along_axis(rows, np.maximum.accumulate(places, axis=0), axis=0)[1:]
    return found


def _wind(directions: np.ndarray) -> np.ndarray:
    """North and east of a wind, by the number of its direction, NaN for −1. [hours, 2]"""
    angle = np.where(directions < 0, np.nan, directions * (2 * np.pi / len(DIRECTIONS)))
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _laid(place: Path, name: str, hours: np.ndarray, values: np.ndarray, directions: np.ndarray) -> Station:
    """A station's rows by the hour; hours that have no row are gaps."""
    if not len(hours) or hours.min() < 0 or hours.max() >= _LONGEST or len(np.unique(hours)) != len(hours):
        raise corrupt(place, f"{name}: hours before March 2013, far after it, or twice", "one row for each hour")
    if np.isinf(values).any():
        raise corrupt(place, f"{name}: a measurement that is infinite", "numbers, or NA")
    whole = np.full((int(hours.max()) + 1, values.shape[1]), np.nan)
    wind = np.full(len(whole), -1)
    whole[hours], wind[hours] = values, directions
    return Station(name, whole, _wind(wind))


def _of_npz(place: Path) -> Iterator[Station]:
    with stored_arrays(place) as stored:
        names = ("stations", "station", "hours", "columns", "values", "directions", "direction")
        stations, station, hours, columns, values, directions, direction = (stored.read(name) for name in names)
    if tuple(map(str, columns.tolist())) != MEASURED or not set(map(str, directions.tolist())) <= set(DIRECTIONS):
        raise corrupt(place, f"has the columns {columns.tolist()!r:.80}", f"{', '.join(MEASURED)}, and winds")
    if values.shape != (len(station), len(MEASURED)) or not len(station) == len(hours) == len(direction):
        raise corrupt(place, f"values of shape {values.shape} for {len(station):,} hours", "one row an hour")
    turned = np.array([DIRECTIONS.index(str(name)) for name in directions.tolist()] + [-1])
    for number, name in enumerate(stations.tolist()):
        rows = station == number
        winds = np.where(direction[rows] < 0, len(directions), direction[rows])
        yield _laid(place, str(name), hours[rows].astype(np.int64), values[rows].astype(np.float64), turned[winds])


def _of_files(place: Path) -> Iterator[Station]:
    import pandas as pd

    for name, raw in members(place, r"PRSA_Data_\w+_\d{8}-\d{8}\.csv", what=WHAT):
        first = raw[:1000].split(b"\n")[0].decode(errors="replace").replace('"', "").strip().split(",")
        if tuple(first) != HEADER:
            raise corrupt(place, f"{name} begins with {','.join(first)[:80]!r}", f"the header {','.join(HEADER)}")
        try:
            kinds = dict.fromkeys((*HEADER[:5], *MEASURED), np.float64) | {"wd": str, "station": str}
            frame = pd.read_csv(io.BytesIO(raw), dtype=kinds, engine="c")
            days = pd.to_datetime(frame[["year", "month", "day"]])
            hours = (days - pd.Timestamp(START)) // pd.Timedelta(hours=1) + frame["hour"].astype(np.int64)
        except Exception as error:  # pandas raises many kinds
            raise corrupt(
                place, f"{name} cannot be read ({' '.join(str(error).split())[:120]})", "UCI's table"
            ) from None
        winds = frame["wd"].map({of: number for number, of in enumerate(DIRECTIONS)}).fillna(-1).to_numpy(np.int64)
        yield _laid(
            place, name.split("_")[2], hours.to_numpy(np.int64), frame[list(MEASURED)].to_numpy(np.float64), winds
        )
