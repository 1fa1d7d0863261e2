"""Your own data, in the three forms it usually has: arrays, a table with a client column, a torch Dataset.

python examples/own_data.py
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset

import polyrhythm as pr

STATIONS, DAYS = 12, 60


def weather() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rain on the next day, made up: pressure and humidity [n, 2], rain [n] (0 or 1), station [n]."""
    random = np.random.default_rng(0)
    station = np.repeat(np.arange(STATIONS), DAYS)
    height = random.normal(size=STATIONS)[station]  # stations differ, so their data do
    pressure, humidity, chance = random.normal(size=(3, STATIONS * DAYS))
    rain = (humidity - pressure + 0.3 * chance > 0).astype(np.int64)
    return np.stack([pressure - height, humidity], axis=1), rain, station


def from_arrays() -> pr.data.Collection:
    """Arrays: a fifth is held out for tests, and `columns` names what may define the clients."""
    inputs, rain, station = weather()
    return pr.data.arrays(inputs, rain, columns={"station": station}, scaling="train", name="weather")


def from_table(folder: Path) -> pr.data.Collection:
    """A CSV or Parquet file: a target column, a client column, and features in all the others."""
    inputs, rain, station = weather()
    path = folder / "weather.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["station", "pressure", "humidity", "rain"])
        writer.writerows(zip(station, *inputs.T, rain, strict=True))
    return pr.data.table(path, target="rain", client="station")


def from_datasets() -> pr.data.Collection:
    """Any two torch Datasets with a length: one to train on, one to test on."""
    inputs, rain, station = weather()
    tensors = torch.tensor(inputs, dtype=torch.float32), torch.tensor(rain)
    last_days = np.arange(len(rain)) % DAYS >= DAYS - 10
    train: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(*(t[~last_days] for t in tensors))
    test: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(*(t[last_days] for t in tensors))
    return pr.data.dataset(train, test, columns={"station": station[~last_days]}, name="weather")


def main(rounds: int = 10) -> None:
    """Trains a logistic regression over the stations, from each form."""
    with tempfile.TemporaryDirectory() as folder:
        for collection in (from_arrays(), from_table(Path(folder)), from_datasets()):
            federation = pr.federate(collection, pr.data.ByColumn(column="station"), clients=None, seed=0)
            experiment = pr.Experiment(
                federation=federation, model="logistic", recipe=pr.fedavg(cohort=6), rounds=rounds
            )
            run = pr.run(experiment)
            print(f"{federation.clients} stations, test accuracy {run.summary['final_accuracy']:.3f}")


if __name__ == "__main__":
    main()
