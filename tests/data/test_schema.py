"""The schema of samples: what tells two data sets apart, in words, and scaling by the statistics of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

import polyrhythm as pr
from polyrhythm.data.schema import Schema, differences, scaling_of, schema_of
from small import collection

RED = {"age": [30.0, 41.5, 52.0, 63.0] * 5, "colour": ["green", "red", "blue", "red"] * 5, "y": ["no", "yes"] * 10}


def schema(data: pr.data.Collection) -> Schema:
    return schema_of(pr.federate(data, pr.data.Iid(), 1, 0))


def table(folder: Path, columns: dict[str, Any], **settings: Any) -> Schema:
    path = folder / "site.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return schema(pr.data.table(path, **{"target": "y", **settings}))


def test_the_schema_of_a_table_names_features_classes_and_target(tmp_path: Path) -> None:
    made = table(tmp_path, RED)
    assert made.features == ("age", "colour=blue", "colour=green", "colour=red")
    assert (made.classes, made.target, made.outputs, made.shape, made.dtype) == (("no", "yes"), "y", 2, (4,), "float32")
    assert made.transforms == ()
    assert len(made.scaling[0]) == len(made.scaling[1]) == 4
    assert differences(made, table(tmp_path, RED)) == []


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        (
            {"colour": RED["colour"], "age": RED["age"], "y": RED["y"]},
            {},
            ["the same features in another order: 'colour=blue', 'colour=green', 'colour=red', 'age'"],
        ),
        (
            RED | {"colour": ["green", "red", "violet", "red"] * 5},
            {},
            ["no 'colour=blue' among its features", "1 value of 'colour' that the server has not"],
        ),
        (RED | {"colour": ["green", "red"] * 10}, {}, ["3 features, where the server has 4", "no 'colour=blue' among"]),
        (
            RED | {"years": RED["age"]},
            {"drop": ["age"]},
            ["no 'age' among its", "the features 'years' that"],
        ),
        (
            RED,
            {"classes": ["yes", "no"]},
            ["the same classes in another order: 'yes', 'no', where"],
        ),
        (RED | {"y": ["no", "yes", "maybe", "no"] * 5}, {}, ["3 classes, where the server has 2", "1 classes that"]),
        (
            RED,
            {"scaling": "none"},
            ["inputs scaled not by statistics of samples, where the server's are"],
        ),
        (RED | {"age": [3.0] * 20}, {}, ["inputs scaled by another mean and standard deviation"]),
        (RED | {"y": np.arange(20) / 7}, {}, ["the task regression, where the server has classification"]),
    ],
    ids=["order", "vocabulary", "value", "name", "labels", "classes", "scaling", "statistics", "task"],
)
def test_what_differs_in_a_table_is_said(
    tmp_path: Path, columns: dict[str, Any], settings: dict[str, Any], words: list[str]
) -> None:
    found = "; ".join(differences(table(tmp_path, columns, **settings), table(tmp_path, RED)))
    assert all(part in found for part in words), found


def test_values_of_a_node_are_counted_and_never_named(tmp_path: Path) -> None:
    """What is refused is told to the server, and a column may hold names of persons."""
    here = table(tmp_path, RED | {"colour": ["Ada Lovelace", "red", "blue", "green"] * 5, "y": ["Alan", "yes"] * 10})
    for server in (table(tmp_path, RED), schema(pr.data.arrays(IMAGES, LABELS))):
        found = "; ".join(differences(here, server))
        assert "Ada" not in found
        assert "Alan" not in found
        assert found


def test_another_threshold_is_another_target(tmp_path: Path) -> None:
    numbers = RED | {"y": np.arange(20)}
    one, other = (table(tmp_path, numbers, threshold=at) for at in (9.5, 4.5))
    assert differences(one, other)[0] == "the target y > 9.5, where the server has y > 4.5"


def test_the_features_of_a_table_can_be_named(tmp_path: Path) -> None:
    """So that a node whose rows lack a value, or whose columns stand otherwise, has the server's inputs."""
    named = ["colour=blue", "age", "colour=red", "colour=green"]
    path = tmp_path / "site.csv"
    pd.DataFrame(RED | {"colour": ["green", "red"] * 10, "more": range(20)}).to_csv(path, index=False)
    made = pr.data.table(path, target="y", features=named, scaling="none")
    inputs, _ = made.train.batch(torch.arange(len(made.train)))
    assert made.features == tuple(named)
    assert inputs[:, 0].sum() == 0
    assert torch.equal(inputs[:, 2] + inputs[:, 3], torch.ones(len(inputs)))
    assert set(inputs[:, 1].tolist()) <= set(RED["age"])
    same = pr.data.table(path, target="y", features=["age", "colour=green", "colour=red", "more"], scaling="none")
    plain = pr.data.table(path, target="y", scaling="none")
    assert torch.equal(same.train.batch(torch.arange(9))[0], plain.train.batch(torch.arange(9))[0])


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (["age", "colour=red"], "colour=blue and 1 other values"),
        (["age", "colour"], "the feature 'colour', which is a column of texts"),
        (["age", "size"], "unknown feature 'size'"),
        (["age", "age"], "features with 'age' twice"),
    ],
)
def test_features_that_a_table_cannot_give_are_refused(tmp_path: Path, features: list[str], words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        table(tmp_path, RED, features=features)


IMAGES = np.random.default_rng(0).integers(0, 256, (12, 3, 4, 4)).astype(np.uint8)
LABELS = np.arange(12) % 3


@pytest.mark.parametrize(
    ("inputs", "settings", "words"),
    [
        (IMAGES.transpose(0, 2, 3, 1), {}, "inputs of shape (4, 4, 3), where the server has (3, 4, 4)"),
        (IMAGES / 255, {}, "inputs prepared by nothing, where the server has ToFloat(scale=255.0)"),
        (IMAGES.astype(np.int64), {}, "inputs of dtype int64, where the server has float32"),
        (IMAGES, {"scaling": "train"}, "inputs scaled by the mean and standard deviation of its training samples"),
        (IMAGES, {"features": ["a", "b"]}, "2 names of features, where the server has none"),
    ],
    ids=["channels", "bytes", "dtype", "scaling", "names"],
)
def test_what_differs_in_arrays_is_said(inputs: np.ndarray, settings: dict[str, Any], words: str) -> None:
    one, other = schema(pr.data.arrays(inputs, LABELS, **settings)), schema(pr.data.arrays(IMAGES, LABELS))
    assert any(words in found for found in differences(one, other)), differences(one, other)


def test_another_normalisation_of_images_is_said() -> None:
    found = differences(schema(pr.data.digits(scaling="half")), schema(pr.data.digits()))
    assert found == [
        "inputs prepared by ToFloat(scale=16.0), Normalise(mean=(0.5,), std=(0.5,)), where the server has "
        "ToFloat(scale=16.0)"
    ]


def test_another_vocabulary_is_said(tmp_path: Path) -> None:
    tokens = np.arange(24).reshape(12, 2) % 5
    one, other = (schema(pr.data.arrays(tokens, LABELS, features=f)) for f in (["the", "a"], ["a", "the"]))
    assert differences(one, other) == [
        "the same features in another order: 'the', 'a', where the server has 'a', 'the'"
    ]
    lines = [{"title": f"{word} in python", "tags": ["x"]} for word in ("loops", "lists", "loops", "sets", "sets")]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(pd.Series(lines).map(lambda line: pd.Series(line).to_json())))
    free, named = (pr.data.stackoverflow_tags(path, words=words, tags=1) for words in (3, ["sets", "maps"]))
    assert (free.features, named.features) == (("in", "python", "sets"), ("sets", "maps"))
    assert named.train.shape == (2,)


class Pictures(TensorDataset):
    def __init__(self, transform: Any) -> None:
        super().__init__(torch.ones(6, 4), torch.arange(6) % 2)
        self.transform = transform


def test_the_transform_of_a_dataset_belongs_to_its_schema() -> None:
    def described(transform: Any, test: Any = None) -> Schema:
        return schema(pr.data.dataset(Subset(Pictures(transform), range(4)), Pictures(test)))

    one, again, other = described(torch.nn.ReLU()), described(torch.nn.ReLU()), described(torch.nn.ELU())
    assert differences(one, again) == []
    assert differences(one, other) == ["inputs prepared by ReLU(), where the server has ELU(alpha=1.0)"]
    assert described(lambda x: x).transforms == described(lambda x: x).transforms


def test_long_lists_say_where_they_differ() -> None:
    names = [f"class {i}" for i in range(200)]
    swapped = [*names[:150], names[151], names[150], *names[152:]]
    data = np.arange(400) % 200
    one, other = (schema(pr.data.arrays(np.ones((400, 1)), data, classes=range(200))) for _ in range(2))
    one, other = (Schema(**{**vars(s), "classes": tuple(c)}) for s, c in ((one, swapped), (other, names)))
    (found,) = differences(one, other)
    assert found.startswith("the same classes in another order: 'class 151', 'class 150', 'class 152'")
    assert len(found) < 400


@pytest.mark.parametrize("augment", [False, True])
def test_samples_are_scaled_by_the_statistics_of_others(augment: bool) -> None:
    generator = np.random.default_rng(1)
    mine, theirs = (generator.normal(m, s, (50, 2, 3, 3)) for m, s in ((0.0, 1.0), (5.0, 3.0)))
    mine[:, 1] = 4.0  # a channel that does not vary here has a standard deviation of 1
    labels = np.arange(50) % 2
    own, server = (pr.data.arrays(x, labels, scaling="train", augment=augment) for x in (mine, theirs))
    by = scaling_of(server.train)
    assert by is not None
    assert isinstance(own.train, pr.data.ArraySamples)
    scaled = own.train.scaled_as(by)
    plain = pr.data.arrays(mine, labels).train.batch(torch.arange(40))[0]
    assert torch.allclose(scaled.batch(torch.arange(40))[0], by(plain), atol=1e-6)
    assert scaling_of(scaled) == by
    assert not torch.allclose(own.train.batch(torch.arange(40))[0], by(plain), atol=1e-1)  # the old ones as they were
    assert scaling_of(collection().train) is None
