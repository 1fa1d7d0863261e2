"""What is put around a model after a pipe, as the one call that it is: `hf(path=x) | lora(rank=8)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.config.calls import key_of
from polyrhythm.config.expressions import Call
from polyrhythm.models.catalogue import AROUND
from polyrhythm.models.low_rank import RANK


def folded(calls: Iterable[Call]) -> Call:
    """A model with what stands after pipes around it.

    `lora` behind a model of `hf` is peft's adapter, hf(…, rank=8), and behind any other with_lora(…, rank=8).

    >>> from polyrhythm.config.expressions import parse_pipeline
    >>> str(folded(parse_pipeline("hf(path=x) | lora(rank=4)"))), str(folded(parse_pipeline("mlp | lora(rank=4)")))
    ('hf(path=x, rank=4)', 'with_lora(mlp, rank=4)')

    Raises:
        UserError: what stands after a pipe is nothing that is put around models, or a model is told its task.
    """
    made, *around = calls
    for call in around:
        made = _around(made, call)
    if key_of(made.name) == "hf" and "task" in made.named:
        raise _no_task(made)
    return made


def _around(inner: Call, call: Call) -> Call:
    key = key_of(call.name)
    name = key if key in AROUND else f"with_{key}"
    if name not in AROUND:
        raise unknown("part of a model", call.name, [word.removeprefix("with_") for word in AROUND])
    if call.positional:
        raise UserError(
            f"{inner} | {call}",
            expected=f"settings as name=value, as in {inner} | {key.removeprefix('with_')}({_example(name)})",
            why="the model that it is put around stands before the pipe",
            fix=f"write {call.positional[0]} with its name",
        )
    if key == "lora" and key_of(inner.name) == "hf" and "head" not in call.named:
        if twice := sorted(inner.named.keys() & call.named.keys()):
            raise UserError(
                f"{inner} | {call}: {twice[0]} is given twice",
                expected=f"{twice[0]} in one of the two",
                why="lora after a pipe gives settings of the model's adapter",
                fix=f"leave {twice[0]} out in one of them",
            )
        return replace(inner, named={**inner.named, "rank": RANK, **call.named})
    return Call(name, (inner,), call.named, inner.place)


def _example(name: str) -> str:
    return "rank=8" if name == "with_lora" else "size=256"


def _no_task(call: Call) -> UserError:
    """The error for a model of `hf` that was told its task, as one tells other libraries."""
    task = str(call.named["task"])
    head = "classes" if "class" in task.lower() or task.lower().startswith("seq") else "causal"
    named = {"head" if name == "task" else name: value for name, value in call.named.items()} | {"head": head}
    return UserError(
        f"hf(task={task})",
        expected="head=causal for the next token, or head=classes for one class a text",
        why="what is asked of a model is the task of the data; of the model it is the head that is chosen",
        fix=f"write {replace(call, named=named)}",
    )
