"""What the keys that name things are, if nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.config.expressions import Pipe

DATA = Pipe.one("digits")
PARTITION = Pipe.one("dirichlet(alpha=0.3)")
METHOD = Pipe.of("fedavg")
FLEET = Pipe.of("uniform")
_TEXTS = {"data": DATA, "partition": PARTITION, "method": METHOD, "fleet": FLEET}
_MODELS = {
    **{"shakespeare": "char-lstm", "stackoverflow_tags": "multilabel-logistic"},
    **dict.fromkeys(("text", "roles"), "char-lstm(every=true)"),
    **dict.fromkeys(("hapt", "beijing_air"), "signal-cnn"),
    **dict.fromkeys(("spoken_digits", "mnist_by_writer"), "lenet5"),
    **dict.fromkeys(("heart_disease", "tcga_brca", "sites"), "logistic"),
}


def default_model(data: str) -> str:
    """The model for a data set, if none is named."""
    try:
        return _MODELS.get(Pipe.one(data).calls[0].name.replace("-", "_"), "mlp")
    except UserError:  # of the data
        return "mlp"


def default_text(key: str, values: Mapping[str, Any]) -> str | None:
    """What a key that names something is, if nothing is said; None for nothing."""
    return default_model(str(values.get("data", DATA))) if key == "model" else _TEXTS.get(key)
