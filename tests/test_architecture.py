"""Who may import whom, who may draw random numbers, and what a bare import costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.local.schedules import Schedule
from polyrhythm.methods.mechanism import Mechanism

SOURCE = Path(__file__).parents[1] / "src" / "polyrhythm"
FILES = sorted(SOURCE.rglob("*.py"))
METHODS_MAY_IMPORT = {"methods", "base"}
CORES_MAY_IMPORT = {"core", "methods", "base"}
KINDS = (Mechanism, LocalOptimiser, Schedule)
BLIND = {
    *("core", "engines", "simulation", "experiments", "deployment", "fleet", "runs", "results", "figures", "report"),
    *("trackers", "dashboard"),
}
NAMED = {
    "engines/": {"LocalSgd", "LocalAdam", "ModelContrast"},  # of which an engine has a kernel, and else takes steps
    "experiments/estimate": {"Steps"},  # of which it makes a visit to be timed
}
BARE = "bench/bare"  # what runs are compared with: a program of its own, which lies here because a command runs it
ONLY_IN = {"ray": "simulation/workers/on_ray", "flwr": "deployment/on_flower"}

# Draws from torch's or NumPy's global generator, unless a generator is handed over.
TORCH_DRAWS = {
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
    *("normal", "bernoulli", "multinomial", "poisson"),
}
TENSOR_DRAWS = {
    *("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"),
    "bernoulli",
}
TORCH_SEEDS = {
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "fork_rng",
    "default_generator",
    "Generator",
}
NUMPY_TYPES = {"Generator", "BitGenerator", "SeedSequence"}


def place(file: Path) -> str:
    """A file's place in the package, such as `methods/release/base`."""
    return file.relative_to(SOURCE).with_suffix("").as_posix()


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Every module that a file of `package` imports, anywhere in it, with its full dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from polyrhythm import drivers` imports a module too, so each name counts as one.
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported(file: Path) -> set[str]:
    package = ".".join(["polyrhythm", *file.relative_to(SOURCE).parent.parts])
    return set(imports(ast.parse(file.read_text()), package))


def parts(file: Path) -> set[str]:
    """The rooms of polyrhythm that a file imports from, such as `{"methods", "base"}`."""
    return {name.split(".")[1] for name in imported(file) if name.startswith("polyrhythm.")}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def global_draws(source: str) -> list[str]:
    """What in a source text touches a global generator, or makes or seeds one: `line: name`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: {name}" for name in names if name in {"random", "numpy.random"}]
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            of_torch = name.startswith("torch.") and node.attr in TORCH_SEEDS
            of_numpy = name.startswith(("np.random.", "numpy.random.")) and node.attr not in NUMPY_TYPES
            # The type torch.Generator may be named anywhere; calling it makes one.
            if (of_torch and node.attr != "Generator") or of_numpy:
                found.append(f"{node.lineno}: {name}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, given = dotted(node.func), any(k.arg == "generator" for k in node.keywords)
            draws = TORCH_DRAWS if name.startswith("torch.") else TENSOR_DRAWS
            if name == "torch.Generator" or (node.func.attr in draws and not given and ".init." not in name):
                # torch.nn.init draws inside seeded_torch, which is how models are initialised.
                found.append(f"{node.lineno}: {name}")
    return found


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


# One test for all files: one for each would be two thousand, whose collection alone takes seconds in every process.


def importing_more(room: str, allowed: set[str]) -> dict[str, set[str]]:
    """The files of a room that import from others than those, and from which."""
    files = [file for file in FILES if place(file).startswith(f"{room}/")]
    assert files
    return {place(file): more for file in files if (more := parts(file) - allowed)}


def test_methods_import_only_what_both_ends_share() -> None:
    assert importing_more("methods", METHODS_MAY_IMPORT) == {}


def test_cores_import_nothing_that_does_work_in_the_world() -> None:
    assert importing_more("core", CORES_MAY_IMPORT) == {}


def decided_by(file: Path) -> set[str]:
    """The mechanisms that a file names by their class."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polyrhythm.methods"):
            for alias in node.names:
                thing = getattr(importlib.import_module(str(node.module)), alias.name, None)
                if isinstance(thing, type) and issubclass(thing, KINDS) and getattr(thing, "__final__", False):
                    found.add(thing.__name__)
    return found


def test_nobody_outside_methods_asks_which_mechanism_it_is() -> None:
    """Each says itself what others must know, so that one of a user's own is treated like any other."""
    found = dict[str, set[str]]()
    for file in FILES:
        if place(file).partition("/")[0] in BLIND:
            allowed = next((some for where, some in NAMED.items() if place(file).startswith(where)), set())
            found[place(file)] = decided_by(file) - allowed
    assert len(found) > 200
    assert {where: names for where, names in found.items() if names} == {}


def test_the_reader_of_mechanisms_sees_them() -> None:
    assert decided_by(SOURCE / "methods" / "papers" / "alt.py") == {"StopOnDrift"}


def test_a_deployment_library_is_imported_in_one_place() -> None:
    users = {place(file): {name.split(".")[0] for name in imported(file)} & {*ONLY_IN} for file in FILES}
    assert set().union(*users.values()) == {*ONLY_IN}
    assert [user for user, found in users.items() if not all(user.startswith(ONLY_IN[name]) for name in found)] == []


def test_no_module_touches_a_global_generator() -> None:
    files = [file for file in FILES if place(file) not in ("base/streams", BARE)]
    assert {place(file): found for file in files if (found := global_draws(file.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from random import choice",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nrng = np.random.default_rng(3)",
        "from numpy.random import default_rng",
        "import torch\ntorch.manual_seed(0)",
        "import torch\ntorch.cuda.manual_seed_all(0)",
        "import torch\ng = torch.Generator()",
        "import torch\ntorch.randperm(4)",
        "import torch\nw = torch.empty(3)\nw.normal_()",
        "import torch\nwith torch.random.fork_rng(): pass",
    ],
)
def test_the_generator_check_finds(source: str) -> None:
    assert global_draws(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.randperm(4, generator=g)",
        "import torch\ndef f(g: torch.Generator) -> None: ...",
        "import numpy as np\ndef f(g: np.random.Generator) -> None: g.normal()",
        "from torch import nn\nnn.init.normal_(w)",
    ],
)
def test_the_generator_check_allows(source: str) -> None:
    assert not global_draws(source)


def test_the_bare_loop_knows_nothing_of_polyrhythm() -> None:
    assert not parts(SOURCE / f"{BARE}.py")


def test_the_import_reader_sees_every_form() -> None:
    tree = ast.parse(
        "from polyrhythm import drivers\nfrom ..core import client\ndef f():\n    import polyrhythm.cli as c"
    )
    assert {"polyrhythm.drivers", "polyrhythm.core.client", "polyrhythm.cli"} <= set(
        imports(tree, "polyrhythm.methods")
    )


def test_importing_polyrhythm_is_light() -> None:
    code = "import polyrhythm, sys; print(sorted({'ray', 'flwr', 'torch', 'pandas', 'altair'} & set(sys.modules)))"
    done = run_python(code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


HELP = """
import sys
sys.argv = ["polyrhythm", "--help"]
from polyrhythm.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


@pytest.mark.slow
def test_help_answers_at_once_without_torch() -> None:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        done = run_python(HELP)
        best = min(best, time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout
        assert done.stderr.strip() == "False"
    assert best < 0.5
