"""Every snippet of the documentation is true: Python runs, and command lines are ones that the program takes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if p.exists()]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the number of its first line of text (from 1), and the text."""

    language: str
    line: int
    text: str


def blocks(markdown: str) -> Iterator[Block]:
    for match in re.finditer(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", markdown, flags=re.MULTILINE | re.DOTALL):
        indent, language, text = match.groups()
        line = markdown.count("\n", 0, match.start(3)) + 1
        yield Block(language, line, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `polyrhythm …` line; in a console block, only of lines after a prompt."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            del words[0]
        if words and words[0] == "polyrhythm":
            ends = [i for i, word in enumerate(words) if word in {"|", ">", "&&", ";"}]
            yield words[1 : ends[0] if ends else None]


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


COMMANDS = [
    pytest.param(arguments, id=f"{page_id(page)}:{block.line}:{' '.join(arguments)}")
    for page in PAGES
    for block in blocks(page.read_text())
    if block.language in {"console", "sh", "bash"}
    for arguments in commands(block)
]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of one page run in order, as one program, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "snippet"}
    for block in blocks(page.read_text()):
        if block.language == "python":
            # Blank lines in front, so that a traceback points into the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), names)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_command_line_is_taken(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --help at its end a command line is parsed, so an unknown command or option fails, but nothing runs."""
    from polyrhythm.cli import main

    monkeypatch.setattr(sys, "argv", ["polyrhythm", *arguments, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None), capsys.readouterr().err


def test_blocks_and_commands_are_found() -> None:
    page = (
        "text\n```python\nx = 1\n```\n1. item\n   ```console\n   $ A=1 polyrhythm run --rounds 3 \\\n"
        '       --method "fedavg(cohort=2)" | tee log\n   polyrhythm is not a command here\n   ```\n'
    )
    python, console = blocks(page)
    assert (python.language, python.line, python.text) == ("python", 3, "x = 1\n")
    assert list(commands(console)) == [["run", "--rounds", "3", "--method", "fedavg(cohort=2)"]]
