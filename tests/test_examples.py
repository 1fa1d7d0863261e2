"""The examples run as they are, and the README says one experiment in three ways."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

import polyrhythm as pr
from polyrhythm.config.names import PARTS, RECIPES
from polyrhythm.methods.capacity.base import Capacity
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.order.base import Order
from polyrhythm.methods.participation.base import Participation, ParticipationModifier
from polyrhythm.methods.release.base import ReleaseModifier, ReleasePolicy
from polyrhythm.methods.server_step import ServerStep
from polyrhythm.methods.weighing import Scaling, Sharing
from polyrhythm.methods.work.base import Work, WorkModifier

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], ModuleType]:
    """Imports a file as a module of its own; known to `sys.modules`, where annotations are looked up."""

    def loaded(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(
    example: Path,
    load: Callable[[Path], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In an empty folder, with few rounds."""
    monkeypatch.chdir(tmp_path)
    load(example).main(rounds=2)
    assert capsys.readouterr().out.strip()
    assert (tmp_path / "runs" / "runs.sqlite").exists()


def test_the_comparison_names_every_curve(load: Callable[[Path], ModuleType], tmp_path: Path) -> None:
    draw = load(ROOT / "examples" / "compare.py").draw
    points = [{"round": r, "accuracy": 0.5, "method": m} for m in ("a", "b", "c") for r in (0, 1)]
    draw(points, ["a", "b", "c"], str(tmp_path / "curves.svg"))
    drawn = (tmp_path / "curves.svg").read_text()
    assert all(f">{name}</text>" in drawn for name in "abc")


def test_the_mechanism_obeys_its_laws(load: Callable[[Path], ModuleType]) -> None:
    """Off it is exactly nothing, on it is something, and it refuses what its equation does not cover."""
    from polyrhythm.experiments.prepared import prepare
    from polyrhythm.experiments.session import carry_out

    part = load(ROOT / "examples" / "own_mechanism.py").SharedDirection
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.1), clients=5, seed=0)

    def digest(recipe: pr.Recipe) -> Any:
        experiment = pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=2)
        return carry_out(prepare(experiment), [])["digest"]

    plain = pr.fedavg(cohort=3)
    assert digest(plain | part(strength=0.0)) == digest(plain)
    assert digest(plain | part(strength=0.5)) != digest(plain)
    with pytest.raises(pr.UserError, match="local_adam"):
        pr.fedavg(optimiser="adam") | part()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


class Begun(Exception):
    """Raised where a run would begin."""


def test_the_readme_names_every_recipe_and_every_part_in_its_slot() -> None:
    page = (ROOT / "README.md").read_text()
    table, rest = page[page.index("## Eight questions") : page.index("## Adding a mechanism")].split("Beside them")
    rows = dict(re.findall(r"^\| ([A-Z][\w ]*) \| .* \| (`.*) \|$", table, flags=re.MULTILINE))
    slots = {
        **{"Participation": (Participation, ParticipationModifier), "Work": (Work, WorkModifier), "Order": (Order,)},
        **{"Correction": (Correction,), "Weighing": (Sharing, Scaling), "Server step": (ServerStep,)},
        **{"Release": (ReleasePolicy, ReleaseModifier), "Capacity": (Capacity,)},
    }
    named = {slot: set(re.findall(r"`(\w+)`", cell)) for slot, cell in rows.items()}
    assert named == {slot: {n for n, part in PARTS.items() if issubclass(part, kinds)} for slot, kinds in slots.items()}
    assert set(re.findall(r"`(\w+)`", rest)) == {*PARTS, *RECIPES} - set().union(*named.values()) | {*RECIPES}


def in_python(monkeypatch: pytest.MonkeyPatch) -> pr.Experiment:
    seen: list[pr.Experiment] = []

    def begin(experiment: pr.Experiment) -> NoReturn:
        seen.append(experiment)
        raise Begun

    monkeypatch.setattr(pr, "run", begin)
    with pytest.raises(Begun):
        exec(blocks(ROOT / "README.md", "python")[0], {})
    return seen[0]


def on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> pr.Experiment:
    from polyrhythm.cli import main, running
    from polyrhythm.config import assembly

    seen: list[Any] = []
    monkeypatch.setattr(running, "run_all", lambda configuration, **_: seen.append(configuration))
    console = "\n".join(blocks(ROOT / "README.md", "console")).replace("\\\n", " ").splitlines()
    line = next(line for line in console if line.startswith("$ polyrhythm run --"))
    monkeypatch.setattr(sys, "argv", shlex.split(line)[1:])
    with pytest.raises(SystemExit):
        main()
    return next(assembly.assemble(seen[0]))


def in_toml(folder: Path) -> pr.Experiment:
    from polyrhythm.config import assembly, configuration

    file = folder / "experiment.toml"
    file.write_text(blocks(ROOT / "README.md", "toml")[0])
    return next(assembly.assemble(configuration.configure(file, {}, [])))


def test_the_readme_says_one_experiment_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyrhythm.experiments.prepared import prepare

    first = in_python(monkeypatch)
    for other in (on_the_command_line(monkeypatch), in_toml(tmp_path)):
        assert other.recipe.digest == first.recipe.digest
        assert other.federation.partition == first.federation.partition
        assert other.federation.sizes.tolist() == first.federation.sizes.tolist()
        assert prepare(other).initial.weights.equal(prepare(first).initial.weights)
        assert (other.rounds, other.seed, other.name) == (first.rounds, first.seed, first.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_experiment_file_is_taken(page: Path, tmp_path: Path) -> None:
    from polyrhythm.config import configuration, data_names, names
    from polyrhythm.studies.files.reading import is_study, read
    from polyrhythm.studies.planning import planned

    for number, text in enumerate(blocks(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        if is_study(file):
            assert planned(read(file)).cells
            continue
        experiment = configuration.configure(file, {}, [])
        names.recipe(experiment.method)
        data_names.partition(experiment.partition)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
