"""What the page on security says of settings and of the source, where no other test of a part of it looks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from polyrhythm.cli.app import app
from security.test_sources import ALLOWED, MAY_READ_THE_ENVIRONMENT, ROOT, SOURCE

PAGE = (ROOT / "docs" / "security.md").read_text()
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def test_the_hub_is_asked_for_from_the_version_on_that_runs_no_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (line,) = [r for r in project["project"]["optional-dependencies"]["hub"] if r.startswith("datasets")]
    assert int(re.findall(r">=(\d+)", line)[0]) >= 4


def test_the_page_counts_what_the_static_test_allows() -> None:
    assert f"It allows {NUMBERS[len(ALLOWED)]} places" in PAGE


def test_the_page_names_every_variable_of_the_environment() -> None:
    """Those of Ray and MLflow by their number."""
    files = [SOURCE / name for name in MAY_READ_THE_ENVIRONMENT if not name.startswith("deployment")]
    words = {word for file in files for word in re.findall(r'"([A-Z]+_[A-Z_]+|COLUMNS)"', file.read_text())}
    set_for_others = {word for word in words if re.match("RAY_|MLFLOW_HTTP_", word)}
    assert len(set_for_others) == 4
    for word in words - set_for_others:
        assert f"`{word}`" in PAGE, word


@pytest.mark.parametrize(
    ("host", "control", "asks"),
    [("127.0.0.1", False, False), ("127.0.0.1", True, True), ("0.0.0.0", False, True), ("::1", False, False)],
)
def test_the_dashboard_asks_for_a_token_where_it_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, control: bool, asks: bool
) -> None:
    """The token has 256 bits, is another one each time, and no request is logged, since one has it in its address."""
    from polyrhythm.dashboard import serving

    made, told = list[dict[str, Any]](), list[str]()

    class Server:
        should_exit = False

        def __init__(self, config: Any, ready: Any) -> None:
            self.ready = ready

        def run(self) -> None:
            self.ready(8642)

    monkeypatch.setattr(serving, "_Server", Server)
    monkeypatch.setattr(serving.uvicorn, "Config", lambda of, **options: made.append(options))
    for _ in range(2):
        serving.serve(tmp_path, host=host, port=0, control=control, told=told.append)
    tokens = [re.findall(r"\?token=([\w-]+)$", address) for address in told]
    assert all(len(found) == asks for found in tokens)
    if asks:
        assert all(len(token) >= 256 / 6 for (token,) in tokens)  # 6 bits a letter
        assert tokens[0] != tokens[1]
    assert [(options["access_log"], options["host"]) for options in made] == [(False, host)] * 2


def test_the_dashboard_listens_on_loopback_unless_told_otherwise() -> None:
    command: Any = typer.main.get_command(app)
    defaults = {option.name: option.default for option in command.commands["ui"].params}
    assert (defaults["host"], defaults["control"]) == ("127.0.0.1", False)


def test_the_token_is_compared_in_constant_time() -> None:
    """Nowhere else than by the one function that is made for it."""
    source = (SOURCE / "dashboard" / "access.py").read_text()
    compared = re.findall(r"^.*self\._token.*$", source, re.MULTILINE)
    assert [line for line in compared if "secrets.compare_digest(" in line]
    assert not [line for line in compared if re.search(r"self\._token\s*(==|!=|in\b)|(==|!=)\s*self\._token", line)]
