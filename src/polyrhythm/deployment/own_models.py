"""How a client's own model does, measured where it lies: at the client's node, which tells nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.data.holding import Holding
from polyrhythm.deployment.node_store import NodeStore
from polyrhythm.experiments.evaluation import Evaluator
from polyrhythm.experiments.personal_models import own_model
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.mechanism import Model

Results = dict[str, dict[str, float]]


def own_results(
    prepared: Prepared,
    *,
    client: int,
    store: Path | str,
    run: str,
    model: Mapping[str, Tensor],
    version: int,
    own: bool = False,
) -> Results:
    """The metrics of the global model and of the client's own, under "global" and "personal", on the client's own test.

    The same numbers, to the last bit, as in a simulation of the same federation after that version. Nothing is
    sent.

    Args:
        prepared: the same experiment as the node's.
        client: the node's number.
        store: the folder in which the node remembers.
        run: the run's id.
        model: the global model of a version, its state dict, such as `run.model().state_dict()` of the server's record.
        version: which one.
        own: whether all data of the experiment are the node's; their test samples are then the client's own test.

    Raises:
        UserError: the node remembers nothing of that run, the client has no test, the model is another one, or the
            method predicts by what only the server knows.
    """
    recipe, clients = prepared.recipe, prepared.federation.clients
    if not own and not 0 <= client < clients:
        raise UserError(
            f"client {client} of {clients}",
            expected=f"a number from 0 to {clients - 1}",
            why="a client's test is found by its number",
            fix="give the number that the node has: client of its --node-config",
        )
    if recipe.personal.asks:
        raise UserError(
            f"{recipe.personal.label()}, measured at a node",
            expected="a model that the node has",
            why=f"it predicts by what the server sends for {recipe.personal.asks} with the next visit",
            fix="pipe global_model onto the recipe: what the client's own model gives counts then, in all places",
        )
    kept = NodeStore(Path(store), run, client)
    if (last := kept.last) is None:
        raise UserError(
            f"client {client} remembers nothing of the run {run!r} in {store}",
            expected="the folder of a node that has taken part in it",
            why="the client's own model lies there",
            fix="give the store that the node was started with, and the run's id as the server's record has it",
        )
    held = _test(prepared, client, own)
    sent, data = _vector(prepared, model), prepared.data_of(0 if own else client)
    used = own_model(prepared, sent, version, client, last + 1, kept.state(last), data, {})
    evaluator = Evaluator(prepared)
    return {
        "global": evaluator.own_test(client, sent, held, (version,)),
        "personal": evaluator.own_test(client, used, held, (version, "personal")),
    }


def _test(prepared: Prepared, client: int, own: bool) -> Holding:
    federation = prepared.federation
    if own:
        return Holding(federation.test)
    tests = federation.local_tests
    if tests is None or not tests.sizes[client]:
        raise UserError(
            f"client {client} without test samples of its own",
            expected="some that it does not train on",
            why="its own model would be judged on what it has seen, or on everybody's samples",
            fix="local_test=0.2 in the experiment gives each client some",
        )
    return Holding(tests.samples, tests.indices(client))


def _vector(prepared: Prepared, model: Mapping[str, Tensor]) -> Model:
    """A model's state dict as a vector and buffers."""
    layout = prepared.chosen.engine.layout
    wanted = {s.name: s.shape for s in layout.segments} | {slot.name: slot.shape for slot in layout.buffers}
    strange = [name for name, shape in wanted.items() if name not in model or tuple(model[name].shape) != tuple(shape)]
    if strange:
        raise UserError(
            f"a model without {strange[0]} of shape {tuple(wanted[strange[0]])}",
            expected="the state dict of the experiment's model",
            why="a vector is read by its place in the model",
            fix="give that of the run's own record",
        )
    weights = layout.zeros()
    for name, part in layout.named(weights).items():
        part.copy_(model[name])
    return Model(weights=weights, buffers=tuple(model[slot.name].clone() for slot in layout.buffers))
