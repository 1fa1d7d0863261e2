"""A fleet: the devices, their links, when they are there, what goes wrong, and what they can afford."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base import html
from polyrhythm.base.errors import UserError, in_short, not_called
from polyrhythm.base.settings import Settings
from polyrhythm.fleet.availability import Always
from polyrhythm.fleet.devices import Uniform
from polyrhythm.fleet.energy import Energy
from polyrhythm.fleet.faults import Faults
from polyrhythm.fleet.links import FixedLinks
from polyrhythm.fleet.parts import Arrivals, Availability, Devices, Links
from polyrhythm.methods.work.budgets import Budgets


@final
@dataclass(frozen=True, kw_only=True)
class Fleet(Settings):
    """What a method does not control. Parts are piped on: `Fleet(devices=Tiers()) | Faults(dropout=0.1)`.

    Deterministic: the same visit always takes the same time, and who is there when depends on the seed alone.

    Args:
        devices: how fast each is.
        links: how fast clients receive and send.
        availability: when clients are there.
        faults: what goes wrong.
        energy: what work costs in energy, and batteries.
        arrivals: clients that come by themselves, for recipes whose server invites nobody.
        budgets: the share of its visits in which each client can afford to train, for recipes that skip; None where
            the fleet says nothing about it.
    """

    devices: Devices = Uniform()
    links: Links = FixedLinks()
    availability: Availability = Always()
    faults: Faults = Faults()
    energy: Energy = Energy()
    arrivals: Arrivals | None = None
    budgets: Budgets | None = None

    @property
    def everybody_is_there(self) -> bool:
        """Whether nobody is ever away."""
        return self.availability.always and not self.faults.crash and self.energy.battery is None

    @property
    def steady(self) -> bool:
        """Whether nobody is ever away, and nothing goes wrong."""
        return self.everybody_is_there and self.faults == Faults()

    @property
    def in_words(self) -> str:
        """Its parts as one writes them, without those and the settings that are at their defaults."""
        given = ((f.default, getattr(self, f.name)) for f in dataclasses.fields(self))
        told = ", ".join(part.text() for default, part in given if part is not None and part != default)
        return told or "everybody alike, and always there"

    def __repr__(self) -> str:
        return f"<Fleet: {self.in_words}>"

    def _repr_html_(self) -> str:
        parts = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        lines = {name: part.text(every=True) for name, part in parts if part is not None}
        return html.framed(html.facts("fleet", lines))

    def __or__(self, part: object) -> Fleet:
        """This fleet with another part in place of its own of that kind, or of both kinds, as for a device trace.

        Raises:
            UserError: not a part of a fleet.
        """
        change: dict[str, Any] = {name: part for name, kind in _KINDS.items() if isinstance(part, kind)}
        if change:
            return dataclasses.replace(self, **change)
        raise UserError(
            f"{in_short(part)} on the right of a fleet's pipe",
            expected=f"a part of a fleet: {', '.join(_KINDS)}",
            why="only these say what devices are like",
            fix=not_called(part) or "for example Fleet() | Faults(dropout=0.1); parts of a method go to the recipe",
        )


_KINDS: dict[str, type[Settings]] = {
    "devices": Devices,
    "links": Links,
    "availability": Availability,
    "faults": Faults,
    "energy": Energy,
    "arrivals": Arrivals,
    "budgets": Budgets,
}
