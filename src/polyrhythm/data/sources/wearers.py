"""Human activity by smartphone: thirty wearers, cut into windows that belong to one recording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.members import members
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.npz import stored_arrays

REFERENCE = (
    'Reyes-Ortiz et al., "Transition-Aware Human Activity Recognition Using Smartphones", Neurocomputing 171, 2016'
)
ACTIVITIES = (
    "walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying",
    "stand to sit", "sit to stand", "sit to lie", "lie to sit", "stand to lie", "lie to stand",
)  # fmt: skip
BASIC = 6
WHAT = "RawData/acc_expNN_userMM.txt, gyro_expNN_userMM.txt and labels.txt, in a folder or the .zip of UCI"
_FILES = r"(acc|gyro)_exp\d{1,3}_user\d{1,3}\.txt|labels\.txt"


class Stretch(NamedTuple):
    """Readings of one activity in a row. `signals` is [readings, 6] float32; activities are numbered from 1."""

    wearer: int
    recording: int
    activity: int
    signals: np.ndarray


def hapt(path: str | Path, *, length: int = 128, stride: int = 128, transitions: bool = False) -> Collection:
    """Human activity by smartphone (UCI HAPT): 30 wearers, 6 channels at 50 Hz, 6 activities or 12.

    Reads RawData as UCI publishes it, in the .zip or unpacked; or an .npz file with signals, scale, label, recording
    and user. A window lies in one stretch of one activity, so none belongs to two recordings. The first recording of
    each wearer is for training, all later ones are its test; channels are scaled by the training windows of all
    wearers. Partition with `by_column(column="wearer")`, and test each wearer with `local_test="natural"`.

    Args:
        path: of the .zip, the folder or the .npz file.
        length: readings in a window; 128 are 2.56 s.
        stride: readings from the start of one window to the next. Below `length` windows overlap, as the 50 % of the
            published features: then validation takes the end of each wearer's windows.
        transitions: whether the six changes of posture are classes, too. Most of them last about as long as a window.

    Raises:
        UserError: no such files, or signals and labels that do not go together.

    Reference: Reyes-Ortiz et al., "Transition-Aware Human Activity Recognition Using Smartphones", Neurocomputing 171,
    2016.
    """
    if length < 1 or stride < 1:
        raise UserError(
            f"hapt: length={length}, stride={stride}",
            expected="both at least 1",
            why="a window needs readings, and the next one must begin later",
            fix="length=128, stride=64 cuts as the published features do",
        )
    place = existing(path, what=WHAT)
    stretches = list(_of_npz(place) if place.suffix == ".npz" else _of_files(place))
    kept = [one for one in stretches if one.activity <= (len(ACTIVITIES) if transitions else BASIC)]
    cut = [_windows(one.signals, length, stride) for one in kept]
    counts = [len(windows) for windows in cut]
    if not sum(counts):
        raise corrupt(place, f"has no {length} readings of one activity in a row", WHAT)
    first: dict[int, int] = {}
    for one in stretches:
        first[one.wearer] = min(one.recording, first.get(one.wearer, one.recording))
    wearer = np.repeat([one.wearer for one in kept], counts)
    activity = np.repeat([one.activity for one in kept], counts)
    tested = np.repeat([one.recording != first[one.wearer] for one in kept], counts)
    if not tested.any() or tested.all():
        raise corrupt(place, "has one recording of each wearer", "two or more, as the first trains and others test")
    windows, names = np.concatenate(cut), np.array(ACTIVITIES)
    made = arrays(
        windows[~tested],
        names[activity[~tested] - 1],
        test=(windows[tested], names[activity[tested] - 1]),
        classes=ACTIVITIES[: len(ACTIVITIES) if transitions else BASIC],
        scaling="train",
        columns={"wearer": wearer[~tested]},
        test_columns={"wearer": wearer[tested]},
        name="hapt",
        reference=REFERENCE,
        notes=("each wearer's first recording trains, the later ones test",),
    )
    return replace(made, ordered_by="wearer") if stride < length else made


def _windows(signals: np.ndarray, length: int, stride: int) -> np.ndarray:
    """[windows, channels, length], those that fit."""
    if len(signals) < length:
        return np.zeros((0, signals.shape[1], length), dtype=np.float32)
    seen: np.ndarray = np.lib.stride_tricks.sliding_window_view(signals, length, axis=0)[::stride]
    return seen


def _of_npz(place: Path) -> Iterator[Stretch]:
    with stored_arrays(place) as stored:
        names = ("signals", "scale", "label", "recording", "user")
        signals, scale, label, recording, user = (stored.read(name) for name in names)
    same = {len(of) for of in (signals, label, recording, user)}
    if (
        signals.ndim != 2
        or signals.shape[1:] != scale.shape
        or len(same) != 1
        or any(of.ndim != 1 or of.dtype.kind not in "iu" for of in (label, recording, user))
    ):
        raise corrupt(place, f"signals of shape {signals.shape} with {label.shape} labels", "a label for each reading")
    if not len(label) or label.min() < 1 or label.max() > len(ACTIVITIES):
        raise corrupt(place, "has no labels, or others than 1 to 12", "activities 1 to 12")
    keys = np.stack([user, recording, label], axis=1).astype(np.int64)
    edges = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(label)], strict=True):
        who, where, what = keys[begin].tolist()
        yield Stretch(who, where, what, (signals[begin:end] * scale).astype(np.float32))


def _of_files(place: Path) -> Iterator[Stretch]:
    signals: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    labels = np.zeros((0, 5), dtype=np.int64)
    for name, raw in members(place, _FILES, what=WHAT):
        try:
            numbers = np.array(raw.split(), dtype=np.float64)
        except ValueError as error:
            raise corrupt(place, f"{name}: {str(error)[:80]}", "numbers with spaces between them") from None
        width = 5 if name == "labels.txt" else 3
        if numbers.size % width or not np.isfinite(numbers).all():
            raise corrupt(place, f"{name}: {numbers.size:,} numbers, or some that are none", f"{width} a line")
        rows = numbers.reshape(-1, width)
        if width == 5:
            labels = rows.astype(np.int64)
        else:
            sensor, recording, wearer = re.fullmatch(r"(acc|gyro)_exp(\d+)_user(\d+)\.txt", name).groups()  # type: ignore[union-attr]
            signals.setdefault((int(recording), int(wearer)), {})[sensor] = rows.astype(np.float32)
    if not len(labels):
        raise corrupt(place, "has no labels.txt", WHAT)
    whole = {}
    for key, of in signals.items():
        if set(of) != {"acc", "gyro"} or len(of["acc"]) != len(of["gyro"]):
            raise corrupt(place, f"recording {key[0]} of wearer {key[1]}: {sorted(of)}", "acc and gyro of one length")
        whole[key] = np.concatenate([of["acc"], of["gyro"]], axis=1)
    for recording, wearer, activity, begin, end in labels.tolist():
        found = whole.get((recording, wearer))
        if found is None or not (1 <= activity <= len(ACTIVITIES) and 1 <= begin <= end <= len(found)):
            line = f"{recording} {wearer} {activity} {begin} {end}"
            raise corrupt(place, f"labels.txt: the line {line!r} fits no recording", "readings that are there")
        yield Stretch(wearer, recording, activity, whole[recording, wearer][begin - 1 : end])
