"""The models by the names they have on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from polyrhythm.base.consent import Trust, Wanted, imported
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.models.alexnet import alexnet
from polyrhythm.models.exit_networks import mlp_exits, resnet18_exits
from polyrhythm.models.lenet import lenet5, moon_cnn
from polyrhythm.models.logistic import logistic, multilabel_logistic
from polyrhythm.models.low_rank import with_lora
from polyrhythm.models.perceptron import ccfl_mlp, mlp
from polyrhythm.models.pretrained import hf
from polyrhythm.models.projection import with_projection
from polyrhythm.models.recurrent import char_lstm
from polyrhythm.models.resnet import resnet18, resnet50
from polyrhythm.models.resnet9 import resnet9
from polyrhythm.models.signals import signal_cnn
from polyrhythm.models.vgg import vgg11

Builder = Callable[..., nn.Module]  # builder(shape of one sample, number of outputs, **settings)

# The first line of a builder's docstring is its line of help.
MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "logistic": logistic,
        "multilabel-logistic": multilabel_logistic,
        "mlp": mlp,
        "mlp-exits": mlp_exits,
        "ccfl-mlp": ccfl_mlp,
        "lenet5": lenet5,
        "moon-cnn": moon_cnn,
        "alexnet": alexnet,
        "vgg11": vgg11,
        "resnet9": resnet9,
        "resnet18": resnet18,
        "resnet18-exits": resnet18_exits,
        "resnet50": resnet50,
        "char-lstm": char_lstm,
        "signal-cnn": signal_cnn,
        "hf": hf,
    }
)

AROUND: Mapping[str, Callable[..., Builder]] = MappingProxyType(
    {"with_projection": with_projection, "with_lora": with_lora}
)
"""What is put around a model: makes a builder of a builder."""

_OWN = Wanted(what="model", base=nn.Module, kind="nn.Module")


def find(name: str, trust: Trust | None = None) -> Builder:
    """The builder of that name, or the user's own class or function that an import path "package.module:Name" names.

    Args:
        name: it.
        trust: the modules that the user has named; None where the name is the user's, written in Python.

    Raises:
        UserError: no such model, module or name; or one that may not be imported, see `polyrhythm.base.consent`.
    """
    if ":" in name:
        return imported(name, _OWN, trust)
    if name not in MODELS:
        raise _unknown(name)
    return MODELS[name]


def _unknown(name: str) -> UserError:
    """The error for a name that nobody knows; a class with dots and a file of weights are told how they are given."""
    error, (module, dot, last) = unknown("model", name, MODELS), name.rpartition(".")
    if not dot:
        return error
    if last.lower() in ("pt", "pth", "safetensors", "ckpt", "bin", "onnx", "h5", "pkl"):
        fix = f"name the architecture as the model; its weights are given with --init {name}"
    elif last == "py":
        fix = f"write {module}:NAME, with the name of the class in that file"
    else:
        fix = f"a class of your own is written {module}:{last}, with a colon"
    return UserError(error.found, expected=error.expected, why=error.why, fix=fix)
