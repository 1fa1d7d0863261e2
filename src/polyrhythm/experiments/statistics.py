"""Statistics of norms that are no part of training, but of a version, from everybody's samples: static BatchNorm."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from torch import nn

from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import with_statistics
from polyrhythm.core.batches import batch_sizes
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.mechanism import Model


def counted(prepared: Prepared, model: Model, version: int) -> Model:
    """A model with the statistics that its norms have over all clients' training samples.

    Each client's samples pass once, in their order and in its batches, through the whole model, of which only norms
    are in training mode; means and variances are cumulated over all batches, each counting by its samples. A client's
    last batch of one joins the batch before it; a client with one sample has no variance, and is left out.

    Args:
        prepared: the experiment.
        model: the global one; the same is given where it has no such statistics.
        version: names what the model draws, if it draws anything.
    """
    engine, experiment = prepared.chosen.engine, prepared.experiment
    layout = engine.layout
    if not layout.statistics:
        return model
    module = copy_of(engine.at_rest())
    module.load_state_dict(engine.state_of(model))
    module.eval()
    norms = [m for m in module.modules() if isinstance(m, _NORMS) and m.track_running_stats]
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    so_far = 0
    with torch.no_grad(), seeded_torch(experiment.seed, "measure", "statistics", version):
        for client in experiment.holders().tolist():
            data = prepared.data_of(client)
            sizes = batch_sizes(len(data), experiment.recipe.batch or len(data), drop_last=False, fold_single=True)
            for size, end in zip(sizes, accumulate(sizes), strict=True):
                so_far += size
                for norm in norms:
                    norm.momentum = size / so_far
                module(data.batch(np.arange(end - size, end), None)[0])
    found = dict(module.named_buffers())
    return Model(
        weights=model.weights,
        buffers=with_statistics(layout, model.buffers, tuple(found[slot.name] for slot in layout.buffers)),
    )


_NORMS = nn.modules.batchnorm._NormBase
