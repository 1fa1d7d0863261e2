"""Polyrhythm: federated learning where every client keeps its own tempo.

    import polyrhythm as pr

    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)
    recipe = pr.fedprox(mu=0.01, cohort=10) | pr.parts.server_adam(lr=0.03)
    run = pr.run(pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=30))

Names are imported when they are first used, so that `import polyrhythm` costs nothing; they stand in `__init__.pyi`.
"""

import os

import lazy_loader

# Before the first BLAS call of the process: without it MKL picks its kernels by memory alignment, and equal weights at
# another address give other bits. Setting the variable yourself overrides this.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
