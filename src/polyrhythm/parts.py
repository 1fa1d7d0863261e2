"""Every part that can be piped onto a recipe, under the name it has in TOML and on the command line."""

from polyrhythm.optimisers import LocalAdam as local_adam
from polyrhythm.optimisers import LocalSgd as local_sgd
from polyrhythm.schedules import Constant as constant
from polyrhythm.schedules import Cosine as cosine
from polyrhythm.schedules import Exponential as exponential
from polyrhythm.schedules import Power as power
from polyrhythm.schedules import StepDecay as step_decay
from polyrhythm.slots.client_curriculum import ClientCurriculum as client_curriculum
from polyrhythm.slots.compression import Int8 as compress_int8
from polyrhythm.slots.compression import Lossless as lossless
from polyrhythm.slots.compression import TopK as compress_top_k
from polyrhythm.slots.correction import ControlVariates as control_variates
from polyrhythm.slots.correction import DynamicRegularisation as dynamic_regularisation
from polyrhythm.slots.correction import ModelContrast as model_contrast
from polyrhythm.slots.correction import Prox as prox
from polyrhythm.slots.correction import VarianceReduction as variance_reduction
from polyrhythm.slots.critical import CriticalPeriods as critical_periods
from polyrhythm.slots.critical import RandomResize as random_resize
from polyrhythm.slots.from_current import FromCurrent as from_current
from polyrhythm.slots.memory import Memory as memory
from polyrhythm.slots.oort import Oort as oort
from polyrhythm.slots.order import Curriculum as curriculum
from polyrhythm.slots.order import Shuffled as shuffled
from polyrhythm.slots.partial import PartialWork as partial_work
from polyrhythm.slots.participation import Sweep as sweep
from polyrhythm.slots.participation import Uniform as uniform
from polyrhythm.slots.power_of_choice import PowerOfChoice as power_of_choice
from polyrhythm.slots.release import Buffer as buffer
from polyrhythm.slots.release import Deadline as deadline
from polyrhythm.slots.release import MinReports as min_reports
from polyrhythm.slots.release import OverSelect as over_select
from polyrhythm.slots.release import TimeOut as time_out
from polyrhythm.slots.release import WhenAll as when_all
from polyrhythm.slots.robust import ClipUpdates as clip_updates
from polyrhythm.slots.robust import GeometricMedian as geometric_median
from polyrhythm.slots.robust import Median as median
from polyrhythm.slots.robust import TrimmedMean as trimmed_mean
from polyrhythm.slots.rolling import OnArrival as on_arrival
from polyrhythm.slots.rolling import Rolling as rolling
from polyrhythm.slots.server_step import Adagrad as server_adagrad
from polyrhythm.slots.server_step import Adam as server_adam
from polyrhythm.slots.server_step import AMSGrad as server_amsgrad
from polyrhythm.slots.server_step import Momentum as server_momentum
from polyrhythm.slots.server_step import Sgd as server_sgd
from polyrhythm.slots.server_step import Yogi as server_yogi
from polyrhythm.slots.skipping import BudgetSteps as budget_steps
from polyrhythm.slots.skipping import SkipAndEstimate as skip_and_estimate
from polyrhythm.slots.skipping import SkipAndResendModel as skip_and_resend_model
from polyrhythm.slots.skipping import SkipSilently as skip_silently
from polyrhythm.slots.staleness import SampledStaleness as sampled_staleness
from polyrhythm.slots.stopping import StopOnDrift as stop_on_drift
from polyrhythm.slots.tifl import Tifl as tifl
from polyrhythm.slots.weighing import BySamples as by_samples
from polyrhythm.slots.weighing import Equal as equal
from polyrhythm.slots.weighing import NormalisedAveraging as normalised_averaging
from polyrhythm.slots.weighing import PerStep as per_step
from polyrhythm.slots.weighing import Staleness as staleness
from polyrhythm.slots.work import Epochs as epochs
from polyrhythm.slots.work import RandomEpochs as random_epochs
from polyrhythm.slots.work import Steps as steps

__all__ = [
    "budget_steps",
    "buffer",
    "by_samples",
    "client_curriculum",
    "clip_updates",
    "compress_int8",
    "compress_top_k",
    "constant",
    "control_variates",
    "cosine",
    "critical_periods",
    "curriculum",
    "deadline",
    "dynamic_regularisation",
    "epochs",
    "equal",
    "exponential",
    "from_current",
    "geometric_median",
    "local_adam",
    "local_sgd",
    "lossless",
    "median",
    "memory",
    "min_reports",
    "model_contrast",
    "normalised_averaging",
    "on_arrival",
    "oort",
    "over_select",
    "partial_work",
    "per_step",
    "power",
    "power_of_choice",
    "prox",
    "random_epochs",
    "random_resize",
    "rolling",
    "sampled_staleness",
    "server_adagrad",
    "server_adam",
    "server_amsgrad",
    "server_momentum",
    "server_sgd",
    "server_yogi",
    "shuffled",
    "skip_and_estimate",
    "skip_and_resend_model",
    "skip_silently",
    "staleness",
    "step_decay",
    "steps",
    "stop_on_drift",
    "sweep",
    "tifl",
    "time_out",
    "trimmed_mean",
    "uniform",
    "variance_reduction",
    "when_all",
]
