"""The commands of a real federation on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from polyrhythm.cli.commands.arguments import Json, Out, Trusted
from polyrhythm.cli.guard import guarded
from polyrhythm.cli.root import Group

app = typer.Typer(
    help="A real federation on Flower: write a project, or run one on this machine.",
    cls=Group,
    rich_markup_mode=None,
    no_args_is_help=True,
)

Federation = Annotated[Path, typer.Option("--dir", help="Keys, logs and what nodes remember.")]


@app.command("new")
@guarded
def flower_new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")], trust: Trusted = None
) -> None:
    """Write a project that `flwr run` takes: an experiment file, and the apps of server and nodes."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.flowering import new
    from polyrhythm.cli.output import Screen

    new(folder, Screen(), consented(trust))


@app.command("up")
@guarded
def flower_up(
    experiment: Annotated[
        Path | None, typer.Argument(help="An experiment file in TOML, or the folder of a project.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="How many, one for each client.  [default: the clients]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key: --set rounds=50. May be repeated."),
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


@app.command("own")
@guarded
def flower_own(
    experiment: Annotated[Path, typer.Argument(help="The node's experiment file in TOML, or the folder of a project.")],
    client: Annotated[int, typer.Option("--client", min=0, help="The node's number.")],
    run: Annotated[str, typer.Option("--run", help="The run's id, as the server's record has it.")],
    weights: Annotated[
        Path,
        typer.Option("--weights", help="The global model: final.safetensors of the server's record, or a state dict."),
    ],
    version: Annotated[int, typer.Option("--version", min=0, help="Which version that is.")],
    store: Annotated[Path, typer.Option("--store", help="The folder in which the node remembers.")] = Path(
        "~/.polyrhythm/nodes"
    ),
    own: Annotated[
        bool, typer.Option("--own", help="All data of the experiment are the node's; their test is the client's.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key: --set local_test=0.2. May be repeated."),
    ] = None,
    trust: Trusted = None,
    json: Json = False,
) -> None:
    """Measure a client's own model where it lies, at its node, beside the global one. Nothing is sent."""
    from polyrhythm.cli.consenting import consented
    from polyrhythm.cli.own_model import measure

    measure(
        experiment,
        client=client,
        store=store,
        run=run,
        weights=weights,
        version=version,
        own=own,
        settings=settings or [],
        trust=consented(trust, {}, settings),
        as_json=json,
    )


@app.command("down")
@guarded
def flower_down(folder: Federation = Path(".flower")) -> None:
    """Stop what `polyrhythm flower up` has started and left: nodes first, then the SuperLink, and nothing else."""
    from polyrhythm.cli.flowering import down
    from polyrhythm.cli.output import Screen

    down(folder, Screen())
