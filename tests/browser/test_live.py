"""A run that goes on, as its page shows it: who is at work, a log that follows, what it asks of the machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import until
from polyrhythm.results import Run
from polyrhythm.runs.stop_request import ask_to_stop

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
pytest.importorskip("uvicorn", reason="polyrhythm[ui] is not installed")

LONG = """
import sys
sys.path.insert(0, sys.argv[1])
import time
import polyrhythm as pr
import small
slow = small.Log(lambda record: time.sleep(0.05))
pr.run(small.experiment(rounds=4000, name="<b>long</b>"), out=sys.argv[2], observers=[slow])
"""


@pytest.fixture
def going(tmp_path: Path) -> Iterator[tuple[str, Run]]:
    """The page of a run that goes on, and the run."""
    training = subprocess.Popen([sys.executable, "-c", LONG, str(Path(__file__).parents[1]), str(tmp_path)])
    command = [sys.executable, "-m", "polyrhythm", "ui", str(tmp_path), "--port", "0"]
    dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert dashboard.stdout is not None
    address = next(found[0] for line in dashboard.stdout if (found := re.search(r"http://\S+", line)))
    while not (tmp_path / "runs.sqlite").exists() or not Run.all(tmp_path):
        assert training.poll() is None
    (run,) = Run.all(tmp_path)
    yield f"{address}run?run={run.id}", run
    for process in (training, dashboard):
        process.terminate()
        process.wait(120)
    assert dashboard.returncode in (0, -15)
    assert "Traceback" not in dashboard.stdout.read()
    dashboard.stdout.close()


def test_a_run_that_goes_on_says_who_is_at_work_and_keeps_a_log(going: tuple[str, Run], page: Any) -> None:
    address, run = going
    page.goto(address)
    page.locator(".at-work li").nth(1).wait_for()
    assert page.get_by_text(re.compile(r"^2 clients are at work")).count() == 1
    log = page.locator("pre.log")
    assert "start    <b>long</b>: fedavg on blobs, 4 clients" in log.inner_text()
    assert page.locator("pre.log b").count() == 0
    first = log.inner_text()
    until(page, lambda: log.inner_text().count("version") > first.count("version"), lambda: first)
    assert log.inner_text().startswith(first)
    until(page, lambda: page.locator(".load svg.spark").count() == 2, page.locator(".load").inner_text)
    page.get_by_label("Follow").uncheck()
    ask_to_stop(run)
    page.locator("h1 ~ .state.stopped").wait_for()
    log.get_by_text("end      stopped: asked to stop").wait_for()
    assert page.locator(".at-work").is_hidden()
