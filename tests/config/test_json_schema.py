"""The JSON Schema of experiment files marks what is wrong in them, and nothing that is right."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from grid.answers import recipe as of_grid
from grid.answers import sample
from polyrhythm.base.settings import Settings
from polyrhythm.config import names
from polyrhythm.config.configuration import configure
from polyrhythm.config.keys import KEYS
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.catalogue import AROUND, MODELS
from polyrhythm.models.tasks import TASKS
from polyrhythm.studies.files.catalogue import catalogue
from polyrhythm.studies.files.language import file_schema
from terminal import Command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
] + [pytest.param(path.read_text(), id=path.stem) for path in sorted((ROOT / "examples").glob("*.toml"))]


OF_STUDIES = ("reproduces", "let", "rows", "columns", "paper", "claims", "sweep", "tuning", "expert_training", "scales")


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    made = file_schema()
    Draft7Validator.check_schema(made)
    return Draft7Validator(made)


def test_it_has_every_key_and_every_name(validator: Draft7Validator) -> None:
    made = validator.schema
    assert set(made["properties"]) == {*(name for name in KEYS if "." not in name), *OF_STUDIES}
    assert made["additionalProperties"] is False
    kinds: dict[str, Any] = {"recipe": names.RECIPES, "part": names.PARTS, "partition": PARTITIONS, "task": TASKS}
    kinds |= {"data_set": SOURCES, "part_of_a_fleet": names.OF_FLEETS, "model": [*MODELS, *AROUND]}
    kinds |= {"fleet": [*names.DEVICES, *names.FLEETS]}
    for kind, known in kinds.items():
        titles = {entry["title"] for entry in made["definitions"][kind]["anyOf"]}
        assert titles == set(known)
        assert all(entry["description"] for entry in made["definitions"][kind]["anyOf"])


def test_the_command_prints_it(polyrhythm: Command, validator: Draft7Validator) -> None:
    assert json.loads(polyrhythm("schema").out) == validator.schema


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_valid(text: str, validator: Draft7Validator) -> None:
    assert not list(validator.iter_errors(tomllib.loads(text)))


@pytest.mark.parametrize("name", catalogue())
def test_every_study_of_a_paper_is_valid(name: str, validator: Draft7Validator) -> None:
    file = catalogue()[name].file
    assert file is not None
    assert not list(validator.iter_errors(tomllib.loads(file.read_text(encoding="utf-8"))))


def as_text(part: Settings) -> str:
    """A part as it is written in a file."""
    known = {made: name for table in (names.PARTS, names.BUDGETS, names.DETECTORS) for name, made in table.items()}
    name = known.get(type(part), part.label())
    values = {f: v for f in part.__dataclass_fields__ if (v := getattr(part, f)) is not None}
    return f"{name}({', '.join(f'{k}={_value(v)}' for k, v in values.items())})" if values else name


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Settings):
        return as_text(value)
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)


@pytest.mark.slow
def test_every_recipe_of_the_grid_is_valid_in_both_forms(validator: Draft7Validator, tmp_path: Path) -> None:
    """Written as text with all its settings, it is also the same recipe again."""
    from grid.answers import ANSWERS

    tried = 0
    for choice in sample(120):
        made = of_grid(choice)
        if not isinstance(made, Recipe):
            continue
        parts = [as_text(p) for answers, place in zip(ANSWERS, choice, strict=True) for p in answers[place]]
        method = ["fedavg(lr=0.05, batch=4)", *parts]
        assert not list(validator.iter_errors({"method": method}))
        assert not list(validator.iter_errors({"method": " | ".join(method)}))
        assert names.recipe(" | ".join(method)).digest == made.digest
        tried += 1
    assert tried > 60


@pytest.mark.parametrize(
    "values",
    [
        {"method": "fedprox(mu=0.01, cohort=10) | server-adam( lr = 1e-2 ,)"},
        {"method": "fedavg(schedule=cosine(floor=0.1)) | critical_periods(watch=[gradient_norm(reduce=sum)])"},
        {"method": ["cc-fedadam(clock=event)", "compress_int8 | prox(mu=1)"]},
        {"model": "with_projection(mlp(hidden=[5, 6]), size=7)"},
        {"model": "my_package.nets:Small(width=64)"},
        {"data": "table(path='a, b (c).csv', target=\"x\", drop=[a, b])"},
        {"partition": "difficulty(inner=dirichlet(alpha=0.1))"},
        {"fleet": "tiers(slowdown=[1, 2]) | markov | faults(dropout=0.1)"},
        {"until": "accuracy=0.9, updates=10", "seeds": "0-2,7", "local_test": "0.2"},
        {"until": {"time": 60}, "seeds": [0, 3], "local_test": "natural", "validation": 0},
    ],
)
def test_what_is_right_is_not_marked(values: dict[str, Any], validator: Draft7Validator) -> None:
    assert not list(validator.iter_errors(values))


@pytest.mark.parametrize(
    "values",
    [
        {"roundz": 3},
        {"rounds": 0},
        {"rounds": "3"},
        {"seed": 1, "seeds": [2]},
        {"seeds": "0..2"},
        {"evaluation": {"evry": 1}},
        {"until": {"accuracy": 2}},
        {"local_test": 1.0},
        {"method": "fedprx"},
        {"method": "fedprox(m=1)"},
        {"method": "fedavg | prox(nu=1)"},
        {"method": "fedavg prox"},
        {"method": "prox(mu=1) | fedavg"},
        {"method": ["prox(mu=1)"]},
        {"method": []},
        {"method": ["fedavg", "server_adam(rate=1)"]},
        {"model": "lenet6"},
        {"data": "digits(path=x)"},
        {"partition": "dirichlet(beta=1)"},
        {"fleet": "markov"},
        {"fleet": "tiers | markof"},
        {"task": "multilabel(smoothing=1)"},
        {"driver": "rays"},
    ],
)
def test_what_is_wrong_is_marked_as_it_is_refused(
    values: dict[str, Any], validator: Draft7Validator, tmp_path: Path
) -> None:
    from polyrhythm.base.errors import UserError

    assert list(validator.iter_errors(values))
    file = tmp_path / "x.toml"
    tables = {k: v for k, v in values.items() if isinstance(v, dict)}
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if k not in tables]
    lines += [f"[{k}]\n" + "\n".join(f"{n} = {json.dumps(v)}" for n, v in t.items()) for k, t in tables.items()]
    file.write_text("\n".join(lines))
    with pytest.raises(UserError):
        configure(file, {}, [])
