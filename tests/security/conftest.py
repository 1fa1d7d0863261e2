"""The command line, as its own tests have it."""

from cli.conftest import polyrhythm

__all__ = ["polyrhythm"]
