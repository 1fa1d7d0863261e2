"""On which device a cohort's steps are computed."""

from __future__ import annotations

import torch

from polyrhythm.base.errors import UserError
from polyrhythm.base.vectors import CPU
from polyrhythm.engines.exactness import told_cublas


def device_of(asked: str) -> torch.device:
    """The device of that name; "auto" is a GPU that CUDA knows, if there is one, and else the processor.

    Raises:
        UserError: there is no such device here, or nobody has tried whether numbers are right on it.
    """
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there:
        told_cublas()
    if asked == "auto":
        return torch.device("cuda", 0) if there else CPU
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError):
        raise _unusable(asked, "it is no device that torch knows") from None
    if device.type == "cuda" and (device.index or 0) < there:
        return torch.device("cuda", device.index or 0)
    if device.type == "cuda":
        raise _unusable(asked, f"torch finds {there or 'no'} GPU{'s' if there > 1 else ''} here")
    if device != CPU:
        raise _unusable(asked, "nobody has held numbers on such a device to those of a processor")
    return CPU


def _unusable(asked: str, why: str) -> UserError:
    return UserError(
        f"device = {asked!r}",
        expected='"auto", "cpu", "cuda", or "cuda:1" for the second GPU',
        why=why,
        fix='device="auto"',
    )


def named(device: torch.device) -> str:
    """A device as it is recorded."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
