"""`polyrhythm flower own`: what a client's own model does on its own test, at its node."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from polyrhythm.base.consent import Trust
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.deployment.local.project import PACKAGE
from polyrhythm.deployment.own_models import own_results
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.weights import read_weights


def measure(
    experiment: Path,
    *,
    client: int,
    store: Path,
    run: str,
    weights: Path,
    version: int,
    own: bool,
    settings: list[str],
    trust: Trust,
    as_json: bool,
) -> None:
    """Prints the metrics of the global model and of the client's own, on the client's own test samples.

    Args:
        experiment: an experiment file, or the folder of a project.
        client: the node's number.
        store: the folder in which the node remembers.
        run: the run's id.
        weights: the global model, a safetensors file or a state dict.
        version: which one it is.
        own: whether all data of the experiment are the node's.
        settings: keys of the experiment, as `key=value`.
        trust: the modules that the user has named.
        as_json: prints one line of JSON.

    Raises:
        UserError: as `own_results`, or a file that cannot be read.
    """
    file = experiment / PACKAGE / "experiment.toml" if experiment.is_dir() else experiment
    configuration = configure(file, {}, settings, trust)
    made = next(iter(assemble(configuration)))
    found = own_results(
        prepare(made, configuration.execution),
        client=client,
        store=store.expanduser(),
        run=run,
        model=read_weights(weights),
        version=version,
        own=own,
    )
    if as_json:
        print_json({"client": client, "run_id": run, "version": version, **found})
        return
    table = Table("", *found)
    for name in sorted({name for metrics in found.values() for name in metrics}):
        table.add_row(name, *(f"{metrics[name]:.4f}" if name in metrics else "–" for metrics in found.values()))
    Screen().print_table(table)
