"""Experiment files from valid to wildly wrong, drawn by Hypothesis from what the program itself says it takes.

Recipes of random parts with random settings, fleets, partitions, models and data; keys left out, misspelt, of the wrong
type, or out of range; and some texts that are no TOML at all. Half of the files are written with care: whatever is
wrong with them lies in how things go together. Sizes are tiny: values that are allowed but take for ever, such as a
million rounds, are not drawn.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from hypothesis import strategies as st

from polyrhythm.config import names
from polyrhythm.config.json_schema import settings_of
from polyrhythm.config.setting_checks import hints_of
from polyrhythm.data import PARTITIONS, SOURCES
from polyrhythm.models.catalogue import MODELS
from polyrhythm.models.tasks import TASKS

Texts = st.SearchStrategy[str]

_WORDS = st.sampled_from(
    ["x", "label", "features", "logits", "projection", "a b", "", "ä", "../x", "%s", "target_band"]
)
_WHOLE = st.sampled_from([1, 2, 3, 4, 1, 2, 3, 5])
_NUMBERS = st.sampled_from([0.5, 0.1, 1.0, 2.0, 0.01, 0.9, 3.0, 0.0, 0.25])
_ODD = st.sampled_from(
    [
        *("0", "-1", "-0.5", "1.5", "1e30", "1e-30", "7", "2.0", "true", "none", "x", "[]", "[1]", "'1'", "1e999"),
        *("nan", "prox", "prox(mu=1)", "'", "(", "1 2", "-", "[[1], [2]]", "99999999999999999999"),
        *("9" * 5000, "[" * 2000, "a(b=" * 2000, "0x10", "1_000", "-nan"),
    ]
)
_LISTS = st.lists(_NUMBERS | _WHOLE, min_size=1, max_size=3)
_FILES = st.sampled_from(
    [
        *("labels.npz", "numbers.npz", "tags.npz", "odd.npz", "table.csv", "empty.csv", "plays.json", "posts.jsonl"),
        *("nowhere", "."),
    ]
)


def value_for(name: str, hint: Any, care: bool) -> Texts:
    """The text of a value that probably fits an annotation."""
    kind, inside = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Annotated:
        return value_for(name, inside[0], care)
    if kind in (typing.Union, types.UnionType):
        return st.one_of([value_for(name, choice, care) for choice in inside])
    if name in names._INSIDE and kind is None:
        return st.deferred(lambda: call(names._INSIDE[name], care))
    if name == "inner":
        return st.deferred(lambda: call(PARTITIONS, care))
    if name in ("path", "folder", "capacity", "availability", "bandwidth"):
        return _FILES
    if kind is Literal:
        return st.sampled_from(inside).map(_text)
    if kind is tuple or "Sequence" in str(hint):
        return _LISTS.map(lambda values: f"[{', '.join(map(_text, values))}]")
    plain: dict[Any, Texts] = {
        type(None): st.just("none"),
        bool: st.booleans().map(_text),
        int: _WHOLE.map(_text),
        float: (_NUMBERS | _WHOLE).map(_text),
    }
    return plain.get(hint, _WORDS.map(lambda word: f"'{word}'"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


@st.composite
def call(draw: st.DrawFn, known: Mapping[str, Any], care: bool) -> str:
    """A name with some of its settings; without care, also one that is not its, or a value that cannot be."""
    name = draw(st.sampled_from(sorted(known)))
    make, hints = known[name], hints_of(known[name])
    own = [key for key in settings_of(make) if key not in ("shape", "outputs", "builder")]
    chosen = draw(st.lists(st.sampled_from(own), unique=True, max_size=2)) if own else []
    needed = [key for key in own if _needed(make, key) and (care or _often(draw, 10))]
    values = {key: draw(value_for(key, hints[key], care)) for key in dict.fromkeys([*needed, *chosen])}
    if not care:
        for key in values:
            if not _often(draw, 8):
                values[key] = draw(_ODD)
        if not _often(draw, 15):
            values[draw(st.sampled_from(["mu", "alpa", "x", "lr", "rounds"]))] = "1"
        if not _often(draw, 15):
            name = draw(st.sampled_from([name[:-1], name.upper(), name.replace("_", "-"), "fedavg", "nothing"]))
    arguments = ", ".join(f"{key}={value}" for key, value in values.items())
    return f"{name}({arguments})" if arguments or not _often(draw, 3) else name


def _often(draw: st.DrawFn, one_in: int) -> bool:
    """True but for one time in so many."""
    return draw(st.integers(1, one_in)) != 1


def _needed(make: Callable[..., Any], key: str) -> bool:
    parameter = inspect.signature(make).parameters.get(key)
    return parameter is not None and parameter.default is parameter.empty


_DATA = st.sampled_from([f"npz(path={name}.npz)" for name in ("labels", "numbers", "tags", "images", "single")])
_MODELS = {
    name: made for name, made in MODELS.items() if name in ("logistic", "mlp", "ccfl-mlp", "multilabel-logistic")
}
_LIKELY = ("method", "fleet", "partition", "clients")
_ENOUGH = {"rounds": "2", "data": '"npz(path=labels.npz)"', "model": '"logistic"', "clients": "6"}


def _pipe(first: Texts, rest: Texts, most: int) -> Texts:
    return st.tuples(first, st.lists(rest, max_size=most)).map(lambda made: " | ".join([made[0], *made[1]]))


def _values(care: bool) -> dict[str, Texts]:
    """What may stand under each key, as TOML."""
    some = lambda *texts: st.sampled_from(texts)  # noqa: E731
    quoted = lambda texts: texts.map(json.dumps)  # noqa: E731
    recipes = some("fedavg(cohort=3, epochs=1)", "fedavg(steps=2)") | call(names.RECIPES, care)
    devices = some("uniform", "tiers", "lognormal", "phones") | call({**names.DEVICES, **names.FLEETS}, care)
    method = _pipe(recipes, call(names.PARTS, care), 3)
    good = {
        "data": quoted(_DATA),
        "clients": some("1", "2", "4", "7"),
        "partition": quoted(some("iid") | call(PARTITIONS, care)),
        "model": quoted(some("logistic", "mlp(hidden=[3])") | call(_MODELS, care)),
        "method": quoted(method) | method.map(lambda text: json.dumps(text.split(" | "))),
        "task": quoted(call(TASKS, care)),
        "fleet": quoted(_pipe(devices, call(names.OF_FLEETS, care), 2)),
        "rounds": some("1", "2", "3"),
        "until": some('"updates=3"', "{time = 0.5}", "{accuracy = 0.1}"),
        "seed": some("0", "1", "7", "9223372036854775807", "18446744073709551616"),
        "seeds": some("[0]", '"0-1"'),
        "validation": some("0", "0.2", "0.01"),
        "local_test": some("0", "0.2", '"natural"', '"0.3"'),
        "unseen": some("0", "0.2", "0.5"),
        "engine": some('"torch"', '"native"', '"auto"', '"stacked"'),
        "faults": some(
            '"nan=0.2"', '"lost=0.3, stray=0.2"', '"corrupt=0.5"', '"faults(crash=0.5, downtime=1)"', '"slow=0.5"'
        ),
        "checkpoint": some("{every = 1}", '{every = "never"}', '{every = "5 s", keep = 1}'),
        "client_memory": some('"all"', '"0 B"', '"2 KiB"', '"1GB"'),
        "device": some('"auto"', '"cpu"'),
        "stack": some("2"),
        "precision": some('"float32"', '"bfloat16"'),
        "micro_batch": some("2", "1000"),
        "recompute": some("false"),
        "evaluation": some(
            "{every = 2}",
            "{train_samples = 5}",
            "{groups = true}",
            '{measure = ["update_similarity", "estimation_error"]}',
        ),
        "tracking": some('{project = "x"}'),
        "name": some('"x"', '"ä [red] \\u0001"'),
    }
    if care:
        return good
    odd = {
        "data": quoted(call(SOURCES, care)),
        "clients": some("60", "0", "-3", "4.0", '"4"', "100000000000"),
        "model": quoted(some("torch.nn:Identity", "torch.nn:Linear(in_features=4)", "no.such:Net", "os:path", "")),
        "rounds": some("0", "1.5", "1e2", '"2"', "true"),
        "until": some('"accuracy"', "{updates = 0}", "3", "{}", "{time = inf}", "[]"),
        "seed": some("-1", "0.5", "1e3"),
        "seeds": some("[]", '"2-1"', "[1, -1]", "[1.0]", '"0-99999999999"'),
        "validation": some("0.99", "1", "-0.1", "nan", '"x"'),
        "local_test": some("0.9", "1.5", '"x"', "true"),
        "unseen": some("0.99", "1", "-0.1", "nan", '"x"'),
        "init": some('"nowhere.safetensors"', '"labels.npz"', '"."', '""', "3", '"\\u0000"'),
        "init_skip": some('["linear.*"]', "[]", '"head.weight"', "3"),
        "expert": some('"nowhere.safetensors"', '"labels.npz"', "true", '"\\u0000"'),
        "driver": some('"auto"', '"inline"', '"threads"', '"processes"', '"rays"', "1"),
        "workers": some("1", "2", "0", "2.5", "5000"),
        "address": some('"auto"', '"127.0.0.1:1"', "3"),
        "gpus": some("0.5", "1", "0", "2.0", '"1"'),
        "engine": some('"jax"', "1979-05-27"),
        "faults": some('"nan=2"', '"nann=0.1"', '"crash"', '"dropout=0.1 | prox"', "0.1", '"("'),
        "checkpoint": some('{every = "5 weeks"}', "{every = 0}", "{keep = 0}", "{evry = 1}", "3", '{every = "0 s"}'),
        "client_memory": some('"much"', '"1"', '"-1 GiB"', "1", '""', '"1 gib"'),
        "device": some('"cuda:99"', '"tpu"', '""', "0", '"meta"'),
        "stack": some("3", "0", "1.5", '"2"'),
        "precision": some('"tf32"', '"half"', "16", "true"),
        "micro_batch": some("0", "1.5", '"2"'),
        "recompute": some("true", "1", '"yes"'),
        "evaluation": some("{evry = 1}", "{every = 0}", "{train_samples = -1}", "1", '{measure = ["x"]}'),
        "track": some('["wand"]', '["mlflow", "mlflo"]', "1"),
        "tracking": some("{projects = 1}", '{project = ""}', "1"),
        "name": some('""', "3", json.dumps("x" * 300)),
        "out": some('""', "3", '"labels.npz"', '"labels.npz/x"', '"\\u0000"'),
    }
    return {key: good.get(key, texts) | texts for key, texts in odd.items()} | {
        key: texts for key, texts in good.items() if key not in odd
    }


_VALUES = {care: _values(care) for care in (True, False)}
KEYS = set(_VALUES[False])
"""Every key of a file."""


@st.composite
def experiments(draw: st.DrawFn) -> str:
    """A whole file. Those that say nothing of the data or the rounds get tiny ones, so that they end."""
    care = draw(st.booleans())
    values = _VALUES[care]
    keys = draw(st.lists(st.sampled_from(sorted(values)), unique=True, max_size=4))
    keys += [key for key in _LIKELY if key not in keys and draw(st.booleans())]
    lines = _ENOUGH | {key: draw(values[key]) for key in keys}
    if not care and not _often(draw, 10):
        lines[draw(st.sampled_from(["roundz", "lr", "every", "a.b", "'ä'", "method.x"]))] = "1"
    text = "\n".join(f"{key} = {value}" for key, value in lines.items())
    if not care and not _often(draw, 15):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(["", '"', "[", "\n", "=", "\x00", "}"])) + text[place + 1 :]
    return text
