"""On nodes whose clients hold a part of the model, only that part travels, both ways, and nothing else is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.portions import portion_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.held_part import held_part
from polyrhythm.deployment.messages import Answer, Order
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.wire import Parcel, pack, unpack
from polyrhythm.experiments.prepared import prepare
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

from .test_remote import CLIENTS, federated, lost

SMALL: dict[str, Any] = {"cohort": 4, "epochs": 1, "batch": 5}


def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


def plain(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, outputs))


def exits(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return pr.models.build("mlp-exits", shape, outputs, hidden=(12, 8))


def adapters(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return pr.models.with_lora(plain, rank=3)(shape, outputs)


def experiment(recipe: pr.Recipe, model: Any = net) -> pr.Experiment:
    return pr.Experiment(federation=federation(clients=CLIENTS), model=model, rounds=3, recipe=recipe)


WIDTHS: dict[str, Any] = {"ratio": (1.0, 0.5, 0.25)}
RECIPES: dict[str, Callable[[], pr.Experiment]] = {
    "width_prefix": lambda: experiment(pr.fedavg(**SMALL) | pr.parts.width_prefix(**WIDTHS)),
    "rolling_window": lambda: experiment(pr.fedavg(**SMALL) | pr.parts.rolling_window(**WIDTHS)),
    "random_width": lambda: experiment(pr.fedavg(**SMALL) | pr.parts.random_width(**WIDTHS)),
    "largest_weights": lambda: experiment(pr.fedavg(**SMALL) | pr.parts.largest_weights(ratio=(1.0, 0.3, 0.1)), plain),
    "depth_prefix": lambda: experiment(pr.depthfl(**SMALL, depth=(1, 2)), exits),
    "control variates": lambda: experiment(pr.scaffold(**SMALL) | pr.parts.width_prefix(**WIDTHS)),
    "levels": lambda: experiment(pr.fedavg(**SMALL) | pr.parts.width_prefix(**WIDTHS) | pr.parts.compress_int8()),
    "sparse": lambda: experiment(
        pr.fedavg(**SMALL) | pr.parts.random_width(**WIDTHS) | pr.parts.compress_top_k(share=0.1)
    ),
    "classes": lambda: experiment(pr.heterofl(**SMALL, ratio=(1.0, 0.5), masked=True), plain),
    "ranks": lambda: experiment(pr.hetlora(**SMALL, rank=(3, 1)), adapters),
    "a factor that rests": lambda: experiment(pr.rolora(**SMALL) | pr.parts.rank_prefix(rank=(3, 1)), adapters),
    "a window, event by event": lambda: experiment(
        pr.fedbuff(concurrency=4, buffer=2, batch=5, epochs=1) | pr.parts.rolling_window(**WIDTHS)
    ),
}
"""Both answers of norms, all ways to cut a model, and what goes along with updates."""


def visits_of(done: dict[str, Any], made: pr.Experiment) -> list[tuple[Order, Parcel, Parcel]]:
    """Orders, as they were sent, and their answers."""
    orders = [(unpack(p, Order, Order), p) for _, p in done["line"].sent if '"Order"' in p.text]
    answers = [p for p in done["line"].answers if '"Answer"' in p.text]
    return [(order, sent, came) for (order, sent), came in zip(orders, answers, strict=True)]


@pytest.mark.parametrize("name", RECIPES)
def test_what_travels_is_what_is_billed_and_the_numbers_are_those_of_the_simulation(tmp_path: Path, name: str) -> None:
    made = RECIPES[name]()
    done = federated(tmp_path, lambda: made)
    assert (done["status"], done["faults"]) == ("finished", {})
    simulated = pr.run(made, out=tmp_path / "simulated")
    billed = done["run"].visits
    if "event" not in name:
        assert done["digest"] == simulated.summary["digest"]
        for column in ("bytes_up", "bytes_down"):
            assert list(billed[column]) == list(simulated.visits[column])
    whole, fewer = prepare(made).chosen.engine.layout.vector_bytes, 0
    for order, sent, came in visits_of(done, made):
        if order.assignment.dispatch not in billed.index:
            continue  # still under way at the end
        row = billed.loc[order.assignment.dispatch]
        down, up = (sum(array.nbytes for array in parcel.arrays) for parcel in (sent, came))
        if order.assignment.weights.nbytes >= whole:
            continue  # all of the model, with what pads its parameters
        fewer += 1
        assert down == row["bytes_down"]
        assert up <= down if name in ("levels", "sparse") else up == row["bytes_up"]
    assert 0 < fewer < len(billed)
    for from_updates in (False, True):
        assert pr.replay(done["run"], made, from_updates=from_updates).equal


Answers = Callable[[Parcel], Parcel]
LIES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "an update of the whole model": lambda r: {"update": torch.zeros(10_000)},
    "an update that is one short": lambda r: {"update": r.update[:-1]},
    "an update that is one too long": lambda r: {"update": torch.cat([r.update, r.update[:1]])},
    "an update of another dtype": lambda r: {"update": r.update.double()},
    "nothing": lambda r: {"update": r.update[:0]},
    "buffers of the whole model": lambda r: {"buffers": (torch.zeros(8), torch.ones(8), r.buffers[2])},
    "a buffer less": lambda r: {"buffers": r.buffers[:-1]},
}


def lying(lie: Callable[[Report], dict[str, Any]]) -> Callable[[Answers], Answers]:
    """A node whose reports are changed before they leave."""

    def instead(honest: Answers) -> Answers:
        def answer(parcel: Parcel) -> Parcel:
            given = honest(parcel)
            if '"Answer"' not in given.text:
                return given
            found = unpack(given, Answer, Answer)
            return pack(dataclasses.replace(found, report=dataclasses.replace(found.report, **lie(found.report))))

        return answer

    return instead


@pytest.mark.parametrize("lie", LIES)
def test_answers_that_do_not_fit_the_part_are_lost_visits(tmp_path: Path, lie: str) -> None:
    made = experiment(pr.fedavg(**SMALL) | pr.parts.width_prefix(ratio=0.5))
    size = prepare(made).chosen.engine.layout.size

    def lie_of(report: Report) -> dict[str, Any]:
        changed = LIES[lie](report)
        if changed.get("update") is not None and len(changed["update"]) == 10_000:
            changed["update"] = torch.zeros(size)
        return changed

    done = federated(tmp_path, lambda: made, instead={101: lying(lie_of)})
    assert done["status"] == "finished"
    gone = lost(done)
    assert len(gone) > 0
    assert set(gone["client"]) == {1}
    assert gone["reason"].str.contains("what does not fit").all()


def test_a_vector_of_the_whole_model_beside_an_update_is_refused(tmp_path: Path) -> None:
    made = experiment(pr.scaffold(**SMALL) | pr.parts.width_prefix(ratio=0.5))
    size = prepare(made).chosen.engine.layout.size

    def lie(report: Report) -> dict[str, Any]:
        return {"extras": {key: dict.fromkeys(of, torch.ones(size)) for key, of in report.extras.items()}}

    gone = lost(federated(tmp_path, lambda: made, instead={101: lying(lie)}))
    assert set(gone["client"]) == {1}
    assert gone["reason"].str.contains("a vector of the whole model, of which its client holds a part").all()


ORDERS: dict[str, Callable[[Order], dict[str, Any]]] = {
    "no index": lambda order: {"held": None},
    "an index that is too short": lambda order: {"held": order.held[:-1]},  # type: ignore[index]
    "an index of another kind": lambda order: {"held": order.held.to(torch.int32)},  # type: ignore[union-attr]
    "an index of more": lambda order: {"held": torch.full_like(order.held, 255)},  # type: ignore[arg-type]
    "an index of none": lambda order: {"held": torch.zeros_like(order.held)},  # type: ignore[arg-type]
    "weights that are too few": lambda order: {
        "assignment": dataclasses.replace(order.assignment, weights=order.assignment.weights[:-1])
    },
    "a client that is none": lambda order: {"population": 1},
}


@pytest.mark.parametrize("wrong", ORDERS)
def test_a_node_refuses_an_order_that_does_not_fit_its_part(tmp_path: Path, wrong: str) -> None:
    made = experiment(pr.fedavg(**SMALL) | pr.parts.largest_weights(ratio=0.3), plain)
    done = federated(tmp_path / "right", lambda: made)
    order = unpack(next(p for _, p in done["line"].sent if '"Order"' in p.text), Order, Order)
    client = max(1, order.assignment.client)
    order = dataclasses.replace(order, assignment=dataclasses.replace(order.assignment, client=client))
    node = Node(prepare(made), client, tmp_path / "node")
    assert '"Answer"' in node.answer(order).text
    assert '"Refusal"' in node.answer(dataclasses.replace(order, **ORDERS[wrong](order))).text


@pytest.mark.parametrize("ratio", [0.01, 0.3, 0.9])
def test_the_largest_weights_are_found_again_in_what_a_node_is_sent(ratio: float) -> None:
    made = experiment(pr.fedavg(**SMALL) | pr.parts.largest_weights(ratio=ratio), plain)
    ready = prepare(made)
    layout, draws = ready.chosen.engine.layout, torch.Generator().manual_seed(0)
    some = torch.randn(layout.size, generator=draws)
    drawn = {
        "as drawn": some,
        "many alike": some.round(),
        "mostly zero": torch.where(some.abs() > 2, some, 0.0),
        "all zero": torch.zeros(layout.size),
        "no numbers": torch.where(some.abs() > 1, torch.nan, some),
    }
    for words, weights in drawn.items():
        sent = Assignment(
            dispatch=0, client=0, visit=0, accepted=-1, kind="train", version=0, total_rounds=3, weights=weights,
            buffers=(), briefs={}, recipe="", samples=None,
        )  # fmt: skip
        part = held_part(made.recipe, ready.setup, layout, sent)
        portion = portion_of(made.recipe, ready.setup, sent, weights)
        assert part is not None
        assert portion is not None
        again = part.received(part.sent(sent))
        found = portion_of(made.recipe, ready.setup, again, again.weights)
        assert found is not None
        assert torch.equal(found.mask, portion.mask), words
        assert found.threshold == portion.threshold or "no numbers" in words  # type: ignore[attr-defined]


class Dies(BaseException):
    """What ends a process at once."""


class Killed(PretendTransport):
    """A line on which the server dies at its eleventh visit."""

    def push(self, letters: Any) -> list[str]:
        if sum('"Order"' in parcel.text for _, parcel in self.sent) >= 10:
            raise Dies
        return super().push(letters)


def test_a_server_that_was_killed_goes_on_with_parts(tmp_path: Path) -> None:
    made = dataclasses.replace(RECIPES["rolling_window"](), rounds=5)
    reference = pr.run(made, out=tmp_path / "simulated")
    clock, nodes = JumpingClock(), nodes_of(lambda: made, tmp_path / "nodes", CLIENTS)
    given: dict[str, Any] = {"execution": pr.Execution(checkpoint=pr.Checkpoint(every=1)), "clock": clock}
    how = Serving(out=tmp_path / "runs", wait=20.0)
    with pytest.raises(Dies):
        serve(made, Killed(clock, nodes), how, **given)
    done = serve(made, PretendTransport(clock, nodes), how, **given)
    assert (done["status"], done["digest"]) == ("finished", reference.summary["digest"])
