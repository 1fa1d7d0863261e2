"""Cox regression, held to numbers by hand and to sums written out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.survival import Survival, pairs_of
from polyrhythm.models.tally import Tally


def written_out(risks: list[float], times: list[float], events: list[int], ties: str) -> float:
    """The negative log partial likelihood per event, by its definition."""
    total = 0.0
    for time in {t for t, e in zip(times, events, strict=True) if e}:
        at = [i for i in range(len(times)) if times[i] == time and events[i]]
        there = sum(math.exp(risks[i]) for i in range(len(times)) if times[i] >= time)
        theirs = sum(math.exp(risks[i]) for i in at)
        for number, i in enumerate(at):
            total += math.log(there - (number / len(at) * theirs if ties == "efron" else 0.0)) - risks[i]
    return total / max(sum(events), 1)


def test_by_hand() -> None:
    """Risks log 2, 0, 0 at 1, 2 (censored) and 3: the first of 4 has 2, the last is alone. Half of log 2."""
    outputs, targets = torch.tensor([[math.log(2)], [0.0], [0.0]]), torch.tensor([[1.0, 1], [2, 0], [3, 1]])
    assert Survival().loss(outputs, targets).item() == pytest.approx(math.log(2) / 2)
    assert Survival().losses(outputs, targets).tolist() == pytest.approx([1.5 * math.log(2), 0, 0])
    found = Survival().read(Survival().tally(outputs, targets))
    assert found == pytest.approx({"loss": math.log(2) / 2, "concordance": 1.0})


def test_two_events_at_one_time_by_hand() -> None:
    """Three of risk 1, two events at once. Breslow: log 3 twice; Efron: log 3 and log(3 − 2/2)."""
    outputs, targets = torch.zeros(3, 1, dtype=torch.float64), torch.tensor([[1.0, 1], [1, 1], [2, 0]])
    assert Survival(ties="breslow").loss(outputs, targets).item() == pytest.approx(math.log(3))
    assert Survival().loss(outputs, targets).item() == pytest.approx((math.log(3) + math.log(2)) / 2)


def test_pairs_by_hand() -> None:
    """Known: 1 before each, 2 before what is later or censored at 2. Not known: who is censored at 3, and 4."""
    targets = torch.tensor([[1.0, 1], [2, 1], [2, 0], [3, 0], [4, 1]])
    risks = torch.tensor([5.0, 1, 2, 1, 7])
    # 1 has the higher risk but against the last one; at 2, lower than that censored there, equal to 3, lower than 4.
    assert pairs_of(Survival().tally(risks, targets)) == (3 + 0.5, 4 + 3)
    assert pairs_of(Tally()) == (0.0, 0.0)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_losses_and_gradients_are_those_of_the_sum_written_out(ties: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        risks, times = random.normal(size=12), random.integers(1, 6, size=12).astype(float)
        events = random.integers(0, 2, size=12)
        targets = torch.tensor(np.stack([times, events], axis=1))
        outputs = torch.tensor(risks, requires_grad=True)
        loss = Survival(ties=ties).loss(outputs, targets)  # type: ignore[arg-type]
        given = (times.tolist(), events.tolist(), ties)
        assert loss.item() == pytest.approx(written_out(risks.tolist(), *given), abs=1e-12)
        (gradient,) = torch.autograd.grad(loss, outputs)
        for place in range(3):
            up, down = risks.copy(), risks.copy()
            up[place], down[place] = risks[place] + 1e-5, risks[place] - 1e-5
            slope = (written_out(up.tolist(), *given) - written_out(down.tolist(), *given)) / 2e-5
            assert gradient[place].item() == pytest.approx(slope, abs=1e-7)


def test_without_an_event_there_is_nothing_to_learn() -> None:
    outputs, targets = torch.zeros(3, 1, requires_grad=True), torch.tensor([[1.0, 0], [2, 0], [3, 0]])
    loss = Survival().loss(outputs, targets)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, outputs)[0].tolist() == [[0], [0], [0]]
    assert Survival().read(Survival().tally(outputs, targets)) == {"loss": 0.0}
    assert Survival().undefined(targets, 1) == ("concordance",)


def test_pairs_within_clients_are_pooled_apart_from_those_between() -> None:
    """Each client orders its own two rightly; between clients the risks are the wrong way round."""
    first = Survival().tally(torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 1], [2, 1]]))
    second = Survival().tally(torch.tensor([9.0, 8.0]), torch.tensor([[3.0, 1], [4, 1]]))
    assert Survival().over_clients([first, second]) == {"concordance_within": 1.0}
    assert Survival().read(first + second)["concordance"] == pytest.approx(2 / 6)
    assert Survival().over_clients([]) == {}


def test_a_risk_of_nan_is_never_right() -> None:
    tally = Survival().tally(torch.tensor([math.nan, 0.0]), torch.tensor([[1.0, 1], [2, 1]]))
    found = Survival().read(tally)
    assert (found["concordance"], found["nan_outputs"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("shape", "targets", "words"),
    [
        ((2, 3), torch.zeros(4, 2), "outputs for a batch"),
        ((2, 1), torch.zeros(4), "time, and 1 for an event"),
        ((2, 1), torch.full((4, 2), 0.5), "neither 0 nor 1"),
        ((2, 1), torch.tensor([[math.inf, 1.0]]), "finite times"),
    ],
)
def test_what_is_no_survival_is_refused(shape: tuple[int, ...], targets: torch.Tensor, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Survival().check(shape, targets)
    with pytest.raises(UserError, match="order of events"):
        Survival().draw(torch.zeros(2, 1), np.random.default_rng(0))


def federation() -> pr.Federation:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(120, 3)).astype(np.float32)
    times, events = np.exp(-2 * inputs[:, 0] + random.normal(size=120) / 4), random.random(120) < 0.7
    goals = np.stack([times, events], axis=1)
    hospital = np.arange(120) % 4
    collection = pr.data.arrays(inputs, goals, task="survival", columns={"hospital": hospital})
    return pr.federate(collection, pr.data.ByColumn(column="hospital"), None, 0, local_test=0.3)


def test_risks_are_learnt(tmp_path: Path) -> None:
    recipe = pr.fedavg(cohort=4, lr=0.3, epochs=3, batch=16)
    run = pr.run(pr.Experiment(federation=federation(), model="logistic", recipe=recipe, rounds=4), out=tmp_path)
    assert run.history["test_concordance"].iloc[-1] > 0.85
    own = {f"clients_concordance_{what}" for what in ("pooled", "within", "mean")}
    assert own <= {*run.history.columns}
    rows = np.eye(3, dtype=np.float32)
    assert run.predict(rows).shape == (3,)


ASKING = {
    "curriculum": pr.curriculum_fl(cohort=2),
    "utility sampling": pr.oort(cohort=2),
}


@pytest.mark.parametrize("recipe", ASKING.values(), ids=list(ASKING))
def test_what_asks_for_losses_of_single_samples_is_refused(recipe: pr.Recipe) -> None:
    with pytest.raises(UserError, match="for the task survival"):
        prepare(pr.Experiment(federation=federation(), model="logistic", recipe=recipe, rounds=2), pr.Execution())
