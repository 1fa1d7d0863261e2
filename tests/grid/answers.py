"""All answers to the eight questions that the grid combines: each mechanism once, and some wrapped in others."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from operator import or_

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.methods.adapters.averages import (
    DecomposedAverage,
    LengthWeightedAverage,
    ResidualInBase,
    StackInBase,
)
from polyrhythm.methods.adapters.factors import AlternateFactors, FreezeFactor
from polyrhythm.methods.capacity.base import Whole
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix
from polyrhythm.methods.capacity.largest_weights import LargestWeights
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rank_prefix import RankPrefix
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.compression import Int8, Lossless, TopK
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalAMSGrad
from polyrhythm.methods.order.base import Curriculum, Shuffled
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling
from polyrhythm.methods.participation.base import Sweep, Uniform
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, FisherTrace, RandomResize
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.participation.last_received import LastReceived
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.participation.norm_sampling import NormSampling
from polyrhythm.methods.participation.poisson import Poisson
from polyrhythm.methods.participation.rate_sampling import RateSampling
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.participation.tier_sampling import TierSampling
from polyrhythm.methods.participation.utility_sampling import UtilitySampling
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.personal.guided import MetaStep, MoreauEnvelope, PersonalMixture
from polyrhythm.methods.personal.models import FineTuning, PersonalCopy
from polyrhythm.methods.personal.neighbours import NearestNeighbours, NearestPrototype
from polyrhythm.methods.personal.phases import PersonalFirst
from polyrhythm.methods.personal.prototypes import Prototypes
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.methods.personal.starts import AdaptiveStart
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, MinReports, TimeOut, WhenAll
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.robust import ClipUpdates, GeometricMedian, Median, TrimmedMean
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates
from polyrhythm.methods.server_step import Adagrad, Adam, AMSGrad, Extrapolation, Momentum, Sgd, Yogi
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import AsInvited, BySamples, Equal, NormalisedAveraging, PerStep, Staleness
from polyrhythm.methods.work.base import Epochs, RandomEpochs, Steps
from polyrhythm.methods.work.partial_work import PartialWork
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps, SkipAndEstimate, SkipAndResendModel, SkipSilently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift

Parts = tuple[Settings, ...]
Choice = tuple[int, ...]
"""One combination: the place of its answer to each question."""

_STOP = StopOnDrift(a=0.5, b=0.4, representation="logits")
_MOON = ModelContrast(layer="logits")

QUESTIONS: Mapping[str, Sequence[Parts]] = {
    "adapters": (
        (),
        (FreezeFactor(),),
        (AlternateFactors(),),
        (ResidualInBase(),),
        (StackInBase(),),
        (DecomposedAverage(),),
        (LengthWeightedAverage(),),
    ),
    "participation": (
        (Uniform(cohort=3),),
        (Sweep(cohort=3),),
        (ClientCurriculum(cohort=3),),
        (Uniform(cohort=2), CriticalPeriods()),
        (Sweep(cohort=2), RandomResize()),
        (Uniform(cohort=3), SampledStaleness(max_delay=2)),
        (
            ClientCurriculum(cohort=2, scores="expert"),
            SampledStaleness(),
            CriticalPeriods(rule="windowed", watch=(FisherTrace(),)),
        ),
        (ClientCurriculum(cohort=2, scores="reported", order="anti"), RandomResize()),
        (Uniform(cohort=2), CriticalPeriods(), RandomResize()),
        (LossSampling(cohort=2, d=3),),
        (LossSampling(cohort=2, d=3, variant="cpow", batch=2), SampledStaleness()),
        (LossSampling(cohort=2, variant="rpow"), CriticalPeriods()),
        (UtilitySampling(cohort=2, alpha=1),),
        (UtilitySampling(cohort=2, exploration=0.2, set_aside=1), RandomResize()),
        (TierSampling(cohort=2, tiers=2),),
        (TierSampling(cohort=2, tiers=2, interval=1, credits=2), SampledStaleness(max_delay=2)),
        (ClusterSampling(cohort=3),),
        (ClusterSampling(cohort=2, by="updates", measure="l1"), CriticalPeriods()),
        (RateSampling(cohort=3, beta=0.2),),
        (AvailabilitySampling(cohort=3, rest=1),),
        (NormSampling(cohort=3, uploads=1),),
        (NormSampling(cohort=3, uploads=2, rescalings=4), SampledStaleness(max_delay=2)),
        (DiverseSampling(cohort=2), SampledStaleness(max_delay=2)),
        (Uniform(cohort=3), LastReceived()),
        (Poisson(cohort=3), SampledStaleness(max_delay=2)),
        (Uniform(cohort=2), CriticalPeriods(), Rolling()),
        (Sweep(cohort=3), Rolling(once_per_buffer=True), SampledStaleness(max_delay=2)),
    ),
    "work": (
        (Epochs(epochs=2),),
        (Steps(steps=3),),
        (RandomEpochs(epochs=2, spread=1),),
        (Epochs(epochs=3), _STOP),
        (Epochs(epochs=1), SkipAndEstimate()),
        (Steps(steps=2), SkipAndEstimate(storage="server", cold_start="zero", expire=1)),
        (Epochs(epochs=1), SkipAndResendModel(schedule="round_robin", turns="visits", phases="staggered")),
        (Steps(steps=2), SkipSilently()),
        (Epochs(epochs=2), BudgetSteps()),
        (RandomEpochs(epochs=2, spread=1), SkipAndEstimate(storage="mixed", cold_start="exclude"), _STOP),
        (Epochs(epochs=1), SkipSilently(), SkipAndEstimate()),
        (Epochs(epochs=2), PartialWork(seconds=1.0), SkipAndEstimate(), BudgetSteps()),
    ),
    "order": (
        (Shuffled(),),
        (Curriculum(least=2),),
        (Curriculum(score="both_pred", order="anti", refresh="step", least=1, restart="training"),),
        (Curriculum(score="expert", least=2),),
    ),
    "correction": (
        (),
        (Prox(mu=0.1),),
        (ControlVariates(),),
        (VarianceReduction(),),
        (DynamicRegularisation(),),
        (_MOON,),
        (ControlVariates(), Prox(mu=0.1), _MOON),
        (ClientMomentum(alpha=0.5), Prox(mu=0.1)),
        (LocalAMSGrad(), SharedMoments()),
        (ControlVariates(), VarianceReduction()),
    ),
    "weighing": (
        (BySamples(),),
        (Equal(),),
        (AsInvited(),),
        (NormalisedAveraging(),),
        (PerStep(),),
        (Equal(), PerStep(divide="travel")),
        (Staleness(), PerStep()),
        (Staleness(rule="catch_up"),),
        (NormalisedAveraging(), PerStep()),
        (Equal(), ParticipationIntervals(cutoff=2)),
    ),
    "release": (
        (WhenAll(),),
        (Buffer(size=2),),
        (Buffer(size=2), FromCurrent(), MinReports(count=1)),
        (WhenAll(), FromCurrent(scaled=False)),
        (WhenAll(), Equal(), LastUpdates()),
        (WhenAll(), Equal(), StaleUpdates(beta=0.5)),
        (Buffer(size=2), Equal(), LastModels(), DelayAdaptiveStep()),
        (Buffer(size=2), Equal(), LastUpdates(unheard="wait"), TimeOut(seconds=1e9)),
        (WhenAll(), ClipUpdates(times=1.5, refuse=50)),
        (WhenAll(), Median(), ClipUpdates(norm=0.1)),
        (Buffer(size=2), TrimmedMean(share=0.4)),
        (Buffer(size=2), UnlikeUpdates()),
        (WhenAll(), GeometricMedian(iterations=2)),
    ),
    "server step": ((Sgd(),), (Momentum(),), (Adagrad(),), (Adam(),), (Yogi(),), (AMSGrad(),), (Extrapolation(),)),
    "compression": ((Lossless(),), (TopK(share=0.3),), (Int8(),)),
    "what is personal": (
        (),
        (PersonalLayers(layers=("*bias",)), FineTuning(epochs=1)),
        (PersonalLayers(layers=("*weight",)), PersonalFirst(epochs=1)),
        (PersonalLayers(layers=("*bias",)), PersonalCopy(epochs=1)),
        (PersonalLayers(layers=("*bias",)), PersonalMixture(adapt=True)),
        (MoreauEnvelope(steps=2),),
        (MetaStep(form="hessian_free"),),
        (AdaptiveStart(most=2),),
        (NearestNeighbours(share=0.7, layer="logits"),),
        (Prototypes(layer="logits"), NearestPrototype(layer="logits")),
    ),
    "capacity": (
        (Whole(),),
        (WidthPrefix(ratio=(1.0, 0.5)),),
        (RollingWindow(ratio=0.4),),
        (RandomWidth(ratio=(0.8, 0.4)),),
        (LargestWeights(ratio=(1.0, 0.3)),),
        (DepthPrefix(depth=(1, 2)),),
        (RankPrefix(rank=(3, 1)),),
    ),
}
ANSWERS = tuple(QUESTIONS.values())
SIZE = math.prod(map(len, ANSWERS))


def recipe(choice: Choice) -> Recipe | UserError:
    """FedAvg with the chosen answers; or the reason why it is refused."""
    try:
        whole = _begun(choice)
        return whole.whole() if isinstance(whole, Recipe) else whole
    except UserError as refused:
        return refused


@functools.lru_cache(maxsize=20_000)
def _begun(choice: Choice) -> Recipe | UserError:
    """FedAvg with the answers to the first questions, which many choices share."""
    if not choice:
        return fedavg(lr=0.05, batch=4)
    before = _begun(choice[:-1])
    if isinstance(before, UserError):
        return before
    try:
        return functools.reduce(or_, ANSWERS[len(choice) - 1][choice[-1]], before)
    except UserError as refused:
        return refused


@functools.cache
def sample(size: int, seed: int = 0) -> tuple[Choice, ...]:
    """Distinct combinations at random, in which any two answers that can stand together do.

    The first ones are made for that: each begins with a pair that has not been seen. What is refused is in the sample
    too, where a pair met nothing else in so many draws.
    """
    random = np.random.default_rng(seed)
    chosen: dict[Choice, None] = {}
    seen: set[tuple[tuple[int, int], tuple[int, int]]] = set()
    slots = [[(slot, place) for place in range(len(a))] for slot, a in enumerate(ANSWERS)]
    for one, other in itertools.combinations(slots, 2):
        for pair in itertools.product(one, other):
            if pair not in seen:
                alone = tuple(dict(pair).get(slot, 0) for slot in range(len(ANSWERS)))
                choice = _completed(dict(pair), random, 120 if isinstance(recipe(alone), Recipe) else 12)
                chosen[choice] = None
                runs = isinstance(recipe(choice), Recipe)
                seen |= set(itertools.combinations(enumerate(choice), 2)) if runs else {pair}
    while len(chosen) < size:
        chosen[_completed({}, random, tries=1)] = None
    return tuple(chosen)


def drawn(count: int, seed: int) -> tuple[Choice, ...]:
    """Combinations at random that run; where many draws in a row are refused, the last of them."""
    random = np.random.default_rng((1, seed))
    return tuple(_completed({}, random) for _ in range(count))


def _completed(fixed: Mapping[int, int], random: np.random.Generator, tries: int = 120) -> Choice:
    for number in range(tries):
        # In the second half of the draws every second answer is the first one, which goes with most others; in the last
        # quarter seven of eight are.
        share = 0.0 if tries <= 2 or 2 * number < tries else 0.5 if 4 * number < 3 * tries else 0.875
        plain = random.random(len(ANSWERS)) < share
        drawn = [0 if first else int(random.integers(len(a))) for first, a in zip(plain, ANSWERS, strict=True)]
        choice = tuple(fixed.get(slot, place) for slot, place in enumerate(drawn))
        if isinstance(recipe(choice), Recipe):
            break
    return choice


def told(choice: Choice) -> str:
    """A combination in words."""
    return " | ".join(part.label() for answers, i in zip(ANSWERS, choice, strict=True) for part in answers[i])
