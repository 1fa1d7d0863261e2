"""Commands that make many runs, or an expert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from polyrhythm.cli.commands.arguments import Json, Out, Settings, Trusted
from polyrhythm.cli.guard import guarded
from polyrhythm.cli.options import ALL, given, taking

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "reproduce",
    cls=taking("name", "out", "track"),
    help="Reproduce a table or figure of a paper: another name of `study`.",
)
@app.command(
    "sweep", cls=taking("name", "out", "track"), help="Try many settings of an experiment: another name of `study`."
)
@app.command("study", cls=taking("name", "out", "track"))
@guarded
def carry_out_study(
    context: typer.Context,
    study: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="A .toml file; list; or a name that it shows, such as ccfl/table-2."),
    ],
    scale: Annotated[
        Literal["smoke", "quick", "paper"] | None,
        typer.Option(
            "--scale",
            help="Of a study that has scales: seconds, minutes, or its own size.  [default: quick, if it has that]",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Of what is compared, such as 0-2.  [default: the scale's]")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="ROW", help="Only this row. May be repeated.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="COLUMN", help="Only this column. May be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the experiment, over everything. May be repeated."),
    ] = None,
    trust: Trusted = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="How many runs go on at once, a thread each.  [default: processors]"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page, a .md, or a folder for it; or draw the trials into a .png, .svg, .pdf or .html.",
        ),
    ] = None,
    theme: Annotated[Literal["light", "dark"], typer.Option("--theme", help="Of that picture.")] = "light",
    so_far: Annotated[
        bool,
        typer.Option(
            "--so-far", help="Run nothing: write the page of what there is, of runs under way as far as they are."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Make the many runs of a study, and its page. What an earlier call has done is kept, and gone on with."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.studies.carrying_out import carry_out
    from polyrhythm.cli.studies.listing import list_items

    if study == "list":
        list_items(as_json=json)
        return
    chosen = {"seeds": seeds, "rows": row or (), "columns": column or (), "settings": settings or ()}
    named = consented(trust, {}, settings)
    how: dict[str, Any] = {"workers": workers, "output": output, "theme": theme, "so_far": so_far, "as_json": json}
    carry_out(study, scale or "", chosen, given(context), named, **how)


@app.command("advise", cls=taking(ALL))
@guarded
def advise_on_experiment(
    context: typer.Context,
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT]", help="An experiment file in TOML; options win over it.")
    ] = None,
    settings: Settings = None,
    trust: Trusted = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="RESOURCE=AMOUNT",
            help="What a run may spend: updates=1000, time=3600 (virtual s), bytes=1e9 or joules=5e4.  [default: what "
            "the experiment says]",
        ),
    ] = None,
    attempted: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Try the first ones, within the budget in all, by successive halving on the validation data, and "
            "write the best as a file. What an earlier call has done is kept.",
        ),
    ] = False,
    runs_at_once: Annotated[
        int, typer.Option("--at-once", min=1, help="How many tries go on at once, a thread each.")
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file of the chosen experiment.  [default: EXPERIMENT-advised.toml]"),
    ] = None,
    json: Json = False,
) -> None:
    """Name the recipes worth trying for an experiment's data, fleet and budget, with the evidence; and try them."""
    from polyrhythm.cli.advising import advise_on
    from polyrhythm.cli.consenting import consented
    from polyrhythm.config.configuration import configure

    options = given(context)
    named = consented(trust, options, settings)
    advise_on(
        lambda: configure(experiment, options, settings or [], named),
        name=experiment.stem if experiment else "experiment",
        budget=budget,
        attempted=attempted,
        workers=runs_at_once,
        output=output,
        as_json=json,
    )


@app.command("best")
@guarded
def best_of_study(
    reference: Annotated[str, typer.Argument(metavar="STUDY", help="A study's name, or name/row.")],
    out: Out = None,
    json: Json = False,
) -> None:
    """Print the best setting that a study has found so far, as an experiment file: polyrhythm best tune > best.toml."""
    from polyrhythm.cli.studies.carrying_out import print_best

    print_best(reference, out or "runs", as_json=json)


@app.command("expert", cls=taking("data", "model", "seed"))
@guarded
def train_expert(
    context: typer.Context,
    trust: Trusted = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the data.")] = 10,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Samples per step.")] = 64,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate.")] = 0.1,
    smoothing: Annotated[float, typer.Option("--smoothing", help="Label smoothing, a share of the label.")] = 0.0,
    last_layer_rate: Annotated[
        float, typer.Option("--last-layer-rate", help="How many times that rate for the last layer.")
    ] = 1.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The safetensors file.")] = Path("expert.safetensors"),
    json: Json = False,
) -> None:
    """Train an expert on all the data in one place: a model whose losses say how difficult each sample is."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.experts import train
    from polyrhythm.config.configuration import configure

    options = given(context)
    configuration = configure(None, options, [], consented(trust, options))
    settings = {"epochs": epochs, "batch": batch, "lr": lr, "smoothing": smoothing, "last_layer_rate": last_layer_rate}
    train(configuration, output, settings, as_json=json)
