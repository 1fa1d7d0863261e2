"""Commands that show what there is to choose from: methods, models, data, fleets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, final

import typer

from polyrhythm.cli.commands.arguments import Trusted
from polyrhythm.cli.guard import guarded
from polyrhythm.cli.options import given, taking
from polyrhythm.cli.root import Group

app = typer.Typer(rich_markup_mode=None)


@final
class DataGroup(Group):
    """The group of commands about data; `polyrhythm data hapt` is `polyrhythm data about hapt`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command; the name of a published data set asks about it."""
        from polyrhythm.data.published import PUBLISHED

        published = args[:1] and args[0] not in self.commands and args[0].replace("_", "-") in PUBLISHED
        return super().resolve_command(ctx, ["about", *args] if published else args)


data_app = typer.Typer(help="Data sets: list them, or show how one is split.", cls=DataGroup, rich_markup_mode=None)
app.add_typer(data_app, name="data", invoke_without_command=True)
fleet_app = typer.Typer(help="Fleets: show what one is like.", cls=Group, rich_markup_mode=None, no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")


@app.command()
@guarded
def methods() -> None:
    """List recipes, and the parts that can be piped onto them."""
    from polyrhythm.cli.showing import list_methods

    list_methods()


@app.command()
@guarded
def models() -> None:
    """List models."""
    from polyrhythm.cli.showing import list_models

    list_models()


@app.command()
@guarded
def partitions() -> None:
    """List the ways of splitting data over clients."""
    from polyrhythm.cli.showing import list_partitions

    list_partitions()


@app.command()
@guarded
def fleets() -> None:
    """List what fleets can be made of: sources, and the parts that can be piped onto them."""
    from polyrhythm.cli.fleets import list_fleets

    list_fleets()


@fleet_app.command("show", cls=taking("data", "clients", "partition", "fleet", "seed"))
@guarded
def fleet_show(
    context: typer.Context,
    trust: Trusted = None,
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="How long to look at it.")] = 24.0,
) -> None:
    """Show what a fleet is like: speeds, links, and when clients are there."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.fleets import show_fleet
    from polyrhythm.config.configuration import configure

    options = given(context)
    show_fleet(
        configure(None, options, [], consented(trust, options)),
        hours,
        with_data=bool({"data", "partition"} & options.keys()),
    )


@data_app.callback(invoke_without_command=True)
@guarded
def data_list(context: typer.Context) -> None:
    """List data sets; `polyrhythm data show` shows how one is split, `polyrhythm data NAME` where to get it."""
    if context.invoked_subcommand is None:
        from polyrhythm.cli.showing import list_sources

        list_sources()


@data_app.command(
    "show", cls=taking("data", "clients", "partition", "seed", "expert", "validation", "local_test", "unseen")
)
@guarded
def data_show(
    context: typer.Context,
    trust: Trusted = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Draw the labels into a .png or .html.")] = None,
) -> None:
    """Show who holds what: sizes, classes, entropy, and the label picture."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.showing import show_data
    from polyrhythm.config.configuration import configure

    options = given(context)
    show_data(configure(None, options, [], consented(trust, options)), output)


@data_app.command("about")
@guarded
def data_about(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the data set, such as hapt.")],
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="Of a copy, to be compared.")] = None,
) -> None:
    """Say where a data set is published, and whether a copy is the official one; `about` may be left out."""
    from polyrhythm.cli.published import show_published

    show_published(name, path)
