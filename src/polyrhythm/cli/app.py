"""The commands. Everything heavy is imported inside them, so that `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from polyrhythm.cli.commands import bench, catalogue, flower, labels, records, studies
from polyrhythm.cli.commands.arguments import Json, Out, Run, Settings, Trusted
from polyrhythm.cli.guard import guarded
from polyrhythm.cli.options import ALL, EXECUTION, given, taking
from polyrhythm.cli.root import Root

app = typer.Typer(
    name="polyrhythm",
    cls=Root,
    help="Federated learning where every client keeps its own tempo.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (studies, records, labels, bench, catalogue):  # in the order of the help
    app.add_typer(group.app)
app.add_typer(flower.app, name="flower")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print version, native engine and commit, and stop.")
    ] = False,
) -> None:
    if version:
        from polyrhythm.cli.version import version as text

        typer.echo(text())
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


@app.command(cls=taking(ALL))
@guarded
def audit(
    context: typer.Context,
    experiment: Annotated[Path | None, typer.Argument(help="An experiment file in TOML; options win over it.")] = None,
    settings: Settings = None,
    trust: Trusted = None,
    canaries: Annotated[int, typer.Option("--canaries", min=1, help="Repetitions with a canary, and without.")] = 1000,
    versions: Annotated[int, typer.Option("--versions", min=1, help="Versions that each of them releases.")] = 10,
    json: Json = False,
) -> None:
    """Attack the noise of an experiment's dp, without training: what has it cost at least, beside what is claimed?"""
    from polyrhythm.cli.auditing import audit_one
    from polyrhythm.cli.consenting import consented
    from polyrhythm.config.configuration import configure

    options = given(context)
    named = consented(trust, options, settings)
    audit_one(
        lambda: configure(experiment, options, settings or [], named),
        canaries=canaries,
        versions=versions,
        as_json=json,
    )


@app.command("schema")
@guarded
def print_schema() -> None:
    """Print a JSON Schema of experiment files, for editors: polyrhythm schema > polyrhythm.schema.json."""
    from json import dumps

    from polyrhythm.studies.files.language import file_schema

    typer.echo(dumps(file_schema(), indent=1))
