"""Bringing tensors to a device while it computes something else."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor


@final
class Uploads:
    """Copies from the processor's memory to a device.

    To a GPU from pinned memory, which it fetches by itself, and in a stream of their own, beside what it computes.
    Whatever was made in that stream is handed over before it is used: the GPU waits until it is there, and gives its
    memory to nothing else before it has been used, though Python may be done with it earlier.

    Args:
        device: to which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @functools.cached_property
    def _stream(self) -> torch.cuda.Stream | None:
        return torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Has a block's work on the device done beside what was begun before."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield

    def bring(self, tensor: Tensor) -> Tensor:
        """The tensor on the device, perhaps not all of it yet."""
        if self._stream is None or tensor.device.type != "cpu":
            return tensor.to(self._device)
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def hand_over(self, tensors: Sequence[Tensor]) -> None:
        """Has what is computed from now on find these as they are to be."""
        if self._stream is None:
            return
        now = torch.cuda.current_stream(self._device)
        now.wait_stream(self._stream)
        for tensor in tensors:
            tensor.record_stream(now)
