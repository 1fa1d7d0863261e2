"""PFLlib's programs, imported. It has no package: PFLLIB names a checkout of github.com/TsingZ0/PFLlib."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import mock

NOT_USED = ("h5py", "matplotlib", "matplotlib.pyplot")
"""What it imports for pictures and results in HDF5; need not be installed."""
MEASURES = ("sklearn", "sklearn.metrics", "sklearn.preprocessing")
"""What it measures with."""


def importable(folder: str, absent: Iterable[str] = ()) -> None:
    """Has a folder of the checkout imported from, with stand-ins for modules that are not used.

    Args:
        folder: "system", or "dataset".
        absent: names of these modules.

    Raises:
        SystemExit: PFLLIB names no checkout.
    """
    checkout = Path(os.environ.get("PFLLIB", "")).absolute() / folder
    if not (checkout / "utils").is_dir():
        raise SystemExit("PFLLIB names no checkout of github.com/TsingZ0/PFLlib")
    for name in [known for known in sys.modules if known.split(".")[0] == "utils"]:
        del sys.modules[name]  # both folders have modules of that name
    sys.path.insert(0, str(checkout))
    for name in absent:
        sys.modules[name] = mock.MagicMock(__spec__=ModuleSpec(name, None))


def settings(**given: Any) -> types.SimpleNamespace:
    """A server's settings: its defaults, and what is given: its model, the name of its data, and the like."""
    return types.SimpleNamespace(
        **{
            **{"device": "cpu", "goal": "test", "learning_rate_decay": False, "learning_rate_decay_gamma": 0.99},
            **{"join_ratio": 1.0, "random_join_ratio": False, "few_shot": 0, "time_select": False, "mu": 0.0},
            **{"time_threthold": 10000, "save_folder_name": "items", "top_cnt": 100, "auto_break": False},
            **{"eval_gap": 1, "client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0},
            **{"dlg_eval": False, "dlg_gap": 100, "batch_num_per_client": 2, "num_new_clients": 0},
            **{"fine_tuning_epoch_new": 0, "plocal_epochs": 1},
            **given,
        }
    )
