"""How exactly a device computes a cohort's steps, and that it computes the same bits every time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from polyrhythm.engines.kinds import Precision

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What cuBLAS reads when it is first used: with room of a fixed size of its own it sums in the same order always."""


def told_cublas() -> None:
    """Has cuBLAS compute the same bits every time, unless it was told otherwise; before a GPU is first used."""
    os.environ.setdefault(WORKSPACE, ":4096:8")


@contextlib.contextmanager
def computing(device: torch.device, precision: Precision) -> Iterator[None]:
    """Has a device compute as exactly as it is asked, and the same bits every time, as far as torch can.

    Args:
        device: where steps are computed.
        precision: "float32" in float32 where it says so; "tf32" with products of numbers with 10 bits of mantissa,
            summed in float32, on GPUs alone; "bfloat16" as torch's autocast does: products in 16 bits, while weights,
            gradients, losses and whatever torch holds to be delicate stay float32.
    """
    short = torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()
    with _told(device, precision == "tf32"), short:
        yield


@contextlib.contextmanager
def _told(device: torch.device, tf32: bool) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    products, told = torch.backends.cuda.matmul.allow_tf32, torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.use_deterministic_algorithms(True, warn_only=True)
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = products
        torch.use_deterministic_algorithms(told, warn_only=only_warned)
