"""From a configuration to an experiment. This loads the data."""

from __future__ import annotations

from collections.abc import Iterator

from polyrhythm.cli import names
from polyrhythm.cli.configuration import Configuration
from polyrhythm.data import Collection, federate
from polyrhythm.experiment import Evaluation, Experiment, Until


def assemble(configuration: Configuration) -> Iterator[Experiment]:
    """One experiment per seed; the data are loaded once.

    Raises:
        UserError: anything that can be known to be wrong before the first round.
    """
    recipe, fleet = names.recipe(configuration.method), names.fleet(configuration.fleet)
    partition = names.partition(configuration.partition)
    model = names.model(configuration.model or "mlp")
    collection: Collection = names.source(configuration.data)
    for seed in configuration.seeds or (configuration.seed,):
        federation = federate(
            collection,
            partition,
            configuration.clients,
            seed,
            validation=configuration.validation,
            local_test=configuration.local_test,
        )
        yield Experiment(
            federation=federation,
            model=model,
            recipe=recipe,
            fleet=fleet,
            rounds=configuration.rounds,
            until=Until(**configuration.until.model_dump()),
            seed=seed,
            evaluation=Evaluation(**configuration.evaluation.model_dump()),
            initial=configuration.init,
            name=configuration.name,
            config=configuration.plain() | {"seed": seed, "resolved": {"recipe": recipe.describe()}},
        )
