"""A server app and a client app of Flower's, from an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from polyrhythm.base.errors import PolyrhythmError, UserError
from polyrhythm.base.messages import Report
from polyrhythm.data import Collection
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.messages import Greeting, Malformed, Order, Refusal
from polyrhythm.deployment.node import Node, understood, with_own_data
from polyrhythm.deployment.on_flower.mods import Mod, changed, check
from polyrhythm.deployment.on_flower.transport import GridTransport, parcel_of, records
from polyrhythm.deployment.sum_messages import SumQuestion
from polyrhythm.deployment.wire import Parcel, pack
from polyrhythm.experiments.prepared import Planned, prepare, what_and_how

Made = Planned | Callable[[Context], Planned]
"""An experiment, if need be with how it is computed, or what makes it from the settings of a run and a node."""

STORE = "~/.polyrhythm/nodes"


def server_app(experiment: Made, serving: Serving | Callable[[Context], Serving] = Serving()) -> ServerApp:  # noqa: B008
    """Flower's server app for an experiment: the same server as in the simulation, with the same record.

        app = server_app(experiment, Serving(out="/var/lib/federation/runs"))

    Args:
        experiment: what to do, or what makes it from Flower's context.
        serving: how to wait and what to keep, or what makes it.

    Raises:
        UserError: when it runs: nodes are missing, or the experiment is none for a real federation.
        RunFailed: likewise: the run could not go on; what it had is recorded.
    """

    def main(grid: Grid, context: Context) -> None:
        try:
            made, execution = what_and_how(experiment(context) if callable(experiment) else experiment)
            how = serving if isinstance(serving, Serving) else serving(context)
            summary = serve(made, GridTransport(grid), how, execution=execution, tell=say)
        except PolyrhythmError as error:
            say(f"{'error' if isinstance(error, UserError) else 'failed'}: {error}")
            raise
        say(f"{summary['status']}: {summary['reason']}")

    app = ServerApp()
    app.main()(main)
    return app


def client_app(
    experiment: Made,
    data: Callable[[Context], Collection | None] | None = None,
    mods: Sequence[Mod] | Callable[[Context], Sequence[Mod]] = (),
) -> ClientApp:
    """Flower's client app for an experiment.

    The node's configuration (`--node-config`) says who it is: `client`, its number from 0 (or Flower's `partition-id`),
    and `store`, the folder in which it remembers; by default ~/.polyrhythm/nodes.

        app = client_app(experiment, data=lambda context: pr.data.table(context.node_config["table"], target="y"))

    Args:
        experiment: the same one as the server's, or what makes it.
        data: gives the node's own data set, all of whose training samples it then holds. Without one the node holds the
            samples that the experiment's federation gives to the client of its number, as in a demonstration.
        mods: of Flower's, on what the node sends, the first one outermost; or what makes them.
    """

    def answer(message: Message, context: Context) -> Message:
        return Message(content_for(message, context), reply_to=message)

    def content_for(message: Message, context: Context) -> RecordDict:
        try:
            asked = understood(parcel_of(message.content))
            reply = node_for(asked, message, context).answer(asked)
        except UserError as error:  # of the node's own configuration
            reply = _refusal(context, error)
        except Malformed as wrong:
            reply = _refusal(context, _not_understood(wrong))
        return records(reply)

    def node_for(asked: Greeting | Order | SumQuestion, message: Message, context: Context) -> Node:
        made, execution = what_and_how(experiment(context) if callable(experiment) else experiment)
        own = None if data is None else data(context)
        if own is not None and not isinstance(asked, SumQuestion):
            made = with_own_data(made, own, asked)
        chain = mods(context) if callable(mods) else mods
        prepared = prepare(made, execution)
        layout = prepared.chosen.engine.layout
        check(chain, made.recipe, layout)

        def change(report: Report) -> Report:
            return changed(chain, layout, report, message, context)

        store = Path(str(context.node_config.get("store", STORE))).expanduser()
        return Node(prepared, client_number(context.node_config), store, own=own is not None, change=change)

    app = ClientApp()
    app.query()(answer)
    app.train()(answer)
    return app


def client_number(configuration: Mapping[str, object]) -> int:
    """Which client a node is.

    Raises:
        UserError: its configuration does not say.
    """
    number = configuration.get("client", configuration.get("partition-id"))
    if isinstance(number, bool) or not isinstance(number, int):
        raise UserError(
            f"a node with client={number!r}" if number is not None else "a node without a number",
            expected="client=0, client=1 and so on, a whole number for each node",
            why="a client is known by its number, whatever its key or its address are",
            fix="start the node with --node-config 'client=0'",
        )
    return number


def _refusal(context: Context, error: UserError) -> Parcel:
    number = context.node_config.get("client", -1)
    client = number if isinstance(number, int) else -1
    return pack(Refusal(client=client, found=error.found, expected=error.expected, why=error.why, fix=error.fix))


def _not_understood(wrong: Malformed) -> UserError:
    return UserError(
        f"the server has sent {wrong}",
        expected="a question who the node is, or an order",
        why="nothing can be done on a message that cannot be read",
        fix="run the same version of polyrhythm at the server and at every node; trust no other server",
    )


def say(text: str) -> None:
    """Prints at once, since Flower shows what has been flushed; each line with whose it is, among Flower's own."""
    print("\n".join(f"polyrhythm: {line}" for line in text.splitlines()), flush=True)
