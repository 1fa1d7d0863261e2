"""Colours that everybody can tell apart, simulated for every kind of colour vision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polyrhythm.figures.theme import HUES, THEMES, Theme

# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009: full
# severity, on linear RGB.
VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
DATA = [hue for hue in HUES if hue not in ("grey", "ink")]
LEAST = {"light": 15.0, "dark": 11.0}  # in CIELAB; 2.3 can just be told apart when side by side


def linear(colour: str) -> np.ndarray:
    """RGB in the amount of light."""
    coded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB."""
    x = XYZ @ np.clip(light, 0, 1) / WHITE
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", THEMES)
def test_any_two_colours_of_data_are_told_apart(theme: Theme, vision: str) -> None:
    seen = {hue: lab(VISIONS[vision] @ linear(HUES[hue][theme])) for hue in DATA}
    for one, other in itertools.combinations(DATA, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= LEAST[theme], (one, other)


def test_the_measure_finds_two_that_are_not() -> None:
    """Okabe and Ito's vermilion, and a yellow that is dark enough for white paper."""
    one, other = (lab(VISIONS["deuteranopia"] @ linear(colour)) for colour in ("#D55E00", "#A39A00"))
    assert np.linalg.norm(one - other) < 6
    assert np.linalg.norm(lab(linear("#D55E00")) - lab(linear("#A39A00"))) > 15
