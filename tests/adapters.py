"""Small models of which only adapters learn, and texts for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.streams import torch_generator
from polyrhythm.data import ArraySamples, Collection, Federation

VOCABULARY, LENGTH = 11, 7


class Adapted(nn.Module):
    """W x + B A x, of which W is frozen."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.first, self.second = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2) / 4)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = self.base(values) + values @ self.first.T @ self.second.T
        return result


class Decoder(nn.Module):
    """One causal head of attention over frozen embeddings, and logits at each place: [B, L] to [B, L, V]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 8).requires_grad_(False)
        self.attend, self.out = Adapted(8, 24), Adapted(8, VOCABULARY)
        self.register_buffer("places", torch.arange(LENGTH) / LENGTH, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        assert isinstance(self.places, Tensor)
        values = self.tokens(tokens) + self.places[: tokens.shape[-1], None]
        query, key, value = (part.unsqueeze(-3) for part in self.attend(values).chunk(3, dim=-1))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True).squeeze(-3)
        outputs: Tensor = self.out(values + seen)
        return outputs


class Encoder(nn.Module):
    """The mean of what stands in a text, by its mask: logits [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 8).requires_grad_(False)
        self.hidden, self.head = Adapted(8, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        values, there = torch.tanh(self.hidden(self.tokens(ids))), mask.unsqueeze(-1)
        return {"logits": self.head((values * there).sum(dim=-2) / there.sum(dim=-2))}


def decoder(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Decoder()


def walks(count: int) -> Collection:
    """Texts of which half is asked about, and nothing of the third."""
    generator = torch_generator(3, "synthetic", "walks")
    tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    asked = torch.rand(count, LENGTH, generator=generator) < 0.5
    asked[2] = False
    samples = ArraySamples(tokens, torch.where(asked, tokens, -100))
    return Collection(name="walks", task="next_token", classes=(), train=samples, test=samples)


def padded(count: int) -> Federation:
    """Texts of unequal lengths with a class each, over five clients."""
    generator = torch_generator(4, "synthetic", "padded")
    lengths = torch.randint(1, LENGTH + 1, (count,), generator=generator).tolist()
    some = [torch.randint(VOCABULARY, (length,), generator=generator) for length in lengths]
    labels = torch.randint(3, (count,), generator=generator)
    padding = pr.data.Padding(value={"ids": 0}, to="batch", mask="mask")
    data = pr.data.arrays({"ids": some}, labels, task="classification", padding=padding)
    return pr.federate(data, pr.data.Iid(), clients=5, seed=0)
