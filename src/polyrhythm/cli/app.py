"""The commands. Everything heavy is imported inside them, so that `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from polyrhythm.cli.guard import guarded
from polyrhythm.cli.options import ALL, EXECUTION, given, taking

app = typer.Typer(
    name="polyrhythm",
    help="Federated learning where every client keeps its own tempo.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Data sets: list them, or show how one is split.", rich_markup_mode=None)
app.add_typer(data_app, name="data", invoke_without_command=True)
fleet_app = typer.Typer(help="Fleets: show what one is like.", rich_markup_mode=None, no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")
flower_app = typer.Typer(
    help="A real federation on Flower: write a project, or run one on this machine.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(flower_app, name="flower")

Out = Annotated[str | None, typer.Option("--out", help="Folder of the record.  [default: runs]", show_default=False)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning, or its name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]
To = Annotated[float | None, typer.Option("--to", help="Also what it took until the headline metric was so good.")]
Set = Annotated[
    Literal["test", "validation"], typer.Option("--on", help="The set that results are of: test or validation.")
]
Trusted = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        help="A module of yours with a model or parts, such as nets, that may be imported: it runs with your rights. "
        "May be repeated.",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Any key: --set evaluation.every=5. May be repeated.")
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from polyrhythm import __version__

        typer.echo(f"polyrhythm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=taking(ALL))
@guarded
def run(
    context: typer.Context,
    experiment: Annotated[Path | None, typer.Argument(help="An experiment file in TOML; options win over it.")] = None,
    settings: Settings = None,
    trust: Trusted = None,
    resume: Annotated[
        Literal["auto", "never"],
        typer.Option("--resume", help="auto: go on with the newest run of the same experiment, if there is one."),
    ] = "never",
    log_updates: Annotated[
        bool, typer.Option("--log-updates", help="Also keep what every client sent, for `polyrhythm replay`.")
    ] = False,
    json: Json = False,
) -> None:
    """Run an experiment and keep its record. EXPERIMENT is a file in TOML; options win over it."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.running import run_all
    from polyrhythm.config.configuration import configure

    options = given(context)
    configuration = configure(experiment, options, settings or [], consented(trust, options, settings))
    run_all(configuration, as_json=json, resume=resume == "auto", log_updates=log_updates)


@app.command("resume", cls=taking(EXECUTION, "track"))
@guarded
def resume_run(
    context: typer.Context,
    reference: Run,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Go on to so many versions, also if it has finished.")
    ] = None,
    trust: Trusted = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Go on with a run that was killed, stopped or failed, from its last checkpoint."""
    from polyrhythm.cli import resuming
    from polyrhythm.cli.consenting import consented

    how = given(context)
    trusted, track = consented(trust, how), how.pop("track", None)
    resuming.resume_run(reference, out or "runs", rounds=rounds, as_json=json, track=track, trust=trusted, **how)


@app.command("verify", cls=taking(EXECUTION))
@guarded
def verify_run(
    context: typer.Context,
    reference: Run,
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="Begin at the newest checkpoint, and not anew.")
    ] = False,
    versions: Annotated[
        int | None, typer.Option("--versions", min=1, help="How many versions to compare.  [default: all]")
    ] = None,
    trust: Trusted = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run a recorded run again and compare every version with its record, bit for bit."""
    from polyrhythm.cli import verifying
    from polyrhythm.cli.consenting import consented

    how = given(context)
    verifying.verify_run(
        reference,
        out or "runs",
        from_checkpoint=from_checkpoint,
        versions=versions,
        as_json=json,
        trust=consented(trust, how),
        **how,
    )


@app.command("replay", cls=taking(EXECUTION))
@guarded
def replay_run(
    context: typer.Context,
    reference: Run,
    from_updates: Annotated[
        bool, typer.Option("--from-updates", help="The server alone, from what clients sent; no data are needed.")
    ] = False,
    trust: Trusted = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Take a recorded run's events in their order, and compare every version's model with its record, bit for bit."""
    from polyrhythm.cli import verifying
    from polyrhythm.cli.consenting import consented

    how = given(context)
    trusted = consented(trust, how)
    verifying.replay_run(reference, out or "runs", from_updates=from_updates, as_json=json, trust=trusted, **how)


@app.command(cls=taking(ALL))
@guarded
def check(
    context: typer.Context,
    experiment: Annotated[Path | None, typer.Argument(help="An experiment file in TOML; options win over it.")] = None,
    settings: Settings = None,
    trust: Trusted = None,
    estimate: Annotated[
        bool, typer.Option("--estimate/--no-estimate", help="Whether to estimate what the run will cost.")
    ] = True,
    json: Json = False,
) -> None:
    """Check an experiment, or a study, without running it: every mistake at once, or what it means and will cost."""
    from polyrhythm.cli.checking import check_all
    from polyrhythm.cli.consenting import consented
    from polyrhythm.config.configuration import configure
    from polyrhythm.studies.files.reading import is_study

    options = given(context)
    named = consented(trust, options, settings)
    if experiment is not None and is_study(experiment):
        from polyrhythm.cli.studies.checking import check_study

        check_study(experiment, options, settings or [], named, with_estimate=estimate, as_json=json)
        return

    check_all(lambda: configure(experiment, options, settings or [], named), with_estimate=estimate, as_json=json)


@app.command("schema")
@guarded
def print_schema() -> None:
    """Print a JSON Schema of experiment files, for editors: polyrhythm schema > polyrhythm.schema.json."""
    from json import dumps

    from polyrhythm.studies.files.language import file_schema

    typer.echo(dumps(file_schema(), indent=1))


@app.command("study", cls=taking("name", "out", "track"))
@app.command(
    "reproduce",
    cls=taking("name", "out", "track"),
    help="Reproduce a table or figure of a paper: another name of `study`.",
)
@app.command(
    "sweep", cls=taking("name", "out", "track"), help="Try many settings of an experiment: another name of `study`."
)
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
    row: Annotated[list[str] | None, typer.Option("--row", help="Only this row. May be repeated.")] = None,
    column: Annotated[list[str] | None, typer.Option("--column", help="Only this column. May be repeated.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of the experiment, over everything. May be repeated.")
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
    json: Json = False,
) -> None:
    """Make the many runs of a study, and its page. What an earlier call has done is kept, and gone on with."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.studies.commands import carry_out
    from polyrhythm.cli.studies.listing import list_items

    if study == "list":
        list_items(as_json=json)
        return
    chosen = {"seeds": seeds, "rows": row or (), "columns": column or (), "settings": settings or ()}
    named = consented(trust, {}, settings)
    how: dict[str, Any] = {"workers": workers, "output": output, "theme": theme, "as_json": json}
    carry_out(study, scale or "", chosen, given(context), named, **how)


@app.command("best")
@guarded
def best_of_study(
    reference: Annotated[str, typer.Argument(metavar="STUDY", help="A study's name, or name/row.")],
    out: Out = None,
    json: Json = False,
) -> None:
    """Print the best setting that a study has found so far, as an experiment file: polyrhythm best tune > best.toml."""
    from polyrhythm.cli.studies.commands import print_best

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


@app.command()
@guarded
def show(
    reference: Run,
    to: To = None,
    on: Set = "test",
    out: Out = None,
    json: Json = False,
) -> None:
    """Show one run: what it was, how it went, what it cost, its curve."""
    from polyrhythm.cli.showing import show_run

    show_run(reference, out or "runs", to=to, on=on, as_json=json)


@app.command()
@guarded
def compare(
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids, their beginnings, or names; all of a name count.  [default: all]"),
    ] = None,
    to: To = None,
    at_time: Annotated[
        float | None, typer.Option("--at-time", min=0, help="Also the result after so many virtual seconds.")
    ] = None,
    on: Set = "test",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Draw it over time, energy and traffic into a .png, .svg, .pdf or .html."),
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare methods: runs that differ in their seed alone make one row, their mean and spread."""
    from polyrhythm.cli.comparing import compare_runs

    compare_runs(references or [], out or "runs", to=to, at_time=at_time, on=on, output=output, as_json=json)


@app.command()
@guarded
def plot(
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids, their beginnings, or names; all of a name count.  [default: all]"),
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="What to draw.  [default: lists what there is to draw]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .svg, .pdf or .html.  [default: FIGURE.png]", show_default=False),
    ] = None,
    against: Annotated[
        str, typer.Option("--against", help="The horizontal axis of curves: version, time, bytes, joules, flops, …")
    ] = "version",
    on: Set = "test",
    theme: Annotated[Literal["light", "dark"], typer.Option("--theme", help="light or dark.")] = "light",
    out: Out = None,
    json: Json = False,
) -> None:
    """Draw a figure of runs; without --figure, list those that apply and why others do not."""
    from polyrhythm.cli.plotting import plot_runs

    options = {"against": against, "on": on, "theme": theme}
    plot_runs(references or [], out or "runs", figure=figure, output=output, options=options, as_json=json)


@app.command()
@guarded
def report(
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids, their beginnings, or names; all of a name count.  [default: all]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file: .html for a page, .md or .tex for tables.")
    ] = Path("report.html"),
    to: To = None,
    on: Set = "test",
    against: Annotated[
        str | None, typer.Option("--against", help="The method to compare the others with.  [default: the first]")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Of confidence intervals.")] = 0.95,
    out: Out = None,
) -> None:
    """Write a report on runs: results over seeds, differences, figures, costs, settings, how to run them again."""
    from polyrhythm.cli.reporting import report_runs

    report_runs(references or [], out or "runs", output, to=to, on=on, against=against, level=level)


@app.command()
@guarded
def runs(out: Out = None, json: Json = False) -> None:
    """List the runs of a folder, oldest first."""
    from polyrhythm.cli.showing import list_runs

    list_runs(out or "runs", as_json=json)


@app.command("stop")
@guarded
def stop_run(
    reference: Run,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until it has stopped.")] = True,
    out: Out = None,
    json: Json = False,
) -> None:
    """Stop a run that is going on, as Ctrl-C does: its record is kept, and `resume` goes on with it."""
    from polyrhythm.cli import stop

    stop.stop_run(reference, out or "runs", wait=wait, as_json=json)


@app.command()
@guarded
def ui(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="The output folder.  [default: runs]")] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; anywhere but on loopback it asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 for any that is free.")] = 8642,
    control: Annotated[
        bool, typer.Option("--control", help="Runs may be stopped there, by whoever has the token.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Watch the runs of a folder in a browser, while they train and afterwards."""
    from polyrhythm.cli.watching import watch

    watch(folder or Path("runs"), host=host, port=port, control=control, open_browser=open_browser)


@app.command()
@guarded
def bench(
    work: Annotated[
        list[str] | None, typer.Option("--work", help="What to measure; may be repeated.  [default: all works]")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help='"bare": the same work by hand in plain PyTorch, in turn with ours.')
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="What computes our local steps.")] = "auto",
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many visits run at once, in both.")] = 2,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds that are measured.")] = 5,
    json: Json = False,
) -> None:
    """Measure how long rounds take, on made-up data, and compare with a plain PyTorch loop."""
    from polyrhythm.cli.benching import measure

    measure(work or [], against, repeats, workers, engine, as_json=json)


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
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="How long to look at it.")] = 24.0,
) -> None:
    """Show what a fleet is like: speeds, links, and when clients are there."""
    from polyrhythm.cli.fleets import show_fleet
    from polyrhythm.config.configuration import configure

    options = given(context)
    show_fleet(configure(None, options, []), hours, with_data=bool({"data", "partition"} & options.keys()))


@data_app.callback(invoke_without_command=True)
@guarded
def data_list(context: typer.Context) -> None:
    """List data sets; `polyrhythm data show` shows how one is split over clients."""
    if context.invoked_subcommand is None:
        from polyrhythm.cli.showing import list_sources

        list_sources()


@data_app.command("show", cls=taking("data", "clients", "partition", "seed", "expert", "validation", "local_test"))
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

    show_data(configure(None, given(context), [], consented(trust)), output)


Federation = Annotated[Path, typer.Option("--dir", help="Keys, logs and what nodes remember.")]


@flower_app.command("new")
@guarded
def flower_new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")], trust: Trusted = None
) -> None:
    """Write a project that `flwr run` takes: an experiment file, and the apps of server and nodes."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.flowering import new
    from polyrhythm.cli.output import Screen

    new(folder, Screen(), consented(trust))


@flower_app.command("up")
@guarded
def flower_up(
    experiment: Annotated[
        Path | None, typer.Argument(help="An experiment file in TOML, or the folder of a project.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="How many, one for each client.  [default: the clients]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any key: --set rounds=50. May be repeated.")
    ] = None,
    trust: Trusted = None,
    out: Out = None,
    folder: Federation = Path(".flower"),
    port: Annotated[
        int, typer.Option("--port", min=1, max=65000, help="Of the SuperLink; those of nodes follow.")
    ] = 8000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the federation up when the run is over.")] = False,
    resume: Annotated[
        Literal["auto", "never"],
        typer.Option("--resume", help="auto: go on with a run of the same experiment that has not finished."),
    ] = "auto",
    log_updates: Annotated[
        bool, typer.Option("--log-updates", help="Also keep what every client sent, for `polyrhythm replay`.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, with TLS and keys, run an experiment on them, and stop them."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.flowering import up

    up(
        experiment,
        nodes,
        settings or [],
        consented(trust, {}, settings),
        out=out or "runs",
        folder=folder,
        port=port,
        keep=keep,
        resume=resume == "auto",
        log_updates=log_updates,
        as_json=json,
    )


@flower_app.command("down")
@guarded
def flower_down(folder: Federation = Path(".flower")) -> None:
    """Stop what `polyrhythm flower up` has started and left: nodes first, then the SuperLink, and nothing else."""
    from polyrhythm.cli.flowering import down
    from polyrhythm.cli.output import Screen

    down(folder, Screen())
