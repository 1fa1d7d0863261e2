"""Exit codes: whose fault it was."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.cli.guard import guarded, stopped_by_sigterm


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return guarded(command)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("a", expected="b", why="c", fix="d"), 2, "error: a\n  expected: b\n  because:  c\n  do:       d\n"),
        (RunFailed("it diverged"), 1, "failed: it diverged\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_each_end_has_its_words_and_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        raising(error)()
    assert (ended.value.exit_code, capsys.readouterr().err) == (code, said)


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(errno.EACCES, "Permission denied")])
def test_what_nobody_foresaw_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        raising(error)()
    assert caught.value is error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_said_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from polyrhythm.cli import main; main()", "partitions"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot be written" in done.stderr


def test_sigterm_stops_a_block_and_only_that() -> None:
    before = signal.getsignal(signal.SIGTERM)

    @stopped_by_sigterm()
    def block() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        block()
    assert signal.getsignal(signal.SIGTERM) is before
