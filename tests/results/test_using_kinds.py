"""New rows and labels in other types than those that were trained on: understood as there, or refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.cli.app import app
from polyrhythm.results.using import Use, predictions

DRAWN = np.random.default_rng(0)
INPUTS = DRAWN.normal(size=(90, 3))
TRUTH = INPUTS[:, 0] > 0
MOMENTS = pd.Series(pd.Timestamp("2020-03-01") + pd.to_timedelta(DRAWN.integers(0, 10**6, 90), "s"))
TABLE = pd.DataFrame({"a": INPUTS[:, 0] * 3, "group": np.where(INPUTS[:, 1] > 0, "1", "2"), "kind": TRUTH.astype(int)})


def carried(data: Any, folder: Path) -> pr.Run:
    federation = pr.federate(data, pr.data.Iid(), clients=3, seed=0)
    recipe = pr.fedavg(cohort=3, lr=0.5)
    return pr.run(pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=3), out=folder)


@pytest.mark.parametrize(
    "targets",
    [TRUTH * 1.0, TRUTH * 1.5 - 1, TRUTH[:, None] * 1, TRUTH[:, None] * 1.0, TRUTH[:, None], TRUTH.astype("u1")],
    ids=["floats", "halves", "column", "column of floats", "column of truth", "bytes"],
)
def test_labels_are_equal_to_those_that_were_given(targets: Any, tmp_path: Path) -> None:
    run = carried(pr.data.arrays(INPUTS, targets, task="classification"), tmp_path)
    assert (right := float(np.mean(run.predict(INPUTS) == targets.reshape(-1)))) > 0.9
    assert run.evaluate((INPUTS, targets))["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_one_hot_rows_are_class_numbers(dtype: str, tmp_path: Path) -> None:
    targets = np.eye(2, dtype=dtype)[TRUTH.astype(int)]
    run = carried(pr.data.arrays(INPUTS, targets, task="classification"), tmp_path)
    assert (right := float(np.mean(run.predict(INPUTS) == targets.argmax(axis=1)))) > 0.9
    for given in (targets, targets.argmax(axis=1)):
        assert run.evaluate((INPUTS, given))["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize(
    "of",
    [
        lambda m: m,
        lambda m: m.astype("datetime64[s]"),
        lambda m: m.dt.date,
        lambda m: m.dt.tz_localize("Europe/Zurich"),
        lambda m: m - m[0],
        lambda m: m.dt.time,
    ],
    ids=["ns", "s", "dates", "zone", "durations", "times of day"],
)
def test_times_are_read_as_in_training(of: Callable[[pd.Series], Any]) -> None:
    data = pr.data.table(TABLE.assign(t=of(MOMENTS)), target="kind", test=TABLE.assign(t=of(MOMENTS)))
    kept = data.preprocessing
    assert kept is not None
    inputs, _ = data.train.batch(torch.arange(90))
    assert torch.allclose(kept.apply(TABLE.assign(t=of(MOMENTS))), inputs, atol=1e-5)


def test_a_threshold_and_a_decimal_comma_are_kept(tmp_path: Path) -> None:
    table = TABLE.drop(columns="kind").assign(price=INPUTS[:, 0] + 7)
    table.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    run = carried(pr.data.table(tmp_path / "t.csv", target="price", threshold=7.0, decimal=","), tmp_path / "runs")
    right = float(np.mean(run.predict(table) == (table["price"] > 7.0)))
    assert right > 0.9
    assert run.evaluate(table)["accuracy"] == pytest.approx(right)
    written = pd.read_csv(tmp_path / "t.csv", sep=";", dtype=str)  # as `polyrhythm predict` reads it
    assert run.predict(written).tolist() == run.predict(table).tolist()


def test_numbers_to_predict_have_the_form_of_the_targets(tmp_path: Path) -> None:
    run = carried(pr.data.arrays(INPUTS, INPUTS[:, 0] / 2), tmp_path)
    assert run.predict(INPUTS).shape == (90,)
    with pytest.raises(UserError, match="targets that are text"):
        run.evaluate((INPUTS, ["much"] * 90))


@pytest.fixture(scope="module")
def of_arrays(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    return carried(pr.data.arrays(INPUTS, TRUTH), tmp_path_factory.mktemp("arrays"))


@pytest.fixture(scope="module")
def of_table(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    return carried(pr.data.table(TABLE, target="kind"), tmp_path_factory.mktemp("table"))


def test_arrays_of_all_kinds(of_arrays: pr.Run) -> None:
    expected = of_arrays.predict(INPUTS)
    for rows in (torch.tensor(INPUTS, requires_grad=True), INPUTS.astype(object), INPUTS.tolist(), INPUTS[::-1][::-1]):
        assert of_arrays.predict(rows).tolist() == expected.tolist()
    assert of_arrays.predict(torch.tensor(INPUTS).bfloat16()).shape == (90,)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (INPUTS * 1e300, "do not fit float32"),
        (np.ma.masked_array(INPUTS, INPUTS > 1), "masked"),
        ([[1.0, 2.0], [1.0]], "make no array"),
        (torch.tensor(INPUTS).to_sparse(), "sparse"),
        (None, "inputs of type NoneType"),
    ],
)
def test_arrays_that_are_none(of_arrays: pr.Run, rows: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        of_arrays.predict(rows)


def test_tables_of_all_kinds(of_table: pr.Run) -> None:
    import pyarrow

    expected = of_table.predict(TABLE).tolist()
    for rows in (
        pyarrow.Table.from_pandas(TABLE),
        TABLE.assign(group=TABLE["group"].astype(float)),  # as pandas reads whole numbers beside an empty cell
        TABLE.assign(group=TABLE["group"].astype("category"), a=TABLE["a"].astype("Float64")),
    ):
        assert of_table.predict(rows).tolist() == expected


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pd.concat([TABLE, TABLE[["a"]]], axis=1), "several columns are named 'a'"),
        ({"a": [1.0, 2.0], "group": ["1"]}, "make no table"),
        (TABLE.assign(group=TABLE["group"].mask(TRUTH)), "empty or infinite cells in 'group'"),
        (TABLE.assign(a=TABLE["a"].mask(TRUTH).astype("Float64")), "empty or infinite cells in 'a'"),
    ],
)
def test_tables_that_are_none(of_table: pr.Run, rows: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        of_table.predict(rows)


def test_a_collection_that_means_something_else_is_refused(of_arrays: pr.Run, of_table: pr.Run) -> None:
    assert of_arrays.evaluate(pr.data.arrays(INPUTS, TRUTH))["accuracy"] > 0.8
    for data, words in (
        (pr.data.arrays(INPUTS, TRUTH, classes=[True, False]), "other classes: True, False"),
        (pr.data.arrays(INPUTS, INPUTS[:, 0]), "other classes: none"),
        (pr.data.arrays(INPUTS[:, :2], TRUTH), "other shape: 2"),
    ):
        with pytest.raises(UserError, match=words):
            of_arrays.evaluate(data)
    with pytest.raises(UserError, match="other features: group=1, group=2, a"):
        of_table.evaluate(pr.data.table(TABLE[["group", "a", "kind"]], target="kind"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_collection_is_scaled_as_the_data_of_the_run_were(tmp_path: Path, dtype: Any) -> None:
    """And not as its own training samples would have it, whose mean and spread are others."""
    labels = DRAWN.integers(0, 2, 80)
    of_run, other = (((DRAWN.normal(size=(80, 3)) + labels[:, None]) * k + 7).astype(dtype) for k in (1.0, 5.0))
    run = carried(pr.data.arrays(of_run, labels, scaling="train"), tmp_path)
    expected = run.evaluate((other, labels))
    for scaling in ("train", "none"):
        collection = pr.data.arrays(other, labels, test=(other, labels), scaling=scaling)
        assert run.evaluate(collection) == pytest.approx(expected, rel=1e-5)
    # What the model would say of inputs on another scale.
    other_scale = pr.data.dataset(*[list(zip(collection.test.batch(torch.arange(80))[0], labels, strict=True))] * 2)
    assert run.evaluate(other_scale) != pytest.approx(expected, rel=1e-2)


def test_a_collection_that_is_prepared_otherwise_is_refused(tmp_path: Path) -> None:
    labels = DRAWN.integers(0, 2, 60)
    pixels = DRAWN.integers(0, 256, (60, 4, 4)).astype(np.uint8)
    run = carried(pr.data.arrays(pixels, labels), tmp_path / "a")
    with pytest.raises(UserError, match=r"prepared by nothing\n.*uint8 prepared by to_float"):
        run.evaluate(pr.data.arrays(pixels[:, None] / 255, labels))
    amounts = pd.DataFrame({"size": INPUTS[:, 0], "amount": INPUTS[:, 1]})
    table = carried(pr.data.table(amounts, target="amount", threshold=0.0), tmp_path / "b")
    assert "loss" in table.evaluate(pr.data.table(amounts, target="amount", threshold=0.0))
    with pytest.raises(UserError, match=r"a collection with other threshold: 0\.5"):
        table.evaluate(pr.data.table(amounts, target="amount", threshold=0.5))


def test_a_version_that_there_is_not_is_unknown(of_arrays: pr.Run) -> None:
    for read in (of_arrays.weights, of_arrays.model, lambda which: of_arrays.predict(INPUTS, which)):
        with pytest.raises(UserError, match=r"unknown weights 'bset'\n.*one of best, final\n.*\n.*did you mean 'best'"):
            read("bset")  # type: ignore[operator]


def test_labels_of_bytes_are_text_in_a_table(tmp_path: Path) -> None:
    run = carried(pr.data.arrays(INPUTS, np.where(TRUTH, b"yes", b"no")), tmp_path)
    np.save(tmp_path / "new.npy", INPUTS)
    command = ["predict", run.id, "--out", str(tmp_path), "--data", str(tmp_path / "new.npy")]
    assert CliRunner().invoke(app, [*command, "-o", str(tmp_path / "p.csv")]).exit_code == 0
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == run.predict(INPUTS).astype(str).tolist()


def test_outputs_beyond_the_classes_are_no_labels(tmp_path: Path) -> None:
    """A model may give more of them, such as those of another head: the likeliest class is predicted all the same."""
    data = pr.data.arrays(INPUTS, np.where(TRUTH, "yes", "no"))
    federation = pr.federate(data, pr.data.Iid(), clients=3, seed=0)
    network = torch.nn.Linear(3, 4)
    torch.nn.init.constant_(network.bias[2:], 9.0)  # the greatest, after one step as well
    recipe = pr.fedavg(cohort=3, steps=1, lr=0.1)
    run = pr.run(pr.Experiment(federation=federation, model=network, recipe=recipe, rounds=1), out=tmp_path)
    shares = run.predict(INPUTS, probabilities=True)
    assert shares.shape == (90, 2)
    assert run.predict(INPUTS).tolist() == np.array(["no", "yes"])[shares.argmax(axis=1)].tolist()
    assert (shares.sum(axis=1) < 0.1).all(), "they are shares of all outputs"


def sharp(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs.argmax(dim=1) == targets).double().mean())


def test_metrics_that_a_record_does_not_have_are_told(tmp_path: Path) -> None:
    data = pr.data.arrays(INPUTS, TRUTH)
    federation = pr.federate(data, pr.data.Iid(), clients=3, seed=0)
    task = pr.task("classification", metrics=(sharp,))
    about = pr.Experiment(federation=federation, model="logistic", recipe=pr.fedavg(cohort=3), task=task, rounds=1)
    run = pr.run(about, out=tmp_path)
    with pytest.warns(UserWarning, match="sharp: functions of your own, which a record does not have"):
        assert run.evaluate((INPUTS, TRUTH)).keys() == {"loss", "accuracy"}


def test_nan_is_no_label(of_arrays: pr.Run) -> None:
    use = Use.read(of_arrays.path)
    outputs = torch.tensor([[1.0, 2.0], [torch.nan, 0.0]])
    with pytest.raises(UserError, match="NaN from the model for 1 of 2 rows"):
        predictions(use, outputs, probabilities=False)
    assert np.isnan(predictions(use, outputs, probabilities=True)).any(axis=1).tolist() == [False, True]


def test_bytes_and_floats_are_not_mixed(tmp_path: Path) -> None:
    pixels = DRAWN.integers(0, 256, (60, 4, 4)).astype(np.uint8)
    labels = (pixels.mean((1, 2)) > 127).astype(int)
    for train, test in ((pixels, pixels / 255), (pixels / 255, pixels)):
        for scaling in ("none", "train"):
            with pytest.raises(UserError, match="not be on one scale"):
                pr.data.arrays(train, labels, test=(test, labels), scaling=scaling)
    with pytest.raises(UserError, match="images of bytes"):
        carried(pr.data.arrays(pixels / 255, labels), tmp_path).predict(pixels)


def test_where_predictions_go_is_looked_at_first(of_table: pr.Run, tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", of_table.id, "--out", str(of_table.folder), "--data", str(tmp_path / "new.csv"), "-o"]
    for name, words in (("no/p.csv", "there is no folder"), ("p.parquet", "ends in .csv or .npy")):
        found = CliRunner().invoke(app, [*command, str(tmp_path / name)])
        assert found.exit_code == 2
        assert words in " ".join(found.output.split())
    assert CliRunner().invoke(app, [*command, str(tmp_path / "p.csv"), "--probabilities"]).exit_code == 0
    assert list(pd.read_csv(tmp_path / "p.csv")) == ["prediction_0", "prediction_1"]
