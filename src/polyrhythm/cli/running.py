"""`polyrhythm run`: what a person, a pipe or a program sees."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from polyrhythm.cli.assembly import assemble
from polyrhythm.cli.configuration import Configuration
from polyrhythm.cli.guard import INTERRUPTED
from polyrhythm.errors import PolyrhythmError, RunFailed
from polyrhythm.experiment import Experiment
from polyrhythm.runs import Run
from polyrhythm.runs.chart import curve, takes_unicode
from polyrhythm.runs.plain import to_json
from polyrhythm.runs.progress import LiveProgress
from polyrhythm.runs.recorder import Recorder
from polyrhythm.session import carry_out


def run_all(configuration: Configuration, *, as_json: bool) -> None:
    """One run per seed, each with its plan, its progress and its result.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: a run could not go on; its record is kept.
    """
    console = Console(stderr=as_json)
    summaries: list[dict[str, Any]] = []
    for experiment in assemble(configuration):
        summary = _run(experiment, configuration.out, console, as_json)
        summaries.append(summary)
        if summary["status"] == "stopped":
            raise typer.Exit(INTERRUPTED)
    if len(summaries) > 1 and not as_json:
        console.print(_spread(summaries))


def _run(experiment: Experiment, out: str, console: Console, as_json: bool) -> dict[str, Any]:
    recorder = Recorder(out)
    parameters = experiment.engine.layout.parameters  # builds and checks the model before anything is said
    if not as_json:
        console.print(_plan(experiment, parameters))
    for notice in experiment.notices():
        console.print(f"note: {notice}", style="yellow", highlight=False)
    try:
        summary = carry_out(experiment, [recorder, LiveProgress(console)])
    except PolyrhythmError as error:
        if recorder.run_id:
            raise RunFailed(f"{error}\nwhat was recorded is kept: {_how_to_show(recorder, out)}") from error
        raise
    except Exception as error:
        raise RunFailed(_unexpected(error, recorder, out)) from error
    summary = {"run_id": recorder.run_id, **summary}
    if as_json:
        sys.stdout.write(to_json(summary) + "\n")
        sys.stdout.flush()
    else:
        _result(console, Run.open(recorder.run_id, out), summary, out)
    return summary


def _plan(experiment: Experiment, parameters: int) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    federation, config = experiment.federation, experiment.describe()
    sizes = federation.sizes
    rows = {
        "data": f"{federation.name}: {int(sizes.sum()):,} training samples, {len(federation.test):,} test samples",
        "clients": f"{federation.clients:,} by {config['partition']}, {sizes.min():,} to {sizes.max():,} samples each",
        "model": f"{config['model']}: {parameters:,} parameters",
        "method": str(config["method"]),
        "rounds": f"{experiment.rounds:,}" if experiment.rounds else "until " + _until(config["until"]),
        "seed": str(experiment.seed),
    }
    for label, value in rows.items():
        table.add_row(label, value)
    return table


def _until(until: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in until.items() if value is not None and key != "name")


def _result(console: Console, run: Run, summary: Mapping[str, Any], out: str) -> None:
    headline = str(summary["headline"])
    console.print()
    draw_scores(console, run)
    console.print()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    final, mean, spread = summary["final_accuracy"], summary["last20_mean"], summary["last20_sd"]
    rows = {
        "status": f"{summary['status']}: {summary['reason']}",
        f"final {headline.replace('_', ' ')}": "–" if final is None else f"[bold]{final:.4f}[/]",
        "last 20 rounds": "–" if mean is None else f"{mean:.4f} ± {spread:.4f} (sd over rounds)",
        "work": f"{summary['client_updates']:,} client updates, {summary['local_steps']:,} local steps, "
        f"{summary['samples']:,} samples, {summary['flops']:.3g} FLOPs",
        "traffic": f"{_size(summary['bytes_up'])} up, {_size(summary['bytes_down'])} down",
        "time": f"{summary['wall_seconds']:.1f} s",
        "digest": str(summary["digest"])[:16],
        "record": f"{run.id} in {out}; polyrhythm show {run.id}{'' if out == 'runs' else f' --out {out}'}",
    }
    for label, value in rows.items():
        table.add_row(label, value)
    console.print(table, highlight=False)
    console.print()


def draw_scores(console: Console, run: Run) -> None:
    """The curve of the headline metric, in characters."""
    title = f"test {run.headline.replace('_', ' ')}"
    unicode = takes_unicode(sys.stdout)
    drawn = curve(run.scores, title=title, width=min(console.width, 80), unicode=unicode)
    console.print(drawn, markup=False, highlight=False)


def _spread(summaries: Sequence[Mapping[str, Any]]) -> str:
    finals = [s["final_accuracy"] for s in summaries if s["final_accuracy"] is not None]
    means = [s["last20_mean"] for s in summaries if s["last20_mean"] is not None]
    if not finals:
        return f"{len(summaries)} seeds: nothing was evaluated"
    return (
        f"{len(summaries)} seeds: final {_mean_sd(finals)}, last 20 rounds {_mean_sd(means)} "
        "(mean ± sample sd over seeds)"
    )


def _mean_sd(values: Sequence[float]) -> str:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.4f}"
    return f"{mean:.4f} ± {math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)):.4f}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _how_to_show(recorder: Recorder, out: str) -> str:
    return f"polyrhythm show {recorder.run_id}{'' if out == 'runs' else f' --out {out}'}"


def _unexpected(error: Exception, recorder: Recorder, out: str) -> str:
    """One readable line; the traceback goes into the run's folder, or below if there is none yet."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    line = f"{type(error).__name__}: {error}{notes}"
    trace = "".join(traceback.format_exception(error))
    if not recorder.run_id:
        return f"{line}\n{trace}"
    log = recorder.path / "error.log"
    log.write_text(trace, encoding="utf-8")
    return f"{line}\nthe traceback is in {log}; what was recorded is kept: {_how_to_show(recorder, out)}"
