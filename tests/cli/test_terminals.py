"""Every kind of terminal, and none: narrow, dumb, in ASCII, a pipe, closed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner

import polyrhythm as pr
from polyrhythm.cli.app import app
from polyrhythm.cli.encoding import open_what_is_closed
from polyrhythm.cli.output import Screen
from small import experiment
from terminal import Command


def pages(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inside = getattr(command, "commands", {})
    return [path, *(page for name in inside for page in pages(inside[name], (*path, name)))]


def test_every_help_page_is_readable_and_has_a_short_option(capsys: pytest.CaptureFixture[str]) -> None:
    command = typer.main.get_command(app)
    odd = ["[/", "<bound", "typing.", "None", "\\["]
    for path in pages(command):
        texts = []
        for option in ("--help", "-h"):
            command.main([*path, option], prog_name="polyrhythm", standalone_mode=False)
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1], path
        assert "-h, --help" in texts[0], path
        assert not [part for part in odd if part in texts[0]], path


def test_brackets_that_typer_escapes_are_plain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the version does that Flower pins, for a reader that plain text has not."""
    plain = typer.core.TyperOption.get_help_record

    def escaped(self: Any, ctx: Any) -> Any:
        found = plain(self, ctx)
        already = found and "\\[default" in found[1]
        return found if not found or already else (found[0], found[1].replace("[default", "\\[default"))

    monkeypatch.setattr(typer.core.TyperOption, "get_help_record", escaped)
    command = typer.main.get_command(app)
    for path in (["compare"], ["flower", "up"]):
        command.main([*path, "--help"], prog_name="polyrhythm", standalone_mode=False)
        told = capsys.readouterr().out
        assert ("[default" in told, "\\[" in told) == (True, False)


def test_completion_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in told
    assert "--show-completion" in told
    monkeypatch.setenv("_POLYRHYTHM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "polyrhythm run --partit")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert "--partition" in CliRunner().invoke(app, [], prog_name="polyrhythm").output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("runs")
    pr.run(experiment(name="scaffold-of-the-night"), out=out)
    return str(out)


@pytest.mark.parametrize(
    "command",
    ["runs", "show", "compare", "compare --to 0.1", "plot", "fleet show", "data show", "methods"],
)
def test_forty_columns_of_ascii_are_enough(polyrhythm: Command, folder: str, command: str) -> None:
    out = ("--out", folder) if command.split()[0] in ("runs", "show", "compare", "plot") else ()
    found = polyrhythm(*command.split(), *out, encoding="ascii", columns=40)
    assert found.code == 0, found.err
    assert max(len(line.rstrip()) for line in found.out.splitlines()) <= 40
    if command in ("runs", "compare", "show"):
        assert "scaffold-of-the-night" in found.out


def test_a_table_in_a_pipe_is_as_wide_as_it_is(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    screen, table = Screen(file=io.StringIO()), Table("a", "b")
    table.add_row("some words that stand in one line, as everything in a pipe", "x" * 70)
    screen.print_table(table)
    assert isinstance(screen.file, io.StringIO)
    (line,) = (line for line in screen.file.getvalue().splitlines() if "some" in line)
    assert "in a pipe" in line
    assert "x" * 70 in line
    assert screen.width < 130


@pytest.mark.parametrize("width", [10, 30, 80])
def test_a_table_that_does_not_fit_becomes_lines(width: int) -> None:
    screen = Screen(file=io.StringIO(), force_terminal=True, width=width, no_color=True)
    table = Table("method")
    table.add_column("accuracy", justify="right")
    table.add_row("fedavg [x]", "0.8333")
    screen.print_table(table)
    assert isinstance(screen.file, io.StringIO)
    said = screen.file.getvalue()
    assert "0.8333" in said
    assert ("method: " in said) == (width < 25)


def test_streams_that_are_closed_lead_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    open_what_is_closed()
    opened = (sys.stdin, sys.stdout, sys.stderr)
    assert sys.stdin.read() == ""
    assert sys.stdout.write("±") == sys.stderr.write("±") == 1
    for stream in opened:
        stream.close()
