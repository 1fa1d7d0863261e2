"""What the documentation site is made of, without building it: `make docs` does that, and follows every link."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import polyrhythm as pr
from scripts import script

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
API = {
    page: re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE) for page in DOCS.glob("api/*.md")
}


@pytest.fixture(scope="module")
def navigation() -> list[str]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

    class Loader(yaml.SafeLoader):
        """Takes the second of `!ENV [NAME, default]`."""

    Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[1])
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    return list(_pages(configuration["nav"]))


def _pages(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _pages(entry)


def test_every_page_is_in_the_navigation_once(navigation: list[str]) -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert pages - set(navigation) == set()
    assert len(navigation) == len(set(navigation))


def test_every_public_name_is_on_a_page() -> None:
    """Those that text can name are in the reference, and the others among the pages of Python."""
    from polyrhythm.config import names

    modules = {"data", "extend", "fleet", "models", "parts", "studies"}
    shown = {name.rpartition(".")[2] for of_page in API.values() for name in of_page}
    assert set(pr.__all__) - modules - set(names.RECIPES) - shown == set()
    assert set(pr.extend.__all__) - {n.rpartition(".")[2] for n in API[DOCS / "api/extend.md"]} == {
        "Recipe",
        "UserError",
    }


@pytest.mark.parametrize("page", sorted(API), ids=lambda page: page.stem)
def test_every_name_on_a_page_of_python_exists(page: Path) -> None:
    for name in API[page]:
        if not name.startswith("polyrhythm.deployment.on_flower"):  # which imports flwr
            assert _found(name) is not None


def _found(name: str) -> object:
    """What a dotted name leads to; the longest module of it first, as functions and modules share names."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    return script("docs/site/check_links.py")


def test_links_of_a_built_site_are_followed(
    checker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.html").write_text(
        '<h2 id="one">One</h2><a href="#one">a</a><a href="b/index.html#two">b</a><a href="b/">c</a>'
        '<a href="https://example.org/x#y">d</a><a href="mailto:a@example.org">e</a>'
        '<img src="data:image/png;base64,AA">'
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<a name="two"></a><a href="../a.html">a</a><a href="/a.html">a</a>')
    assert checker.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "2 pages, 7 links within the site, 1 to others: 0 broken\n"


def test_a_site_may_lie_in_a_folder_of_its_host(
    checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "404.html").write_text('<a href="/polyrhythm/404.html">a</a>')
    assert checker.main([str(tmp_path)]) == 1
    monkeypatch.setenv("SITE_URL", "https://example.org/polyrhythm/")
    assert checker.main([str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ('<a href="c.html">', "there is no such file"),
        ('<a href="#two">', "the page has no such anchor"),
        ('<a href="b.html#two">', "the page has no such anchor"),
        ('<a href="http:///x">', "is no address"),
        ('<a href="javascript:alert(1)">', "is no address"),
        ('<script src="https://cdn.example.org/x.js">', "is loaded from elsewhere"),
        ('<link rel="stylesheet" href="//fonts.example.org/x.css">', "is loaded from elsewhere"),
        ('<img src="x.png">', "there is no such file"),
    ],
)
def test_what_is_broken_is_named(
    checker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str, wrong: str
) -> None:
    (tmp_path / "a.html").write_text(f'<p id="one">{link}</p>')
    (tmp_path / "b.html").write_text("<p>nothing</p>")
    assert checker.main([str(tmp_path)]) == 1
    assert wrong in capsys.readouterr().out


def test_a_site_that_was_not_built_is_said(checker: ModuleType, tmp_path: Path) -> None:
    assert checker.main([str(tmp_path)]) == 1
