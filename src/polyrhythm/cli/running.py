"""`polyrhythm run`: what a person, a pipe or a program sees."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, final

import typer
from rich.table import Table

from polyrhythm.cli.assembly import assemble
from polyrhythm.cli.configuration import Configuration
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.results import draw_scores, plan_table, result_table, spread
from polyrhythm.errors import PolyrhythmError, RunFailed
from polyrhythm.experiment import Experiment
from polyrhythm.runs import Run
from polyrhythm.runs.progress import LiveProgress
from polyrhythm.runs.recorder import Recorder
from polyrhythm.session import carry_out
