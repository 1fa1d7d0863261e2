"""How a run looks in the terminal: its plan before, its curve and its numbers after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from polyrhythm.base.metric_names import in_words
from polyrhythm.cli.named_runs import how_to_show
from polyrhythm.cli.rows import print_privacy, print_rows
from polyrhythm.cli.run_words import draw_scores
from polyrhythm.data.collection import counted_targets
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.fleet import Fleet
from polyrhythm.results import Run, tables
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.costs import decimals, lines

_WINDOW = 20  # versions in the summary's last20


def print_plan(console: Console, prepared: Prepared) -> None:
    """What is about to run."""
    experiment, parameters = prepared.experiment, prepared.chosen.engine.layout.parameters
    federation, config = experiment.federation, experiment.describe()
    sizes = federation.sizes
    print_rows(
        console,
        {
            "data": f"{federation.name}: {int(sizes.sum()):,} training samples, {len(federation.test):,} test samples",
            "clients": f"{federation.clients:,}, with {federation.least:,} to {sizes.max():,} samples each",
            "partition": str(config["partition"]),
            "model": f"{config['model']}: {parameters:,} parameters",
            "method": str(config["method"]),
            "task": _task(experiment),
            **({} if experiment.fleet == Fleet() else {"fleet": str(config["fleet"])}),
            "rounds": _end(experiment.rounds, config["until"]),
            "seed": str(experiment.seed),
        },
    )


def print_result(console: Console, run: Run, summary: Mapping[str, Any], out: str) -> None:
    """How it went."""
    console.print()
    draw_scores(console, run)
    console.print()
    final, mean, spread = summary["final_accuracy"], summary["last20_mean"], summary["last20_sd"]
    averaged = min(_WINDOW, sum(version > 0 for version, _ in run.scores))
    print_rows(
        console,
        {
            "status": f"{summary['status']}: {summary['reason']}",
            **run.view.said,
            f"final {in_words(str(summary['headline']))}": _number(final),
            f"mean of last {averaged}": "none"
            if mean is None
            else f"{decimals(mean)} ± {decimals(spread)} (sd over rounds)",
            "work": f"{summary['client_updates']:,} client updates, {summary['local_steps']:,} local steps, "
            f"{summary['samples']:,} samples",
            **lines(summary),
            "wall time": f"{summary['wall_seconds']:.1f} s",
            "digest": str(summary["digest"])[:16],
            "record": how_to_show(run.id, out),
        },
    )
    if statement := summary.get("privacy"):
        print_privacy(console, statement)
    console.print()


def print_spread(console: Console, summaries: Sequence[Mapping[str, Any]]) -> None:
    """Mean and spread over seeds."""
    finals = [s["final_accuracy"] for s in summaries if s["final_accuracy"] is not None]
    means = [s["last20_mean"] for s in summaries if s["last20_mean"] is not None]
    print_rows(
        console,
        {
            "seeds": f"{len(summaries)}; mean ± sample sd over seeds:",
            "final": _over_seeds(finals),
            "last 20": _over_seeds(means),
        },
    )


def _task(experiment: Experiment) -> str:
    """What was decided, or said, that the targets are, and how it is judged."""
    aim, federation, config = experiment.aim, experiment.federation, experiment.describe()
    size = counted_targets(federation.task, federation.outputs)
    settings = federation.task if experiment.task is None else str(config["task"])
    return f"{settings}: {size}, judged by {in_words(aim.headline)}"


def _end(rounds: int | None, until: Mapping[str, Any]) -> str:
    ends = ", ".join(f"{key} {value}" for key, value in until.items() if value is not None and key != "name")
    return " ".join([*([f"{rounds:,}"] if rounds else []), *([f"until {ends}"] if ends else [])])


def _number(value: float | None) -> str:
    return "none" if value is None else decimals(value)


def _over_seeds(values: Sequence[float]) -> str:
    return tables.scores(spread(values), len(values)) if values else "none"
