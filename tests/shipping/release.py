"""Whether everything that names a version names the same one, before a release is made of it.

    python tests/shipping/release.py v0.1.0     # the tag; without one, all but the tag and the dates

The version stands in pyproject.toml, CITATION.cff and the package, and the changelog's first heading is that of the
release, with its date. Exits with 1 and a line for each disagreement.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def disagreements(root: Path, tag: str = "") -> list[str]:
    """What does not name the version of pyproject.toml, in words.

    Args:
        root: of the project.
        tag: that the release is made from; "" before there is one, when the changelog may still say "unreleased".
    """
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    package = (root / "src" / "polyrhythm" / "__init__.py").read_text(encoding="utf-8")
    stated = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    heading = re.search(r"^## (\S+) — (.+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {
        "CITATION.cff": cited and cited[1],
        "src/polyrhythm/__init__.py": stated and stated[1],
        "the first heading of CHANGELOG.md": heading and heading[1],
    }
    if tag:
        named["the tag"] = tag.removeprefix("v") if tag.startswith("v") else f"{tag}, without its v"
    wrong = [
        f"{where} says {said or 'nothing'}, pyproject.toml {version}"
        for where, said in named.items()
        if said != version
    ]
    if tag and heading and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        wrong.append(f"CHANGELOG.md has {heading[2]!r} where the date of the release belongs, as 2026-01-31")
    return wrong


if __name__ == "__main__":
    found = disagreements(ROOT, *sys.argv[1:2])
    print(*found, sep="\n")
    sys.exit(bool(found))
