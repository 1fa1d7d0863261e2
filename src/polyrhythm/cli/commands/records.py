"""Commands on recorded runs, and on those that go on: show, compare, draw, report, stop, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from polyrhythm.cli.commands.arguments import Baseline, GroupBy, Json, Out, Run, Set, To, Trusted
from polyrhythm.cli.guard import guarded

app = typer.Typer(rich_markup_mode=None)


@app.command()
@guarded
def show(
    reference: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run's id, its beginning, or its name.  [default: the newest]")
    ] = None,
    to: To = None,
    on: Set = "test",
    out: Out = None,
    json: Json = False,
) -> None:
    """Show a run, or the newest: what it was, how it went, what it cost, its curve."""
    from polyrhythm.cli.run_showing import show_run

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
    baseline: Baseline = None,
    group_by: GroupBy = None,
    out: Out = None,
    all_settings: Annotated[
        bool, typer.Option("--settings", help="Also every setting in which the methods differ.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare methods: runs that differ in their seed alone make one row, their mean and spread."""
    from polyrhythm.cli.comparing import compare_runs

    options: dict[str, Any] = {"to": to, "at_time": at_time, "on": on, "baseline": baseline, "group_by": group_by}
    compare_runs(references or [], out or "runs", output=output, all_settings=all_settings, as_json=json, **options)


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
    baseline: Baseline = None,
    group_by: GroupBy = None,
    log: Annotated[
        Literal["", "x", "y", "xy"], typer.Option("--log", help="Logarithmic axes of curves: x, y or xy.")
    ] = "",
    smooth: Annotated[
        int, typer.Option("--smooth", help="Neighbouring places that a curve's points are means of; the rest is faint.")
    ] = 1,
    span: Annotated[
        tuple[float, float] | None,
        typer.Option("--span", help="Where the horizontal axis of curves begins and ends.", show_default=False),
    ] = None,
    seeds: Annotated[bool, typer.Option("--seeds", help="Each seed as a thin line beside the mean.")] = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Draw a figure of runs; without --figure, list those that apply and why others do not."""
    from polyrhythm.cli.plotting import plot_runs

    options = {"against": against, "on": on, "theme": theme, "log": log, "smooth": smooth, "span": span, "seeds": seeds}
    options |= {"baseline": baseline, "group_by": group_by}
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
    baseline: Baseline = None,
    group_by: GroupBy = None,
    level: Annotated[float, typer.Option("--level", help="Of confidence intervals.")] = 0.95,
    out: Out = None,
) -> None:
    """Write a report on runs: results over seeds, differences, figures, costs, settings, how to run them again."""
    from polyrhythm.cli.reporting import report_runs

    options = {"to": to, "on": on, "baseline": baseline, "group_by": group_by, "level": level}
    report_runs(references or [], out or "runs", output, options)


@app.command()
@guarded
def predict(
    reference: Run,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="Rows: a .csv or .parquet table, a .npy array; texts: a .txt with one a line, .csv or .jsonl.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where predictions go: a .csv or .npy file.")],
    which: Annotated[Literal["final", "best"], typer.Option("--which", help="The version: final or best.")] = "final",
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Of each class, in place of labels.")] = False,
    trust: Trusted = None,
    out: Out = None,
) -> None:
    """Predict for new rows or texts, which are read as those were that the run was trained on."""
    from polyrhythm.cli.predicting import predict_rows

    predict_rows(
        reference, data, output, out or "runs", which=which, probabilities=probabilities, trust=list(trust or ())
    )


@app.command()
@guarded
def runs(
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only those with this tag. May be repeated.")] = None,
    status: Annotated[
        Literal["running", "finished", "stopped", "failed", "killed"] | None,
        typer.Option("--status", help="Only those that stand so."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="Only those with this in their method.")] = "",
    data: Annotated[str, typer.Option("--data", help="Only those with this in their data.")] = "",
    search: Annotated[
        str, typer.Option("--search", help='Words in any order, as in the dashboard: "scaffold seed 2".')
    ] = "",
    archived: Annotated[bool, typer.Option("--archived", help="Those in the archive, too.")] = False,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help="By this column; -COLUMN for the greatest first.")
    ] = "",
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="A,B,…",
            help="Also seed, data, clients, model, tags, note, … or any setting by its path; +A,B for more columns.",
        ),
    ] = "",
    out: Out = None,
    json: Json = False,
) -> None:
    """List the runs of a folder, oldest first, without those in its archive."""
    from polyrhythm.cli.listing import Wanted, list_runs

    wanted = Wanted(
        tags=tag or (),
        status=status,
        method=method,
        data=data,
        search=search,
        archived=archived,
        sort=sort,
        columns=columns,
    )
    list_runs(out or "runs", wanted, as_json=json)


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
        bool, typer.Option("--control", help="Runs may be stopped and labelled there, by whoever has the token.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Watch the runs of a folder in a browser, while they train and afterwards."""
    from polyrhythm.cli.watching import watch

    watch(
        folder or Path("runs"),
        named=folder is not None,
        host=host,
        port=port,
        control=control,
        open_browser=open_browser,
    )
