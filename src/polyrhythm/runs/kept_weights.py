"""The weights of a version as they are kept: what nobody changes is in memory once, and in no checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

from polyrhythm.base.errors import UserError
from polyrhythm.runs.files import safetensors_bytes, safetensors_pieces

if TYPE_CHECKING:
    from torch import Tensor

Base = Callable[[], Mapping[str, "Tensor"]]


@final
class KeptWeights:
    """The weights of one version, until they are on disk.

    Args:
        state: the model's state dict; what it shares with the base stays where it is, and all else is copied, as it may
            change.
        base: what of it nobody changes, by name.
        about: what the file says of itself.
    """

    def __init__(self, state: Mapping[str, Tensor], base: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        self._base, self._about = base, dict(about)
        self._learned = {n: t.detach().cpu().clone() for n, t in state.items() if n not in base}
        self._names = tuple(state)

    def whole(self) -> list[bytes | memoryview]:
        """The file of all weights, in pieces: the base is not copied."""
        state = {name: self._base[name] if name in self._base else self._learned[name] for name in self._names}
        return safetensors_pieces(state, self._about)

    def learned(self) -> bytes:
        """The file without the base, as checkpoints have it."""
        return safetensors_bytes(self._learned, self._about)


def without_base(path: Path, base: Mapping[str, Tensor]) -> bytes:
    """A file of all weights, without the base.

    Raises:
        OSError: it cannot be read.
    """
    if not base:
        return path.read_bytes()
    from safetensors import safe_open

    with path.open("rb") as file:
        about = _about(file.read(int.from_bytes(file.read(8), "little")))
    with safe_open(path, framework="pt") as found:
        names = [name for name in found.keys() if name not in base]  # noqa: SIM118
        return safetensors_bytes({name: found.get_tensor(name) for name in names}, about)


def with_base(content: bytes, base: Mapping[str, Tensor]) -> bytes | list[bytes | memoryview]:
    """The file of all weights, made of one without the base. One that has all weights comes out as it is.

    Args:
        content: as `KeptWeights.learned` gives it.
        base: what of the model nobody changes.

    Raises:
        UserError: it is no such file.
    """
    if not base:
        return content
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        about = _about(content[8 : 8 + int.from_bytes(content[:8], "little")])
        learned = load(content)
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"a checkpoint whose best weights cannot be read ({error})",
            expected="weights as safetensors",
            why="the best version so far would be lost",
            fix="delete that checkpoint: the run goes on from the one before",
        ) from None
    return safetensors_pieces({**base, **learned}, about)


def _about(head: bytes) -> dict[str, str]:
    """What a file says of itself, in its order."""
    return dict(json.loads(head).get("__metadata__", {}))
