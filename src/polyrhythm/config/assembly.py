"""From a configuration to an experiment. This loads the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import Mistakes
from polyrhythm.config import names
from polyrhythm.config.keys import Configuration
from polyrhythm.data import Federation, federate
from polyrhythm.experiments.difficulty import expert_about, foreign, sample_difficulty
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.models.catalogue import Builder


def assemble(configuration: Configuration) -> Iterator[Experiment]:
    """One experiment per seed; the data are loaded once. How they are computed is `configuration.execution`.

    Raises:
        UserError: anything that can be known to be wrong before the first round.
    """
    things = configuration.resolved_parts
    recipe, fleet, task = things.recipe, things.fleet, things.task
    for seed, federation, expert in federations(configuration):
        aim = task or names.task(federation.task)
        yield Experiment(
            federation=federation,
            model=things.model,
            recipe=recipe,
            task=task,
            fleet=fleet,
            rounds=configuration.rounds,
            until=configuration.until,
            seed=seed,
            evaluation=configuration.evaluation,
            initial=configuration.init,
            initial_skip=configuration.init_skip,
            expert=expert,
            name=configuration.name,
            config=configuration.plain()
            | {
                "seed": seed,
                "resolved": {"recipe": recipe.describe(), "task": aim.describe(), "fleet": fleet.describe()},
            },
        )


def federations(configuration: Configuration) -> Iterator[tuple[int, Federation, np.ndarray | None]]:
    """For each seed the data, split, and each training sample's loss under the expert, if there is one.

    The data are loaded, and scored, once.
    """
    things = configuration.resolved_parts
    collection = things.load()
    losses = None
    if (path := configuration.expert) is not None:
        # The architecture that the file names; the experiment's own if it names none.
        about = expert_about(path).get("model")
        model = things.model if not about else _of_expert(about, path, configuration.trust)
        losses = sample_difficulty(collection, model, path)
        notes = (*collection.notes, *foreign(path, collection.name))
        collection = replace(collection.with_column("difficulty", losses), notes=notes)
    for seed in configuration.seeds or (configuration.seed,):
        federation = federate(
            collection,
            things.partition,
            configuration.clients,
            seed,
            validation=configuration.validation,
            local_test=configuration.local_test,
            unseen=configuration.unseen,
        )
        yield seed, federation, losses


def _of_expert(about: str, path: str, trust: Trust) -> Builder:
    """The architecture that an expert's file names."""
    wrong, made = Mistakes(), None
    with wrong.noted(f"expert {path}"):
        made = names.model(about, trust)
    wrong.refuse()
    assert made is not None
    return made
