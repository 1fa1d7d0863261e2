"""Runs to look at, and a dashboard that is asked without a network."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import small
from polyrhythm.experiments import run

pytest.importorskip("starlette", reason="polyrhythm[ui] is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from polyrhythm.dashboard.application import application  # noqa: E402


class Asking:
    """Asks an application, one request after the other, and keeps its cookies."""

    def __init__(self, app: Any, address: str) -> None:
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=address)
        self._runner = asyncio.Runner()
        self.cookies = self._client.cookies

    def get(self, path: str, **about: Any) -> Any:
        return self._runner.run(self._client.get(path, **about))

    def post(self, path: str, **about: Any) -> Any:
        return self._runner.run(self._client.post(path, **about))

    def close(self) -> None:
        self._runner.close()


Client = Callable[..., Asking]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs of three versions."""
    folder = tmp_path_factory.mktemp("recorded")
    for seed in (0, 1):
        run.run(small.experiment(seed=seed, name=f"trial {seed}"), out=folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return shutil.copytree(recorded, tmp_path / "runs")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    """Makes a client of the folder's dashboard, or of another's."""
    made: list[Asking] = []

    def make(at: Path = folder, *, host: str = "127.0.0.1:8642", **options: Any) -> Asking:
        made.append(Asking(application(at, closing=lambda: True, **options), f"http://{host}"))
        return made[-1]

    yield make
    for asking in made:
        asking.close()
