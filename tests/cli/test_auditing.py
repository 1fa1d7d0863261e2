"""The audit of a recipe's noise: what it says on the command line, what it refuses, and never too much, ever."""

from __future__ import annotations

import json

import pytest

import polyrhythm as pr
from polyrhythm.experiments.audit import audit
from polyrhythm.methods.privacy.refuting import at_least
from polyrhythm.methods.release import differential_privacy
from polyrhythm.methods.release.differential_privacy import noise
from terminal import Command

HIDDEN = "fedavg(cohort=20) | equal | sweep | dp(noise=3, delta=1e-3)"


def experiment(*parts: object) -> pr.Experiment:
    recipe = pr.fedavg(cohort=20) | pr.parts.equal()
    for part in parts:
        recipe = recipe | part
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=100, seed=0)
    return pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=10)


def test_a_bound_of_a_share_by_hand() -> None:
    """Clopper and Pearson's 95 % interval of 8 of 10 is 0.4439 to 0.9748; of none, 0 to 0.3085."""
    assert float(at_least(8, 10)) == pytest.approx(0.4439, abs=5e-5)
    assert 1 - float(at_least(2, 10)) == pytest.approx(0.9748, abs=5e-5)
    assert float(at_least(0, 10)) == 0
    assert 1 - float(at_least(10, 10)) == pytest.approx(0.3085, abs=5e-5)


def test_it_says_what_is_claimed_and_what_is_proved(polyrhythm: Command) -> None:
    asked = ("audit", "--clients", "100", "--method", HIDDEN, "--canaries", "200")
    told = json.loads(polyrhythm(*asked, "--json").out)
    assert told["holds"]
    assert told["law"] == "bounded"
    assert told["at_least"] <= told["epsilon"]
    words = polyrhythm(*asked)
    assert words.code == 0
    assert f"epsilon {told['at_least']:.4g} at least" in words.out
    assert "not refuted" in words.out


def test_a_false_claim_ends_with_1(polyrhythm: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differential_privacy, "noise", lambda *given: noise(*given) * 0.2)
    done = polyrhythm("audit", "--clients", "100", "--method", HIDDEN, "--canaries", "400")
    assert done.code == 1
    assert "The claim is refuted" in done.out


@pytest.mark.parametrize(
    ("method", "more", "words"),
    [
        ("fedavg", (), "an audit of fedavg"),
        ("fedavg | equal | dp(noise=0)", (), "an audit of fedavg | equal | dp"),
        (HIDDEN, ("--canaries", "20"), "an audit of 10 versions by 20 canaries"),
        ("scaffold | equal | dp", (), "control_variates with dp"),
    ],
)
def test_what_cannot_be_audited_is_refused(polyrhythm: Command, method: str, more: tuple[str, ...], words: str) -> None:
    done = polyrhythm("audit", "--method", method, *more)
    assert done.code == 2
    assert words in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        (pr.parts.sweep(), pr.parts.dp(noise=4.0, delta=1e-3)),
        (pr.parts.poisson(rate=1.0), pr.parts.dp(noise=4.0, delta=1e-3)),
        (pr.parts.poisson(rate=0.2), pr.parts.dp(noise=1.0, delta=1e-3)),
    ],
)
def test_no_false_alarm_in_20_repetitions(parts: tuple[object, ...]) -> None:
    found = [audit(experiment(*parts), canaries=1000, seed=seed) for seed in range(20)]
    assert all(one.holds and one.at_least <= one.epsilon for one in found)
    assert max(one.at_least for one in found) > 0


@pytest.mark.slow
def test_half_the_noise_is_found_20_times_of_20(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differential_privacy, "noise", lambda *given: noise(*given) * 0.5)
    of = experiment(pr.parts.sweep(), pr.parts.dp(noise=4.0, delta=1e-3))
    found = [audit(of, canaries=1000, seed=seed) for seed in range(20)]
    assert not any(one.holds for one in found)
