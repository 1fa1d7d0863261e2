"""Reads picture files into one array of bytes, through the extra `polyrhythm[images]`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.files import corrupt

MOST_PIXELS = 50_000_000
"""Of one picture: a file of a few kilobytes can hold a thousand times as many."""
MOST_BYTES = 2**34


def read_pictures(files: Sequence[Path], *, size: int | None = None) -> tuple[np.ndarray, int]:
    """Pictures in three colours, uint8 [n, 3, H, W], and how many of them had transparent parts.

    A model gets the colours as they are written, also where transparency hides them.

    Args:
        files: one each; at least one.
        size: makes all of them size x size; None takes those of one size as they are.

    Raises:
        UserError: Pillow is not installed, a file is no picture, or they are of several sizes or too many.
    """
    try:
        from PIL import Image
    except ImportError:
        raise UserError(
            "Pillow is not installed",
            expected="the package pillow, which reads picture files",
            why="pictures are packed in formats such as JPEG and PNG",
            fix='pip install "polyrhythm[images]", or give an .npz file',
        ) from None
    images: np.ndarray | None = None
    transparent = 0
    for row, path in enumerate(files):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of large pictures and odd metadata
                with Image.open(path) as picture:
                    width, height = picture.size
                    if width * height > MOST_PIXELS:
                        raise corrupt(path, f"is {width} x {height} pixels", f"at most {MOST_PIXELS:,} pixels")
                    _check_depth(path, picture)
                    transparent += _is_transparent(picture)
                    colours = picture.convert("RGB")  # some are grey, or have a palette
                    image = np.asarray(colours if size is None else colours.resize((size, size)))
        except UserError:
            raise
        except Exception as error:  # damaged files raise many kinds
            raise corrupt(path, f"cannot be read as an image ({error})") from None
        if images is None:
            _check_room(len(files), image.shape)
            images = np.empty((len(files), 3, *image.shape[:2]), dtype=np.uint8)
        if image.shape[:2] != images.shape[2:]:
            raise corrupt(
                path,
                f"is {image.shape[1]} x {image.shape[0]} pixels",
                f"{images.shape[3]} x {images.shape[2]} as the first, {files[0].name}",
                fix="size=64 makes all of them 64 x 64, where the source has it; or resize the files",
            )
        images[row] = image.transpose(2, 0, 1)
    assert images is not None
    return images, transparent


def _is_transparent(picture: Any) -> bool:
    """Whether some pixel is not opaque. An alpha channel that is opaque everywhere says nothing."""
    if picture.getbands()[-1] not in "Aa" and "transparency" not in picture.info:
        return False
    least, _ = picture.convert("RGBA").getchannel("A").getextrema()
    return bool(least < 255)


def _check_depth(path: Path, picture: Any) -> None:
    """Refuses pictures with more than 8 bits for each colour, of which Pillow would make black and white."""
    if picture.mode != "F" and not picture.mode.startswith("I"):
        return
    least, most = picture.getextrema()
    if picture.mode == "F" or least < 0 or most > 255:
        raise corrupt(
            path,
            f"has values from {least:g} to {most:g}",
            "8 bits for each colour, 0 to 255",
            fix="give them as an array, scaled as you want it: npz(path=...) or pr.data.arrays(...)",
        )


def _check_room(pictures: int, shape: tuple[int, ...]) -> None:
    if (needed := pictures * shape[0] * shape[1] * 3) > MOST_BYTES:
        raise UserError(
            f"{pictures:,} pictures of {shape[1]} x {shape[0]} pixels, {needed / 2**30:,.0f} GiB of memory",
            expected=f"at most {MOST_BYTES >> 30} GiB",
            why="they are read once and held, so that training does not wait for files",
            fix="a smaller size=; or a torch Dataset that reads them, dataset(train, test, targets=...)",
        )
