"""The commands that list what there is: methods, models, data, and who holds what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from polyrhythm.cli.output import Screen
from polyrhythm.config import names
from polyrhythm.config.assembly import federations
from polyrhythm.config.keys import Configuration
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.data.picture import summary, summary_table
from polyrhythm.figures import check_file
from polyrhythm.figures.labels import draw_labels
from polyrhythm.methods.papers import Common
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.low_rank import with_lora
from polyrhythm.models.projection import with_projection


def list_methods() -> None:
    """Recipes, and the parts that can be piped onto them."""
    console = Screen()
    _list(console, "Recipes", ((name, _settings(make), make) for name, make in sorted(names.RECIPES.items())))
    console.print("[bold]Settings of every recipe[/]")
    for line in (inspect.getdoc(Common) or "").splitlines()[2:]:
        name, _, text = line.partition(": ")
        console.print(Padding(Text.assemble((name, "bold cyan"), f": {text}"), (0, 0, 0, 2)))
    console.print()
    _list(console, "Parts", ((name, _settings(made), made) for name, made in sorted(names.PARTS.items())))
    console.print('For example: --method "fedprox(mu=0.01, cohort=10) | server_adam(lr=0.03)"', highlight=False)


def list_models() -> None:
    """Models by name."""
    console = Screen()
    _list(console, "Models", ((name, _settings(make), make) for name, make in MODELS.items()))
    lora = 'model, rank=8, alpha=none, targets="all-linear", dropout=0, freeze="none", head=true'
    projection = ("with-projection", "model, hidden=none, size=256", with_projection)
    _list(console, "Around a model", [projection, ("with-lora", lora, with_lora)])
    console.print("Or your own, by import path: --model my_package.my_module:MyModel", highlight=False)


def list_partitions() -> None:
    """Partitions by name."""
    list_named(Screen(), "Partitions", PARTITIONS.items())


def list_named(console: Console, title: str, named: Iterable[tuple[str, Callable[..., Any]]]) -> None:
    """ResolvedParts by name, with their settings and a line of help."""
    _list(console, title, ((name, _settings(made), made) for name, made in named))


def list_sources() -> None:
    """Data sets by name."""
    console = Screen()
    _list(console, "Data sets", ((name, _settings(make), make) for name, make in SOURCES.items()))
    console.print('For example: --data "fashion-mnist(pad=2)"; see `polyrhythm data show --help`.', highlight=False)


def show_data(configuration: Configuration, output: Path | None) -> None:
    """A data set split over clients."""
    if output is not None:
        check_file(output)
    _, federation, _ = next(federations(configuration))
    console = Screen()
    console.print_table(summary_table(summary(federation)))
    if output is not None:
        console.print(f"drawn into {draw_labels(federation, output)}", highlight=False)


def _list(console: Console, title: str, entries: Iterable[tuple[str, str, Callable[..., Any]]]) -> None:
    console.print(f"[bold]{title}[/]")
    for name, settings, thing in entries:
        heading = Text(f"  {name}", style="bold cyan").append(f"({settings})" if settings else "", style="not bold")
        console.print(heading, soft_wrap=False)
        console.print(Padding(Text(_help(thing)), (0, 0, 0, 6)))
        if reference := _reference(thing):
            console.print(Padding(Text(reference, style="dim"), (0, 0, 0, 6)))
    console.print()


def _help(thing: Callable[..., Any]) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def _reference(thing: Callable[..., Any]) -> str:
    for paragraph in (inspect.getdoc(thing) or "").split("\n\n"):
        if paragraph.startswith("Reference: "):
            return " ".join(paragraph.removeprefix("Reference: ").split())
    return ""


def _settings(make: Callable[..., Any]) -> str:
    """What something takes, with defaults, beyond what the data decide or all recipes share."""
    parameters = inspect.signature(make).parameters.values()
    shown = [p for p in parameters if p.name not in ("shape", "outputs") and p.kind is not p.VAR_KEYWORD]
    needed = [p.name for p in shown if p.default is p.empty]
    return ", ".join(needed + [f"{p.name}={_text(p.default)}" for p in shown if p.default is not p.empty])


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    if value == "":
        return '""'
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
