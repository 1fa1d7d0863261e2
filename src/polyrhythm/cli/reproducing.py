"""`polyrhythm reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import Mistakes
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.sweeping.progress import Bars, SweepProgress
from polyrhythm.config.expressions import parse_value
from polyrhythm.config.keys import TAKES
from polyrhythm.config.layers import key_and_text, layered, seeds_of
from polyrhythm.config.overrides import names_something
from polyrhythm.studies.searches.performing import Ending, Job
from polyrhythm.studies.searches.written import leaves
from polyrhythm.studies.tables import needs
from polyrhythm.studies.tables.catalogue import find, items
from polyrhythm.studies.tables.definition import PAPERS, Scale
from polyrhythm.studies.tables.findings import Findings
from polyrhythm.studies.tables.reproducing import reproduce


def list_items(*, as_json: bool) -> None:
    """Every table and figure, and what reproduces it."""
    found = list(items())
    if as_json:
        for item in found:
            state: dict[str, Any] = {"unknown": item.by.unknown or None, "scales": [*item.by.scales, "paper"]}
            state |= {"data": needs.data(item.by), "slow": needs.slow(item.by)}
            print_json({"item": item.slug, "by": item.by.name, "title": item.by.title, **state})
        return
    screen = Screen(stderr=False)
    for paper, words in PAPERS.items():
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title=Text(words))
        table.add_column("name", no_wrap=True)
        table.add_column("items", overflow="fold")
        table.add_column("what", overflow="fold")
        table.add_column("at the paper's size it needs", overflow="fold")
        for by in {item.by.name: item.by for item in found if item.paper == paper}.values():
            what = by.title if not by.unknown else f"unknown: {by.unknown}"
            table.add_row(*map(Text, (by.name, _joined(by.items), what, needs.in_words(by))))
        if table.row_count:
            screen.print(table)
    screen.print("for example: polyrhythm reproduce ccfl/table-2 --scale quick", highlight=False)


def _joined(items: Sequence[str]) -> str:
    """Tables and figures in few words.

    >>> _joined(["Table 1", "Figure 6", "Figure 8"])
    'Table 1, Figure 6, 8'
    """
    told, before = list[str](), ""
    for item in items:
        kind, _, number = item.rpartition(" ")
        told.append(number if kind and kind == before else item)
        before = kind
    return ", ".join(told)


def reproduce_named(
    name: str,
    scale: Scale,
    chosen: Mapping[str, Any],
    trust: Trust,
    *,
    out: str,
    workers: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Reproduces an item, or what is left of it, and shows what came out.

    Raises:
        UserError: something is wrong that can be known before the first run, such as data that are not there.
        RunFailed: no run has a result.
        typer.Exit: it was stopped.
    """
    screen = Screen(stderr=as_json)
    scaled = find(name, trust).at(
        scale,
        seeds=seeds_of(chosen["seeds"]) if chosen["seeds"] else (),
        rows=chosen["rows"],
        columns=chosen["columns"],
        settings=_settings(chosen["settings"]),
    )
    with stopped_by_sigterm():
        try:
            found, path = reproduce(scaled, out=out, workers=workers, output=output, listener=_Shown(screen))
        except KeyboardInterrupt:
            screen.note("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        claims = [{"says": c.says, "verdict": c.verdict, "evidence": c.evidence} for c in found.claims]
        print_json(
            {"name": scaled.of.name, "scale": scale, "verdict": found.verdict, "claims": claims, "page": str(path)}
        )
    else:
        _print(screen, found, path)


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    """What `--set` says, by keys with dots."""
    wrong, found = Mistakes(), dict[str, Any]()
    for text in texts:
        with wrong.noted():
            key, value = key_and_text(text)
            inside = "." in key and names_something(key.partition(".")[0])  # of a text that only the file has
            found |= {key: parse_value(value)} if inside else leaves(layered(None, {}, [text], wrong, TAKES).values)
    wrong.refuse()
    return found


def _print(screen: Screen, found: Findings, path: Path) -> None:
    for one in found.tables:
        if one.name in ("equal", "costs"):
            continue
        screen.print()
        screen.print(Text(one.caption))
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for i, head in enumerate(one.head):
            right: Literal["left", "right"] = "right" if i and one.numbers else "left"
            table.add_column(Text(head), justify=right, overflow="fold", no_wrap=not i)
        for row in one.rows:
            table.add_row(*map(Text, row))
        screen.print(table)
    for claim in found.claims:
        screen.print(Text(f"{claim.verdict}: {claim.says} ({claim.evidence or 'no numbers'})"))
    for note in found.notes:
        screen.note(note)
    screen.print(Text(f"verdict: {found.verdict or 'none'}"))
    screen.print(f"page: {path}", highlight=False, markup=False)


@final
class _Shown:
    """How it goes: bars in a terminal, a line for each run elsewhere."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._bars = Bars(screen)
        self._over = self._jobs = 0

    def tuning(self) -> SweepProgress:
        """Rates are chosen now."""
        return SweepProgress(self._screen)

    def begin(self, jobs: int) -> None:
        """The runs begin."""
        self._jobs = jobs
        self._bars.begin("runs", jobs)

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """Moves the line of a run on."""
        self._bars.version(job, version, rounds, score)

    def over(self, job: Job, ending: Ending) -> None:
        """A run has ended: its line goes."""
        self._over += 1
        self._bars.remove(lambda name, seed: (name, seed) == (job.name, job.seed))
        self._bars.count(self._over)
        how = ending.state + (f": {ending.reason}" if ending.reason else "")
        if not self._bars.drawn or ending.state != "finished":
            self._screen.print(Text(f"{self._over} of {self._jobs}: {job.name}, seed {job.seed}: {how}"))

    def end(self) -> None:
        """Nothing more will be said."""
        self._bars.end()
