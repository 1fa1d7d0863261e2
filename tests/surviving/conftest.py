"""One killing ground for all tests that kill runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .killing import Ground


@pytest.fixture(scope="session")
def killing() -> Iterator[Ground]:
    place = Ground()
    yield place
    place.close()
