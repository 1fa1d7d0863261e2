"""The handwritten digits that come with this package: real, and nothing to download."""

from __future__ import annotations

import importlib.resources

import numpy as np

from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import held_out
from polyrhythm.data.sources.images import image_collection, image_transforms

REFERENCE = (
    'Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998 '
    "(CC BY 4.0); the 1,797 digits of its test file, as in scikit-learn"
)


def digits(*, scaling: str = "unit", pad: int = 0, augment: bool = False) -> Collection:
    """1,797 handwritten digits of 8 x 8 pixels; 1,437 to train, 360 to test, the same for every seed.

    Args:
        scaling: "unit" gives [0, 1], "half" [-1, 1].
        pad: pixels of black added on each side.
        augment: random crop and flip in training.

    Reference: Alpaydin and Kaynak, UCI Machine Learning Repository, 1998 (CC BY 4.0).
    """
    with importlib.resources.files(__package__).joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"][:, None], stored["labels"].astype(np.int64)
    # Seed 0 always: the test set must not change with the experiment's seed.
    test = held_out(np.zeros(len(labels), dtype=np.int64), labels, 360 / 1797, stream(0, "split", "digits"))
    return image_collection(
        "digits",
        (images[~test], labels[~test]),
        (images[test], labels[test]),
        transforms=image_transforms(scaling, pad=pad, white=16.0),
        augment=augment,
        reference=REFERENCE,
    )
