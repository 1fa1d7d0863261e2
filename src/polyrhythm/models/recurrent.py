"""The character-level LSTM of the Shakespeare experiments."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from polyrhythm.base.settings import Count, Fraction
from polyrhythm.models.shapes import sequence


def char_lstm(
    shape: tuple[int, ...],
    outputs: int,
    *,
    embedding: Count = 8,
    hidden: Count = 256,
    layers: Count = 2,
    dropout: Fraction = 0.0,
    every: bool = False,
) -> nn.Module:
    """Character LSTM: embedding, stacked LSTM, a linear layer on the last position; the vocabulary is the outputs.

    Defaults are those of McMahan et al., AISTATS 2017, LEAF and Reddi et al., ICLR 2021 (8, 2×256): 819,920 parameters
    for LEAF's 80 characters. FedCL's (KDD 2023, Table 3) is embedding=256, hidden=512, dropout=0.05: 3,739,728.
    torch's LSTM has two bias vectors per layer where Keras has one, here 2,048 parameters more in all. Reddi et al.
    also learn from every position of the text, as with `every`; by default only the last one has a target.

    Args:
        embedding: size of a character's vector.
        hidden: width of each LSTM layer.
        layers: number of LSTM layers.
        dropout: probability of dropping an activation between the LSTM and the linear layer, 0 … 1.
        every: whether the linear layer is on every position, for the task `next_token`.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017.
    """
    sequence("char-lstm", shape)
    return CharLstm(outputs, embedding, hidden, layers, dropout, every)


@final
class CharLstm(nn.Module):
    """inputs [B, T] int64 token numbers → logits [B, vocabulary] of the token that follows, or [B, T, vocabulary]."""

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float, every: bool = False
    ) -> None:
        super().__init__()
        self.every = every
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.lstm(self.embedding(tokens))[0]  # [B, T, hidden]
        outputs: Tensor = self.output(self.dropout(states if self.every else states[:, -1]))
        return outputs
