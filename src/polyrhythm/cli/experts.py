"""`polyrhythm expert`: trains the model that says how difficult samples are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from polyrhythm.base.metric_names import in_words
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.config.keys import Configuration
from polyrhythm.experiments.expert import train_expert
from polyrhythm.results.progress import LiveProgress


def train(configuration: Configuration, output: Path, settings: Mapping[str, Any], *, as_json: bool) -> None:
    """Trains and saves an expert.

    Args:
        configuration: says which data, model and seed.
        output: the file to write.
        settings: of the training, as `train_expert` takes them.
        as_json: whether to print one line of JSON instead.

    Raises:
        UserError: something is wrong that can be known before the training.
        RunFailed: the training diverged, or the file cannot be written.
        typer.Exit: it was stopped; nothing is saved.
    """
    screen, model = Screen(stderr=as_json), configuration.model or "mlp"
    with stopped_by_sigterm():
        summary = train_expert(
            configuration.resolved_parts.load(),
            configuration.resolved_parts.model,
            output,
            **settings,
            seed=configuration.seed,
            called=model,
            observers=[LiveProgress(screen)],
        )
    if summary["status"] == "stopped":
        screen.print("stopped; no expert was saved")
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print_json({"expert": str(output), **summary})
        return
    headline = in_words(str(summary["headline"]))
    trained = f"test {headline} {summary['final_accuracy']:.4f} after {settings['epochs']} epochs"
    screen.print(
        f"{model} on {configuration.data}: {trained}",
        highlight=False,
        markup=False,
    )
    screen.print(
        f'saved in {output}; use it: polyrhythm run --expert {output} --method "fedavg | curriculum(score=expert)"',
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
