"""What a node of a real federation remembers of a run, in a folder of its own: nothing of it travels.

A file for each visit whose state may be asked for again, under the run's id and the client's number. Each is whole or
not there, whatever happens to the node while it is written.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import final

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import json_of
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.forecast import Pace
from polyrhythm.deployment.node_sums import NodeSums
from polyrhythm.methods.mechanism import Model
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.stored import Damaged, load, store

_CODEC = Codec((ClientState, Model))
_PACE = "pace.json"


@final
class NodeStore:
    """One client's memory of one run.

    Args:
        folder: the node's own.
        run: the run's id.
        client: its number.

    Raises:
        UserError: the id would lead out of the folder, or the folder cannot be written.
    """

    def __init__(self, folder: Path, run: str, client: int) -> None:
        if not run or Path(run).name != run or run in (".", "..") or "\0" in run:
            raise UserError(
                f"a run with the id {run!r}",
                expected="the name of a folder",
                why="the node would remember it elsewhere",
                fix="take orders only from a server that you trust",
            )
        self._run = run
        self._client, self._folder = client, folder / run / f"client-{client}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self._folder} cannot be made: {error.strerror or error}",
                expected="a folder in which the node may write",
                why="what a client remembers from visit to visit is kept there",
                fix="""give another one to the node: --node-config 'store="/a/folder" …'""",
            ) from error

    @property
    def sums(self) -> NodeSums:
        """The client's end of secure aggregation, in the same folder."""
        return NodeSums(self._folder, self._client, self._run)

    @property
    def last(self) -> int | None:
        """The newest visit whose state is kept; None if there is none."""
        visits = (path.stem.removeprefix("visit-") for path in self._folder.glob("visit-*.safetensors"))
        return max(map(int, visits), default=None)

    def state(self, visit: int) -> ClientState:
        """The client's state after a visit; the first one before any.

        Raises:
            UserError: it is not there, or damaged.
        """
        if visit < 0:
            return ClientState()
        try:
            state, _ = load(self._file(visit), _CODEC)
        except Damaged as damage:
            raise UserError(
                f"client {self._client} has no state of its visit {visit} in {self._folder} ({damage})",
                expected="the state of the last visit that the server accepted",
                why="the server goes on from what the client was then, and would count it wrongly from another state",
                fix="give the node the folder that it had, or start a new run",
            ) from damage
        assert isinstance(state, ClientState)
        return state

    def put(self, visit: int, state: ClientState, keep: Collection[int]) -> None:
        """Keeps the state after a visit, and beside it only those of the visits named."""
        store(self._file(visit), _CODEC, state, {"client": str(self._client), "visit": str(visit)})
        needed = {self._file(v).name for v in (*keep, visit)}
        for path in self._folder.glob("visit-*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def pace(self) -> Pace | None:
        """How quick the node was in its last visit; None before any."""
        try:
            return Pace(seconds_per_sample=float(json_of(self._folder / _PACE)))
        except (OSError, ValueError, TypeError):
            return None

    def took(self, seconds: float, samples: float) -> None:
        """Notes how long a visit took for how many samples."""
        if samples > 0:
            write_whole(self._folder / _PACE, json.dumps(seconds / samples).encode(), durable=False)

    def _file(self, visit: int) -> Path:
        return self._folder / f"visit-{visit:08d}.safetensors"
