"""Whose a module is, decided before it is imported; and what may be called in one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from polyrhythm.base import consent
from polyrhythm.base.consent import NOBODY, Trust, Wanted, imported, in_python
from polyrhythm.base.errors import UserError
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import find
from strangers import MODULE, OWN, inside

MODEL = Wanted(what="model", base=nn.Module, kind="nn.Module")
LOUD = "from pathlib import Path\nPath(__file__).with_name('marker').touch()\n"
NET = "from torch import nn\nclass Net(nn.Module):\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder on Python's path; whatever is imported meanwhile is forgotten."""
    before = set(sys.modules)
    with inside(tmp_path):
        yield tmp_path
    for name in set(sys.modules) - before:
        if not name.startswith(("torch", "numpy")):
            del sys.modules[name]


def put(file: Path, text: str = LOUD + NET) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    importlib.invalidate_caches()
    return file


def refusal(path: str, *trust: str) -> UserError:
    with pytest.raises(UserError) as refused:
        imported(path, MODEL, Trust(trust))
    return refused.value


def markers(folder: Path) -> list[Path]:
    return list(folder.rglob("marker"))


def test_a_file_and_a_package_of_ones_own(folder: Path) -> None:
    put(folder / "own_file.py")
    put(folder / "own_lab" / "__init__.py", LOUD)
    put(folder / "own_lab" / "nets.py")
    put(folder / "own_space" / "deep" / "nets.py")
    for path, files in {
        "own_file:Net": ["own_file.py"],
        "own_lab.nets:Net": ["own_lab/__init__.py", "own_lab/nets.py"],
        "own_space.deep.nets:Net": ["own_space/deep/nets.py"],
    }.items():
        module = path.partition(":")[0]
        refused = refusal(path)
        assert " and ".join(str(folder / file) for file in files) in refused.found
        assert refused.fix.endswith(f"--trust {module}")
        assert not {module, module.partition(".")[0]} & {*sys.modules}
    assert not markers(folder)
    for path in ("own_file:Net", "own_lab.nets:Net", "own_space.deep.nets:Net"):
        made = imported(path, MODEL, Trust((path.partition(".")[0].partition(":")[0],)))
        assert (made.__module__, made.__name__) == tuple(path.split(":"))
    assert len(markers(folder)) == 3


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ("lab", True),
        ("lab.nets", True),
        ("lab.nets:Net", True),
        ("lab.nets:Other", False),
        ("lab.net", False),
        ("la", False),
        ("lab.nets.deep", False),
        ("nets", False),
        ("lab:Net", False),
    ],
)
def test_what_a_name_covers(named: str, covered: bool) -> None:
    assert Trust((named,)).covers("lab.nets:Net") == covered
    assert not NOBODY.covers("lab.nets:Net")


@pytest.mark.parametrize(
    "name", ["", "nets.py", "./nets", "lab/nets", "*", "nets,lab", "nets:", ":Net", "1", "a b", "-"]
)
def test_what_names_no_module_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="name of a module"):
        Trust((name,))


def test_a_text_is_no_list_of_names() -> None:
    with pytest.raises(UserError, match="a list of names"):
        in_python("nets")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("os:system", "the standard library's"),
        ("posix:system", "the standard library's"),
        ("os.path:join", "the standard library's"),
        ("builtins:exec", "the standard library's"),
        ("subprocess:Popen", "the standard library's"),
        ("importlib:import_module", "the standard library's"),
        ("antigravity:fly_id", "the standard library's"),
        ("__hello__:main", "the standard library's"),
        ("_frozen_importlib:x", "the standard library's"),
        ("sys:exit", "the standard library's"),
        ("torch:load", "an installed package's"),
        ("torch.nn:Identity", "an installed package's"),
        ("torch.hub:load", "an installed package's"),
        ("safetensors.nowhere:x", "an installed package's"),
        ("pip:main", "an installed package's"),
        ("_distutils_hack:x", "an installed package's"),
        ("polyrhythm:run", "polyrhythm's own"),
        ("polyrhythm.cli.app:run", "polyrhythm's own"),
        ("polyrhythm.models.lenet:lenet5", "polyrhythm's own"),
        ("__main__:Net", "the program that is running"),
    ],
)
def test_what_is_not_ones_own_is_refused_whatever_is_named(path: str, owner: str) -> None:
    top = path.partition(":")[0].partition(".")[0]
    there = set(sys.modules)
    for trust in (None, NOBODY, Trust((top, path))):
        with pytest.raises(UserError) as refused:
            imported(path, MODEL, trust)
        assert f"which is {owner}" in refused.value.found
        assert "of your own" in refused.value.expected
    assert set(sys.modules) == there


def test_a_file_that_has_the_name_of_a_standard_module(folder: Path) -> None:
    """Which of the two Python finds depends on what was imported before."""
    put(folder / "antigravity.py")
    put(folder / "json.py")
    for path in ("antigravity:Net", "json:Net"):
        assert "the standard library's" in refusal(path, "antigravity", "json").found
    assert not markers(folder)


@pytest.mark.parametrize("place", ["site-packages", "lib/python3/dist-packages", "x/site-packages/deeper"])
def test_what_lies_among_installed_packages(folder: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / place / "other_nets.py")
    put(folder / place / "other_space" / "nets.py")
    monkeypatch.syspath_prepend(folder / place)
    for path in ("other_nets:Net", "other_space.nets:Net"):
        assert "an installed package's" in refusal(path, "other_nets", "other_space").found
    assert not markers(folder)


def test_a_link_to_what_is_not_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a link from there to a file elsewhere make it one's own: installers link so, too."""
    put(folder / "site-packages" / "linked_nets.py")
    (folder / "nice_nets.py").symlink_to(folder / "site-packages" / "linked_nets.py")
    put(folder / "cache" / "cached_nets.py")
    (folder / "site-packages" / "cached_nets.py").symlink_to(folder / "cache" / "cached_nets.py")
    (folder / "linked_os.py").symlink_to(importlib.util.find_spec("shutil").origin)  # type: ignore[union-attr, arg-type]
    monkeypatch.syspath_prepend(folder / "site-packages")
    for name in ("nice_nets", "cached_nets"):
        assert "an installed package's" in refusal(f"{name}:Net", name).found
    assert "the standard library's" in refusal("linked_os:rmtree", "linked_os").found
    assert not markers(folder)


def test_what_an_installer_has_put_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `pip install --target`."""
    put(folder / "target" / "bought_nets" / "__init__.py")
    put(folder / "target" / "bought.py")
    put(folder / "target" / "bought-1.0.dist-info" / "RECORD", "bought_nets/__init__.py,sha256=x,3\nbought.py,,\n")
    put(folder / "target" / "bought_not.py", NET)
    monkeypatch.syspath_prepend(folder / "target")
    for name in ("bought_nets", "bought"):
        assert "an installed package's" in refusal(f"{name}:Net", name).found
    assert imported("bought_not:Net", MODEL, Trust(("bought_not",)))
    assert not markers(folder)


def test_a_project_installed_in_place_is_ones_own(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its files lie in its own folder, to which a .pth file or a finder among the installed packages leads."""
    project = tmp_path_factory.mktemp("project")
    put(project / "src" / "lab_in_place" / "__init__.py", "")
    put(project / "src" / "lab_in_place" / "nets.py", NET)
    put(project / "src" / "lab_in_place.egg-info" / "SOURCES.txt", "lab_in_place/nets.py\n")
    path, trust = "lab_in_place.nets:Net", Trust(("lab_in_place",))

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name != "lab_in_place":
                return None
            return importlib.util.spec_from_file_location(name, project / "src" / name / "__init__.py")

    sys.meta_path.append(Finder)  # type: ignore[arg-type]
    try:
        assert refusal(path).fix.endswith("--trust lab_in_place.nets")
        assert imported(path, MODEL, trust)
    finally:
        sys.meta_path.remove(Finder)  # type: ignore[arg-type]
    del sys.modules["lab_in_place"], sys.modules["lab_in_place.nets"]
    sys.path.append(str(project / "src"))
    try:
        assert imported(path, MODEL, trust)
    finally:
        sys.path.remove(str(project / "src"))


def test_an_archive_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(folder / "nets.zip", "w") as archive:
        archive.writestr("zipped_nets.py", NET)
        archive.writestr("site-packages/x", "")
    monkeypatch.syspath_prepend(str(folder / "nets.zip"))
    assert str(Path("nets.zip") / "zipped_nets.py") in refusal("zipped_nets:Net").found
    assert imported("zipped_nets:Net", MODEL, Trust(("zipped_nets",)))


def test_a_package_that_is_spread_over_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its modules is whose the folder is that it lies in."""
    put(folder / "spread" / "mine.py", NET)
    put(folder / "site-packages" / "spread" / "theirs.py")
    monkeypatch.syspath_prepend(folder / "site-packages")
    assert imported("spread.mine:Net", MODEL, Trust(("spread",)))
    assert "an installed package's" in refusal("spread.theirs:Net", "spread").found
    assert "spread.theirs" not in sys.modules
    assert not markers(folder)


def test_a_package_whose_code_says_where_its_modules_are(folder: Path) -> None:
    """It has been named, and runs; what it finds elsewhere is looked at where it is found."""
    put(folder / "pointing" / "__init__.py", "from pathlib import Path\n__path__.append(str(Path('site-packages')))\n")
    put(folder / "site-packages" / "hidden.py", NET)
    assert "an installed package's" in refusal("pointing.hidden:Net", "pointing").found
    put(folder / "also" / "__init__.py", "from pathlib import Path\n__path__.append(str(Path('beside')))\n")
    put(folder / "beside" / "shown.py", NET)
    assert imported("also.shown:Net", MODEL, Trust(("also",)))


def test_what_is_imported_already(folder: Path) -> None:
    put(folder / "known_nets.py", NET)
    importlib.import_module("known_nets")
    assert "was not imported" in refusal("known_nets:Net").found
    assert imported("known_nets:Net", MODEL, Trust(("known_nets",)))
    sys.modules["known_alias"] = os
    sys.modules["known_made"] = types.ModuleType("known_made")
    assert "the standard library's" in refusal("known_alias:system", "known_alias").found
    assert "in no file" in refusal("known_made:x", "known_made").found


@pytest.mark.parametrize(
    "path",
    [
        *(
            ":Net",
            "nets:",
            "nets:a:b",
            ".nets:Net",
            "nets..x:Net",
            "nets:Net.make",
            "na mes:Net",
            "nets:Net()",
            "a-b:c",
        ),
        *("nowhere_at_all:Net", "own_nothing:Net", "own_plain.more:Net", "own_empty:Net", "own_empty.nets:Net", "\0:x"),
    ],
)
def test_what_is_not_there_is_said_without_importing(folder: Path, path: str) -> None:
    put(folder / "own_plain.py")
    (folder / "own_empty").mkdir()
    for trust in (None, NOBODY, Trust(("own_plain", "own_empty"))):
        with pytest.raises(UserError, match="could not be imported"):
            imported(path, MODEL, trust)
    assert not markers(folder)


@pytest.mark.parametrize("text", ["1/0", "def (", "import nowhere_at_all", "raise OSError(2, 'x')"])
def test_what_a_module_raises_is_said(folder: Path, text: str) -> None:
    put(folder / "own_broken.py", text)
    assert "could not be imported" in refusal("own_broken:Net", "own_broken").found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("system", "is a builtin_function_or_method"),
        ("getoutput", "is defined in subprocess, which is the standard library's"),
        ("Linear", "is defined in torch.nn.modules.linear, which is an installed package's"),
        ("partial", "is a partial"),
        ("called", "is a Callable"),
        ("bound", "is a method"),
        ("cached", "is a _lru_cache_wrapper"),
        ("number", "is a int"),
        ("nn", "is a module"),
        ("Plain", "is a class that is no nn.Module"),
        ("Path", "is a class that is no nn.Module"),
        ("absent", "unknown model 'absent'"),
    ],
)
def test_what_is_not_defined_there_or_makes_no_model(folder: Path, name: str, found: str) -> None:
    put(folder / f"{MODULE}.py", OWN)
    refused = refusal(f"{MODULE}:{name}", MODULE)
    assert found in refused.found
    assert "system" not in refused.expected


@pytest.mark.parametrize("name", ["Net", "make", "made"])
def test_a_class_a_function_and_a_decorated_one(folder: Path, name: str) -> None:
    put(folder / f"{MODULE}.py", OWN)
    assert isinstance(find(f"{MODULE}:{name}", Trust((MODULE,)))(outputs=3), nn.Module)
    assert isinstance(build(f"{MODULE}:{name}", (64,), 3), nn.Module)


def test_what_hides_anothers_function_behind_a_decorator(folder: Path) -> None:
    put(folder / "wrapping.py", "import functools, subprocess\n"
        "@functools.wraps(subprocess.getoutput)\ndef run(*given, **named): ...\n"
        "def other(): ...\nother.__wrapped__ = subprocess.getoutput\n")  # fmt: skip
    assert "is defined in subprocess" in refusal("wrapping:run", "wrapping").found
    assert "is defined in subprocess" in refusal("wrapping:other", "wrapping").found


def test_a_name_that_a_package_passes_on_is_ones_own(folder: Path) -> None:
    put(folder / "passing" / "__init__.py", "from passing.nets import Net\nfrom beside_it import Net as Other\n")
    put(folder / "passing" / "nets.py", NET)
    put(folder / "beside_it.py", NET)
    for name in ("Net", "Other"):
        assert imported(f"passing:{name}", MODEL, Trust(("passing",)))


def test_in_python_a_path_is_consent_for_what_is_ones_own(folder: Path) -> None:
    put(folder / f"{MODULE}.py", OWN)
    assert isinstance(build(f"{MODULE}:Net", (64,), 3, width=2), nn.Module)
    with pytest.raises(UserError, match="the standard library's"):
        build("os:system", (64,), 3, command="true")
    with pytest.raises(UserError, match="give the model itself and not its path"):
        build("torch.nn:Identity", (64,), 3)


def test_of_other_things_than_models_any_class_of_ones_own(folder: Path) -> None:
    put(folder / f"{MODULE}.py", OWN)
    wanted = Wanted(what="mod")
    assert imported(f"{MODULE}:Plain", wanted, None).__name__ == "Plain"
    with pytest.raises(UserError, match="is a builtin_function_or_method") as refused:
        imported(f"{MODULE}:system", wanted, None)
    assert refused.value.expected == "a class, or a function, of a module of your own"


def test_the_rule_is_all_that_imports_what_a_text_names() -> None:
    """`import_module` stands nowhere else, but for modules of polyrhythm's own by names that are its own."""
    source = Path(consent.__file__).parents[1]
    users = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "import_module(" in (text := path.read_text()) and text.count("import_module(") > text.count('("polyrhythm.')
    }
    of_ours = {"studies/studying.py", "trackers/base.py"}  # f"polyrhythm.{name}"
    of_constants = {
        "methods/privacy/accounting.py": ("scipy.optimize", "scipy.special", "dp_accounting", "dp_accounting.{name}"),
        "methods/privacy/refuting.py": ("scipy.stats", "scipy.special"),
    }
    pretrained = "models/pretrained.py"
    assert users == {"base/consent.py", *of_ours, *of_constants, pretrained}
    called = re.findall(r"_library\((.*?)\)", (source / pretrained).read_text())
    assert {*called} == {'"transformers"', '"peft"', "name: str"}
    for place, allowed in of_constants.items():
        for call in (source / place).read_text().split("import_module(")[1:]:
            assert call.lstrip("f").split('"')[1] in allowed, place
    for place in of_ours:
        for call in (source / place).read_text().split("import_module(")[1:]:
            assert call.startswith('f"polyrhythm.'), place
