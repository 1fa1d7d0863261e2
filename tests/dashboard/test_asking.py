"""How figures are asked for, as the text of an address: what is taken, and what is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.conftest import Client
from polyrhythm.base.errors import UserError
from polyrhythm.dashboard.asking import lens_of


def test_what_was_not_asked_for_is_not_there() -> None:
    assert lens_of({"name": "accuracy", "run": "x"}) == {}
    found = lens_of({"smooth": "5", "seeds": "1", "from": "1e2", "to": "250.5"})
    assert found == {"smooth": 5, "seeds": True, "span": (100.0, 250.5)}


@pytest.mark.parametrize(
    "asked",
    [{"smooth": "0"}, {"smooth": "-3"}, {"smooth": "1e3"}, {"smooth": "99999"}, {"from": "1"}, {"to": "1"}]
    + [{"from": text, "to": "5"} for text in ("nan", "inf", "", "1" * 400, "<b>", "1;2")],
)
def test_what_is_no_number_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(UserError):
        lens_of(asked)


def figure(client: Client, **asked: Any) -> Any:
    asking = client()
    first = asking.get("/api/runs").json()["runs"][0]["id"]
    return asking.get("/api/figure", params={"name": "accuracy", "run": first, **asked})


def test_a_figure_is_drawn_as_it_is_asked_for(client: Client) -> None:
    plain = figure(client).json()
    closer = figure(client, **{"from": 1, "to": 3, "log": "x", "smooth": 3}).json()
    scale = closer["specification"]["encoding" if "encoding" in closer["specification"] else "layer"]
    scale = scale["x"]["scale"] if isinstance(scale, dict) else scale[-1]["encoding"]["x"]["scale"]
    assert scale["type"] == "log"
    assert scale["domain"] == [1, 3]
    assert min(row["x"] for rows in plain["data"].values() for row in rows) == 0
    assert min(row["x"] for rows in closer["data"].values() for row in rows) > 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"log": "sideways"}, "sideways"),
        ({"smooth": "many"}, "smooth = 'many'"),
        ({"from": "5", "to": "1"}, "span = (5.0, 1.0)"),
        ({"from": "five", "to": "6"}, "from = 'five'"),
        ({"name": "labels", "smooth": "5"}, "drawn with smooth"),
    ],
)
def test_what_cannot_be_drawn_is_said(client: Client, asked: dict[str, str], found: str) -> None:
    answer = figure(client, **asked)
    assert answer.status_code == 400
    assert found in answer.json()["error"]["found"]


def test_figures_say_whether_they_are_of_one_value(client: Client) -> None:
    asking = client()
    first = asking.get("/api/runs").json()["runs"][0]["id"]
    offered = asking.get("/api/figures", params={"run": first}).json()
    flat = {about["name"]: about["flat"] for about in offered if about["flat"]}
    assert flat["cohort"].endswith("in every version")
    assert [bool(about["flat"]) for about in offered] == sorted(bool(about["flat"]) for about in offered)
