"""What a model says of new rows, once it has read them: labels, how likely they are, or how likely a text is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.token_rows import Row, filled
from polyrhythm.results.using import Given, Use, outputs_of, predictions, read

AT_ONCE = 8
"""Rows of a language model, whose outputs have as many numbers at each place as there are tokens."""


@final
class Predicting:
    """New rows, and what a model gives for them.

    Args:
        use: of the run's weights.
        rows: raw, as for `Run.predict`.

    Raises:
        UserError: rows that are not like the training data's.
    """

    def __init__(self, use: Use, rows: Any) -> None:
        self._use = use
        self.of_texts = use.texts is not None and use.texts.makes == "rows" and use.texts.fits(rows)
        self._texts: list[list[Row]] = use.texts.token_rows(rows) if self.of_texts and use.texts is not None else []
        self._inputs = None if self.of_texts else read(use, rows)
        self._outputs = torch.zeros(0)

    def by(self, module: nn.Module) -> None:
        """Has a model read them."""
        if self._inputs is not None:
            self._outputs = outputs_of(self._use, module, self._inputs)
        else:
            self._outputs = torch.tensor(list(self._perplexities(module)), dtype=torch.float64)

    def labels(self) -> np.ndarray:
        """A label for each row, in the user's own words; the perplexity of each text under a language model.

        Raises:
            UserError: NaN in place of numbers to choose by.
        """
        if self.of_texts:
            found: np.ndarray = self._outputs.numpy()
            return found
        return predictions(self._use, self._outputs, probabilities=False)

    def probabilities(self) -> np.ndarray:
        """Of each class or tag, [n, C].

        Raises:
            UserError: there are none.
        """
        if self.of_texts:
            raise UserError(
                "probabilities of texts under a language model",
                expected="a task with classes",
                why="a text has one for each token and place; its perplexity sums them up",
                fix="leave probabilities out; or give tokens, run.predict(tokens, probabilities=True)",
            )
        return predictions(self._use, self._outputs, probabilities=True)

    def likelihoods(self) -> np.ndarray | None:
        """How likely each label is, [n]; None where no class is chosen."""
        if self.of_texts or self._use.task.name not in ("classification", "next_character"):
            return None
        found: np.ndarray = self.probabilities().max(axis=1)
        return found

    def _perplexities(self, module: nn.Module) -> Iterator[float]:
        task = self._use.task
        for rows in self._texts:
            losses, asked = torch.zeros((), dtype=torch.float64), 0
            for begin in range(0, len(rows), AT_ONCE):
                given, targets = self._batch(rows[begin : begin + AT_ONCE])
                outputs = outputs_of(self._use, module, given)
                many, _ = task.amounts(outputs, targets)
                losses += (task.losses(outputs, targets).double() * many).sum()
                asked += int(many.sum())
            yield float((losses / asked).exp()) if asked else float("nan")

    def _batch(self, rows: Sequence[Row]) -> tuple[Given, Tensor]:
        assert self._use.texts is not None
        tokens, asked = filled(rows, self._use.texts.filled)
        return read(self._use, tokens), torch.from_numpy(asked)
