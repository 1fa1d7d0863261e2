"""The commands about fleets: what there is to make them of, and what one is like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from polyrhythm.cli.output import Screen
from polyrhythm.cli.showing import list_named
from polyrhythm.config import names
from polyrhythm.config.assembly import federations
from polyrhythm.config.keys import Configuration
from polyrhythm.fleet.survey import QUANTILES, Survey, survey

_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_BARS = " ▁▂▃▄▅▆▇█"


def list_fleets() -> None:
    """Sources of fleets, and the parts that can be piped onto them."""
    screen = Screen()
    list_named(screen, "Sources", [*names.DEVICES.items(), *names.FLEETS.items()])
    list_named(screen, "Parts", names.OF_FLEETS.items())
    screen.print(
        'For example: --fleet "tiers(slowdown=[1, 4]) | markov(mean_on=600, mean_off=600) | faults(dropout=0.1)"',
        highlight=False,
    )


def show_fleet(configuration: Configuration, hours: float, *, with_data: bool) -> None:
    """What a fleet is like; with the data's labels if it depends on them."""
    fleet, seed = configuration.resolved_parts.fleet, configuration.seed
    labels, clients = None, configuration.clients or 0
    if with_data:
        _, federation, _ = next(federations(configuration))
        labels, clients = federation.label_shares(), federation.clients
    found = survey(fleet, clients, seed, horizon=hours * 3600, labels=labels)
    screen = Screen()
    screen.print(f"{configuration.fleet}, {found.clients:,} clients", markup=False, highlight=False)
    screen.print_table(_table(found))
    for line in _notes(found):
        screen.print(line, highlight=False)


def _table(found: Survey) -> Table:
    """Quantiles over the clients."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("over the clients")
    for quantile in QUANTILES:
        table.add_column("median" if quantile == 0.5 else f"{quantile:.0%}", justify="right", no_wrap=True)
    for name, values, unit in (
        ("time per sample", found.seconds_per_sample, "s"),
        ("speed", found.flops_per_second, "FLOP/s"),
        ("memory", found.memory, "B"),
        ("receiving", found.down, "B/s"),
        ("sending", found.up, "B/s"),
    ):
        if len(values) and not np.isinf(values).all():
            table.add_row(name, *(_with_unit(value, unit) for value in _quantiles(values)))
    table.add_row("share of time", *(f"{value:.0%}" for value in _quantiles(found.share)))
    if len(found.stays):
        table.add_row("time at a stretch", *(_time(value) for value in _quantiles(found.stays)))
    return table


def _notes(found: Survey) -> Iterator[str]:
    hours = found.horizon / 3600
    if found.groups:
        parts = (f"{name}: {count:,} ({count / found.clients:.0%})" for name, count in found.groups.items())
        yield f"groups        {', '.join(parts)}"
    bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in found.there)
    least, most = found.there.min(), found.there.max()
    yield f"there         |{bars}| over {hours:g} h: {least:.0%} to {most:.0%} of all"
    if found.arrivals is not None:
        yield f"arrivals      {found.arrivals:,} in {hours:g} h"
    if found.followed < found.clients:
        yield f"Links and times of {found.followed:,} clients, evenly spread; devices of all."


def _quantiles(values: np.ndarray) -> Iterable[float]:
    # No interpolation: between a limit and no limit there is nothing.
    return [float(value) for value in np.quantile(values, QUANTILES, method="inverted_cdf")]


def _with_unit(value: float, unit: str) -> str:
    if value == 0:
        return f"0 {unit}"
    if value == float("inf"):
        return "no limit"
    size, prefix = next(((s, p) for s, p in _UNITS if value >= 0.9995 * s), _UNITS[-1])
    return f"{value / size:.3g} {prefix}{unit}"


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
