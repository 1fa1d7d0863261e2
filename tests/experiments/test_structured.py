"""A model of several arrays learns what it would learn of one: on every driver, at nodes, resumed and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
import small
from crews import FISHER
from polyrhythm.base.errors import UserError
from polyrhythm.data import Collection
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.experiments.difficulty import sample_difficulty
from polyrhythm.experiments.expert import train_expert
from pretend import JumpingClock, PretendTransport, nodes_of
from worker_models import Halves, Words

DRAWN = np.random.default_rng(0)
INPUTS = DRAWN.normal(size=(60, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > INPUTS[:, 3]).astype(int)
TEXTS = [DRAWN.integers(1, 9, size=DRAWN.integers(1, 7)) for _ in range(60)]
OF_TEXTS = np.array([text[0] % 2 for text in TEXTS])
COMMON: dict[str, Any] = {"cohort": 2, "epochs": 2, "batch": 7}


def whole(inputs: np.ndarray) -> Any:
    return inputs


def in_order(inputs: np.ndarray) -> Any:
    return inputs[:, :1], inputs[:, 1:]


def by_name(inputs: np.ndarray) -> Any:
    return {"right": inputs[:, 1:], "left": inputs[:, :1]}


def halves(form: Callable[[np.ndarray], Any]) -> Collection:
    return pr.data.arrays(form(INPUTS[:50]), LABELS[:50], test=(form(INPUTS[50:]), LABELS[50:]))


def texts(**padding: Any) -> Collection:
    settings = {"mask": "mask", **padding}
    inputs = [{"words": TEXTS[:45]}, {"words": TEXTS[45:]}]
    test = (inputs[1], OF_TEXTS[45:])
    return pr.data.arrays(inputs[0], OF_TEXTS[:45], test=test, padding=pr.data.Padding(**settings))


def experiment(data: Collection, model: Any = None, **changes: Any) -> pr.Experiment:
    values: dict[str, Any] = {"recipe": pr.fedavg(**COMMON, lr=0.3), "rounds": 3, "seed": 5}
    federation = pr.federate(data, pr.data.Iid(), 4, 0)
    return pr.Experiment(federation=federation, model=model or Halves(4, 2), **values | changes)


def carried(made: pr.Experiment, out: Path, **how: Any) -> pr.Run:
    return pr.run(made, execution=pr.Execution(**{"engine": "torch", **how}), out=out)


RECIPES: dict[str, Any] = {
    "fedavg": pr.fedavg(**COMMON),
    "scaffold": pr.scaffold(**COMMON),
    "moon": pr.moon(**COMMON, layer="hidden"),
    "alt": pr.alt(**COMMON, representation="hidden"),
    "curriculum": pr.curriculum_fl(**COMMON, score="both"),
    "fisher": pr.fedavg(**COMMON) | FISHER,
    "rolling": pr.fedavg(**COMMON) | pr.parts.rolling(concurrency=2) | pr.parts.buffer(size=1),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_several_arrays_are_learned_from_as_one_is(recipe: str, tmp_path: Path) -> None:
    runs = []
    for form in (whole, in_order, by_name):
        torch.manual_seed(0)
        runs.append(carried(experiment(halves(form), recipe=RECIPES[recipe]), tmp_path))
    one, *others = runs
    for other in others:
        assert other.summary["digest"] == one.summary["digest"]
        assert other.scores == one.scores
        assert other.summary["flops"] == one.summary["flops"]


@pytest.mark.parametrize("kind", ["arrays", "padded", "padded for each batch"])
def test_worker_processes_give_the_same(kind: str, tmp_path: Path) -> None:
    def make() -> pr.Experiment:
        if kind == "arrays":
            return experiment(halves(by_name))
        return experiment(texts(to="longest" if kind == "padded" else "batch"), Words(9, 2))

    torch.manual_seed(0)
    inline = carried(make(), tmp_path, driver="inline")
    torch.manual_seed(0)
    assert carried(make(), tmp_path, driver="processes", workers=2).summary["digest"] == inline.summary["digest"]


def test_what_fills_up_changes_nothing_in_a_model_that_does_not_look_at_it(tmp_path: Path) -> None:
    runs = []
    for to in ("longest", "batch", 9):
        torch.manual_seed(0)
        runs.append(carried(experiment(texts(to=to, value=3), Words(9, 2)), tmp_path))
    for run in runs[1:]:
        for name, weights in run.weights().items():
            torch.testing.assert_close(weights, runs[0].weights()[name], rtol=1e-4, atol=1e-6)


def test_a_plain_loop_gives_the_same_numbers(tmp_path: Path) -> None:
    """One client, whole batches: two epochs are two steps of gradient descent on all its samples."""
    data, model = texts(), Words(9, 2)
    made = pr.Experiment(
        federation=pr.federate(data, pr.data.Iid(), 1, 0),
        model=model,
        recipe=pr.fedavg(cohort=1, epochs=2, batch=45, lr=0.3),
        rounds=4,
    )
    run = carried(made, tmp_path)
    words = torch.zeros(60, 6, dtype=torch.int64)
    for row, text in zip(words, TEXTS, strict=True):
        row[: len(text)] = torch.tensor(text)
    mask, targets = (words > 0).long(), torch.tensor(OF_TEXTS)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(8):
        optimiser.zero_grad()
        functional.cross_entropy(model(words=words[:45], mask=mask[:45])["logits"], targets[:45]).backward()
        optimiser.step()
    for name, weights in run.weights().items():
        torch.testing.assert_close(weights, model.state_dict()[name], rtol=1e-4, atol=1e-5)
    predicted = model(words=words[45:], mask=mask[45:])["logits"].argmax(dim=1)
    assert run.predict({"words": TEXTS[45:]}).tolist() == predicted.tolist()
    assert run.summary["final_accuracy"] == pytest.approx(float((predicted == targets[45:]).float().mean()))


def test_nodes_of_a_real_federation_give_the_same(tmp_path: Path) -> None:
    def make() -> pr.Experiment:
        torch.manual_seed(0)
        return experiment(texts(to=8), Words(9, 2), recipe=pr.fedavg(cohort=4, batch=7))

    clock = JumpingClock()
    line = PretendTransport(clock, nodes_of(make, tmp_path / "nodes", 4))
    summary = serve(make(), line, Serving(out=tmp_path / "served", wait=20.0), clock=clock, tell=lambda text: None)
    assert summary["digest"] == carried(make(), tmp_path / "here").summary["digest"]


def test_a_run_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    def stop(record: Any) -> None:
        if isinstance(record, small.VisitRecord) and record.version == 2:
            raise KeyboardInterrupt

    def make() -> pr.Experiment:
        torch.manual_seed(0)
        return experiment(texts(), Words(9, 2))

    how = pr.Execution(engine="torch", checkpoint=pr.Checkpoint(every=1))
    whole_one = pr.run(make(), execution=how, out=tmp_path / "whole")
    stopped = pr.run(make(), execution=how, out=tmp_path / "two", observers=[small.Log(stop)])
    assert stopped.status == "stopped"
    assert (
        pr.resume(make(), stopped, execution=how, out=tmp_path / "two").summary["digest"] == whole_one.summary["digest"]
    )


@pytest.mark.parametrize("form", [in_order, by_name])
def test_new_samples_are_read_as_the_training_samples_were(form: Any, tmp_path: Path) -> None:
    model = Halves(4, 2)
    run = carried(experiment(halves(form), model), tmp_path)
    with torch.no_grad():
        expected = run.model()(torch.tensor(INPUTS)).argmax(dim=1).tolist()
    opened = pr.Run.open(run.id, tmp_path)
    given = form(INPUTS)
    rows = [form(row[None]) for row in INPUTS]
    single = [{k: v[0] for k, v in r.items()} if isinstance(r, dict) else tuple(v[0] for v in r) for r in rows]
    for inputs in (given, single):
        assert opened.predict(inputs, model=Halves(4, 2)).tolist() == expected
        right = float(np.mean(np.array(expected) == LABELS))
        assert opened.evaluate((inputs, LABELS), model=model)["accuracy"] == pytest.approx(right)
    assert "accuracy" in run.evaluate(halves(form))
    assert not run.model()._forward_pre_hooks
    for odd, words in (
        ({"left": INPUTS}, "with no"),
        (form(INPUTS[:, :3]), "of shape"),
        (INPUTS, "with no"),
        (halves(whole), "other"),
    ):
        with pytest.raises(UserError, match=words):
            run.evaluate(odd) if isinstance(odd, Collection) else run.predict(odd)


def test_an_expert_of_such_samples_scores_them(tmp_path: Path) -> None:
    scores = []
    for form in (whole, by_name):
        torch.manual_seed(0)
        data, path = halves(form), tmp_path / f"{form.__name__}.safetensors"
        train_expert(data, Halves(4, 2), path, epochs=2)
        scores.append(sample_difficulty(data, lambda: Halves(4, 2), path))
        with pytest.raises(UserError, match="for samples of several arrays"):
            train_expert(halves(by_name), Halves(4, 2), path, last_layer_rate=10)
    np.testing.assert_allclose(*scores, rtol=1e-4)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 2)

    def forward(self, left: Tensor) -> Any:
        return self.linear(left)


class Logits(nn.Module):
    def __init__(self, how: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.how = nn.Linear(4, 2), how

    def forward(self, inputs: Tensor) -> Any:
        return self.how(self.linear(inputs))


def test_what_a_model_does_not_take_is_refused_before_a_run() -> None:
    for model, words in (
        (Named(), "does not take the arrays of a sample: .*'right'|unexpected keyword argument 'right'"),
        ("mlp", "the model mlp for samples of several arrays"),
        (Halves(5, 2), r"could not be run on 2 samples of .*right float32 \[3\]"),
    ):
        with pytest.raises(UserError, match=words):
            small.prepare(experiment(halves(by_name), model))
    found = small.prepare(experiment(halves(by_name))).notices()
    assert any("several arrays" in note and "torch" in note for note in found)
    chosen = small.prepare(experiment(halves(by_name)), pr.Execution(engine="native")).chosen
    assert (chosen.kind, chosen.why_not) == ("torch", "a sample is several arrays, or padded")
    assert small.prepare(experiment(halves(by_name)), pr.Execution(engine="stacked")).chosen.kind == "stacked"


def as_tuple(outputs: Tensor) -> Any:
    return outputs, outputs.sum()


def as_mapping(outputs: Tensor) -> Any:
    return {"loss": None, "logits": outputs}


@pytest.mark.parametrize("how", [as_tuple, as_mapping])
def test_outputs_are_read_of_what_a_model_gives(how: Callable[[Tensor], Any], tmp_path: Path) -> None:
    runs = []
    for form in (lambda outputs: outputs, how):
        torch.manual_seed(0)
        runs.append(carried(experiment(halves(whole), Logits(form)), tmp_path))
    plain, other = runs
    assert plain.summary["digest"] == other.summary["digest"]
    assert any("of which its outputs are read" in note for note in other.notices)
    assert other.predict(INPUTS).tolist() == plain.predict(INPUTS).tolist()


def test_a_transformer_needs_no_wrapper(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the transformers library is not installed")
    config = transformers.BertConfig(
        vocab_size=9,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    padding = pr.data.Padding(value=0, mask="attention_mask")
    data = pr.data.arrays(
        {"input_ids": TEXTS[:45]}, OF_TEXTS[:45], test=({"input_ids": TEXTS[45:]}, OF_TEXTS[45:]), padding=padding
    )
    made = pr.Experiment(
        federation=pr.federate(data, pr.data.Iid(), 1, 0),
        model=model,
        recipe=pr.fedavg(cohort=1, epochs=3, batch=45, lr=0.1),
        rounds=1,
    )
    run = pr.run(made, out=tmp_path)
    words = torch.zeros(60, 6, dtype=torch.int64)
    for row, text in zip(words, TEXTS, strict=True):
        row[: len(text)] = torch.tensor(text)
    mask, targets = (words > 0).long(), torch.tensor(OF_TEXTS)
    optimiser = torch.optim.SGD(model.train().parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        outputs = model(input_ids=words[:45], attention_mask=mask[:45], labels=targets[:45])
        outputs.loss.backward()
        optimiser.step()
    for name, weights in run.weights().items():
        torch.testing.assert_close(weights, model.state_dict()[name], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        expected = model.eval()(input_ids=words, attention_mask=mask).logits.argmax(dim=1)
    assert run.predict({"input_ids": TEXTS}).tolist() == expected.tolist()
