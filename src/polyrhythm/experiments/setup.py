"""What the cores need to know of the whole run."""

from __future__ import annotations

from polyrhythm.base.portions import Cuts
from polyrhythm.base.vectors import spans_of
from polyrhythm.engines.selection import Chosen
from polyrhythm.experiments.adapters import adapters_for
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.methods.mechanism import Setup


def setup_of(
    experiment: Experiment,
    chosen: Chosen,
    eligible: int,
    cuts: Cuts | None = None,
    levels: tuple[float, ...] | None = None,
    members: tuple[int, ...] | None = None,
    secret: int | None = None,
) -> Setup:
    """The setup of a run.

    Args:
        experiment: what is computed.
        chosen: the engine, whose model it is.
        eligible: how many clients can be invited.
        cuts, levels, members: as in `Setup`.
        secret: likewise; where there is one, clients are nodes, and nobody knows whether they are always there.
    """
    layout = chosen.engine.layout
    return Setup(
        size=layout.size,
        dtype=layout.dtype,
        population=experiment.federation.clients,
        total_rounds=experiment.rounds,
        seed=experiment.seed,
        budgets=experiment.fleet.budgets,
        eligible=eligible,
        places=spans_of(layout),
        steady=experiment.fleet.steady and secret is None,
        cuts=cuts,
        levels=levels,
        members=members,
        adapters=adapters_for(experiment.recipe, chosen.engine.at_rest(), layout),
        most_samples=max(1, int(experiment.federation.sizes.max())),
        secret=secret if experiment.recipe.releasing.private else None,
    )
