"""What all tests share: one thread each, and Hypothesis without a clock."""

from __future__ import annotations

import os

# Before torch is imported. Several test processes share the cores, and a client's work has one thread anyway.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")
