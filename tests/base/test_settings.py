"""Every part checks its settings when it is built, strictly, and describes itself as plain data."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count, Decay, Fraction, NonNegative, Positive, Settings, canonical_json
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.local.schedules import StepDecay
from polyrhythm.methods.participation.base import Uniform
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Adam, AMSGrad, Momentum
from polyrhythm.methods.work.base import Epochs, Steps


@final
@dataclass(frozen=True, kw_only=True)
class Everything(Settings):
    positive: Positive = 1.0
    weight: NonNegative = 0.0
    count: Count = 1
    share: Fraction = 0.5
    decay: Decay = 0.9
    flag: bool = False
    maybe: Positive | None = None
    choice: Literal["one", "two"] = "one"
    text: str = ""
    part: Prox = field(default_factory=Prox)
    parts: tuple[Settings, ...] = ()
    note: str = field(default="", metadata={"digest": False})


GOOD: list[dict[str, Any]] = [
    {"positive": 3},  # an integer is a number
    {"positive": np.float64(0.1)},
    {"weight": 0},
    {"share": 1.0},
    {"share": 0.0},
    {"decay": 0.0},
    {"decay": 0.999},
    {"maybe": None},
    {"maybe": 2.0},
    {"choice": "two"},
    {"parts": (Prox(), Uniform())},
]
BAD: list[tuple[str, Any]] = [
    ("positive", 0.0),
    ("positive", -1.0),
    ("positive", "0.1"),
    ("positive", None),
    ("positive", True),
    ("positive", math.nan),
    ("positive", math.inf),
    ("weight", -1e-9),
    ("weight", math.inf),
    ("count", 0),
    ("count", -3),
    ("count", 1e2),
    ("count", 2.5),
    ("count", "2"),
    ("count", True),
    ("share", 1.0001),
    ("share", -0.1),
    ("decay", 1.0),
    ("flag", 1),
    ("flag", "yes"),
    ("maybe", -1.0),
    ("choice", "three"),
    ("text", 3),
    ("part", Uniform()),
    ("part", {"mu": 1.0}),
    ("parts", {Prox(mu=0.01)}),
    ("parts", (1,)),
]


@pytest.mark.parametrize("given_settings", GOOD, ids=str)
def test_what_fits_is_taken_as_it_is(given_settings: dict[str, Any]) -> None:
    made = Everything(**given_settings)
    for name, value in given_settings.items():
        kept = getattr(made, name)
        assert kept is value or (kept == value and type(kept) is float)  # NumPy's numbers become Python's


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
def test_what_does_not_fit_is_refused_with_part_setting_and_value(name: str, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        Everything(**{name: value})
    assert caught.value.found.startswith(f"everything: {name} = ")
    assert caught.value.found.endswith(repr(value))
    assert caught.value.expected
    assert name in caught.value.fix


@pytest.mark.parametrize(
    ("part", "setting", "found", "expected"),
    [
        (Prox, {"mu": -1.0}, "prox: mu = -1.0", "greater than or equal to 0"),
        (Uniform, {"cohort": -3}, "uniform: cohort = -3", "greater than or equal to 1"),
        (Epochs, {"epochs": 0}, "epochs: epochs = 0", "greater than 0"),
        (Steps, {"steps": 1.5}, "steps: steps = 1.5", "integer"),
        (Momentum, {"beta": 1.0}, "server_momentum: beta = 1.0", "less than 1"),
        (Adam, {"lr": "0.1"}, "server_adam: lr = '0.1'", "number"),
        (
            AMSGrad,
            {"epsilon_place": "beside"},
            "server_amsgrad: epsilon_place = 'beside'",
            "'outside', 'inside' or 'floor'",
        ),
        (LocalSgd, {"clip": 0.0}, "local_sgd: clip = 0.0", "greater than 0"),
        (Recipe, {"batch": 0}, "recipe: batch = 0", "greater than or equal to 1"),
        (Recipe, {"server_step": Prox()}, "recipe: server_step = Prox(mu=0.01)", "ServerStep"),
    ],
)
def test_messages_say_what_is_allowed(part: type[Settings], setting: dict[str, Any], found: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        part(**setting)
    assert caught.value.found == found
    assert expected in caught.value.expected


def test_the_fix_names_the_default_if_there_is_one() -> None:
    with pytest.raises(UserError, match=r"its default is 0\.01"):
        Prox(mu=-1.0)
    with pytest.raises(UserError, match=r"give every another value$"):
        StepDecay(every=0)


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(UserError, match="nesterov"):
        LocalSgd(nesterov=True)
    assert LocalSgd(nesterov=True, momentum=0.5).nesterov


def test_settings_are_frozen_by_keyword_and_complete() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Prox().mu = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Prox(0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Prox(mo=0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        StepDecay()  # type: ignore[call-arg]


def test_replacing_a_setting_checks_it_again() -> None:
    with pytest.raises(UserError):
        dataclasses.replace(Prox(), mu=-1.0)


@pytest.mark.parametrize(
    ("part", "label"),
    [
        (Prox, "prox"),
        (StepDecay, "step_decay"),
        (AMSGrad, "server_amsgrad"),
        (LocalSgd, "local_sgd"),
        (Everything, "everything"),
    ],
)
def test_labels(part: type[Settings], label: str) -> None:
    assert part.label() == label


def test_a_description_is_plain_data_with_every_setting_that_matters() -> None:
    made = Everything(part=Prox(mu=0.5), parts=(Uniform(cohort=3),), note="changes nothing", positive=2.0)
    described = made.describe()
    assert described["name"] == "Everything"
    assert described["part"] == {"name": "Prox", "mu": 0.5}
    assert described["parts"] == [{"name": "Uniform", "cohort": 3}]
    assert "note" not in described
    assert set(described) - {"name"} == {f.name for f in dataclasses.fields(Everything)} - {"note"}
    assert json.loads(canonical_json(described)) == described


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60))
def test_numbers_are_described_exactly_and_one_is_one_point_zero(value: float) -> None:
    made = dataclasses.replace(Everything(), text="x")
    object.__setattr__(made, "positive", value)
    written = json.loads(canonical_json(made.describe()))["positive"]
    assert written == value
    object.__setattr__(made, "positive", float(value) if abs(value) < 2**53 else value)
    assert json.loads(canonical_json(made.describe()))["positive"] == written


@given(
    st.dictionaries(st.text(max_size=4), st.integers() | st.booleans() | st.none() | st.text(max_size=4), max_size=5)
)
def test_one_value_has_one_text(value: dict[str, Any]) -> None:
    text = canonical_json(value)
    assert text == canonical_json(dict(reversed(list(value.items()))))
    assert json.loads(text) == value
