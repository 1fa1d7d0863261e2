"""Models for tests of worker processes: these must be able to import them."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional


@final
class Dies(nn.Module):
    """A linear model whose process is killed in training, as often as there are files left to remove in a folder."""

    def __init__(self, features: int, outputs: int, folder: Path) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.folder = folder
        self.home = os.getpid()

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and os.getpid() != self.home:
            for file in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another worker may have been quicker
                    file.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
        outputs: Tensor = self.linear(inputs)
        return outputs


@final
class Greedy(nn.Module):
    """A linear model that asks for more memory than there is, as often as there are files left in a folder."""

    def __init__(self, features: int, outputs: int, folder: Path) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.folder = folder
        self.home = os.getpid()

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and os.getpid() != self.home:
            for file in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
                    torch.empty(2**60, dtype=torch.uint8)
        outputs: Tensor = self.linear(inputs)
        return outputs


@final
class Holds(nn.Module):
    """A linear model that holds a function."""

    def __init__(self, features: int, outputs: int, function: Callable[[], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.function = function

    def __deepcopy__(self, memo: object) -> Holds:
        other = Holds(self.linear.in_features, self.linear.out_features, self.function)
        other.load_state_dict(self.state_dict())
        return other

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs)
        return outputs


@final
class Fussy(nn.Module):
    """Dropout, BatchNorm, tied, frozen and unused parameters, and a buffer that does not travel."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.middle = nn.Linear(8, 8, bias=False)
        self.again = nn.Linear(8, 8, bias=False)
        self.again.weight = self.middle.weight
        self.last = nn.Linear(8, outputs)
        self.unused = nn.Linear(3, 3)
        self.first.bias.requires_grad_(False)
        self.seen: Tensor
        self.register_buffer("seen", self.last.bias.detach().clone().zero_(), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.first(inputs))).relu()
        outputs: Tensor = self.last(self.again(self.middle(hidden))) + self.seen
        if self.training:
            self.seen = self.seen + 0.1
        return outputs


class Counter(nn.Module):
    """A temperature that falls with the number of training batches, kept as a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.n = nn.Linear(4, 3), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.n += self.training
        outputs: Tensor = self.layer(inputs) / (1 + 0.1 * self.n)
        return outputs


class Carried(nn.Module):
    """A GRU that carries its state from batch to batch as a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(1, 6, batch_first=True), nn.Linear(6, 3)
        self.state: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        state = self.state if self.state is not None and self.state.shape[1] == len(inputs) else None
        made, state = self.cells(inputs[..., None], state)
        self.state = state.detach()
        outputs: Tensor = self.head(made[:, -1])
        return outputs


class FirstCall(nn.Module):
    """A buffer that the first batch fills."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("centre", None)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.centre is None:
            self.centre = inputs.detach().mean(0)
        outputs: Tensor = self.layer(inputs - self.centre)
        return outputs


@final
class Hazy(nn.Module):
    """A linear model that draws in every pass, in training and in eval mode: noise, and dropout that is always on."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        noisy = functional.dropout(inputs, 0.2) + 2.0 * torch.randn_like(inputs)
        outputs: Tensor = self.linear(noisy)
        return outputs


@final
class Halves(nn.Module):
    """A linear model and one hidden layer; its inputs in one array, in two by place, or in two by name."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.hidden, self.linear = nn.Linear(features, 8), nn.Linear(8, outputs)

    def forward(self, left: Tensor, right: Tensor | None = None) -> Tensor:
        whole = left if right is None else torch.cat([left, right], dim=1)
        outputs: Tensor = self.linear(functional.relu(self.hidden(whole)))
        return outputs


@final
class Words(nn.Module):
    """Mean of the vectors of a text's words, without those that only fill up; its logits under a name."""

    def __init__(self, words: int, outputs: int) -> None:
        super().__init__()
        self.vectors, self.linear = nn.Embedding(words, 6), nn.Linear(6, outputs)

    def forward(self, words: Tensor, mask: Tensor) -> dict[str, Tensor]:
        mean = (self.vectors(words) * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return {"logits": self.linear(mean), "mean": mean}


class Normed(nn.Sequential):
    """A perceptron with norms over batches, built as the catalogue's models are or alone."""

    def __init__(self, shape: tuple[int, ...] = (1, 2, 3), outputs: int = 10) -> None:
        first = nn.Flatten(), nn.Linear(math.prod(shape), 16)
        super().__init__(*first, nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs))
