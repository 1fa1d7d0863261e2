"""What all tests share: one thread each, and Hypothesis without a clock."""

from __future__ import annotations

import os
from pathlib import Path

# Before torch is imported. Several test processes share the cores, and a client's work has one thread anyway.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Tests that start another Python test this checkout there too.
SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")
