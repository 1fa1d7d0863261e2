"""A browser for tests of pages; where there is none they are skipped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
PATIENCE = 120
"""Seconds that a page may take to get somewhere: the machine may be busy, and a test that holds never waits so long."""


def until(page: Any, holds: Callable[[], bool], what: Callable[[], object]) -> None:
    """Waits until something holds of a page, and fails with words where it never does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            pytest.fail(str(what()))
        page.wait_for_timeout(100)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; for this folder, since Playwright keeps an event loop running meanwhile."""
    sync = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page; what it complains of in its console fails the test."""
    context = browser.new_context(viewport=WIDE)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []
