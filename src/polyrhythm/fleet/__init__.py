"""The fleet: everything about the clients that a method does not control."""

from polyrhythm.fleet.arrivals import ArrivalTrace, Every, Poisson
from polyrhythm.fleet.availability import Always
from polyrhythm.fleet.bandwidth import BandwidthTrace
from polyrhythm.fleet.behaviour import AvailabilityTrace
from polyrhythm.fleet.capacity import DeviceTrace
from polyrhythm.fleet.costs import Load, Spent
from polyrhythm.fleet.devices import Tiers, Uniform
from polyrhythm.fleet.energy import Energy
from polyrhythm.fleet.faults import Faults
from polyrhythm.fleet.fleet import Fleet
from polyrhythm.fleet.links import FixedLinks, LognormalLinks, UserSpeeds
from polyrhythm.fleet.listed import ListedDevices
from polyrhythm.fleet.markov import ByLabels, Markov
from polyrhythm.fleet.parts import Arrivals, Availability, Device, Devices, Links, Place
from polyrhythm.fleet.periodic import Periodic
from polyrhythm.fleet.sources import phones, trace
from polyrhythm.fleet.speeds import Exponential, HalfNormal, Lognormal, Zipf
from polyrhythm.fleet.state import FleetState, Remembered, VisitOutcome

__all__ = [
    "Always",
    "ArrivalTrace",
    "Arrivals",
    "Availability",
    "AvailabilityTrace",
    "BandwidthTrace",
    "ByLabels",
    "Device",
    "DeviceTrace",
    "Devices",
    "Energy",
    "Every",
    "Exponential",
    "Faults",
    "FixedLinks",
    "Fleet",
    "FleetState",
    "HalfNormal",
    "Links",
    "ListedDevices",
    "Load",
    "Lognormal",
    "LognormalLinks",
    "Markov",
    "Periodic",
    "Place",
    "Poisson",
    "Remembered",
    "Spent",
    "Tiers",
    "Uniform",
    "UserSpeeds",
    "VisitOutcome",
    "Zipf",
    "phones",
    "trace",
]
