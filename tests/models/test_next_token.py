"""The task of what follows in texts, held to numbers by hand and to the loss of the ecosystem's own models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.models.next_token import NextToken


def test_by_hand() -> None:
    """Two texts over two tokens: three answers with probabilities 1/2, 1/4 and 1/8 of what is right, one wrong."""
    half, quarter, eighth = ([0.0, 0.0], [0.0, np.log(3.0)], [0.0, np.log(7.0)])
    outputs = torch.tensor([[half, quarter, half], [eighth, half, half]], dtype=torch.float64)
    targets = torch.tensor([[1, 0, 0], [-100, 0, -100]])
    found = NextToken().read(NextToken().tally(outputs, targets))
    loss = (np.log(2) + np.log(4) + np.log(8)) / 3
    assert found == pytest.approx({"loss": loss, "accuracy": 1 / 3, "perplexity": 4.0})
    assert NextToken().losses(outputs, targets).tolist() == pytest.approx([np.log(8) / 2, np.log(8)])


def test_texts_without_an_answer_add_nothing_and_alone_have_no_metrics() -> None:
    outputs, targets = torch.randn(2, 4, 5), torch.full((2, 4), -100)
    assert NextToken().loss(outputs, targets).item() == 0
    assert NextToken().read(NextToken().tally(outputs, targets)) == {"loss": 0.0}
    assert NextToken().undefined(targets, 5) == ("accuracy", "perplexity")


def test_nan_is_wrong_and_counted_where_it_is_asked() -> None:
    outputs, targets = torch.zeros(2, 3, 4), torch.tensor([[0, 0, 0], [0, 0, -100]])
    outputs[1, 2, 0] = torch.nan  # after the last answer
    assert "nan_outputs" not in NextToken().read(NextToken().tally(outputs, targets))
    outputs[1, 0, 0] = torch.nan
    found = NextToken().read(NextToken().tally(outputs, targets))
    assert found["nan_outputs"] == 1
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_the_losses_are_those_of_the_ecosystems_own_models() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=11, num_key_value_heads=2, **sizes))
    tokens = torch.randint(11, (3, 8))
    labels = tokens.clone()
    labels[0, :4], labels[1, 5:] = -100, -100
    with torch.no_grad():
        given = model(input_ids=tokens, labels=labels)
    assert NextToken().loss(given.logits, labels).item() == pytest.approx(given.loss.item(), abs=1e-6)


def data(**settings: object) -> pr.Collection:
    random = np.random.default_rng(0)
    texts = [random.integers(1, 9, size=random.integers(3, 8)).tolist() for _ in range(24)]
    return pr.data.arrays(texts, texts, task="next_token", padding=pr.data.Padding(value=0, **settings))  # type: ignore[arg-type]


class Says(torch.nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.vectors, self.last = torch.nn.Embedding(outputs, 6), torch.nn.Linear(6, outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.vectors(tokens))
        return found


def test_a_run_over_texts_has_the_same_numbers_for_any_padding(tmp_path: Path) -> None:
    runs = []
    for to in ("longest", "batch", 12):
        federation = pr.federate(data(to=to), pr.data.Iid(), clients=4, seed=0)
        recipe = pr.fedavg(cohort=2, batch=4, lr=0.5)
        runs.append(pr.run(pr.Experiment(federation=federation, model=Says, recipe=recipe, rounds=2), out=tmp_path))
    first, *others = (run.history[["test_loss", "test_accuracy", "test_perplexity"]].to_numpy() for run in runs)
    assert np.isfinite(first).all()
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-6)
    texts = [[1, 2, 3], [4, 5, 6, 7]]
    assert runs[1].predict(texts).shape == (2, 4)
    assert runs[1].evaluate((texts, texts))["perplexity"] > 1


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([[1, 2], [3, -4]], "token -4 in the targets"),
        ([["a", "b"], ["c"]], "for next_token"),
        ([1, 2], "targets of one kind and form"),
        ([[1.5, 2], [3.0, 4]], "for next_token"),
    ],
)
def test_what_are_no_tokens_is_refused(targets: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        pr.data.arrays(np.zeros((2, 2), dtype=np.int64), targets, task="next_token", test=([[1, 2]], [[1, 2]]))


def test_a_note_counts_texts_without_an_answer() -> None:
    texts = np.array([[1, 2], [3, -100], [4, -100]])
    found = pr.data.arrays(texts.clip(0), texts, task="next_token", test=(texts.clip(0), texts))
    assert any("4 of 6 texts have no answer token" in note for note in found.notes)


def test_tokens_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(UserError, match="token 9 in the targets"):
        NextToken().check((2, 3, 9), torch.tensor([[1, 9, -100]]))
