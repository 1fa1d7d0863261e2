"""What the source must not contain: readers that run code, shells, sockets to the outside, queries made of input."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "polyrhythm"
FILES = [*sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
FILES += [*sorted((ROOT / "benchmarks").glob("*.py")), *sorted((ROOT / "docs").glob("*.py"))]

# What may run code that is in what it reads, or that it is given as text.
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "execfile"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open"),
    *("dill.load", "dill.loads", "joblib.load", "cloudpickle.load", "cloudpickle.loads", "torch.load"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "pandas.read_pickle", "pd.read_pickle"),
    *("os.system", "os.popen", "os.execv", "os.execvp", "subprocess.getoutput", "tempfile.mktemp"),
    *("tarfile.extractall", "tar.extractall", "tar.extract", "zipfile.extractall", "shutil.unpack_archive"),
    *("socket.AF_INET", "socket.AF_INET6", "socket.create_server", "socket.create_connection", "ctypes.CDLL"),
}
# Where one of them stands nevertheless, and why that is safe.
ALLOWED = {
    # The base of a reader that admits arrays, text and numbers only.
    ("data/sources/pickles.py", "pickle.Unpickler"),
    # Between a driver and the workers that it has forked: over a socket pair and memory that nobody else can open.
    ("simulation/workers/packing.py", "pickle.Unpickler"),
    # Between a study and the workers that it has started: what makes experiments, over a socket pair.
    ("studies/running/workers.py", "pickle.loads"),
    # Reads what it has itself just written, to see whether a copy of the user's module is that module.
    ("engines/repeating.py", "pickle.loads"),
    # Asks whether a port of this machine is free, and lets go of it.
    ("deployment/local/ports.py", "a socket of its own"),
    # Asks glibc for a setting of its allocator.
    ("base/threads.py", "ctypes.CDLL"),
}
MAY_WRITE_PICKLES = {
    "base/attributes.py",
    "base/streams.py",
}  # to compare what is inside of something; none is ever read
MAY_IMPORT_PICKLE = {
    *("data/sources/pickles.py", "simulation/workers/packing.py", "studies/running/workers.py", "engines/repeating.py"),
    "models/weights.py",  # whose reader of tensors raises one of its errors
}
MAY_READ_THE_ENVIRONMENT = {
    *(
        "__init__.py",
        "data/sources/files.py",
        "simulation/workers/on_ray/cluster.py",
        "runs/environment.py",
        "engines/exactness.py",  # where cuBLAS is told to compute the same every time
        "cli/output.py",  # how wide a terminal is
    ),
    "trackers/mlflow_tracker.py",  # where MLflow's server is, which is MLflow's own setting
    "deployment/local/loopback.py",  # which hands it on to Flower's programs
    "results/progress.py",  # whether a notebook shows it
}


def place(file: Path) -> str:
    return (file.relative_to(SOURCE) if file.is_relative_to(SOURCE) else file.relative_to(ROOT)).as_posix()


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def findings(source: str) -> Iterator[str]:
    """What a source text must not contain, by name."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = dotted(node)
            name = imported.get(name, name)
            if name in FORBIDDEN and not (name == "torch.load" and node in _safe_loads(tree)):
                yield name
        elif isinstance(node, ast.keyword):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if (node.arg, value) in {("shell", True), ("allow_pickle", True), ("weights_only", False)}:
                yield f"{node.arg}={value}"
        elif isinstance(node, ast.Call) and dotted(node.func) in ("np.load", "numpy.load"):
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            if given.get("allow_pickle") is not False:
                yield "np.load without allow_pickle=False"
        elif isinstance(node, ast.Call) and dotted(node.func) == "socket.socket" and not _takes_over(node):
            yield "a socket of its own"


def _takes_over(call: ast.Call) -> bool:
    """Whether a socket is made of a descriptor: an end of a pair."""
    return {k.arg for k in call.keywords} == {"fileno"}


def _safe_loads(tree: ast.AST) -> set[ast.expr]:
    """The `torch.load` of calls that say `weights_only=True`."""
    return {
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(k.arg == "weights_only" and getattr(k.value, "value", None) is True for k in node.keywords)
    }


def test_nothing_that_is_read_can_run_code() -> None:
    assert len(FILES) > 500
    assert {(place(file), name) for file in FILES for name in findings(file.read_text())} - ALLOWED == set()


def test_what_is_allowed_is_there() -> None:
    """A place that no longer needs it is no longer named."""
    for where, name in ALLOWED:
        assert name in set(findings((SOURCE / where).read_text())), where


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.load(file)",
        "from pickle import loads\nloads(raw)",
        "from pickle import loads as read\nread(raw)",
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import yaml\nyaml.load(text)",
        "eval('1')",
        "exec('x = 1')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "import tarfile\nwith tarfile.open(p) as tar: tar.extractall('.')",
        "import socket\nsocket.socket()",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert list(findings(source))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import subprocess\nsubprocess.run(['ls'])",
        "model.eval()",
        "import socket\nsocket.socketpair()",
    ],
)
def test_the_check_allows(source: str) -> None:
    assert not list(findings(source))


def test_pickles_and_the_environment_are_read_in_named_places() -> None:
    of_pickles, of_environment = set[str](), set[str]()
    for file in FILES:
        if not file.is_relative_to(SOURCE):
            continue
        tree = ast.parse(file.read_text())
        modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        modules |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        if modules & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}:
            of_pickles.add(place(file))
        names = {dotted(n) for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Name))}
        if place(file) in MAY_WRITE_PICKLES:
            assert {name for name in names if name.startswith("pickle")} == {"pickle", "pickle.dumps"}, place(file)
        if names & {"os.environ", "os.getenv", "environ", "getenv", "os.environb"}:
            of_environment.add(place(file))
    assert of_pickles
    assert of_environment
    assert of_pickles - MAY_IMPORT_PICKLE - MAY_WRITE_PICKLES == set()
    assert of_environment - MAY_READ_THE_ENVIRONMENT == set()


# Queries: whatever a user may give is a parameter.

QUERIES = [f for f in FILES if f.is_relative_to(SOURCE) and "sqlite3" in f.read_text()]
# What stands in the text of a query all the same: constants of the module, columns by the fields of a class, numbers.
IN_QUERIES = {
    *("int(patience * 1000)", "name", "table", "other", "column", "schemas.VERSION", "schemas.APPLICATION"),
    *("', '.join(row)", "', '.join('?' * len(row))"),
    *("records", "_LOOKED_AT", "condition", "whole"),  # of `any_record`, see below
    *("'FULL' if durable else 'NORMAL'", "', '.join((f'{column} = ?' for column in changes))"),
}


def in_queries(source: str) -> Iterator[str]:
    """Every expression that stands inside the text of something that looks like SQL."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            text = "".join(v.value for v in node.values if isinstance(v, ast.Constant) and isinstance(v.value, str))
            if text.lstrip().split(" ")[0] in {"SELECT", "INSERT", "UPDATE", "DELETE", "PRAGMA", "CREATE", "ALTER"}:
                yield from (ast.unparse(v.value) for v in node.values if isinstance(v, ast.FormattedValue))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("execute"):
            built = node.args and isinstance(node.args[0], (ast.BinOp, ast.Call))
            if built and not (isinstance(node.args[0], ast.Call) and dotted(node.args[0].func) == "query"):
                yield ast.unparse(node.args[0])


def test_queries_are_made_of_constants_and_parameters() -> None:
    assert QUERIES
    for file in QUERIES:
        assert set(in_queries(file.read_text())) <= IN_QUERIES, place(file)


def test_conditions_are_written_in_the_source() -> None:
    """Whoever asks the database whether a condition holds gives it as a literal, or hands on one that is."""
    asked = [
        node
        for file in FILES
        if file.is_relative_to(SOURCE)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and dotted(node.func).rpartition(".")[2] in ("any_record", "has")
        and len(node.args) > 1
    ]
    assert asked
    for call in asked:
        condition = call.args[-1]
        assert isinstance(condition, ast.Constant) or ast.unparse(condition) == "condition", ast.unparse(call)


@pytest.mark.parametrize(
    "source",
    [
        'c.execute(f"SELECT * FROM runs WHERE name = {reference}")',
        'c.execute("SELECT * FROM runs WHERE name = " + reference)',
        'c.execute("SELECT * FROM runs WHERE name = {}".format(reference))',
        'c.execute("SELECT * FROM runs WHERE name = %s" % reference)',
    ],
)
def test_the_check_of_queries_finds(source: str) -> None:
    assert not set(in_queries(source)) <= IN_QUERIES
