"""States as plain data: what a checkpoint is made of."""

from __future__ import annotations

import json
from typing import Any

from polyrhythm.experiments.runstate import CODEC


def restored(value: Any) -> Any:
    """A state after it was written as JSON and a list of tensors, as in a checkpoint, and read again.

    Raises:
        TypeError: there is something in it that is neither.
    """
    tree, tensors = CODEC.encode(value)
    copies = [tensor.clone() for tensor in tensors]
    return CODEC.decode(json.loads(json.dumps(tree)), copies.__getitem__)
