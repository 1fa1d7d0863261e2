"""The fleet: everything about the clients that a method does not control."""

from polyrhythm.fleet.availability import Always
from polyrhythm.fleet.costs import Load, Spent
from polyrhythm.fleet.devices import Tiers, Uniform
from polyrhythm.fleet.energy import Energy
from polyrhythm.fleet.faults import Faults
from polyrhythm.fleet.fleet import Fleet
from polyrhythm.fleet.links import FixedLinks
from polyrhythm.fleet.parts import Arrivals, Availability, Device, Devices, Links, Place
from polyrhythm.fleet.world import Fate, World

__all__ = [
    "Always",
    "Arrivals",
    "Availability",
    "Device",
    "Devices",
    "Energy",
    "Fate",
    "Faults",
    "FixedLinks",
    "Fleet",
    "Links",
    "Load",
    "Place",
    "Spent",
    "Tiers",
    "Uniform",
    "World",
]
