"""What the cores need to know of the whole run."""

from __future__ import annotations

from polyrhythm.base.portions import Cuts
from polyrhythm.base.vectors import spans_of
from polyrhythm.engines.selection import Chosen
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.methods.mechanism import Setup
from polyrhythm.models.ranks import adapters_of


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
    needs = any(part.of_adapters for part in experiment.recipe.parts())
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
        adapters=adapters_of(chosen.engine.at_rest(), layout) if needs else (),
        most_samples=max(1, int(experiment.federation.sizes.max())),
        secret=secret if experiment.recipe.releasing.private else None,
    )
