"""Writes docs/reference.md from the docstrings, signatures and command line of the package itself.

python docs/make_reference.py

A test compares the file with what this gives, so run it whenever a public name, setting or docstring has changed.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sqlite3
import tempfile
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from annotated_types import Ge, Gt, Le, Lt

from polyrhythm import (
    data,
)
from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings, Takes
from polyrhythm.cli.app import app
from polyrhythm.cli.options import taken_by
from polyrhythm.config import expressions, names
from polyrhythm.config.keys import KEYS, Key
from polyrhythm.data.partitions import Partition
from polyrhythm.methods import papers
from polyrhythm.methods.capacity.base import Capacity
from polyrhythm.methods.compression import Compression
from polyrhythm.methods.correction import Correction
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.local.schedules import Schedule
from polyrhythm.methods.mechanism import Mechanism
from polyrhythm.methods.order.base import Order
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.base import Participation, ParticipationModifier
from polyrhythm.methods.personal.models import PersonalModel
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import ReleaseModifier, ReleasePolicy
from polyrhythm.methods.server_step import ServerStep
from polyrhythm.methods.weighing import Scaling, Sharing
from polyrhythm.methods.work.base import Work, WorkModifier
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.low_rank import with_lora
from polyrhythm.models.projection import with_projection
from polyrhythm.models.tasks import TASKS
from polyrhythm.runs.database_writer import Writer
from polyrhythm.runs.labels import Labels
from polyrhythm.runs.records import (
    AnswerRecord,
    ClassResultsRecord,
    ClientRecord,
    ClientResultsRecord,
    EventRecord,
    VersionRecord,
    VisitRecord,
)
from polyrhythm.runs.summary import Best, Summary
from polyrhythm.studies.files.language import SEARCH

PAGE = Path(__file__).with_name("reference.md")

INTRODUCTION = """\
# Reference

The command line, experiment files, and everything that has a name in them: made from the package by
`docs/make_reference.py`, and a test holds it to the code. What is called in Python is on [its own pages](api/index.md).
For a first run see [start](start.md), for how things fit together [concepts](concepts.md).

Letters in formulas: w a client's weights, w0 the weights it received, w_K those after its K local steps, update =
w_K − w0, D the mean update of a release, x the server's weights, P the number of trainable weights, N the clients of
the federation, n_i the samples of client i. "None" in a table is written `none` in text and `None` in Python.
"""

SLOTS: Sequence[tuple[str, str, tuple[type[Settings], ...]]] = (
    ("Participation", "Who is invited now?", (Participation, ParticipationModifier)),
    ("Work", "How much does a client do?", (Work, WorkModifier)),
    ("Order", "Which samples, in which order?", (Order,)),
    ("Correction", "In which direction does a client train? Corrections chain.", (Correction,)),
    ("Weighing", "How much does an update count? One part gives the shares, scales multiply.", (Sharing, Scaling)),
    ("Release", "When does the server step, and on what?", (ReleasePolicy, ReleaseModifier)),
    ("Server step", "How does the server step on the mean update D?", (ServerStep,)),
    ("Capacity", "Which coordinates does a client train and send?", (Capacity,)),
    ("Compression", "Beside the eight slots: how an update travels to the server.", (Compression,)),
    ("Scope", "Beside the eight slots: what of the model is shared, and what stays at each client.", (Scope,)),
    ("Personal model", "Beside the eight slots: which model a client uses in the end.", (PersonalModel,)),
    ("Local optimiser", "Beside the eight slots: how a client steps along its gradients.", (LocalOptimiser,)),
    ("Schedule", "Beside the eight slots: a factor on the local learning rate.", (Schedule,)),
)

SUMMARY_FIELDS = {
    "run_id": "the run's id; sorts by time of start",
    "status": '"finished", "stopped" (Ctrl-C) or "failed"',
    "reason": "why it ended",
    "rounds": "versions made",
    "headline": 'the metric that "accuracy" stands for below: accuracy, recall_at_5 or r2',
    "final_accuracy": "of the last evaluated version, on the test set",
    "best_accuracy": "on the test set, of the version that `best_by` chose",
    "best_by": '"validation", or "test" where nothing was held out: then it is the best of many and no fair estimate',
    "best_version": "that version",
    "last20_mean": "mean over the last 20 evaluated versions, or as many as there are, without the initial model",
    "last20_sd": "population standard deviation over the same versions",
    "client_updates": "visits that trained and were accepted",
    "local_steps": "optimiser steps at the clients",
    "samples": "samples trained on, counted as often as they were used",
    "flops": "floating-point operations at the clients (matrix products and convolutions, as torch counts them)",
    "forward_flops": "those in forward passes",
    "backward_flops": "those of gradients",
    "bytes_up": "sent by clients",
    "bytes_down": "sent to clients",
    "joules": "energy of the devices",
    "virtual_seconds": "time in the simulated federation",
    "compute_seconds": "clients' time computing",
    "link_seconds": "clients' time receiving and sending",
    "waiting_seconds": "clients' time between an accepted report and its version, or the next visit if that is earlier",
    "utilisation": "share of the time of all clients that hold data in which they were on a visit",
    "fairness": "Jain's index of participation, from 1 / N to 1",
    "visits": "that are over",
    "dropped_visits": "of them: report refused",
    "late_visits": "of them: report came when nobody waited for it any more",
    "lost_visits": "of them: no report",
    "faults": "what went wrong, counted by kind; see [faults](faults.md#counting-faults)",
    "skipped": "versions that changed nothing",
    "wall_seconds": "time it took here",
    "digest": "SHA-256 over the final model's names, types, shapes and bits; equal digests are bit-equal models",
    "notices": "what the run announced, and what had to be said when it went on",
    "missing": 'what its record lacks, such as "versions 61 to 80"; see [runs](runs.md#incomplete-records)',
}

RUN_COLUMNS = {
    "number": "primary key; what `run` in the other tables refers to",
    "run_id": "the run's id",
    "name": "what you called it",
    "status": "running, finished, stopped or failed",
    "reason": "why it ended",
    "started": "ISO 8601, UTC",
    "ended": "ISO 8601, UTC",
    "seed": "of the experiment",
    "rounds": "versions planned",
    "headline": "as in the summary",
    "recipe": "the method, as text",
    "recipe_digest": "SHA-256 of every setting of the method that can change a number",
    "parameters": "trainable weights of the model",
    "clients": "in the federation",
    "config": "JSON: the resolved configuration",
    "config_digest": "SHA-256 of it",
    "notices": "JSON list: what a reader of the results should know",
    "libraries": "JSON: versions of Python and of the libraries that decide numbers",
    "machine": "JSON: where it ran, and how: the driver, its workers, how often checkpoints were written",
    "summary": "JSON: the fields of the summary, once it has ended; `recorded`, how many rows of each table there were",
    "classes": "JSON list: what classes are called, in the order of their numbers; empty where samples have none",
}


OF_CLIENTS = {
    "global_mean": "where clients have tests of their own: the mean over clients, for the last evaluated version",
    "global_pooled": "likewise over the samples of these tests",
    "global_median": "likewise the median of clients",
    "global_worst_decile": "likewise the mean over the worst tenth of them, at least one",
    "global_sd_over_clients": "likewise their standard deviation, of all there are",
    "personal_mean": "the same with the model that each client uses, where that is another; and `personal_pooled`, "
    "`personal_median`, `personal_worst_decile` and `personal_sd_over_clients`",
    "personal_worse": "the share of clients that do worse with theirs than with the global model",
}
"""Fields of the summary that only some runs have."""


# Pages of docs/mechanisms, and the recipes and parts that they tell more of.
MORE = {
    "critical_periods": (
        "fedcl",
        "critical_periods",
        "random_resize",
        "gradient_norm",
        "fisher_trace",
        "released_norm",
    ),
    "stop_on_drift": ("alt", "stop_on_drift"),
    "skip_and_estimate": (
        *("ccfl", "skip_and_estimate", "skip_and_resend_model", "skip_silently", "budget_steps"),
        *("budgets", "slow_share", "listed"),
    ),
    "compression": ("compress_top_k", "compress_int8", "lossless"),
    "partial_work": ("partial_work",),
    "personal": (
        *("fedavg_ft", "fedper", "lg_fedavg", "fedbn", "fedrep", "fedbabu", "ditto", "apfl", "pfedme"),
        *("per_fedavg", "fedala", "knn_per", "fedproto"),
        *("personal_layers", "personal_first", "fine_tuning", "personal_copy"),
        *("personal_mixture", "moreau_envelope", "meta_step", "adaptive_start"),
        *("nearest_neighbours", "prototypes", "nearest_prototype"),
    ),
    "../language_models": (
        *("fedit", "ffa_lora", "rolora", "fedsa_lora", "fedex_lora", "flora", "flexlora", "hetlora"),
        *("residual_in_base", "stack_in_base", "decomposed_average", "length_weighted_average"),
        *("freeze_factor", "alternate_factors", "rank_prefix"),
    ),
    "curriculum": ("curriculum_fl", "curriculum", "pacing"),
    "client_curriculum": ("client_curriculum",),
    "selection": (
        "power_of_choice",
        "oort",
        "tifl",
        "clustered_sampling",
        "divfl",
        "f3ast",
        "optimal_sampling",
        "refl",
    ),
    "client_centric": (
        *("cc_fedavg", "cc_fedsgd", "cc_fedadagrad", "cc_fedadam", "cc_fedams", "cc_fedyogi"),
        *("random_epochs", "per_step", "buffer", "sampled_staleness"),
    ),
}


class Doc(NamedTuple):
    """A docstring, taken apart."""

    text: tuple[str, ...]  # paragraphs
    args: dict[str, str]
    returns: str
    raises: Mapping[str, str]
    source: str


def page() -> str:
    """The whole page."""
    sections = (INTRODUCTION, *_command_line(), *_recipes(), *_parts(), *_data(), *_models(), *_record())
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def parsed(thing: Any) -> Doc:
    """The docstring of a class or function; its arguments include those of the classes it inherits from."""
    args: dict[str, str] = {}
    for parent in reversed(thing.__mro__ if inspect.isclass(thing) else ()):
        if parent is not object and parent.__doc__:
            args |= _split(inspect.cleandoc(parent.__doc__)).args
    own = _split(inspect.cleandoc(thing.__doc__ or ""))
    return own._replace(args=args | own.args)


def _split(docstring: str) -> Doc:
    text: list[str] = []
    args: dict[str, str] = {}
    raises: dict[str, str] = {}
    found = {"Returns": "", "Reference": ""}
    for block in docstring.split("\n\n"):
        head, _, rest = block.partition(":")
        if block.startswith(">>>"):
            continue
        if head in ("Args", "Attributes"):
            args |= _items(rest)
        elif head == "Raises":
            raises = _items(rest)
        elif head in found:
            found[head] = _line(rest)
        elif block.startswith("    "):
            text.append("```text\n" + inspect.cleandoc(block) + "\n```")
        elif block.startswith("| "):
            text.append(inspect.cleandoc(block))
        elif block.startswith("1. "):
            text.append("\n".join(map(_line, re.split(r"\n(?=\d+\. )", block))))
        elif block.startswith("- "):
            text.append("\n".join(f"- {_line(item)}" for item in block.removeprefix("- ").split("\n- ")))
        else:
            text.append(_line(block))
    return Doc(tuple(text), args, found["Returns"], raises, found["Reference"])


def _items(block: str) -> dict[str, str]:
    """`name: text` entries, each with its continuation lines."""
    items: dict[str, str] = {}
    key = ""
    for line in inspect.cleandoc(block).splitlines():
        if line.startswith(" "):
            items[key] += " " + line.strip()
        else:
            key, _, text = line.partition(":")
            items[key] = text.strip()
    return {name.strip(): text for key, text in items.items() for name in key.split(",")}


def _line(text: str) -> str:
    return " ".join(text.split())


def entry(title: str, thing: Any, *, skip: Iterable[str] = (), level: int = 3, extra: str = "") -> str:
    """One named thing: what it is, its settings, what it refuses, its source."""
    doc = parsed(thing)
    lines = [f"{'#' * level} {title}", *doc.text]
    if extra:
        lines.append(extra)
    if table := settings_table(thing, doc.args, frozenset(skip)):
        lines.append(table)
    if family := _family(thing):
        lines.append(family)
    if doc.returns:
        lines.append(f"Returns: {doc.returns}")
    for error, reason in doc.raises.items():
        lines.append(f"{'Refuses' if error == 'UserError' else 'Fails'} (`{error}`): {reason}")
    if doc.source:
        lines.append(f"Source: {doc.source}")
    lines += [f"More: [cost, departures, measurements](mechanisms/{page}.md)" for page in MORE if title in MORE[page]]
    return "\n\n".join(lines)


def settings_table(thing: Any, meanings: Mapping[str, str], skip: frozenset[str]) -> str:
    """The settings of a class or function; empty if there are none."""
    hints = typing.get_type_hints(thing.__init__ if _is_plain_class(thing) else thing, include_extras=True)
    rows = []
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name in skip or parameter.kind is parameter.VAR_KEYWORD:
            continue
        default = "" if parameter.default is parameter.empty else f"`{_default(thing, parameter)}`"
        allowed = _allowed(hints.get(parameter.name))
        rows.append((f"`{parameter.name}`", default, allowed, meanings.get(parameter.name, "")))
    return table(("setting", "default", "takes", "meaning"), rows)


def _default(thing: Any, parameter: inspect.Parameter) -> str:
    for field in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
        if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            return f"{type(made).__name__}()" if isinstance(made, Settings) else repr(made)
    return _value(parameter.default)


def _family(thing: Any) -> str:
    """Settings that a family of recipes shares beyond those of all recipes, told where they are declared."""
    module = inspect.getmodule(thing)
    for kind in vars(module).values() if inspect.isfunction(thing) else ():
        if typing.is_typeddict(kind) and kind.__module__ == thing.__module__ and kind is not papers.Common:
            told = _items("\n".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[1:]))
            if told:
                return table(("setting", "meaning (default)"), [(f"`{name}`", text) for name, text in told.items()])
    return ""


def _is_plain_class(thing: Any) -> bool:
    return inspect.isclass(thing) and not dataclasses.is_dataclass(thing)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; empty without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _value(value: object) -> str:
    if isinstance(value, Settings):
        given = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
        changed = [f"{name}={_value(v)}" for name, v in given if v != _default_of(value, name)]
        return f"{value.label()}({', '.join(changed)})" if changed else value.label()
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    return '""' if value == "" else str(value)


def _default_of(part: Settings, name: str) -> object:
    field = next(f for f in dataclasses.fields(part) if f.name == name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _allowed(hint: Any) -> str:
    """What a type hint takes, in words."""
    if typing.get_origin(hint) is Callable:
        return "a function"
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        kind, *bounds = typing.get_args(hint)
        said = [bound.words for bound in bounds if isinstance(bound, Takes)]
        return said[0] if said else f"{_allowed(kind)} {_bounds(bounds)}".strip()
    if origin is typing.Literal:
        return ", ".join(str(choice) for choice in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        kinds = [_allowed(kind) for kind in typing.get_args(hint) if kind is not type(None)]
        return " or ".join([*dict.fromkeys(filter(None, kinds)), *(["none"] if type(None) in hint.__args__ else [])])
    if origin in (tuple, Sequence):
        return f"list of {_allowed(typing.get_args(hint)[0])}".removesuffix(" of ")
    if inspect.isclass(hint) and issubclass(hint, Settings):
        return f"`{hint.__name__}`"
    words = {float: "number", int: "whole number", str: "text", bool: "true, false", Path: "path"}
    return words.get(hint, "")


def _bounds(bounds: Sequence[object]) -> str:
    signs = {Gt: ("> ", "gt"), Ge: ("≥ ", "ge"), Lt: ("< ", "lt"), Le: ("≤ ", "le")}
    said = []
    for bound in bounds:
        if type(bound) in signs:
            sign, attribute = signs[type(bound)]
            said.append(f"{sign}{getattr(bound, attribute):g}")
    return ", ".join(said)


def _command_line() -> Iterator[str]:
    yield "## Command line"
    yield (
        "Exit codes: 0 done; 1 a run failed, and what it had is kept; 2 something that you can mend; 130 stopped by "
        "Ctrl-C. In a pipe nothing moves and nothing is coloured."
    )
    commands = dict(_commands(app, "polyrhythm"))
    for path, (callback, keys) in commands.items():
        yield f"### {path}\n\n{_line(callback.__doc__ or '')}"
        own = list(_options(callback))
        arguments = sum(not name.startswith("`-") for name, _ in own)
        yield table(
            ("option", "meaning"), [*own[:arguments], *((flag(key), key.help) for key in keys), *own[arguments:]]
        )
    yield "## Experiment file"
    yield (
        "TOML. Each key but `evaluation`, `checkpoint` and `tracking` is also an option of `polyrhythm run`, "
        "which wins over the file; `--set key=value` wins over both and reaches every key, as in `--set "
        "evaluation.every=5`. An unknown key is an error. A setting inside a text that names something has a key,"
        " too: `--set method.lr=0.1`, `--set method.prox.mu=0.01`, `--set partition.alpha=1`. `method` and "
        "`fleet` may be lists: the parts of a pipe. Where the default is none, the value follows from other keys:"
        " 20 clients, or all there are with `by_column`; 30 rounds, or no limit with `until`; the model that fits"
        " the data set, which is `char-lstm` for shakespeare, `char-lstm(every=true)` for text and roles, "
        "`multilabel-logistic` for stackoverflow-tags, "
        "`signal-cnn` for hapt and beijing-air, `lenet5` for spoken-digits and mnist-by-writer, `logistic` for "
        "heart-disease, tcga-brca and sites, and otherwise `mlp`."
    )
    rows = [(f"`{key.name}`", f"`{_value(key.default)}`", key.about) for key in KEYS.values() if key.table is None]
    yield table(("key", "default", "meaning"), rows)
    yield "### A study's search"
    yield "A study file may have a table `[tuning]` or `[sweep]`, see [its page](studies.md)."
    told = [(f"`{k}`", f"`{_value(f.get_default(call_default_factory=True))}`", str(f.description)) for k, f in _SEARCH]
    yield table(("key", "default", "takes"), told)
    yield "### The language of names"
    yield from _split(inspect.cleandoc(expressions.__doc__ or "")).text


_SEARCH = SEARCH.model_fields.items()


def flag(key: Key) -> str:
    """A key's option."""
    return f"`--{key.name.replace('_', '-')}`"


def _commands(group: typer.Typer, path: str) -> Iterator[tuple[str, tuple[Callable[..., Any], Sequence[Key]]]]:
    for command in group.registered_commands:
        if command.callback is not None:
            keys = taken_by(command.cls)
            yield f"{path} {command.name or command.callback.__name__}", (command.callback, keys)
    for inner in group.registered_groups:
        if inner.typer_instance is None:
            continue
        root = inner.typer_instance.registered_callback
        within = f"{path} {inner.name}" if isinstance(inner.name, str) else path  # else its commands are of the group
        if root is not None and root.callback is not None:
            yield within, (root.callback, ())
        yield from _commands(inner.typer_instance, within)


def _options(callback: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(name as it is written, meaning), from the annotations: what `--help` prints differs between versions."""
    for key, hint in typing.get_type_hints(callback, include_extras=True).items():
        for said in getattr(hint, "__metadata__", ()):
            # In an annotation typer keeps the first name where the default would stand otherwise.
            names = [f"`{name}`" for name in (said.default, *(said.param_decls or ())) if isinstance(name, str)]
            yield ", ".join(names) or f"`{said.metavar or key.upper()}`", _line(said.help or "")


def _recipes() -> Iterator[str]:
    yield "## Recipes"
    yield (
        "A recipe answers all eight questions. Every recipe takes the common settings, with the same defaults, and any "
        'part below can be piped onto it. `preset="paper"` puts the paper\'s own settings under those you give.'
    )
    yield "### Common settings"
    common = _items("\n".join(inspect.cleandoc(papers.Common.__doc__ or "").split("\n\n")[1:]))
    yield table(("setting", "meaning (default)"), [(f"`{name}`", text) for name, text in common.items()])
    modules: dict[str, list[str]] = {}
    for name, make in names.RECIPES.items():
        modules.setdefault(make.__module__, []).append(name)
    for members in modules.values():
        source = inspect.getmodule(names.RECIPES[members[0]])
        cited = _split(inspect.cleandoc((source and source.__doc__) or "")).text[1:]
        for name in members:
            yield entry(name, names.RECIPES[name], skip=("common", "settings"), extra=_in_parts(name))
        yield from (f"Source: {paragraph}" for paragraph in cited)


def _in_parts(name: str) -> str:
    """The recipe as parts on FedAvg, where that is the same method to the last digit."""
    made: Recipe = names.RECIPES[name]()
    base: Recipe = names.RECIPES["fedavg"]()
    if name == "fedavg" or made.regime != "federated":
        return ""
    known = set(map(_value, base.parts()))
    parts = [said for said in map(_value, _slots(made)) if said not in known]
    text = " | ".join(["fedavg", *parts])
    try:
        same = names.recipe(text).digest == made.digest
    except UserError:  # a setting that text cannot say
        same = False
    return f"By default the same as `{text}`." if same else ""


def _slots(made: Recipe) -> Iterator[Mechanism]:
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Mechanism))


def _parts() -> Iterator[str]:
    yield "## Parts"
    yield (
        "What stands on the right of a pipe. A part takes the place of the one before it in its slot, and the run says "
        "so, or it changes what that part decides; corrections chain, scales multiply."
    )
    for title, question, bases in SLOTS:
        yield f"### {title}\n\n{question}"
        for name, part in sorted(names.PARTS.items()):
            if issubclass(part, bases):
                yield entry(name, part, level=4)
    yield "### Inside parts"
    yield (
        "Settings of parts and fleets that are things with names of their own, as in "
        "`ccfl(budgets=listed(shares=[1, 0.5]))`."
    )
    for kinds in (names.BUDGETS, names.DETECTORS, {"pacing": Pacing, "adaptive": Adaptive}):
        for name, kind in kinds.items():
            yield entry(name, kind, level=4)


def _data() -> Iterator[str]:
    yield "## Data sets"
    yield (
        "By name on the command line and in files, and as functions of `polyrhythm.data` (with underscores). Downloads "
        "are checked by SHA-256 and kept in `$POLYRHYTHM_CACHE`, or `~/.cache/polyrhythm`."
    )
    for name, source in data.SOURCES.items():
        yield entry(name, source)
    yield "## Partitions"
    parts = parsed(Partition).args["parts"]
    yield f"Who holds which samples. Every partition also takes `parts`: {parts}"
    for name, partition in data.PARTITIONS.items():
        yield entry(name, partition, skip=("parts",))


def _models() -> Iterator[str]:
    yield "## Models"
    yield "By name, by import path (`package.module:Name`), or in Python any builder or module."
    for name, builder in MODELS.items():
        yield entry(name, builder, skip=("shape", "outputs"))
    yield entry("with-projection", with_projection, skip=("builder",))
    yield entry("with-lora", with_lora, skip=("builder",))
    yield "## Tasks"
    yield (
        "The task follows from the data's targets, and `task` gives it other settings, as in "
        '`--task "multilabel(k=3)"`, `task = "multilabel(k=3)"` in a file or `pr.task("multilabel", k=3)` in Python. '
        "Metrics are pooled over samples, never a mean over batches."
    )
    for name, kind in TASKS.items():
        yield entry(name, kind)
    yield "## Fleets"
    yield (
        "A source, and parts after pipes: `tiers | links(down=1e6) | markov`. The page on [fleets](fleet.md) tells how "
        "they go together, and which forms of files are read. In Python they are classes of `polyrhythm.fleet`."
    )
    yield "### Sources"
    for name, fleet in {**names.DEVICES, **names.FLEETS}.items():
        yield entry(name, fleet, level=4)
    yield "### Parts of a fleet"
    for name, fleet in names.OF_FLEETS.items():
        yield entry(name, fleet, level=4)


def _record() -> Iterator[str]:
    yield "## The record"
    yield (
        "An output folder (`--out`, by default `runs`) holds `runs.sqlite` and a folder for each run with "
        "`final.safetensors` and `best.safetensors`, which any torch user can load by name, and "
        "[checkpoints](runs.md). The database may be read by anybody at any time, also while a run goes on."
    )
    yield "### Summary: the line of `--json`"
    found = {"run_id", "status", "reason", "notices", "missing", *_summary().fields(digest="", wall_seconds=0.0)}
    _same(found, SUMMARY_FIELDS, "the summary")
    fields = {**SUMMARY_FIELDS, **OF_CLIENTS}
    yield table(("field", "meaning"), [(f"`{name}`", text) for name, text in fields.items()])
    records: dict[str, Mapping[str, str]] = {
        "runs": RUN_COLUMNS,
        "versions": {"run": "the run's number"} | dict(parsed(VersionRecord).args),
        "visits": {"run": "the run's number"} | dict(parsed(VisitRecord).args),
        "answers": {"run": "the run's number"}
        | dict(parsed(AnswerRecord).args)
        | {"clients": 'the answer, in order, as unsigned 32-bit integers, little-endian; null for "all"'},
        "events": {"run": "the run's number"} | dict(parsed(EventRecord).args),
        "clients": {"run": "the run's number"} | dict(parsed(ClientRecord).args),
        "client_results": {"run": "the run's number"} | dict(parsed(ClientResultsRecord).args),
        "class_results": {"run": "the run's number"} | dict(parsed(ClassResultsRecord).args),
        "labels": {"run_id": "the run's id"} | {k: v for k, v in parsed(Labels).args.items() if k != "tags"},
        "tags": {"run_id": "the run's id", "tag": "one of its tags"},
    }
    yield (
        "In the tables of results, columns with several numbers hold unsigned 32-bit integers, and scores and losses "
        "64-bit floats, little-endian."
    )
    for name, columns in _columns().items():
        _same(columns, records[name], f"the table {name}")
        yield f"### Table `{name}`"
        yield table(("column", "meaning"), [(f"`{column}`", records[name][column]) for column in columns])


def _summary() -> Summary:
    return Summary(Best(""))


def _columns() -> dict[str, list[str]]:
    """The columns of each table of a fresh database."""
    with tempfile.TemporaryDirectory() as folder:
        Writer(Path(folder)).close()
        database = sqlite3.connect(Path(folder) / "runs.sqlite")
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {t: [row[1] for row in database.execute(f"PRAGMA table_info({t})")] for t in tables}
        database.close()
    return columns


def _same(found: Iterable[str], described: Iterable[str], what: str) -> None:
    if odd := set(found) ^ set(described):
        raise SystemExit(f"{what}: {', '.join(sorted(odd))} exist or are described, but not both")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} written")
