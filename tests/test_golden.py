"""Small runs of every kind compute what they always did, to the last bit: the golden numbers."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import golden
import golden_runs
import golden_ways
import polyrhythm as pr

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's own logs
HELD = golden.read()


def cases() -> Iterator[Any]:
    """A way and names: one name at a time, but for ways that take long to begin."""
    for way in filter("on Flower".__ne__, golden_ways.WAYS):
        names = golden.of_way(way, golden_runs.runs())
        slow = [name for name in names if is_slow(way, name)]
        for some in ([name for name in names if name not in slow], slow):
            marks = [pytest.mark.slow] if some is slow else []
            for together in [some] if some and way in golden_ways.TOGETHER else [[name] for name in some]:
                called = together[0] if len(together) == 1 else f"{len(together)} runs"
                yield pytest.param(way, together, marks=marks, id=f"{called}, {way}")


def is_slow(way: str, name: str) -> bool:
    """Whether a run is left to the slow tests: all on Ray, and of those that are killed all but some."""
    quick = {"on Ray": (), "killed and resumed": golden_runs.QUICK_TO_KILL}.get(way, (name,))
    return name in golden_runs.SLOW or name not in quick


@pytest.mark.parametrize(("way", "names"), [*cases()])
def test_the_numbers_are_those_that_are_held(way: str, names: list[str]) -> None:
    assert_held(way, names)


@pytest.mark.parametrize("name", golden_runs.WAYS["on Flower"])
def test_the_numbers_on_flower_are_those_of_the_simulation(name: str) -> None:
    assert_held("on Flower", [name])


def assert_held(way: str, names: list[str]) -> None:
    """Carries runs out in some way; skips where it needs what is not there."""
    if needed := golden.lacks(way):
        pytest.skip(f"needs {needed}")
    wrong = [line for name, run in golden.carried_out(way, names) for line in golden.differences(HELD, name, way, run)]
    assert not wrong, "\n".join(wrong)


def test_this_kind_of_machine_is_held() -> None:
    if golden.kind() not in HELD["kinds"]:
        pytest.skip(
            f"{golden.kind()} is no kind of machine whose models are held, so that only decisions were compared: "
            "`python tests/golden.py --write`, on a commit that is known to be right, adds it"
        )


def test_each_run_is_held_in_all_its_ways_and_its_numbers_on_one_kind_at_least() -> None:
    runs = [*golden_runs.runs()]
    assert [*HELD["runs"]] == runs
    for numbers in HELD["kinds"].values():  # a run that is new or changed is held where it was made, and then elsewhere
        assert [*numbers] == [name for name in runs if name in numbers]
    assert {*runs} == {name for numbers in HELD["kinds"].values() for name in numbers}
    for name, entry in HELD["runs"].items():
        assert entry["ways"] == ["in line", *(way for way, names in golden_runs.WAYS.items() if name in names)]
        assert ("decisions" in entry) is (name not in golden_runs.FOLLOWS)
    assert golden_runs.WAYS.keys() | {"in line"} == golden_ways.WAYS.keys()
    assert len(runs) >= 60


def test_the_quickstart_is_the_one_of_the_documentation() -> None:
    digests = {numbers["quickstart"]["model"][:16] for numbers in HELD["kinds"].values()}
    assert digests == {"db7ae709aaf9ce42"}
    assert "digest           db7ae709aaf9ce42" in (Path(__file__).parents[1] / "docs/start.md").read_text()


def within(value: object) -> Iterator[object]:
    """A value and all that it is made of."""
    yield value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from within(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from within(item)


def test_every_recipe_is_run() -> None:
    made = {name: getattr(pr, name) for name in pr.__all__ if name.islower() and callable(getattr(pr, name))}
    recipes = {
        name
        for name, make in made.items()
        if not isinstance(make, type) and typing.get_type_hints(make).get("return") is pr.Recipe
    }
    assert recipes == golden_runs.RECIPES.keys()
    assert all(settings["recipe"].title.startswith(name) for name, settings in golden_runs.RECIPES.items())


def test_every_part_is_run() -> None:
    assert {*pr.parts.__all__} == golden_runs.PARTS.keys()
    for name, settings in golden_runs.PARTS.items():
        assert getattr(pr.parts, name) in map(type, within(settings["recipe"])), name


def test_all_that_a_fleet_is_made_of_is_run() -> None:
    bases = (pr.fleet.Devices, pr.fleet.Links, pr.fleet.Availability, pr.fleet.Arrivals)
    alone = {pr.fleet.Energy, pr.fleet.Faults}
    public = {name: getattr(pr.fleet, name) for name in pr.fleet.__all__}
    kinds = {n for n, k in public.items() if k in alone or (isinstance(k, type) and issubclass(k, bases))}
    kinds -= {base.__name__ for base in bases}
    assert kinds | {"phones"} == golden_runs.FLEETS.keys()
    for name in kinds:
        fleet = golden_runs.runs()[f"fleet {name}"].experiment().fleet
        assert public[name] in map(type, within(fleet)), name


def test_every_partition_and_every_small_model_is_run() -> None:
    assert {*pr.data.PARTITIONS} == golden_runs.PARTITIONS.keys()
    assert all(type(made) is pr.data.PARTITIONS[name] for name, made in golden_runs.PARTITIONS.items())
    assert {*pr.models.MODELS} == golden_runs.MODELS.keys() | golden_runs.TOO_LARGE


def test_every_engine_is_run() -> None:
    for numbers in HELD["kinds"].values():
        assert {entry["engine"] for entry in numbers.values()} == {"torch", "native", "stacked"}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of its own, on another kind of machine than those that are held."""
    monkeypatch.setattr(golden, "FILE", tmp_path / "golden.json")
    monkeypatch.setattr(golden, "kind", lambda: "another")
    return tmp_path / "golden.json"


NAME = "recipe fedavg"


def test_another_kind_is_added_and_nothing_that_is_held_changes(elsewhere: Path) -> None:
    golden.write(HELD)
    assert golden.rewrite(["recipe alt", NAME]) == []
    after = json.loads(elsewhere.read_text())
    assert [*after["kinds"].pop("another")] == ["recipe alt", NAME]
    assert after == HELD


def test_decisions_that_other_kinds_made_are_not_rewritten(elsewhere: Path) -> None:
    held = json.loads(json.dumps(HELD))
    held["runs"][NAME]["decisions"] = "0" * 16
    golden.write(held)
    assert golden.rewrite([NAME]) == [f"{NAME}: decisions differ from what {len(HELD['kinds'])} other kinds gave"]
    assert json.loads(elsewhere.read_text()) == held


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"seed": 1}, {"decisions", "joules", "local_steps", "model", "versions", "measured", "test"}),
        ({"recipe": pr.fedavg(**golden_runs.SMALL, lr=0.1000001)}, {"decisions", "model", "versions", "measured"}),
        ({"fleet": pr.Fleet() | pr.fleet.Energy(joules_per_byte=2e-7)}, {"decisions", "joules"}),
        ({"evaluation": pr.Evaluation(train_samples=5)}, {"measured"}),
        ({"execution": pr.Execution(checkpoint=golden_runs.NEVER)}, set()),
    ],
)
def test_what_differs_is_found(changes: dict[str, Any], differs: set[str], tmp_path: Path) -> None:
    made = golden_runs.runs()[NAME]

    def carried_out(execution: pr.Execution | None = None, **more: Any) -> pr.Run:
        return pr.run(made.experiment(**more), execution=execution or made.execution(), out=tmp_path)

    (one, first), (other, second) = (golden.found(NAME, carried_out(**more)) for more in ({}, changes))
    one, other = one | first, other | second
    assert differs <= {name for name in one if one[name] != other[name]} <= differs | {"test", "time"}
    held = {"runs": {NAME: one}, "kinds": {golden.kind(): {NAME: first}}}
    words = golden.differences(held, NAME, "in line", carried_out(**changes))
    assert bool(words) is bool(differs)
