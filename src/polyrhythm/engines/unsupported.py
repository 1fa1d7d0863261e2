"""Why an engine does not take some work."""

from __future__ import annotations

from typing import final


class Unsupported(Exception):
    """A module, a task, data or a recipe that an engine cannot run."""


@final
class Unlike(Unsupported):
    """A module that looks like what an engine runs, and computes something else."""


@final
class NotBuilt(Unsupported):
    """An engine that is not there, since the package was installed without it."""
