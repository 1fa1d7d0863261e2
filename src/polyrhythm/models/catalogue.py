"""The models by the names they have on the command line."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from polyrhythm.errors import UserError, unknown
from polyrhythm.models.alexnet import alexnet
from polyrhythm.models.lenet import lenet5, moon_cnn
from polyrhythm.models.logistic import logistic, multilabel_logistic
from polyrhythm.models.perceptron import ccfl_mlp, mlp
from polyrhythm.models.recurrent import char_lstm
from polyrhythm.models.resnet import resnet18, resnet50
from polyrhythm.models.resnet9 import resnet9
from polyrhythm.models.vgg import vgg11

Builder = Callable[..., nn.Module]  # builder(shape of one sample, number of outputs, **settings)

# The first line of a builder's docstring is its line of help.
MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "logistic": logistic,
        "multilabel-logistic": multilabel_logistic,
        "mlp": mlp,
        "ccfl-mlp": ccfl_mlp,
        "lenet5": lenet5,
        "moon-cnn": moon_cnn,
        "alexnet": alexnet,
        "vgg11": vgg11,
        "resnet9": resnet9,
        "resnet18": resnet18,
        "resnet50": resnet50,
        "char-lstm": char_lstm,
    }
)


def find(name: str) -> Builder:
    """The builder of that name, or whatever an import path "package.module:Name" names.

    Raises:
        UserError: no such model, module or name, or not something that can be called.
    """
    if ":" not in name:
        if name not in MODELS:
            raise unknown("model", name, MODELS)
        return MODELS[name]
    module_name, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"the model {name!r} could not be imported: {error}",
            expected="an import path like my_package.my_module:MyModel",
            why="the model is made by calling what that path names",
            fix="check the spelling, and that the module's folder is on PYTHONPATH (PYTHONPATH=. for this folder)",
        ) from None
    builder = getattr(found, attribute, None)
    if builder is None:
        public = (key for key in vars(found) if callable(vars(found)[key]) and not key.startswith("_"))
        raise unknown("model", attribute, public, where=module_name)
    if not callable(builder):
        raise UserError(
            f"{name!r} is a {type(builder).__name__}",
            expected="a class or function that makes an nn.Module",
            why="the model is made by calling it",
            fix=f"name a class or function of {module_name}",
        )
    made: Builder = builder
    return made
