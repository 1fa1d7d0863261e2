"""Spoken digits: recordings of six speakers as spectrograms."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.members import members
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.npz import stored_arrays

REFERENCE = "Jackson et al., Free Spoken Digit Dataset, github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0"
WHAT = "DIGIT_SPEAKER_TAKE.wav, in the folder recordings or its .zip"
RATE = 8000
TESTED = 5
"""Takes of each digit and speaker that test, the first ones: the data set's own rule."""
_FRAME = 512
_FLOOR = 1e-6


class Take(NamedTuple):
    """A spoken digit. `samples` is [n] int16 at 8 kHz."""

    digit: int
    speaker: str
    take: int
    samples: np.ndarray


def spoken_digits(path: str | Path, *, mels: int = 32, frames: int = 32) -> Collection:
    """Free Spoken Digit Dataset: 3,000 digits by 6 speakers, as logarithmic mel spectrograms; 10 classes.

    Reads the recordings as they are published (0_george_0.wav, mono, 16 bit, 8 kHz), in a folder or a .zip; or an .npz
    file with samples, lengths, digit, speaker, take and speakers. Takes 0 to 4 of each digit and speaker are the test,
    as its authors say, all others train. A spectrogram is of the first second, silence after a shorter digit: windows
    of 512 samples under a Hann window, log(10⁻⁶ + energy) in triangular bands of equal width in mel, 2595 log10(1 + f /
    700). Bands are scaled by the training takes of all speakers. Partition with `by_column(column="speaker")`.

    Args:
        path: of the folder, the .zip or the .npz file.
        mels: bands up to 4 kHz; 32 by 32 frames suit `lenet5`.
        frames: windows in the second.

    Raises:
        UserError: no such files, or sound of another kind.

    Reference: Jackson et al., Free Spoken Digit Dataset.
    """
    if not (2 <= mels <= 128 and 2 <= frames <= 1000):
        raise UserError(
            f"spoken-digits: mels={mels}, frames={frames}",
            expected="2 to 128 bands, and 2 to 1000 frames",
            why="there are 257 frequencies in a window of 512 samples, and 8,000 samples in a second",
            fix="mels=32, frames=32",
        )
    place = existing(path, what=WHAT)
    takes = list(_of_npz(place) if place.suffix == ".npz" else _of_files(place))
    bands = mel_bands(mels)
    inputs = np.stack([spectrogram(one.samples, bands, frames) for one in takes])
    digit, tested = (np.array([getattr(one, of) for one in takes]) for of in ("digit", "take"))
    speaker, tested = np.array([one.speaker for one in takes]), tested < TESTED
    if not tested.any() or tested.all():
        raise corrupt(place, f"has {int(tested.sum()):,} test takes of {len(takes):,}", "takes 0 to 4, and more")
    # Each band is scaled by itself: as channels here, and as the height of an image for the model.
    mean, std = inputs[~tested].mean(axis=(0, 2)), inputs[~tested].std(axis=(0, 2))
    inputs = (inputs - mean[:, None]) / np.where(std > 0, std, 1.0)[:, None]
    return arrays(
        inputs[~tested, None].astype(np.float32),
        digit[~tested],
        test=(inputs[tested, None].astype(np.float32), digit[tested]),
        classes=range(10),
        columns={"speaker": speaker[~tested]},
        test_columns={"speaker": speaker[tested]},
        name="spoken-digits",
        reference=REFERENCE,
        notes=(
            "takes 0 to 4 of each digit and speaker test, the others train",
            "bands are scaled by their mean and standard deviation over all training takes",
        ),
    )


def mel_bands(mels: int) -> np.ndarray:
    """Weights of the frequencies of a window in each band, triangles that reach to the neighbours' middles. [mels, 257]

    Args:
        mels: how many.
    """
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, mels + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(_FRAME, 1 / RATE)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    found: np.ndarray = np.maximum(
        0.0, np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    )
    return found


def spectrogram(samples: np.ndarray, bands: np.ndarray, frames: int) -> np.ndarray:
    """The logarithmic energy in each band and frame of the first second. [mels, frames] float64

    Args:
        samples: [n] int16.
        bands: [mels, 257].
        frames: how many.
    """
    heard = np.zeros(RATE + _FRAME)
    heard[: min(len(samples), RATE)] = samples[:RATE] / 2.0**15
    starts = np.arange(frames) * RATE // frames
    windows = heard[starts[:, None] + np.arange(_FRAME)] * np.hanning(_FRAME)
    energy = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    found: np.ndarray = np.log(_FLOOR + energy @ bands.T).T
    return found


def _of_npz(place: Path) -> Iterator[Take]:
    with stored_arrays(place) as stored:
        names = ("samples", "lengths", "digit", "speaker", "take", "speakers")
        samples, lengths, digit, speaker, take, speakers = (stored.read(name) for name in names)
    numbers = (lengths, digit, speaker, take)
    fits = all(of.ndim == 1 and of.dtype.kind in "iu" and len(of) == len(lengths) for of in numbers) and len(lengths)
    fits = fits and samples.ndim == 1 and samples.dtype == np.int16 and lengths.min() > 0
    fits = fits and lengths.sum(dtype=np.int64) == len(samples) and speaker.min() >= 0 and speaker.max() < len(speakers)
    if not fits or digit.min() < 0 or digit.max() > 9:
        raise corrupt(
            place, "its arrays do not go together", "lengths, digits 0 to 9, speakers and takes of all samples"
        )
    ends = np.cumsum(lengths, dtype=np.int64)
    for place_of, end in enumerate(ends.tolist()):
        what, who, which = (int(of[place_of]) for of in (digit, speaker, take))
        yield Take(what, str(speakers[who]), which, samples[end - int(lengths[place_of]) : end])


def _of_files(place: Path) -> Iterator[Take]:
    for name, raw in members(place, r"\d_[^_/]+_\d{1,4}\.wav", what=WHAT):
        digit, speaker, take = name.removesuffix(".wav").split("_")
        yield Take(int(digit), speaker, int(take), _sound(place, name, raw))


def _sound(place: Path, name: str, raw: bytes) -> np.ndarray:
    try:
        with wave.open(io.BytesIO(raw)) as sound:
            kind = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            frames = sound.getnframes()
            data = sound.readframes(min(frames, len(raw)))
    except (wave.Error, EOFError, ValueError, RuntimeError, ArithmeticError) as error:
        raise corrupt(place, f"{name} is no sound ({error})", "a .wav file") from None
    if kind != (1, 2, RATE) or len(data) < 2:
        channels, width, rate = kind
        raise corrupt(
            place, f"{name}: {channels} channels of {8 * width} bit at {rate:,} Hz", "one of 16 bit at 8,000 Hz"
        )
    if len(data) < 2 * frames:
        raise corrupt(place, f"{name} ends after {len(data) // 2:,} of {frames:,} samples", "a whole .wav file")
    return np.frombuffer(data[: len(data) // 2 * 2], dtype="<i2")
