"""Everything that a part of your own is written with, in Python `pr.extend`.

A part is a final, frozen, keyword-only dataclass on one of the bases here, with the hooks that its equation needs; the
others are neutral. Its settings are checked against their annotations when it is made, and named in text as those of
built-in parts are. What others must know of it, it says in properties such as `watches`, `may_stop` or `guesses`, with
neutral defaults: engines, estimates and a real federation's server decide by these and ask for no class.

- Bases: `Participation`, `Work`, `Order`, `Correction`, `Sharing`, `Scaling`, `ReleasePolicy`, `ServerStep`,
  `Compression`, `LocalOptimiser`, `Schedule`; what changes the decision of another part: `ParticipationModifier`,
  `WorkModifier`, `ReleaseModifier`; inside parts: `Detector`, `Budgets`, and `Settings` for anything else.
- What hooks are given and give back: `Setup`, `State`, `Visit`, `Outcome`, `Report`, `Release`, `Facts`,
  `InvitationContext`, `Invitation`, `Plan`, `Stop`, `Substitute`, `SubstituteKind`, `ReleaseContext`, `Push`,
  `BatchView`, `Lens`, `Progress`, `Packed`, `Fault`.
- What a part does to the privacy of clients, `privacy` of its class: `INSIDE`, `AFTER`, or another `PrivacyEffect`; a
  part that says nothing is refused with `dp`.
- What becomes of it where the server knows only the sum of updates, `in_sums` of its class: `BLIND`, `ONLY_FACTS`, or
  another `SumEffect`; a part that looks at reports and says nothing is refused with `secagg`.
- Annotations of settings: `Positive`, `NonNegative`, `Count`, `Fraction`, `Decay`.
- Tools: `weighted_sum` over a fixed tree; `stream` and `torch_generator` for draws with a name; `to_train`;
  `UserError`.
"""

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Facts, Fault, Model, Report, Roster, State, SubstituteKind
from polyrhythm.base.settings import Count, Decay, Fraction, NonNegative, Positive, Settings
from polyrhythm.base.streams import stream, torch_generator
from polyrhythm.base.sums import weighted_sum
from polyrhythm.base.vectors import Layout, Spans
from polyrhythm.methods.compression import Compression, Packed
from polyrhythm.methods.correction import BatchView, Correction, Push
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.local.schedules import Schedule
from polyrhythm.methods.mechanism import Need, Outcome, Release, Setup, Visit
from polyrhythm.methods.order.base import Lens, Order, Progress
from polyrhythm.methods.participation.base import (
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
    ParticipationModifier,
    to_train,
)
from polyrhythm.methods.participation.critical_periods import Detector
from polyrhythm.methods.privacy.effects import AFTER, INSIDE, PrivacyEffect
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import ReleaseContext, ReleaseModifier, ReleasePolicy
from polyrhythm.methods.secure_sum.effects import BLIND, ONLY_FACTS, SumEffect
from polyrhythm.methods.server_step import ServerStep
from polyrhythm.methods.weighing import Scaling, Sharing
from polyrhythm.methods.work.base import Plan, Stop, Substitute, Work, WorkModifier
from polyrhythm.methods.work.budgets import Budgets

__all__ = [
    "AFTER",
    "BLIND",
    "INSIDE",
    "ONLY_FACTS",
    "BatchView",
    "Budgets",
    "Compression",
    "Correction",
    "Count",
    "Decay",
    "Detector",
    "Facts",
    "Fault",
    "Fraction",
    "Invitation",
    "InvitationContext",
    "Invitations",
    "Layout",
    "Lens",
    "LocalOptimiser",
    "Model",
    "Need",
    "NonNegative",
    "Order",
    "Outcome",
    "Packed",
    "Participation",
    "ParticipationModifier",
    "Plan",
    "Positive",
    "PrivacyEffect",
    "Progress",
    "Push",
    "Recipe",
    "Release",
    "ReleaseContext",
    "ReleaseModifier",
    "ReleasePolicy",
    "Report",
    "Roster",
    "Scaling",
    "Schedule",
    "ServerStep",
    "Settings",
    "Setup",
    "Sharing",
    "Spans",
    "State",
    "Stop",
    "Substitute",
    "SubstituteKind",
    "SumEffect",
    "UserError",
    "Visit",
    "Work",
    "WorkModifier",
    "stream",
    "to_train",
    "torch_generator",
    "weighted_sum",
]  # fmt: skip
