"""Every part that can be piped onto a recipe, under the name it has in TOML and on the command line."""

from polyrhythm.methods.adapters.averages import DecomposedAverage as decomposed_average
from polyrhythm.methods.adapters.averages import LengthWeightedAverage as length_weighted_average
from polyrhythm.methods.adapters.averages import ResidualInBase as residual_in_base
from polyrhythm.methods.adapters.averages import StackInBase as stack_in_base
from polyrhythm.methods.adapters.factors import AlternateFactors as alternate_factors
from polyrhythm.methods.adapters.factors import FreezeFactor as freeze_factor
from polyrhythm.methods.capacity.base import Whole as whole
from polyrhythm.methods.capacity.depth_prefix import DepthPrefix as depth_prefix
from polyrhythm.methods.capacity.largest_weights import LargestWeights as largest_weights
from polyrhythm.methods.capacity.random_width import RandomWidth as random_width
from polyrhythm.methods.capacity.rank_prefix import RankPrefix as rank_prefix
from polyrhythm.methods.capacity.rolling_window import RollingWindow as rolling_window
from polyrhythm.methods.capacity.width_prefix import WidthPrefix as width_prefix
from polyrhythm.methods.client_momentum import ClientMomentum as client_momentum
from polyrhythm.methods.compression import Int8 as compress_int8
from polyrhythm.methods.compression import Lossless as lossless
from polyrhythm.methods.compression import TopK as compress_top_k
from polyrhythm.methods.correction import ControlVariates as control_variates
from polyrhythm.methods.correction import DynamicRegularisation as dynamic_regularisation
from polyrhythm.methods.correction import ModelContrast as model_contrast
from polyrhythm.methods.correction import Prox as prox
from polyrhythm.methods.correction import VarianceReduction as variance_reduction
from polyrhythm.methods.local.optimisers import LocalAdam as local_adam
from polyrhythm.methods.local.optimisers import LocalAMSGrad as local_amsgrad
from polyrhythm.methods.local.optimisers import LocalSgd as local_sgd
from polyrhythm.methods.local.schedules import Constant as constant
from polyrhythm.methods.local.schedules import Cosine as cosine
from polyrhythm.methods.local.schedules import Exponential as exponential
from polyrhythm.methods.local.schedules import Power as power
from polyrhythm.methods.local.schedules import StepDecay as step_decay
from polyrhythm.methods.local.schedules import WarmUp as warm_up
from polyrhythm.methods.order.base import Curriculum as curriculum
from polyrhythm.methods.order.base import Shuffled as shuffled
from polyrhythm.methods.participation.at_most import AtMost as at_most
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling as availability_sampling
from polyrhythm.methods.participation.base import Sweep as sweep
from polyrhythm.methods.participation.base import Uniform as uniform
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum as client_curriculum
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling as cluster_sampling
from polyrhythm.methods.participation.critical_periods import CriticalPeriods as critical_periods
from polyrhythm.methods.participation.critical_periods import RandomResize as random_resize
from polyrhythm.methods.participation.cycle import Cycle as cycle
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling as diverse_sampling
from polyrhythm.methods.participation.last_received import LastReceived as last_received
from polyrhythm.methods.participation.loss_sampling import LossSampling as loss_sampling
from polyrhythm.methods.participation.norm_sampling import NormSampling as norm_sampling
from polyrhythm.methods.participation.poisson import Poisson as poisson
from polyrhythm.methods.participation.rate_sampling import RateSampling as rate_sampling
from polyrhythm.methods.participation.rolling import OnArrival as on_arrival
from polyrhythm.methods.participation.rolling import Rolling as rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness as sampled_staleness
from polyrhythm.methods.participation.tier_sampling import TierSampling as tier_sampling
from polyrhythm.methods.participation.utility_sampling import UtilitySampling as utility_sampling
from polyrhythm.methods.participation_intervals import ParticipationIntervals as participation_intervals
from polyrhythm.methods.personal.guided import MetaStep as meta_step
from polyrhythm.methods.personal.guided import MoreauEnvelope as moreau_envelope
from polyrhythm.methods.personal.guided import PersonalMixture as personal_mixture
from polyrhythm.methods.personal.models import FineTuning as fine_tuning
from polyrhythm.methods.personal.models import GlobalModel as global_model
from polyrhythm.methods.personal.models import PersonalCopy as personal_copy
from polyrhythm.methods.personal.neighbours import NearestNeighbours as nearest_neighbours
from polyrhythm.methods.personal.neighbours import NearestPrototype as nearest_prototype
from polyrhythm.methods.personal.phases import PersonalFirst as personal_first
from polyrhythm.methods.personal.prototypes import Prototypes as prototypes
from polyrhythm.methods.personal.scope import Everything as everything
from polyrhythm.methods.personal.scope import PersonalLayers as personal_layers
from polyrhythm.methods.personal.starts import AdaptiveStart as adaptive_start
from polyrhythm.methods.release.base import Buffer as buffer
from polyrhythm.methods.release.base import Deadline as deadline
from polyrhythm.methods.release.base import MinReports as min_reports
from polyrhythm.methods.release.base import OverSelect as over_select
from polyrhythm.methods.release.base import TimeOut as time_out
from polyrhythm.methods.release.base import WhenAll as when_all
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep as delay_adaptive_step
from polyrhythm.methods.release.differential_privacy import Dp as dp
from polyrhythm.methods.release.from_current import FromCurrent as from_current
from polyrhythm.methods.release.last_models import LastModels as last_models
from polyrhythm.methods.release.last_updates import LastUpdates as last_updates
from polyrhythm.methods.release.robust import ClipUpdates as clip_updates
from polyrhythm.methods.release.robust import GeometricMedian as geometric_median
from polyrhythm.methods.release.robust import Median as median
from polyrhythm.methods.release.robust import TrimmedMean as trimmed_mean
from polyrhythm.methods.release.stale_updates import StaleUpdates as stale_updates
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates as unlike_updates
from polyrhythm.methods.secure_sum.secagg import Secagg as secagg
from polyrhythm.methods.server_step import Adagrad as server_adagrad
from polyrhythm.methods.server_step import Adam as server_adam
from polyrhythm.methods.server_step import AMSGrad as server_amsgrad
from polyrhythm.methods.server_step import Extrapolation as server_extrapolation
from polyrhythm.methods.server_step import Momentum as server_momentum
from polyrhythm.methods.server_step import Sgd as server_sgd
from polyrhythm.methods.server_step import Yogi as server_yogi
from polyrhythm.methods.shared_moments import SharedMoments as shared_moments
from polyrhythm.methods.weighing import AsInvited as as_invited
from polyrhythm.methods.weighing import BySamples as by_samples
from polyrhythm.methods.weighing import Equal as equal
from polyrhythm.methods.weighing import NormalisedAveraging as normalised_averaging
from polyrhythm.methods.weighing import PerStep as per_step
from polyrhythm.methods.weighing import Staleness as staleness
from polyrhythm.methods.work.base import Epochs as epochs
from polyrhythm.methods.work.base import RandomEpochs as random_epochs
from polyrhythm.methods.work.base import Steps as steps
from polyrhythm.methods.work.partial_work import PartialWork as partial_work
from polyrhythm.methods.work.skip_and_estimate import BudgetSteps as budget_steps
from polyrhythm.methods.work.skip_and_estimate import SkipAndEstimate as skip_and_estimate
from polyrhythm.methods.work.skip_and_estimate import SkipAndResendModel as skip_and_resend_model
from polyrhythm.methods.work.skip_and_estimate import SkipSilently as skip_silently
from polyrhythm.methods.work.stop_on_drift import StopOnDrift as stop_on_drift

__all__ = [
    "adaptive_start",
    "alternate_factors",
    "as_invited",
    "at_most",
    "availability_sampling",
    "budget_steps",
    "buffer",
    "by_samples",
    "client_curriculum",
    "client_momentum",
    "clip_updates",
    "cluster_sampling",
    "compress_int8",
    "compress_top_k",
    "constant",
    "control_variates",
    "cosine",
    "critical_periods",
    "curriculum",
    "cycle",
    "deadline",
    "decomposed_average",
    "delay_adaptive_step",
    "depth_prefix",
    "diverse_sampling",
    "dp",
    "dynamic_regularisation",
    "epochs",
    "equal",
    "everything",
    "exponential",
    "fine_tuning",
    "freeze_factor",
    "from_current",
    "geometric_median",
    "global_model",
    "largest_weights",
    "last_models",
    "last_received",
    "last_updates",
    "length_weighted_average",
    "local_adam",
    "local_amsgrad",
    "local_sgd",
    "loss_sampling",
    "lossless",
    "median",
    "meta_step",
    "min_reports",
    "model_contrast",
    "moreau_envelope",
    "nearest_neighbours",
    "nearest_prototype",
    "norm_sampling",
    "normalised_averaging",
    "on_arrival",
    "over_select",
    "partial_work",
    "participation_intervals",
    "per_step",
    "personal_copy",
    "personal_first",
    "personal_layers",
    "personal_mixture",
    "poisson",
    "power",
    "prototypes",
    "prox",
    "random_epochs",
    "random_resize",
    "random_width",
    "rank_prefix",
    "rate_sampling",
    "residual_in_base",
    "rolling",
    "rolling_window",
    "sampled_staleness",
    "secagg",
    "server_adagrad",
    "server_adam",
    "server_amsgrad",
    "server_extrapolation",
    "server_momentum",
    "server_sgd",
    "server_yogi",
    "shared_moments",
    "shuffled",
    "skip_and_estimate",
    "skip_and_resend_model",
    "skip_silently",
    "stack_in_base",
    "stale_updates",
    "staleness",
    "step_decay",
    "steps",
    "stop_on_drift",
    "sweep",
    "tier_sampling",
    "time_out",
    "trimmed_mean",
    "uniform",
    "unlike_updates",
    "utility_sampling",
    "variance_reduction",
    "warm_up",
    "when_all",
    "whole",
    "width_prefix",
]
