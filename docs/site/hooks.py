"""Pages of the site that lie outside docs/: what stands at the root, examples, notebooks. `mkdocs.yml` names this file.

Links are written so that they are right in the repository; those that leave docs/ are turned here to the site's pages.
"""

from __future__ import annotations

import ast
import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

import nbconvert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.toml")])
NOTEBOOKS = sorted(ROOT.glob("examples/notebooks/*.ipynb")) + sorted(ROOT.glob("examples/*.ipynb"))

# Where the site has what lies outside docs/, by its path in the repository.
PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "RELEASING.md": "RELEASING.md",
    "SECURITY.md": "SECURITY.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "CITATION.cff": "CITATION.md",
    "tests/pitfalls/index.md": "pitfalls.md",
    "examples": "examples/index.md",
    "examples/notebooks": "examples/index.md",
    **{path.relative_to(ROOT).as_posix(): f"examples/{path.stem}.md" for path in PROGRAMS},
    **{path.relative_to(ROOT).as_posix(): f"notebooks/{path.stem}.md" for path in NOTEBOOKS},
}
ORIGINS = {place: path for path, place in PLACES.items() if path not in ("README.md", "examples", "examples/notebooks")}

_LINK = re.compile(r"(?<=\]\()([^\s)>#]+)(#[^\s)]*)?(?=[\s)])")
_CODE = re.compile(r"(^ *(?:```|~~~).*?^ *(?:```|~~~) *$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
# In code in a table a bar is escaped for repositories; here it is not a cell's end in any case.
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_SPAN = re.compile(r"`[^`\n]+`")
_log = logging.getLogger("mkdocs.hooks.polyrhythm")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the navigation with what lies in examples/, and gives headings the anchors that repositories give them."""
    for section in config.nav or ():
        if "Examples" in section:
            section["Examples"] = [
                "examples/index.md",
                {"Notebooks": [{_heading(path): _place(path)} for path in NOTEBOOKS]},
                {"Programs": [{path.name: _place(path)} for path in PROGRAMS]},
            ]
    if repository := os.environ.get("REPO_URL"):
        # A plain link; `repo_url` would have every reader's browser ask the repository's host for its stars.
        config.extra["social"] = [{"icon": "material/source-repository", "link": repository, "name": "Repository"}]
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def anchor(heading: str, separator: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that docs/ does not hold."""

    def add(place: str, content: str | bytes) -> None:
        files.append(File.generated(config, place, content=content, inclusion=InclusionLevel.INCLUDED))

    for origin, place in PLACES.items():
        if origin.endswith(".md") and origin != "README.md":
            add(place, (ROOT / origin).read_text(encoding="utf-8"))
    for path in PROGRAMS:
        add(_place(path), f"# {path.name}\n\n{_about(path)}\n\n{_listing(path)}")
    for path in NOTEBOOKS:
        text, outputs = _notebook(path)
        add(_place(path), text)
        for name, content in outputs.items():
            add(f"notebooks/{name}", content)
    add("examples/index.md", _examples())
    add(
        "CITATION.md",
        f"# Citing\n\nIn the form that repositories and reference managers read:\n\n{_listing(ROOT / 'CITATION.cff')}",
    )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links that leave docs/ to the site's pages of their targets, and frees bars in code in tables."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation"]  # which has one entry there
    origin = ORIGINS.get(here, f"docs/{here}")

    def turned(found: re.Match[str]) -> str:
        target, rest = found.group(1), found.group(2) or ""
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if re.match(r"[a-z]+:|/", target) or files.get_file_from_path(there):
            return found.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if path not in PLACES and not path.startswith("docs/"):
            _log.warning("%s leads to %s, of which the site has no page", origin, path)
        place = PLACES.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + rest

    markdown = _ROW.sub(lambda row: _SPAN.sub(lambda span: span.group().replace("\\|", "|"), row.group()), markdown)
    parts = _CODE.split(markdown)
    return "".join(part if i % 2 else _LINK.sub(turned, part) for i, part in enumerate(parts))


def _place(path: Path) -> str:
    return PLACES[path.relative_to(ROOT).as_posix()]


def _listing(path: Path) -> str:
    language = {".py": "python", ".toml": "toml", ".cff": "yaml"}[path.suffix]
    text = path.read_text(encoding="utf-8")
    return f'```{language} title="{path.relative_to(ROOT).as_posix()}"\n{text}```\n'


def _about(path: Path) -> str:
    """The first paragraph of what a program says of itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return text.partition("\n")[0].lstrip("# ")


def _heading(notebook: Path) -> str:
    found = re.search(r'"# ([^"\\]+)', notebook.read_text(encoding="utf-8"))
    return found.group(1) if found else notebook.stem


def _notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as it was saved, nothing is run: its text, and the pictures among its outputs by name."""
    exporter: Any = nbconvert.MarkdownExporter()
    text, resources = exporter.from_filename(str(path))
    outputs = {f"{path.stem}_{name}": content for name, content in resources["outputs"].items()}
    # Tables of pandas are the site's tables, which scroll on a narrow screen.
    text = re.sub(r"<style scoped>.*?</style>\n", "", text, flags=re.DOTALL)
    text = text.replace('<table border="1" class="dataframe">', "<table>")
    for name in resources["outputs"]:
        text = text.replace(f"]({name})", f"]({path.stem}_{name})")
    return text, outputs


def _examples() -> str:
    notebooks = [f"- [{_heading(path)}](../{_place(path)})" for path in NOTEBOOKS]
    programs = [f"- [{path.name}]({path.stem}.md): {_about(path)}" for path in PROGRAMS]
    head = ["# Examples", "", "Each is whole, and runs as it stands from a checkout.", ""]
    return "\n".join([*head, "## Notebooks", "", *notebooks, "", "## Programs", "", *programs, ""])
