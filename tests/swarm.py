"""Many nodes in one program, which speak to a real SuperLink as Flower's do and answer what they like. Imports flwr.

A SuperNode starts processes and answers a few messages in a minute; this answers thousands. It speaks the same Fleet
API, over HTTP with the same client or over the gRPC that Flower keeps beside it, and signs with a registered key for
each node. What is sent is made from the right answer: spoiled as a parcel (`mutations`), or as something that is none
(`wire_lies`).
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import grpc
import httpx
import numpy as np
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import PUBLIC_KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node as FlowerNode
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from mutations import Mutator, assignment_in, same
from polyrhythm.deployment.local.keys import make_node_key
from polyrhythm.deployment.local.loopback import Loopback
from polyrhythm.deployment.on_flower.transport import parcel_of, records
from polyrhythm.deployment.wire import Parcel
from wire_lies import KINDS, Asked, Objects, Sent, objects_of

AWAKE = 1800.0
"""Seconds until Flower would take a silent node for gone: its longest interval, so that no heartbeats are needed."""
THREADS = 4
OWN_KINDS = 0.4
"""Of the spoiled answers: as Flower's records or objects. The others are spoiled as parcels."""


FRESH = 5.0
"""Seconds for which a node shows the same signature: Flower takes one for a little longer."""


@final
class OverGrpc:
    """The Fleet API over gRPC, with the calls of Flower's own client over HTTP, for a twentieth of the time."""

    def __init__(self, channel: grpc.Channel, private: Any) -> None:
        self._stub: Any = FleetStub(channel)
        self._private, self._public = private, public_key_to_bytes(private.public_key())
        self._version = tuple(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
        self._signed, self._until = (), 0.0

    def _metadata(self) -> tuple[tuple[str, Any], ...]:
        if time.monotonic() > self._until:
            stamp = now().isoformat()
            signature = sign_message(self._private, stamp.encode("ascii"))
            own = ((PUBLIC_KEY_HEADER, self._public), (TIMESTAMP_HEADER, stamp), (SIGNATURE_HEADER, signature))
            self._signed, self._until = (*self._version, *own), time.monotonic() + FRESH
        return self._signed

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        call = getattr(self._stub, name)
        return lambda request: call(request, metadata=self._metadata(), timeout=120)


@final
class Line:
    """A node's connection to the SuperLink.

    Args:
        federation: whose SuperLink it is.
        client: the node's number.
        channel: to the SuperLink's gRPC; None for HTTP.
    """

    def __init__(self, federation: Loopback, client: int, channel: grpc.Channel | None = None) -> None:
        self.client = client
        key = federation.folder / "nodes" / str(client) / "key"
        make_node_key(key)
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        self.public = public_key_to_bytes(private.public_key())
        self._fleet: Any
        if channel is None:
            signed = NodeAuthHttpInterceptor(private, private.public_key())
            self._fleet = FleetHttpClient.from_server_address(
                federation.address, False, certificate(federation), [RuntimeVersionHttpInterceptor("SuperNode"), signed]
            )
        else:
            self._fleet = OverGrpc(channel, private)
        self.node = FlowerNode()

    def activate(self) -> None:
        response = self._fleet.ActivateNode(ActivateNodeRequest(public_key=self.public, heartbeat_interval=AWAKE))
        self.node = FlowerNode(node_id=response.node_id)

    def receive(self, known: dict[str, bytes]) -> Message | None:
        """The next message, if there is one. What has come once goes by its digest, and is not asked for again."""
        came = self._fleet.PullMessages(PullMessagesRequest(node=self.node))
        if not came.messages_list:
            return None
        message, tree = message_from_proto(came.messages_list[0]), came.message_object_trees[0]
        run, number = message.metadata.run_id, message.metadata.message_id
        wanted = {part.object_id for part in iterate_object_tree(tree)}
        contents = {part: known[part] if part in known else self._pull(run, part) for part in wanted}
        known.update({part: content for part, content in contents.items() if content.startswith((b"Array", b"Conf"))})
        self._fleet.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=number)
        )
        whole: Any = inflate_object_from_contents(number, contents)
        whole.metadata.__dict__["_message_id"] = number  # which its reply is to
        return whole

    def _pull(self, run: int, part: str) -> bytes:
        while True:  # the server may still be sending it
            came = self._fleet.PullObject(PullObjectRequest(node=self.node, run_id=run, object_id=part))
            if came.object_available:
                return came.object_content
            assert came.object_found, "a message without its objects"
            time.sleep(0.005)

    def send(self, reply: Message, objects: Objects | None = None) -> bool:
        """Whether Flower has taken a reply."""
        reply.metadata.__dict__["_message_id"] = objects[0].object_id if objects else reply.object_id
        tree, contents = objects or objects_of(reply)
        bare = reply if reply.has_error() else Message(content=RecordDict(), metadata=reply.metadata)
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(bare)],
            message_object_trees=[tree],
            clientapp_runtime_list=[0.1],
        )
        try:
            came = self._fleet.PushMessages(request)
            for part in came.objects_to_push:
                pushed = PushObjectRequest(
                    node=self.node,
                    run_id=reply.metadata.run_id,
                    session_id=came.session_id,
                    object_id=part,
                    object_content=contents[part],
                )
                try:
                    self._fleet.PushObject(pushed)
                except httpx.RemoteProtocolError:  # the server has closed a connection that was idle for long
                    self._fleet.PushObject(pushed)
        except (httpx.HTTPStatusError, grpc.RpcError):
            return False
        return bool(came.objects_to_push) or reply.has_error()


def certificate(federation: Loopback) -> bytes:
    return (federation.folder / "ca.crt").read_bytes()


def _channel(federation: Loopback, port: int) -> grpc.Channel:
    trusted = grpc.ssl_channel_credentials(certificate(federation))
    sizes = [(f"grpc.max_{way}_message_length", 2**30) for way in ("send", "receive")]
    return grpc.secure_channel(f"127.0.0.1:{port}", trusted, options=sizes)


@final
class Swarm:
    """Nodes that answer in a few threads, until they are told to stop.

    Args:
        federation: whose SuperLink is up.
        clients: how many nodes; node i is client i.
        honest: how many of them, the first ones, never lie.
        seed: of what is done.
        port: of the SuperLink's gRPC; None for HTTP.
    """

    def __init__(self, federation: Loopback, clients: int, honest: int, seed: int, port: int | None = None) -> None:
        self._draws = np.random.Generator(np.random.PCG64(seed))
        self._honest = honest
        channel = None if port is None else _channel(federation, port)
        self._lines = [Line(federation, client, channel) for client in range(clients)]
        with_control = ControlHttpClient.from_server_address(
            federation.address, False, certificate(federation), [RuntimeVersionHttpInterceptor("flwr CLI")]
        )
        for line in self._lines:
            with_control.RegisterNode(RegisterNodeRequest(public_key=line.public))
            line.activate()
        with_control.close()
        self._known: dict[str, bytes] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        self._idle: queue.SimpleQueue[Line] = queue.SimpleQueue()
        for line in self._lines:
            self._idle.put(line)
        self._threads: list[threading.Thread] = []
        self.trouble: list[str] = []

    def play(
        self, answers: Sequence[Callable[[Parcel], Parcel]], mutator: Mutator, most: int, share: float = 0.9
    ) -> None:
        """Begins with the answers of another run.

        Args:
            answers: of honest nodes, by client.
            mutator: spoils answers.
            most: how many are spoiled at most.
            share: of the answers to visits of nodes that lie.
        """
        self._answers, self._mutator, self._most, self._share = answers, mutator, most, share
        self._earlier: list[tuple[int, Message]] = []
        self._seen: set[int] = set()
        self.done: dict[int, Sent] = {}
        """By dispatch number: what was sent in place of the right answer."""
        self._known.clear()
        if not self._threads:
            self._start()

    def _start(self) -> None:
        self._threads = [threading.Thread(target=self._attend, daemon=True) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _attend(self) -> None:
        silent = 0
        while not self._over.is_set():
            line, message = self._idle.get(), None
            try:
                message = line.receive(self._known)
                silent = silent + 1 if message is None else 0
                if message is not None:
                    self._reply(line, message)
            except Exception as error:
                self.trouble.append(f"{type(error).__name__}: {error}")
                if message is not None:
                    self._failed(line, message)
            finally:
                self._idle.put(line)
            if silent > len(self._lines) // THREADS:
                time.sleep(0.4)

    def _reply(self, line: Line, message: Message) -> None:
        asked = parcel_of(message.content)
        with self._lock:  # one engine computes for all of them
            honest = self._answers[line.client](asked)
            sent = self._chosen(line.client, asked, message, honest)
        taken = [line.send(reply, objects) for reply, objects in sent.messages]  # all of them, whichever are taken
        if not any(taken):
            self._failed(line, message)

    def _failed(self, line: Line, message: Message) -> None:
        """Says that there is no answer, since the server would wait for it: Flower took none, or none was made."""
        with contextlib.suppress(httpx.HTTPError, grpc.RpcError):
            line.send(Message(Error(code=2, reason="nothing was taken"), reply_to=message))
        if (dispatch := dispatch_of(parcel_of(message.content))) is not None:
            with self._lock:
                self.done[dispatch] = Sent(getattr(self.done.get(dispatch), "kind", "nothing"), [])

    def _chosen(self, client: int, asked: Parcel, message: Message, honest: Parcel) -> Sent:
        true = Message(records(honest), reply_to=message)
        right = Sent("right", [(true, None)], right=True)
        dispatch = dispatch_of(asked)
        if dispatch is None:
            return right
        earlier = [answer for number, answer in self._earlier if number != dispatch]  # its own would be right
        self._earlier = [*self._earlier[-20:], (dispatch, true)]
        again, spent = dispatch in self._seen, len(self.done) >= self._most and dispatch not in self.done
        self._seen.add(dispatch)
        if client < self._honest or spent or (not again and self._draws.random() >= self._share):
            return right
        if again or not earlier or self._draws.random() >= OWN_KINDS:
            sent = self._spoiled(message, honest)
        else:
            asked = Asked(message, honest, earlier[int(self._draws.integers(len(earlier)))], self._draws)
            sent = KINDS[int(self._draws.integers(len(KINDS)))](asked)
        self.done[dispatch] = sent
        return sent

    def _spoiled(self, message: Message, honest: Parcel) -> Sent:
        how, spoiled = self._mutator(honest)
        text = spoiled.text.encode(errors="replace").decode()  # Flower has no half characters
        parcel = Parcel(text=text, arrays=spoiled.arrays)
        return Sent(how, [(Message(records(parcel), reply_to=message), None)], right=same(honest, parcel))


def dispatch_of(asked: Parcel) -> int | None:
    """The number of the visit that a message orders, none if it orders none."""
    if '"Order"' not in asked.text:
        return None
    return int(assignment_in(json.loads(asked.text)["value"]["Order"])[0])
