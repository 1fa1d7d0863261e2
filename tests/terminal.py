"""The command line, run in this process, and what it leaves behind."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from polyrhythm.cli import main


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def polyrhythm(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `polyrhythm` with arguments; standard output and error are plain text files of 80 columns."""

    def call(*arguments: str, encoding: str = "utf-8", columns: int = 80) -> Result:
        monkeypatch.setattr(sys, "argv", ["polyrhythm", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        files = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2)]
        with contextlib.redirect_stdout(files[0]), contextlib.redirect_stderr(files[1]):
            try:
                main()
                code: object = 0
            except SystemExit as end:
                code = end.code
        texts = [file.buffer.getvalue().decode(encoding) for file in files]
        return Result(code if isinstance(code, int) else int(code is not None), *texts)

    return call
