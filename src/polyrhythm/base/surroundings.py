"""What torch is told around a run, and holds for all that is computed in it: grad modes, autocast, default types."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from polyrhythm.base.errors import UserError


@contextlib.contextmanager
def plain_surroundings() -> Iterator[None]:
    """Runs a block as if no `no_grad` or `inference_mode` were around it: a run trains wherever it is called.

    Raises:
        UserError: autocast, another default type or another default device, which workers elsewhere would not have.
    """
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise _told(
            "torch.autocast is switched on around the run",
            "autocast inside of the model, if at all",
            "put `with torch.autocast(…)` into the model's forward, and leave it out around the run",
        )
    if torch.get_default_dtype() != torch.float32:
        kind = str(torch.get_default_dtype()).removeprefix("torch.")
        raise _told(
            f"torch's default type is {kind}",
            "float32; a model may have parameters of any type",
            f"torch.set_default_dtype(torch.float32), and give the model its type: model.to(torch.{kind})",
        )
    device = torch.empty(0).device  # `get_default_device` of torch 2.6 knows nothing of `with torch.device(…)`
    if device.type != "cpu":
        raise _told(
            f"torch's default device is {device}",
            "the processor, where samples and the server's weights lie",
            "torch.set_default_device('cpu'); `device` of Execution says where models are computed",
        )
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _told(found: str, expected: str, fix: str) -> UserError:
    why = "it would change numbers here, and not in workers on other machines"
    return UserError(found, expected=expected, why=why, fix=fix)
