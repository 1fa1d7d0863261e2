"""Whose code a text may bring in: modules of the user's own, which the user has named; and what may be called in them.

An import path such as "nets:Net", of a model or of a part of a method, makes Python run a file, and then calls what it
finds there. It may stand in an experiment file, in a record or beside an expert's weights, and those may come from
somebody else. So, in this order:

1. The module is the user's own: not the standard library's, not an installed package's, not polyrhythm's. What is
   installed is full of functions that do harm when they are called with somebody else's arguments.
2. The user has named it, with `--trust nets` or by typing the path. No file can do that, nor the environment.
3. It is imported, and what is found is a class or function that is itself defined in a module of the user's own.

The first two are decided by where Python would find the module, before anything is imported.

A Ray cluster of others is such code, too, since a run exchanges pickles with it: the user has to type its address.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn, final

from polyrhythm.base.errors import UserError, unknown

_NAME = r"[^\W\d]\w*"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*:{_NAME}")
_NAMED = re.compile(rf"{_NAME}(?:\.{_NAME})*(?::{_NAME})?")
_INSTALLED = {"site-packages", "dist-packages"}
_OURS = Path(__file__).parents[1]


@final
@dataclass(frozen=True)
class Trust:
    """The modules that the user has named.

    Args:
        modules: dotted names; that of a package covers what is in it, and "nets:Net" nothing but that path.
        before, after: what the user would type to name one more, before its name and after it.
        clusters: the addresses of Ray clusters that the user has typed.

    Raises:
        UserError: something else than such names.
    """

    modules: tuple[str, ...] = ()
    before: str = "--trust "
    after: str = ""
    clusters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.modules:
            if not _NAMED.fullmatch(name) or name.endswith(".py"):
                raise _no_module(name)

    def covers(self, path: str) -> bool:
        """Whether an import path leads into one of them."""
        module = path.partition(":")[0]
        return any(path == named or module == named or module.startswith(f"{named}.") for named in self.modules)

    def asked_for(self, module: str) -> str:
        """What the user would type to name this module."""
        return f"{self.before}{module}{self.after}"


def check_cluster(address: str | None, trust: Trust, where: str) -> None:
    """Goes on if a Ray cluster is the user's own choice, or one that this machine is part of.

    Args:
        address: of the cluster.
        trust: what the user has named.
        where: it was written.

    Raises:
        UserError: somebody else may have chosen it.
    """
    if address is None or address == "auto" or address in trust.clusters:
        return
    again = trust.before.partition("--trust ")[0] if "--trust " in trust.before else ""
    has_option = not again.startswith("polyrhythm ") or again.split()[1] in ("run", "resume", "verify", "replay")
    typed = f"--address {shlex.quote(address)}" if has_option else f"--set address={shlex.quote(address)}"
    raise UserError(
        f"{where}: address = {address!r}, a Ray cluster that you have not named",
        expected=f'your word that this cluster is yours: {typed}; or address = "auto", for the one of this machine',
        why="the run exchanges pickles with it, so whoever it belongs to could run code here, with your rights",
        fix=f"if it is yours: {again or 'the same command with '}{typed}{trust.after}; else leave the address out",
    )


NOBODY = Trust()
"""No module at all, as long as nobody has named one."""


def in_python(modules: Sequence[str]) -> Trust:
    """The modules that are named in a call, `trust=["nets"]`.

    Raises:
        UserError: something else than names.
    """
    if isinstance(modules, str):
        raise UserError(
            f"trust={modules!r}",
            expected="a list of names of modules",
            why="each of them may be imported",
            fix=f"trust=[{modules!r}]",
        )
    listed = "".join(f"{name!r}, " for name in modules)
    return Trust(tuple(modules), before=f"trust=[{listed}'", after="']")


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an import path is to name: a class of some kind, or a function.

    Args:
        what: in a word, such as "model".
        base: of what a class must be one, or of one of which.
        kind: that, as one writes it.
    """

    what: str
    base: type | tuple[type, ...] = object
    kind: str = ""

    @property
    def in_words(self) -> str:
        """What it must be."""
        return f"a {f'subclass of {self.kind}' if self.kind else 'class'}, or a function, of a module of your own"


def imported(path: str, wanted: Wanted, trust: Trust | None) -> Callable[..., Any]:
    """What an import path "package.module:Name" names.

    Args:
        path: it.
        wanted: what it is to be.
        trust: the modules that the user has named; None where the path itself is the user's, written in Python.

    Raises:
        UserError: no such module or name, one that is not the user's own, or that the user has not named; or something
            else than is wanted.
    """
    if re.search(r"\.py:", path):
        return _refuse_file(path, wanted)
    if not _PATH.fullmatch(path):
        raise _not_imported(path, wanted, "it is no import path")
    module, _, name = path.partition(":")
    if owner := _owner(module, path, wanted):
        raise _foreign(f"the {wanted.what} {path!r} is in {module}, which is {owner}", wanted)
    if trust is not None and not trust.covers(path):
        raise _not_named(path, wanted, _found(module, path, wanted), trust)
    try:
        there = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does when it is imported
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise _not_imported(path, wanted, f"{kind}{error}") from error
    found = getattr(there, name, None)
    if found is None:
        own = (key for key, value in vars(there).items() if getattr(value, "__module__", "") == module)
        raise unknown(wanted.what, name, (key for key in own if not key.startswith("_")), where=module)
    return _checked(found, path, wanted)


def _checked(found: Any, path: str, wanted: Wanted) -> Callable[..., Any]:
    """What was found, if it is what is wanted, and the user's own."""
    if not (inspect.isclass(found) and issubclass(found, wanted.base)) and not inspect.isfunction(found):
        kind = f"a class that is no {wanted.kind}" if inspect.isclass(found) else f"a {type(found).__name__}"
        raise _foreign(f"{path!r} is {kind}", wanted)
    for one in (found, inspect.unwrap(found)):  # a function that a decorator has made, and the one inside it
        home = str(getattr(one, "__module__", None))
        owner = _owner(home, path, wanted) if home in sys.modules else "no module"
        if owner:
            raise _foreign(f"{path!r} is defined in {home}, which is {owner}", wanted)
    made: Callable[..., Any] = found
    return made


def _found(module: str, path: str, wanted: Wanted) -> list[ModuleSpec]:
    """Where Python would find a module and the packages around it, the outermost first.

    A package's own code may say where its modules are; then they are left out, and looked at when they are there.
    """
    specs: list[ModuleSpec] = []
    places: Sequence[str] | None = None
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        if specs and places is None:
            raise _not_imported(path, wanted, f"{specs[-1].name} is no package")
        spec = _spec(".".join(parts[:length]), places)
        if spec is None and specs and specs[-1].origin is not None:
            return specs
        if spec is None:
            raise _not_imported(path, wanted, f"there is no module {'.'.join(parts[:length])}")
        specs.append(spec)
        places = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    if specs[-1].origin is None and places is not None:
        raise _not_imported(path, wanted, f"{module} is a folder without an __init__.py, in which there are no names")
    return specs


def _spec(module: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """How Python would find a module; `importlib.util.find_spec` would import the packages around it."""
    if (loaded := sys.modules.get(module)) is not None:
        spec: ModuleSpec | None = getattr(loaded, "__spec__", None)
        return spec or ModuleSpec(module, None)  # made by a program, or the program itself
    try:
        looks = (finder.find_spec(module, places) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        return next((spec for spec in looks if spec is not None), None)
    except (
        KeyError
    ):  # a folder without an __init__.py in a package that is not imported, which Python asks for its path
        spec = ModuleSpec(module, None, is_package=True)
        name = module.rpartition(".")[2]
        spec.submodule_search_locations = [os.path.join(place, name) for place in places or ()]
        return spec


def _owner(module: str, path: str, wanted: Wanted) -> str:
    """Whose a module is, in words; "" for the user's own."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return "the standard library's"  # or a file of the same name, which Python may find first, or not
    if top == "__main__":
        return "the program that is running"
    specs = _found(module, path, wanted)
    for spec in specs:
        if spec.origin in ("built-in", "frozen"):
            return "the standard library's"
        if spec.origin is None and spec.submodule_search_locations is None:
            return "in no file"
        if spec.origin is not None and (owner := _owner_of_file(spec.origin)):
            return owner
    return "an installed package's" if _in_a_record(top, specs[0]) else ""


def _owner_of_file(origin: str) -> str:
    """Whose a file is, both where it is found and where links lead to; "" for the user's own."""
    for place in (Path(os.path.abspath(origin)), Path(os.path.realpath(origin))):
        if any(place.is_relative_to(folder) for folder in (_OURS, os.path.realpath(_OURS))):
            return "polyrhythm's own"
        if _INSTALLED & {*place.parts} or any(
            place.is_relative_to(folder) for folder in _folders("purelib", "platlib")
        ):
            return "an installed package's"
        if any(place.is_relative_to(folder) for folder in _folders("stdlib", "platstdlib")):
            return "the standard library's"
    return ""


def _folders(*kinds: str) -> Iterator[str]:
    """Where this Python keeps such things, and where links lead to from there."""
    for kind in kinds:
        folder = sysconfig.get_path(kind)
        yield from (os.path.abspath(folder), os.path.realpath(folder))


def _in_a_record(top: str, spec: ModuleSpec) -> bool:
    """Whether an installer lists a module among a package's files, as beside those of `pip install --target`."""
    places = [spec.origin] if spec.submodule_search_locations is None else spec.submodule_search_locations
    for folder in {Path(place).parent for place in places if place}:
        for record in folder.glob("*.dist-info/RECORD") if folder.is_dir() else ():
            lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
            if any(line.startswith((f"{top}/", f"{top}.")) for line in lines):
                return True
    return False


def _not_imported(path: str, wanted: Wanted, problem: str) -> UserError:
    return UserError(
        f"the {wanted.what} {path!r} could not be imported: {problem}",
        expected=f"an import path like my_package.my_module:My{wanted.what.capitalize()}",
        why=f"the {wanted.what} is made by calling what that path names",
        fix="check the spelling, and that the module's folder is on PYTHONPATH (PYTHONPATH=. for this folder)",
    )


def _refuse_file(path: str, wanted: Wanted) -> NoReturn:
    error = _not_imported(path, wanted, "it has the name of a file")
    right = path.replace(".py:", ":").lstrip("./").replace("/", ".")
    raise UserError(error.found, expected=error.expected, why=error.why, fix=f"write {right}")


def _foreign(found: str, wanted: Wanted) -> UserError:
    return UserError(
        found,
        expected=wanted.in_words,
        why="a file or a record could otherwise have anything called that is installed, with arguments of its choice",
        fix=f"write a class, or a function that makes the {wanted.what}, in a file of yours, and name that; in Python "
        f"give the {wanted.what} itself and not its path",
    )


def _not_named(path: str, wanted: Wanted, specs: Sequence[ModuleSpec], trust: Trust) -> UserError:
    module = path.partition(":")[0]
    files = " and ".join(dict.fromkeys(spec.origin for spec in specs if spec.origin))
    return UserError(
        f"the {wanted.what} {path!r} would run {files}, and was not imported, since you have not named {module}",
        expected=f"your word that {module} may run with your rights: --trust {module}",
        why="an experiment file, a record or an expert may come from somebody else, and must not choose what runs here",
        fix=f"read {files} first; if you trust it: {trust.asked_for(module)}",
    )


def _no_module(name: str) -> UserError:
    short = name.removesuffix(".py").strip("./").replace("/", ".")
    return UserError(
        f"--trust {name}",
        expected="the name of a module or package, as in an import: nets, or my_lab.nets",
        why="it says whose code may be imported, and run with your rights",
        fix=f"--trust {short}" if _NAMED.fullmatch(short) else "give one name; repeat --trust for others",
    )
