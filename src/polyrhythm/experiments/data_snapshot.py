"""The observer that writes down what the data of a run are like. Nothing of it is seen by the run itself."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch, stream
from polyrhythm.base.tensor_names import fill
from polyrhythm.data.holding import Holding
from polyrhythm.data.picture import label_counts
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.portrait import LABELS, QUANTILES, SAMPLES, write
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord

MOST = 2000  # samples whose losses are looked at
SHOWN = 10  # images of each kind
BATCH = 500


@final
class Portrait(Observer):
    """Writes down who holds which labels; and, if asked to, how hard single training samples are.

    Args:
        prepared: what is run.
        folder: gives the run's, once it has begun.
    """

    def __init__(self, prepared: Prepared, folder: Callable[[], Path]) -> None:
        experiment = prepared.experiment
        self._experiment, self._engine, self._folder = experiment, prepared.chosen.engine, folder
        self._asked = "sample_losses" in experiment.evaluation.measure and experiment.recipe.regime != "local"
        self._versions: list[dict[str, Any]] = []
        self._losses: np.ndarray | None = None
        self._holding: Holding | None = None
        self._module: nn.Module | None = None
        self._places = np.empty(0, dtype=np.int64)

    def begin(self, plan: Plan) -> None:
        """Writes down the labels."""
        if self._experiment.federation.elsewhere:
            return
        write(self._folder() / LABELS, label_counts(self._experiment.federation))
        if self._asked:
            order = self._experiment.federation.shares.order.numpy()
            drawn = stream(self._experiment.seed, "sample", "losses").permutation(len(order))[:MOST]
            self._places = order[np.sort(drawn)]
            self._holding = Holding(self._experiment.federation.train)
            self._module = copy_of(self._engine.at_rest()).cpu().eval()

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Measures the samples where the version was evaluated."""
        if self._holding is None or record.test is None:
            return
        with seeded_torch(self._experiment.seed, "measure", "sample losses", record.version):
            self._losses = self._measured(model())
        quantiles = [float(q) for q in np.quantile(self._losses, QUANTILES)]
        self._versions.append({"version": record.version, "losses": quantiles})

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Writes down how hard samples were, with the extremes as images if they are any."""
        if self._losses is None:
            return
        order = np.argsort(self._losses, kind="stable")
        chosen = {"easiest": order[:SHOWN], "hardest": order[::-1][:SHOWN]}
        images = {kind: [self._image(i) for i in places.tolist()] for kind, places in chosen.items()}
        known = all(image is not None for few in images.values() for image in few)
        write(self._folder() / SAMPLES, {"versions": self._versions, "images": images if known else {}})

    def _measured(self, weights: Mapping[str, Tensor]) -> np.ndarray:
        assert self._holding is not None
        assert self._module is not None
        fill(self._module, weights)
        with torch.no_grad():
            pieces = []
            for i in range(0, len(self._places), BATCH):
                inputs, targets = self._holding.batch(self._places[i : i + BATCH], None)
                pieces.append(self._experiment.aim.losses(self._module(inputs), targets).double())
        losses: np.ndarray = torch.cat(pieces).numpy()
        return losses

    def _image(self, place: int) -> dict[str, Any] | None:
        """A sample as a picture with its class and loss; None if it is none."""
        assert self._holding is not None
        assert self._losses is not None
        classes = self._experiment.federation.classes
        inputs, targets = self._holding.batch(self._places[place : place + 1], None)
        sample = inputs[0]
        if sample.dim() != 3 or sample.shape[0] not in (1, 3) or targets.dim() != 1 or not classes:
            return None
        return {"url": _address(sample), "class": classes[int(targets[0])], "loss": float(self._losses[place])}


def _address(sample: Tensor) -> str:
    """A picture [1 or 3, H, W] as an address that holds it as a PNG: its darkest value black, its brightest white."""
    low, high = sample.min(), sample.max()
    shades = ((sample - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8).permute(1, 2, 0)
    # Enlarged here, pixel by pixel: whoever draws it would blur it.
    scale = max(1, 64 // max(sample.shape[1:]))
    pixels = shades.repeat_interleave(scale, 0).repeat_interleave(scale, 1).contiguous().numpy()
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def png(pixels: np.ndarray) -> bytes:
    """A PNG of 8-bit pixels, [H, W, 1] grey or [H, W, 3] red, green and blue."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each line begins with its filter: none
    header = struct.pack(">2I5B", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
