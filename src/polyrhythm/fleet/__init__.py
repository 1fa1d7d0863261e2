"""The world that a federation does not control: how fast its devices are and when they are there."""

from polyrhythm.fleet.fleet import Fleet, UniformFleet

__all__ = ["Fleet", "UniformFleet"]
