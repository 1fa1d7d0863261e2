"""What a server takes for an answer to what it has asked: one case for each thing that a node may say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import polyrhythm as pr
from mutations import LIES, TENSORS
from polyrhythm.base.messages import Assignment
from polyrhythm.base.vectors import spans_of
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.server import Server
from polyrhythm.deployment.hearing import LARGEST, Hearing
from polyrhythm.deployment.messages import MOST_COUNTED, Answer, Malformed, Refusal
from polyrhythm.deployment.wire import pack, unpack
from polyrhythm.simulation.roster import OpenRoster
from small import prepared

RECIPES: dict[str, Callable[[], pr.Recipe]] = {
    "fedavg": lambda: pr.fedavg(cohort=2, epochs=1, batch=5),
    "scaffold": lambda: pr.scaffold(cohort=2, epochs=1, batch=5, momentum=0.5),
    "fedprox": lambda: pr.fedprox(cohort=2, epochs=2, batch=5, mu=0.3),
    "int8": lambda: pr.fedavg(cohort=2, batch=5) | pr.parts.compress_int8(),
    "top_k": lambda: pr.fedavg(cohort=2, batch=5) | pr.parts.compress_top_k(share=0.2),
    "fedcl": lambda: pr.fedcl(cohort=2, epochs=1, batch=5),
    "ccfl": lambda: pr.ccfl(cohort=2, epochs=1, batch=5),
    "oort": lambda: pr.oort(cohort=2, batch=5),
    "cosine": lambda: pr.fedavg(cohort=2, batch=5) | pr.parts.cosine(),
    "moon": lambda: pr.moon(cohort=2, batch=5, layer="logits"),
    "measured": lambda: pr.power_of_choice(cohort=2, batch=5),
}


class Heard:
    """A true answer, and the judge of it."""

    def __init__(self, recipe: pr.Recipe, **changes: Any) -> None:
        made = prepared(recipe=recipe, **changes)
        engine, setup, start = made.chosen.engine, made.setup, made.initial
        server = Server(recipe=recipe, setup=setup, layout=engine.layout)
        turn = server.begin(start.weights, start.buffers, OpenRoster(4, range(4)))
        self.sent = turn.assignments[0]
        data = made.data_of(self.sent.client)
        _, report = work(recipe, setup, ClientState(), self.sent, data, engine)
        self.layout, self.answer = engine.layout, Answer(seconds=1.0, report=report, run="r")
        self.judge = Hearing(recipe, setup, engine.layout)

    def check(self, answer: Answer | None = None, sent: Assignment | None = None, num_samples: int = 15) -> None:
        """Over the wire, as it would come."""
        spans = spans_of(self.layout)
        answer = answer or self.answer
        unpack(
            pack(answer, spans if answer.report.packed is not None else None),
            Answer,
            Refusal,
            spans=spans,
            vectors=self.judge.vectors,
            check=lambda a: self.judge.check(a, sent or self.sent, run="r", num_samples=num_samples),  # type: ignore[arg-type]
        )

    def refused(self, **changes: Any) -> str:
        with pytest.raises(Malformed) as caught:
            self.check(replace(self.answer, report=replace(self.answer.report, **changes)))
        return str(caught.value)


@pytest.mark.parametrize("name", RECIPES)
def test_what_an_honest_client_sends_is_taken(name: str) -> None:
    Heard(RECIPES[name]()).check()


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "int8", "measured"])
@pytest.mark.parametrize("field", LIES)
def test_no_field_may_be_what_it_cannot(name: str, field: str) -> None:
    heard = Heard(RECIPES[name]())
    for value in LIES[field]:
        of_its_part = name == "scaffold" and isinstance(value, dict) and "control_variates" in value  # which refuses it
        if repr(value) != repr(getattr(heard.answer.report, field)) and not of_its_part:
            assert heard.refused(**{field: value}), value


def test_any_mismatch_is_named() -> None:
    heard = Heard(RECIPES["fedavg"]())
    sent = heard.sent
    assert heard.refused(version=sent.version + 1) == "a report of version 1, where 0 was sent"
    assert heard.refused(visit=sent.visit + 1) == "a report of visit 1, where 0 was sent"
    assert heard.refused(kind="measure") == "a report of kind measure, where train was sent"
    assert heard.refused(client=99).startswith("a report of client 99, where")
    assert heard.refused(dispatch=7) == "a report of dispatch 7, where 0 was sent"
    assert heard.refused(recipe="0" * 64) == "a report from another recipe"
    with pytest.raises(Malformed, match="a report of the run 'another', where 'r' was asked"):
        heard.check(replace(heard.answer, run="another"))
    for seconds in (-1.0, float("nan"), float("inf"), 2 * LARGEST):
        with pytest.raises(Malformed, match="seconds of work"):
            heard.check(replace(heard.answer, seconds=seconds))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_samples": 16}, "16 samples held, where it has declared 15"),
        ({"steps": 0}, "0 steps on 15 samples"),
        ({"steps": 16}, "16 steps on 15 samples"),
        ({"samples": 46}, "3 steps on 46 samples"),
        ({"samples": MOST_COUNTED + 1}, "samples"),
        ({"age": 1}, "1 versions old"),
        ({"packed": 0}, "packed in 0 bytes"),
        ({"rate": 0.2}, "the learning rate 0.2, which is not the recipe's"),
        ({"travel": 0.2}, "a travel of 0.2, where 3 steps at 0.1 have 0.3"),
        ({"travel": 1e-300}, "a travel of 1e-300"),
        ({"loss": float("nan")}, "loss nan"),
        ({"loss": -float("inf")}, "loss -inf"),
        ({"loss": 1e200}, "loss 1e"),
        ({"measures": {"loss": 1.0}}, "measures that nobody asked for: 'loss'"),
        ({"extras": {"fed": {}}}, "belongs to no part of the recipe: fed"),
        ({"substitute": "silence", "update": None, "steps": 0, "samples": 0}, "a silence instead of training"),
        ({"substitute": "silence"}, "15 samples where it did not train"),
        ({"idle": ((0, 1),)}, "idle parts that are no parameters"),
        ({"buffers": (torch.zeros(2),)}, "the buffers do not have the model's layout"),
    ],
)
def test_counts_and_contents_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    assert words in Heard(RECIPES["fedavg"]()).refused(**changes)


@pytest.mark.parametrize("name", TENSORS)
def test_an_update_of_another_kind_is_refused_before_anything_is_computed_of_it(name: str) -> None:
    heard = Heard(RECIPES["fedavg"]())
    changed = TENSORS[name](heard.answer.report.update)  # type: ignore[arg-type]
    if name in ("nan", "infinite"):  # training that diverges: the core says so
        report = replace(heard.answer.report, update=changed)
        heard.check(replace(heard.answer, report=report))
        return
    words = heard.refused(update=changed)
    kinds = {"int32": "torch.int32", "bool": "torch.bool", "endless": "no number in torch.float32"}
    assert kinds.get(name, "") in words


def test_what_is_measured_is_there_and_can_be_counted_with() -> None:
    heard = Heard(RECIPES["oort"]())
    squared = dict(heard.answer.report.measures)
    assert heard.refused(measures={}) == "no measure of squared_loss"
    assert heard.refused(measures={**squared, "squared_loss": -1.0}) == "a measure squared_loss of -1"
    report = replace(heard.answer.report, measures={**squared, "squared_loss": float("nan")})
    heard.check(replace(heard.answer, report=report))  # parts that read it pass over it
    heard = Heard(RECIPES["measured"]())
    report = heard.answer.report
    assert report.kind == "measure"
    assert heard.refused(measures={}) == "no measure of loss"
    for more in ({"update": torch.zeros(heard.layout.size)}, {"loss": 1.0}, {"rate": 0.1}, {"steps": 1}):
        assert heard.refused(**more)
    assert heard.refused(forward_samples=16) == "16 samples measured, of 15"


def test_a_movement_comes_from_whoever_keeps_it() -> None:
    skips: dict[str, Any] = {"substitute": "movement", "steps": 1, "samples": 0, "loss": None, "buffers": ()}
    skips |= {"extras": {}, "measures": {}, "idle": ()}
    at_client = Heard(RECIPES["ccfl"]())
    assert "the update does not have" in at_client.refused(**skips, update=None)
    at_server = Heard(pr.ccfl(cohort=2, epochs=1, batch=5, storage="server"))
    report = replace(at_server.answer.report, **skips, update=None)
    at_server.check(replace(at_server.answer, report=report))
    assert "an update beside its movement" in at_server.refused(**skips)
    assert "a model instead of training" in at_client.refused(**{**skips, "substitute": "model"})
