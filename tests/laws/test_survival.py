"""Risks are judged by their order, however samples are cut into batches, and only differences of risks count."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.models.survival import Survival
from polyrhythm.models.tally import Tally

from .law import law, swap


def samples(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Risks [n, 1] and targets [n, 2], some at one time; the first is an event."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.randint(1, 6, (count,), generator=generator).double()
    events = torch.randint(0, 2, (count,), generator=generator).double()
    events[0] = 1
    return torch.randn(count, 1, generator=generator, dtype=torch.float64), torch.stack([times, events], dim=1)


def squared(self: Survival, outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(-1) - targets[:, 0]).square()


def everybody_at_risk(self: Survival, outputs: Tensor, targets: Tensor) -> Tensor:
    """Those whose time has passed are still among those at risk."""
    risks = outputs.reshape(-1)
    return targets[:, 1] * (risks.logsumexp(dim=0) - risks) * len(risks) / targets[:, 1].sum()


def of_the_last_batch(self: Survival, tally: Tally) -> dict[str, float]:
    risks, targets = tally.rows[-1]
    return {"loss": float(self.losses(risks.double(), targets).mean()), **self._metrics(tally)}


@law(
    seed=st.integers(0, 9),
    count=st.integers(3, 20),
    cut=st.integers(1, 5),
    ties=st.sampled_from(["efron", "breslow"]),
    examples=20,
    broken_by={"of the last batch": swap(Survival, "read", of_the_last_batch)},
)
def test_metrics_are_of_all_samples_however_they_are_cut(seed: int, count: int, cut: int, ties: str) -> None:
    aim, (outputs, targets) = Survival(ties=ties), samples(seed, count)  # type: ignore[arg-type]
    whole = aim.read(aim.tally(outputs, targets))
    parts = [aim.tally(outputs[i : i + cut], targets[i : i + cut]) for i in range(0, count, cut)]
    assert aim.read(sum(parts, Tally())) == pytest.approx(whole, abs=1e-12)
    assert whole["loss"] == pytest.approx(aim.loss(outputs, targets).item(), abs=1e-12)


@law(
    seed=st.integers(0, 9),
    count=st.integers(3, 20),
    shift=st.floats(-3, 3),
    ties=st.sampled_from(["efron", "breslow"]),
    examples=20,
    broken_by={"squared error": swap(Survival, "losses", squared)},
)
def test_only_differences_of_risks_and_the_order_of_times_count(seed: int, count: int, shift: float, ties: str) -> None:
    aim, (outputs, targets) = Survival(ties=ties), samples(seed, count)  # type: ignore[arg-type]
    other = torch.stack([targets[:, 0] ** 3 - 50, targets[:, 1]], dim=1)
    found = aim.read(aim.tally(outputs + shift, other))
    assert found == pytest.approx(aim.read(aim.tally(outputs, targets)), abs=1e-9)
    mixed = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(aim.losses(outputs[mixed], targets[mixed]).sum(), aim.losses(outputs, targets).sum())


@law(
    seed=st.integers(0, 9),
    count=st.integers(4, 20),
    examples=20,
    broken_by={"everybody at risk": swap(Survival, "losses", everybody_at_risk)},
)
def test_whoever_is_gone_before_the_first_event_adds_nothing(seed: int, count: int) -> None:
    outputs, targets = samples(seed, count)
    targets[0] = torch.tensor([0.5, 0.0])  # gone, without an event, before anybody else
    targets[1, 1] = 1
    torch.testing.assert_close(Survival().loss(outputs, targets), Survival().loss(outputs[1:], targets[1:]))
