"""Easy samples first: what is easy, how many are in use, and that neither scoring nor pacing changes the work."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.nn import functional

from polyrhythm.core import local_run
from polyrhythm.core.local_run import LocalRun
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Model, Need, Visit
from polyrhythm.methods.order import base as order
from polyrhythm.methods.order.base import Curriculum, Lens, Order, Progress, Shuffled
from polyrhythm.methods.order.pacing import Family, Pacing
from polyrhythm.methods.papers import Common

from .hand import loaded
from .law import law, swap
from .trials import Trial, trials
from .world import NETS, Federation, Run, alike, run

# What mutants wrap.
_RANK, _IN_USE, _PASS = Curriculum.rank, Curriculum.in_use, Curriculum.one_pass
_FROZEN = TorchEngine.frozen

FAMILIES: tuple[Family, ...] = ("linear", "quadratic", "root", "step", "exponential", "log")
ORDERS: Any = st.sampled_from(("curriculum", "anti", "random"))
SCORES: Any = st.sampled_from(("global", "local", "both", "global_pred", "local_pred", "both_pred"))
PACINGS = st.builds(
    Pacing,
    family=st.sampled_from(FAMILIES),
    a=st.sampled_from((0.0, 0.5, 0.8, 1.0)),
    b=st.sampled_from((0.1, 0.5)),
)


def curricula(**fixed: Any) -> st.SearchStrategy[Curriculum]:
    settings: dict[str, Any] = {
        "score": SCORES,
        "order": ORDERS,
        "pacing": PACINGS,
        "refresh": st.sampled_from(("pass", "step")),
        "least": st.sampled_from((1, 3, 32)),
        "restart": st.sampled_from(("visit", "training")),
    }
    return st.builds(Curriculum, **settings | {name: st.just(value) for name, value in fixed.items()})


def _ranked_by_chance(self: Curriculum, visit: Visit, lens: Lens) -> Any:
    return _RANK(replace(self, order="random") if self.order == "vanilla" else self, visit, lens)


def _in_the_order_of_the_ranking(self: Curriculum, visit: Visit, *given: Any) -> Any:
    return np.arange(visit.num_samples) if self.order == "vanilla" else _PASS(self, visit, *given)


@law(
    trial=trials(travels=False),
    curriculum=curricula(order="vanilla"),
    broken_by={
        "ranked all the same": swap(Curriculum, "rank", _ranked_by_chance),
        "not shuffled": swap(Curriculum, "one_pass", _in_the_order_of_the_ranking),
    },
)
def test_vanilla_is_shuffled(trial: Trial, curriculum: Curriculum) -> None:
    assert alike(run(trial.recipe(curriculum), trial.federation), run(trial.recipe(), trial.federation))


@final
class Asks(Order):
    """Asks for all there is to know, and makes nothing of it."""

    def needs(self) -> frozenset[Need]:
        return frozenset({"previous"})

    def rank(self, visit: Visit, lens: Lens) -> None:
        for which in ("received", "previous"):
            if which == "received" or lens.has_previous:
                lens.losses(which)
                lens.predictions(which)

    def one_pass(self, visit: Visit, name: tuple[int | str, ...], ranking: Any, progress: Progress) -> np.ndarray:
        return Shuffled().one_pass(visit, name, ranking, progress)


def _still_in_training(self: TorchEngine, which: Any) -> Any:
    return _FROZEN(self, which).train()


def _draws_with_the_training(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TorchEngine, "frozen", _still_in_training)
    patch.setattr(local_run, "measuring", lambda *names: contextlib.nullcontext())


def _with_the_model_in_training(self: TorchEngine, which: Any) -> Any:
    self.module(torch.ones(2, 4))
    return _FROZEN(self, which)


@law(
    trial=trials(travels=False),
    examples=10,
    broken_by={
        "frozen models draw from the training's stream": _draws_with_the_training,
        "the model in training learns": swap(TorchEngine, "frozen", _with_the_model_in_training),
    },
)
def test_scoring_changes_nothing(trial: Trial) -> None:
    assert alike(run(trial.recipe(Asks()), trial.federation), run(trial.recipe(), trial.federation))


def _no_least(self: Curriculum, visit: Visit, progress: Progress) -> int:
    return _IN_USE(self, replace(visit, least=1), progress)


_BATCHES = LocalRun.batches


def _one_pass_at_most(self: LocalRun) -> Any:
    limit = self.visit.epoch_steps
    for number, batch in enumerate(_BATCHES(self)):
        if number < limit:
            yield batch


@law(
    trial=trials(plain=True),
    curriculum=curricula(),
    examples=30,
    broken_by={
        "BatchNorm is given one sample": swap(Curriculum, "in_use", _no_least),
        "one pass at most": swap(LocalRun, "batches", _one_pass_at_most),
    },
)
def test_a_curriculum_takes_as_many_steps_as_none(trial: Trial, curriculum: Curriculum) -> None:
    story, plain = (run(trial.recipe(*parts), trial.federation, versions=2) for parts in ([curriculum], []))
    common = trial.common
    for dispatch, assignment in story.assignments.items():
        a_pass = _passes(trial.federation.sizes[assignment.client], common, trial.federation.net)
        steps = common["steps"] if "steps" in common else max(1, int(common["epochs"] * a_pass + 0.5)) if a_pass else 0
        assert story.reports[dispatch].steps == plain.reports[dispatch].steps == (steps if a_pass else 0)
        assert all(len(set(batch)) == len(batch) for batch in story.batches[dispatch])


def _passes(num_samples: int, common: Common, net: str) -> int:
    """Steps of one pass: full batches, and a rest that is left out, joined to the last one, or on its own."""
    size = min(common["batch"] or num_samples, num_samples)
    full, rest = divmod(num_samples, size)
    if rest and (common["drop_last"] or (net == "batchnorm" and rest == 1)):
        return full
    return full + bool(rest)


@law(
    curriculum=curricula(pacing=Pacing(b=1.0), refresh="pass"),
    net=st.sampled_from(list(NETS)),
    batch=st.sampled_from((None, 3, 4)),
    steps=st.booleans(),
    broken_by={
        "the hardest is left out": swap(
            Curriculum, "in_use", lambda self, visit, progress: max(visit.least, visit.num_samples - 1)
        ),
    },
)
def test_with_everything_in_use_every_sample_is_used_as_often(
    curriculum: Curriculum, net: str, batch: int | None, steps: bool
) -> None:
    work = Common(steps=8) if steps else Common(epochs=2.0)
    trial = Trial(federation=Federation(net=net), common=Common(cohort=4, batch=batch, **work))
    story, plain = (run(trial.recipe(*parts), trial.federation, versions=2) for parts in ([curriculum], []))
    for dispatch in story.batches:
        often, expected = (Counter(p for batch in one.batches[dispatch] for p in batch) for one in (story, plain))
        if steps:  # from the same place of a pass on
            assert max(often.values()) - min(often.values()) <= 2
            assert often.total() == expected.total()
        else:
            assert often == expected


def scored(federation: Federation, model: Model, shard: Any, *, predictions: bool) -> np.ndarray:
    """Losses or predicted classes under a model in eval mode, by hand."""
    module = loaded(federation, federation.engine().layout, model).eval()
    with torch.no_grad():
        outputs = module(shard.inputs)
        losses = functional.cross_entropy(outputs, shard.targets, reduction="none").double()
        return np.asarray(outputs.argmax(dim=1) if predictions else losses)


def hardness(federation: Federation, story: Run, dispatch: int, score: str) -> np.ndarray:
    """The score of each of a client's samples, from the models that it had, by hand."""
    assignment = story.assignments[dispatch]
    shard = federation.shards()[assignment.client]
    received = Model(weights=assignment.weights, buffers=assignment.buffers)
    local = received
    earlier = [d for d in story.visits(assignment.client) if d < dispatch]
    if earlier:
        before, report = story.assignments[earlier[-1]], story.reports[earlier[-1]]
        assert report.update is not None
        local = Model(weights=before.weights + report.update, buffers=report.buffers)
    losses = [scored(federation, m, shard, predictions=False) for m in (received, local)]
    classes = [scored(federation, m, shard, predictions=True) for m in (received, local)]
    wrong = [(c != shard.targets.numpy()).astype(float) for c in classes]
    scores: dict[str, np.ndarray] = {
        "global": losses[0],
        "local": losses[1],
        "both": losses[0] + losses[1],
        "global_pred": wrong[0],
        "local_pred": wrong[1],
        "both_pred": (classes[0] != classes[1]).astype(float),
    }
    return scores[score]


def _the_other_way_round(self: Curriculum, *given: Any) -> Any:
    return _RANK(replace(self, order="anti" if self.order == "curriculum" else "curriculum"), *given)


def _the_received_model_only(self: Curriculum, *given: Any) -> Any:
    score: Any = self.score.replace("local", "global").replace("both", "global")
    return _RANK(replace(self, score=score), *given)


@law(
    score=SCORES,
    kind=st.sampled_from(("curriculum", "anti")),
    net=st.sampled_from(list(NETS)),
    share=st.sampled_from((0.2, 0.5)),
    seed=st.integers(0, 3),
    examples=30,
    broken_by={
        "the other way round": swap(Curriculum, "rank", _the_other_way_round),
        "the received model only": swap(Curriculum, "rank", _the_received_model_only),
        "by chance": swap(Curriculum, "rank", lambda self, *given: _RANK(replace(self, order="random"), *given)),
        "in training mode": swap(TorchEngine, "frozen", _still_in_training),
    },
)
def test_the_first_pass_is_over_the_easiest(score: Any, kind: Any, net: str, share: float, seed: int) -> None:
    federation = Federation(sizes=(9, 16, 7, 12), net=net, seed=seed)
    pacing = Pacing(family="step", a=1.0, b=share)
    curriculum = Curriculum(score=score, order=kind, pacing=pacing, least=2)
    common = Common(cohort=3, epochs=1.0, batch=2, lr=0.3)
    story = run(Trial(federation=federation, common=common).recipe(curriculum), federation, versions=3)
    for dispatch, assignment in story.assignments.items():
        held = federation.sizes[assignment.client]
        count = max(2, int(held * share + 1e-9))
        hard = hardness(federation, story, dispatch, score)
        steps = -(-count // 2)
        used = [p for batch in story.batches[dispatch][:steps] for p in batch][:count]
        if net == "batchnorm" and count % 2:
            used = [p for batch in story.batches[dispatch][: count // 2] for p in batch]
        assert len(set(used)) == count
        ordered = np.sort(hard if kind == "curriculum" else -hard)
        np.testing.assert_allclose(np.sort((hard if kind == "curriculum" else -hard)[used]), ordered[:count], atol=1e-5)


@final
class Given:
    """A lens that knows losses."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.known = np.array(losses)

    has_previous = False

    def losses(self, which: str) -> np.ndarray:
        return self.known

    def predictions(self, which: str) -> np.ndarray:
        raise AssertionError("not asked for")

    def targets(self) -> np.ndarray:
        raise AssertionError("not asked for")

    def fixed(self, name: str) -> np.ndarray:
        return self.known[::-1]


def visit(num_samples: int, number: int = 0, seed: int = 0) -> Visit:
    return Visit(
        seed=seed,
        client=1,
        visit=number,
        version=0,
        total_rounds=None,
        num_samples=num_samples,
        batch=4,
        epoch_steps=-(-num_samples // 4),
    )


def _by_position(self: Curriculum, visit: Visit, lens: Any) -> np.ndarray:
    hard = self._hardness(lens)
    return np.argsort(hard if self.order == "curriculum" else -hard, kind="stable")


@law(
    losses=st.lists(st.sampled_from((0.0, 1.0, 2.0)), min_size=24, max_size=30),
    distinct=st.permutations(range(14)),
    score=st.sampled_from(("global", "local", "both", "expert")),
    examples=20,
    broken_by={
        "ties by position": swap(Curriculum, "rank", _by_position),
        "ties alike in every visit": swap(order, "stream", lambda seed, *names: np.random.default_rng(seed)),
    },
)
def test_anti_is_the_reverse_and_ties_fall_by_chance(losses: list[float], distinct: list[int], score: Any) -> None:
    easy, hard = (
        Curriculum(score=score, order=kind).rank(visit(14), Given(distinct)) for kind in ("curriculum", "anti")
    )
    assert easy is not None
    assert hard is not None
    assert easy.tolist() == hard[::-1].tolist()
    rankings = []
    for number in range(3):
        ranking = Curriculum(score=score).rank(visit(len(losses), number), Given(losses))
        assert ranking is not None
        known = Given(losses).fixed("") if score == "expert" else np.array(losses)
        assert sorted(ranking.tolist()) == list(range(len(losses)))
        assert (np.diff(known[ranking]) >= 0).all()
        rankings.append(tuple(ranking))
    assert len(set(rankings)) == 3
