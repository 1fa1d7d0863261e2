"""FedCL, tables 1 to 3: the layers of its three networks, as the tables have them and as they are here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from polyrhythm.models.building import build
from polyrhythm.studies.definition import Scale
from polyrhythm.studies.page.findings import Findings, Outcome, Table

Layer = nn.Conv2d | nn.Linear | nn.Embedding | nn.LSTM
IMAGE = (3, 32, 32)


@final
@dataclass(frozen=True, kw_only=True)
class Listed:
    """A layer as a table has it, or as it is: inputs before outputs.

    Args:
        weight: its shape, such as "3×64×3×3".
        bias: its length; "" where none is given.
    """

    weight: str
    bias: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Network:
    """A table of the paper.

    Args:
        name: of the network.
        model: a name of the catalogue.
        settings: that follow the table.
        own: those of the authors' program, where they differ.
        shape: of a sample.
        outputs: classes or characters.
        layers: as the table has them, by name.
    """

    name: str
    model: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    outputs: int
    layers: Mapping[str, Listed]
    own: Mapping[str, Any] = field(default_factory=dict)

    def built(self, **other: Any) -> nn.Module:
        """The network, with its table's settings or others."""
        return build(self.model, self.shape, self.outputs, **{**self.settings, **other})


def _convolutions(*of: tuple[int, int, int]) -> dict[str, Listed]:
    """Of 3×3: inputs, outputs, and the length that the table gives the bias."""
    return {
        f"conv{place}": Listed(weight=f"{inputs}×{outputs}×3×3", bias=str(bias))
        for place, (inputs, outputs, bias) in enumerate(of, start=1)
    }


_VGG = ((3, 64), (64, 128), (128, 256), (256, 256), (256, 512), (512, 512), (512, 512), (512, 512))
TABLES: Mapping[str, Network] = {
    "Table 1": Network(
        name="VGG-11",
        model="vgg11",
        settings={"dropout": 0.2},
        shape=IMAGE,
        outputs=10,
        layers={
            **_convolutions(*((inputs, outputs, outputs) for inputs, outputs in _VGG)),
            "fc9": Listed(weight="4096×512", bias="512"),
            "fc10": Listed(weight="512×512", bias="512"),
            "fc11": Listed(weight="512×10", bias="10"),
        },
    ),
    "Table 2": Network(
        name="AlexNet",
        model="alexnet",
        settings={"head": 4096},
        own={"head": 128},
        shape=IMAGE,
        outputs=10,
        layers={
            **_convolutions((3, 64, 32), (64, 192, 64), (192, 384, 128), (384, 256, 128), (256, 256, 256)),
            "fc6": Listed(weight="1024×4096", bias="512"),
            "fc7": Listed(weight="4096×4096", bias="512"),
            "fc8": Listed(weight="4096×10", bias="10"),
        },
    ),
    "Table 3": Network(
        name="LSTM",
        model="char-lstm",
        settings={"embedding": 256, "hidden": 512, "dropout": 0.05},
        shape=(80,),
        outputs=80,
        layers={
            "embedding": Listed(weight="80×256"),
            "lstm": Listed(weight="256×512, 2 layers"),
            "fc": Listed(weight="512×80", bias="80"),
        },
    ),
}


def findings(scale: Scale, folder: Path, runs: Path) -> Findings:
    """Lays each table beside the network that is built here.

    Args:
        scale: has no say: there is nothing to compute.
        folder, runs: of the page, and of runs; nothing is put there.
    """
    outcomes = tuple(_outcome(name, network) for name, network in TABLES.items())
    agree = sum(outcome.verdict == "holds" for outcome in outcomes)
    return Findings(
        verdict=f"{agree} of {len(outcomes)} tables describe a network that can be built",
        tables=tuple(_table(name, network) for name, network in TABLES.items()),
        claims=outcomes,
        notes=tuple(_sizes(name, network) for name, network in TABLES.items()),
    )


def layers_of(module: nn.Module) -> Iterator[tuple[Layer, Listed]]:
    """The layers with weights, from the input on, and how a table would have them."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            outputs, inputs, *kernel = layer.weight.shape
            yield layer, Listed(weight=_by(inputs, outputs, *kernel), bias=_length(layer.bias))
        elif isinstance(layer, nn.Linear):
            yield layer, Listed(weight=_by(layer.in_features, layer.out_features), bias=_length(layer.bias))
        elif isinstance(layer, nn.Embedding):
            yield layer, Listed(weight=_by(*layer.weight.shape))
        elif isinstance(layer, nn.LSTM):
            weight = f"{_by(layer.input_size, layer.hidden_size)}, {layer.num_layers} layers"
            yield layer, Listed(weight=weight)


def _by(*sizes: int) -> str:
    return "×".join(map(str, sizes))


def _length(bias: Tensor | None) -> str:
    return "" if bias is None else str(len(bias))


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _beside(network: Network) -> Iterator[tuple[str, Listed, Listed, int]]:
    """Each layer: its name, the table's, ours, and our parameters."""
    for (name, listed), (layer, own) in zip(network.layers.items(), layers_of(network.built()), strict=True):
        yield name, listed, own, _parameters(layer)


def _table(name: str, network: Network) -> Table:
    rows: Sequence[tuple[str, ...]] = [
        (layer, listed.weight, listed.bias, own.weight, own.bias, f"{many:,}")
        for layer, listed, own, many in _beside(network)
    ]
    return Table(
        name=name.lower().replace(" ", "-"),
        caption=f"{name}, {network.name}: shapes with inputs before outputs, in the paper and here.",
        head=("layer", "paper's weight", "paper's bias", "our weight", "our bias", "our parameters"),
        rows=tuple(rows),
    )


def _outcome(name: str, network: Network) -> Outcome:
    wrong = []
    for layer, listed, own, _ in _beside(network):
        if listed.weight != own.weight:
            wrong.append(f"{layer} has a weight of {listed.weight} in the table, and can only have {own.weight}")
        if listed.bias != own.bias:
            wrong.append(f"{layer} has a bias of {listed.bias} in the table, and can only have {own.bias}")
    return Outcome(
        says=f"{name} ({network.name}) describes a network that can be built",
        verdict="differs" if wrong else "holds",
        evidence="; ".join(wrong) or "all weights and biases are as listed",
    )


def _sizes(name: str, network: Network) -> str:
    total = f"{name}, {network.name}: {_parameters(network.built()):,} parameters"
    if not network.own:
        return f"{total}."
    told = ", ".join(f"{key} = {value}" for key, value in network.own.items())
    return f"{total}; {_parameters(network.built(**network.own)):,} with the authors' program's {told}."
