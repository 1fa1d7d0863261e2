"""What the cores need to know of the whole run."""

from __future__ import annotations

from polyrhythm.base.portions import Cuts
from polyrhythm.base.vectors import Layout
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.methods.mechanism import Setup


def setup_of(
    experiment: Experiment,
    layout: Layout,
    eligible: int,
    cuts: Cuts | None = None,
    levels: tuple[float, ...] | None = None,
    members: tuple[int, ...] | None = None,
) -> Setup:
    """The setup of a run.

    Args:
        experiment: what is computed.
        layout: of the vectors.
        eligible: how many clients can be invited.
        cuts, levels, members: as in `Setup`.
    """
    return Setup(
        size=layout.size,
        dtype=layout.dtype,
        population=experiment.federation.clients,
        total_rounds=experiment.rounds,
        seed=experiment.seed,
        budgets=experiment.fleet.budgets,
        eligible=eligible,
        places=tuple((segment.offset, segment.size) for segment in layout.segments),
        steady=experiment.fleet.steady,
        cuts=cuts,
        levels=levels,
        members=members,
        most_samples=max(1, int(experiment.federation.sizes.max())),
    )
