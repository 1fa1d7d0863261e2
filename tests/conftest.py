"""What all tests share: one thread each, kept bytecode, and Hypothesis without a clock."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

# Before torch is imported. Several test processes share the cores, and a client's work has one thread anyway.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Tests that start another Python test this checkout there too.
SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])

# Else every worker rewrites the assertions of all test files anew, and each process that a test starts compiles the
# package: minutes together.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A test file that cannot be imported is an error.

    `--doctest-ignore-import-errors`, which is there for modules of libraries that are not installed, would leave it out
    without a word: what it has imported half of is then taken for the whole file.
    """
    report = yield
    of_tests = getattr(collector, "path", Path()).name.startswith("test_")
    if of_tests and report.outcome == "skipped" and "unable to import" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = str(report.longrepr)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Files of tests have no doctests, and looking for them means to read each once more, in every process."""
    found = yield
    return [collector for collector in found if type(collector).__name__ != "DoctestModule"]


LONG = frozenset((Path(__file__).parent / "long.txt").read_text(encoding="utf-8").splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long is marked before those that are asked for are chosen."""
    for item in items:
        if item.nodeid.removeprefix("tests/") in LONG:
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """What is there now stays: collections of garbage, and processes that are forked, leave it alone."""
    gc.collect()
    gc.freeze()
