"""Writes docs/methods-table.md: what each method is made of, and which laws and hand computations hold it.

python docs/make_methods.py

Every row is read from the source and the tests. A test compares the page with what this gives.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.config import names as names_in_text
from polyrhythm.deployment.federating import check
from polyrhythm.experiments.prepared import prepare
from polyrhythm.methods import papers
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.catalogue import MODELS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods-table.md"
TESTS = ROOT / "tests"
LAWS = sorted((TESTS / "laws").glob("test_*.py"))
MANY = 4  # papers
WITH_HEAD = ("alt", "moon")
WITH_ADAPTERS = ("ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora")
ADAPTERS = ("fedit", *WITH_ADAPTERS)
RANKED = ("fedit", "rolora", "fedex_lora", "flora", "flexlora", "hetlora")
RANKS = "rank_prefix(rank=[8, 4, 2], by=memory)"
MECHANISMS: dict[str, tuple[str, ...]] = {
    "ALT": ("stop_on_drift",),
    "curricula": ("curriculum", "curriculum(score=both_pred)", "curriculum(score=expert)", "client_curriculum"),
    "CCFL": (
        *("skip_and_estimate", "skip_and_estimate(storage=server)", "skip_and_resend_model"),
        *("skip_silently", "budget_steps"),
    ),
    "client-centric": (
        *("per_step", "server_adam", "server_adagrad", "server_amsgrad"),
        *("sampled_staleness(max_delay=5)", "buffer(size=5)"),
    ),
    "FedCL": (
        *("critical_periods", "critical_periods(detector=fisher_trace)"),
        *("critical_periods(detector=released_norm)", "random_resize"),
    ),
}
"""Of the five papers what is put on recipes of adapters."""
ORACLES = [*sorted((TESTS / "oracles").glob("test_*.py")), TESTS / "methods" / "test_by_hand.py"]


class Row(NamedTuple):
    """A method.

    `parts` are the classes of its own, `lines` those of code of its recipe and of these parts, `laws` and `oracles` the
    tests that name it or one of them, and `mutants` the ways in which the laws are broken.
    """

    name: str
    parts: tuple[type, ...]
    lines: int
    laws: tuple[str, ...]
    mutants: int
    oracles: tuple[str, ...]


def code_lines(source: str) -> int:
    """Lines of code without docstrings, comments and blank lines.

    >>> code_lines('def f():\\n    "What it is."\\n\\n    return 1  # a number\\n')
    2
    """
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not (isinstance(one, ast.Expr) and _is_text(one.value))]
    kept = [node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr, ast.arg, ast.keyword, ast.alias))]
    return len({line for node in kept if hasattr(node, "lineno") for line in (node.lineno, node.end_lineno)})


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def made(name: str) -> Recipe:
    """A paper's recipe with its defaults."""
    found: Recipe = getattr(papers, name)()
    return found


def _parts(name: str) -> dict[type, None]:
    return dict.fromkeys(type(part) for _, part in made(name).mechanisms())


@functools.cache
def common() -> frozenset[type]:
    """Parts that say nothing of a method: FedAvg's own, and those in the recipes of many papers, such as a buffer."""
    files: dict[type, set[str]] = {}
    for name in names():
        for kind in _parts(name):
            files.setdefault(kind, set()).add(inspect.getmodule(getattr(papers, name)).__name__)  # type: ignore[union-attr]
    return frozenset([*_parts("fedavg"), *(kind for kind, of in files.items() if len(of) >= MANY)])


def names() -> list[str]:
    """All recipes of papers, and the two bounds."""
    return sorted(name for name in papers.__all__ if name != "Common")


def own_parts(name: str) -> tuple[type, ...]:
    """The classes of a recipe's parts that are not common; all of FedAvg's."""
    return tuple(kind for kind in _parts(name) if kind not in common() or name == "fedavg")


@functools.cache
def asked_of(path: Path) -> Mapping[str, frozenset[str]]:
    """The functions that a test file imports, by their modules: tests by hand ask what lies beside a part."""
    found: dict[str, frozenset[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.module.endswith(".base"):
            functions = frozenset(alias.name for alias in node.names if alias.name.islower())
            found[node.module] = found.get(node.module, frozenset()) | functions
    return found


def names_in(node: ast.AST) -> Iterator[str]:
    """What is named in a piece of a program, also in its texts."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield from re.findall(r"\w+", one.value)


@functools.cache
def tests_of(path: Path) -> Mapping[str, frozenset[str]]:
    """Each test of a file, with all that it names, by way of what else stands in the file and in those it imports."""
    defined: dict[str, frozenset[str]] = {}
    tests = list[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        used = frozenset(names_in(node))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = used
            tests += [node.name] if node.name.startswith("test_") else []
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {t.id: used for t in targets if isinstance(t, ast.Name)}
    return {test: _closure(test, defined) for test in tests}


def _closure(test: str, defined: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found, waiting = set[str](), [test]
    while waiting:
        used = defined[waiting.pop()] - found
        found |= used
        waiting += [name for name in used if name in defined]
    return frozenset(found)


@functools.cache
def mutants() -> Mapping[tuple[str, str], int]:
    """How many mutants must break each law, by file and name."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    for path in LAWS:
        importlib.import_module(f"laws.{path.stem}")
    found: Mapping[tuple[str, str], Any] = importlib.import_module("laws.law").LAWS
    return {(module.rpartition(".")[2], name): len(one.broken_by) for (module, name), one in found.items()}


def row(name: str) -> Row:
    """What there is of a method."""
    parts = own_parts(name)
    own = frozenset({name, *(kind.__name__ for kind in parts)})
    source = [inspect.getsource(getattr(papers, name)), *map(inspect.getsource, parts)]

    def naming(path: Path) -> Iterator[tuple[str, str]]:
        """The tests of a file that are about it."""
        modules = {kind.__module__ for kind in parts} if name != "fedavg" else set()
        wanted = own.union(*(asked_of(path).get(module, ()) for module in modules))
        yield from ((path.stem, test) for test, used in tests_of(path).items() if used & wanted)

    laws = [law for path in LAWS for law in naming(path) if law in mutants()]
    return Row(
        name=name,
        parts=parts,
        lines=sum(map(code_lines, source)),
        laws=tuple("::".join(law) for law in laws),
        mutants=sum(mutants()[law] for law in laws),
        oracles=tuple("::".join(test) for path in ORACLES for test in naming(path)),
    )


def departures(name: str) -> str:
    """In what a method departs from its paper, as the docstrings of its recipe and parts say it."""
    found = list[str]()
    for one in (getattr(papers, name), *own_parts(name)):
        for paragraph in inspect.cleandoc(one.__doc__ or "").split("\n\n"):
            said = re.match(r"Departures?:\s+(.*)", paragraph, re.DOTALL)
            found += [" ".join(said[1].split())] if said else []
    return " ".join(dict.fromkeys(text if text[1:2] == " " else text[:1].upper() + text[1:] for text in found))


def with_mechanism(name: str, mechanism: str, ranks: str = "") -> Recipe:
    """A recipe of adapters with a mechanism of another paper.

    Args:
        name: the recipe.
        mechanism: as it is written on the command line.
        ranks: a part that says which ranks clients have, likewise; for a recipe that has none of its own.

    Raises:
        UserError: the two cannot be combined, and why.
    """
    own = f"{name}(rank=[8, 4, 2], by=memory)" if ranks and name in ("flexlora", "hetlora") else name
    of_ranks = [ranks] if ranks and own == name else []
    if name in ("fedex_lora", "flora", "flexlora", "hetlora") and not ranks:
        own = f"{name}(rank=8)" if name in ("flexlora", "hetlora") else name
    return names_in_text.recipe(" | ".join([own, *of_ranks, mechanism])).whole()


def _adapter_pairs(recipes: tuple[str, ...], ranks: str, reasons: dict[str, int]) -> Iterator[str]:
    """The rows of a table of mechanisms by recipes; reasons are numbered as they come."""
    yield f"| paper | mechanism | {' | '.join(f'`{name}`' for name in recipes)} |"
    yield f"| --- | --- | {' | '.join('---' for _ in recipes)} |"
    for paper, mechanisms in MECHANISMS.items():
        for mechanism in mechanisms:
            cells = list[str]()
            for name in recipes:
                try:
                    with_mechanism(name, mechanism, ranks)
                    cells.append("yes")
                except UserError as refused:
                    number = reasons.setdefault(_without_names(refused), len(reasons) + 1)
                    cells.append(f"no ({number})")
            yield f"| {paper} | `{mechanism}` | {' | '.join(cells)} |"


def _without_names(refused: UserError) -> str:
    """Why two parts are refused, in words that are the same for others of their kind."""
    one, _, other = (part.partition("(")[0] for part in refused.found.partition(" with "))
    return refused.why.replace(one, "the recipe").replace(other, "the mechanism")


def model_for(name: str) -> str | Callable[..., nn.Module]:
    """The smallest model of the catalogue that a method runs with."""
    if name == "depthfl":
        return "mlp-exits"
    if name in WITH_HEAD:
        return pr.models.with_projection(MODELS["mlp"])
    return pr.models.with_lora(MODELS["mlp"]) if name in WITH_ADAPTERS else "mlp"


def engines(name: str) -> tuple[str, str, str]:
    """Whether the native and the stacked engine compute a method's steps, and real nodes carry it out, as each says."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.5), clients=6, seed=0)
    experiment = pr.Experiment(federation=federation, model=model_for(name), recipe=made(name), rounds=2)
    prepare(experiment, pr.Execution(engine="torch"))  # what is refused everywhere would be no everywhere
    found = list[bool]()
    for kind in ("native", "stacked"):
        try:
            found.append(prepare(experiment, pr.Execution(engine=kind)).chosen.kind == kind)  # type: ignore[arg-type]
        except UserError:
            found.append(False)
    try:
        check(experiment)
        found.append(True)
    except UserError:
        found.append(False)
    native, stacked, nodes = ("yes" if one else "no" for one in found)
    return native, stacked, nodes


def page() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# All methods: code, laws and hand computations"
    yield ""
    yield (
        "Each recipe with the parts of its own, without those that FedAvg has and those in the recipes of four papers "
        "or more, such as a buffer or equal shares. **Code**: lines of the recipe and of these parts, without "
        "docstrings, comments and blank lines. **Laws**: tests in `tests/laws` that name the recipe or a part of its "
        "own, and the mutants of the source under which they must fail. **By hand**: tests against numbers that were "
        "worked out without the part, or by `torch.optim`, in `tests/oracles` and `tests/methods/test_by_hand.py`. "
        "**Native**, **stacked**: whether that engine computes its local steps with its defaults, asked of it on a "
        "perceptron; the torch engine computes all of them, and every driver of the simulation (in line, threads, "
        "processes, Ray) runs all of them. **Nodes**: whether real federations, Flower's too, carry it out."
    )
    yield ""
    yield "Made by `python docs/make_methods.py` from the source and the tests; a test says when it is out of date."
    yield ""
    yield "| recipe | parts of its own | code | laws | mutants | by hand | native | stacked | nodes |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |"
    for name in names():
        one = row(name)
        parts = ", ".join(f"`{kind.__name__}`" for kind in one.parts) or "–"
        counts = (one.lines, len(one.laws), one.mutants, len(one.oracles))
        yield f"| `{name}` | {parts} | {' | '.join(map(str, counts))} | {' | '.join(engines(name))} |"
    yield ""
    yield "## Adapters with the mechanisms of five papers"
    yield ""
    yield (
        "Whether a recipe of low-rank adapters takes a mechanism of ALT, of curricula, of CCFL, of client-centric "
        "optimisers or of FedCL; what it does not take is refused before any work, for the reason under that number."
    )
    yield ""
    reasons: dict[str, int] = {}
    yield from _adapter_pairs(ADAPTERS, "", reasons)
    yield ""
    yield f"The same where clients have unequal ranks, `{RANKS}`:"
    yield ""
    yield from _adapter_pairs(RANKED, RANKS, reasons)
    yield ""
    yield from (f"{number}. {reason}." for reason, number in reasons.items())
    yield ""
    yield "## Departures from the papers"
    yield ""
    yield "As the docstrings of recipes and parts say it; of a recipe that is not here they say none."
    yield ""
    yield "| recipe | departures |"
    yield "| --- | --- |"
    for name in names():
        if said := departures(name).replace("|", "\\|"):
            yield f"| `{name}` | {said} |"


def main() -> None:
    """Writes it."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} written")


if __name__ == "__main__":
    main()
