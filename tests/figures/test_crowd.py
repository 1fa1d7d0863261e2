"""Of very many methods a few stand out in colour, and the others are grey behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.figures.crowd import BEST, MANY, foremost, in_words, set_apart
from polyrhythm.figures.theme import HUES, style
from small import experiment


def test_the_best_stand_out_with_the_first() -> None:
    ends = {name: float(place) for place, name in enumerate("abcdefghij")}
    assert foremost(ends, falling=False, baseline="a") == ["j", "i", "h", "g", "f", "a"]
    assert foremost(ends, falling=True, baseline="a") == ["a", "b", "c", "d", "e"]
    few = dict(list(ends.items())[:MANY])
    assert foremost(few, falling=False, baseline="a") == []
    assert in_words(["j", "i", "h", "g", "f", "a"], 10, "a") == "in colour: the 5 that end best, and a; grey: 4 others"
    assert in_words(["a", "b", "c", "d", "e"], 10, "a") == "in colour: the 5 that end best; grey: 5 others"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_that_stands_out_has_a_hue_of_its_own(theme: Any) -> None:
    styles = {str(place): style(place, theme) for place in range(24)}
    chosen = ["1", "9", "17", "2", "10", "0"]  # of which three, and two, have one hue
    looks = set_apart(styles, chosen, theme)
    assert len({looks[name].colour for name in chosen}) == len(chosen)
    assert looks["1"].colour == styles["1"].colour
    assert {looks[name].dash for name in styles} == {(1, 0)}
    grey = HUES["grey"][theme]
    assert {name for name in styles if looks[name].colour == grey} == {*styles} - {*chosen}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> list[pr.Run]:
    folder = tmp_path_factory.mktemp("crowd")
    rates = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]
    return [
        pr.run(experiment(recipe=pr.fedavg(cohort=2, batch=5, lr=lr), rounds=2, name=f"lr {lr}"), out=folder)
        for lr in rates
    ]


@pytest.mark.parametrize("name", ["accuracy", "loss", "costs"])
def test_figures_of_many_methods_name_a_few(crowd: list[pr.Run], name: str, tmp_path: Path) -> None:
    drawn = figures.draw(name, crowd).to_dict()
    text = json.dumps(drawn)
    assert "grey: " in text
    legends = [values for values in _found(drawn, "legend") if values]
    names = {name for legend in legends for name in legend.get("values", ())}
    at_the_ends = [mark for mark in _found(drawn, "mark") if mark["type"] == "text"]
    assert BEST <= (len(names) or len(at_the_ends)) <= BEST + 1
    few = json.dumps(figures.draw(name, crowd[:3]).to_dict())
    assert "grey: " not in few
    live = json.dumps(figures.draw(name, crowd, live=True).to_dict()) if name != "costs" else ""
    assert "grey: " not in live  # there a reader hides what is in the way
    figures.save(figures.draw(name, crowd), tmp_path / "crowd.svg")


def _found(tree: Any, key: str) -> list[Any]:
    if isinstance(tree, dict):
        return [value for name, inner in tree.items() for value in ([inner] if name == key else _found(inner, key))]
    return [value for inner in tree for value in _found(inner, key)] if isinstance(tree, list) else []
