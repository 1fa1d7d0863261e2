"""Data sets with clients of their own, as they are published: tiny copies by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.data.published import PUBLISHED, compared
from polyrhythm.data.sources import speakers, stations
from polyrhythm.data.sources.hospitals import HOSPITALS

OF_HOSPITALS = [f"processed.{name}.data" for name in HOSPITALS]


def whole(samples: data.Samples) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = samples.batch(torch.arange(len(samples)))
    return inputs.numpy(), targets.numpy()


# Copies, tiny and by hand.


def wearers(folder: Path) -> Path:
    """Two wearers with two recordings each; readings say which recording and place they are of."""
    raw = folder / "HAPT" / "RawData"
    raw.mkdir(parents=True)
    labels = []
    for recording in range(1, 5):
        wearer = (recording + 1) // 2
        rows = [[recording, place / 100, wearer] for place in range(40)]
        for sensor in ("acc", "gyro"):
            text = "\n".join(" ".join(map(str, row)) for row in rows)
            (raw / f"{sensor}_exp{recording:02}_user{wearer:02}.txt").write_text(text)
        labels += [f"{recording} {wearer} 5 1 10", f"{recording} {wearer} 1 13 32", f"{recording} {wearer} 7 33 40"]
    (raw / "labels.txt").write_text("\n".join(labels))
    return folder / "HAPT"


GAP = stations.TEST_FROM - 24 * 5 + 2


def dust(folder: Path) -> Path:
    """Two stations whose PM2.5 is the hour of the day, from 300 hours before the test year on; one hour is missing."""
    hours = np.arange(stations.TEST_FROM - 300, stations.TEST_FROM + 200)
    dates = np.datetime64("2013-03-01T00") + hours.astype("timedelta64[h]")
    days = dates.astype("datetime64[D]")
    for name, more in (("Dongsi", 0), ("Shunyi", 1000)):
        lines = [",".join(f'"{of}"' for of in stations.HEADER)]
        for hour, day in zip(hours.tolist(), days.tolist(), strict=True):
            level = "NA" if hour == GAP else str(hour % 24 + more)
            wind = "NA" if hour == GAP + 9 else "NE"
            lines.append(
                f'{hour + 1},{day.year},{day.month},{day.day},{hour % 24},{level},1,1,1,1,1,1,1,1,0,"{wind}",2,"{name}"'
            )
        (folder / f"PRSA_Data_{name}_20130301-20170228.csv").write_text("\n".join(lines))
    return folder


def sound(samples: np.ndarray, rate: int = 8000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(channels)
        made.setsampwidth(2)
        made.setframerate(rate)
        made.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def spoken(folder: Path) -> Path:
    """Tones of a second or less: digit d is one of 300 (d + 1) Hz."""
    place = folder / "recordings"
    place.mkdir()
    for digit in range(2):
        for speaker in ("ann", "bob"):
            for take in range(8):
                time = np.arange(4000 + 100 * take) / 8000
                tone = 8000 * np.sin(2 * np.pi * 300 * (digit + 1) * time)
                (place / f"{digit}_{speaker}_{take}.wav").write_bytes(sound(tone))
    return folder


def hospitals(folder: Path) -> Path:
    for number, name in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            f"{50 + i}.0,1,{i % 4 + 1},130,{200 + i},0,{i % 3},150,0,1.5,?,?,?,{i % 2 * (1 + number)}"
            for i in range(12)
        ]
        (folder / f"processed.{name}.data").write_text("\n".join([*rows, "63,1,1,?,233,1,2,150,0,2.3,3,0,6,0", ""]))
    return folder


def digits_by(folder: Path) -> Path:
    images = np.arange(30 * 4, dtype=np.uint8).reshape(30, 2, 2)
    labels = np.zeros((30, 8), dtype=">i4")
    labels[:, 0], labels[:, 2] = np.arange(30) % 10, np.arange(30) // 10 * 7
    head = b"\0\0\x08\x03" + struct.pack(">3I", 30, 2, 2)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
    head = b"\0\0\x0c\x02" + struct.pack(">2I", 30, 8)
    (folder / "qmnist-train-labels-idx2-int").write_bytes(head + labels.tobytes())
    return folder


def regions(folder: Path) -> Path:
    table = ["pid,age,N1,E,T", *(f"P{i},{40 + i},{i % 2},{i % 3 % 2}.0,{100 + i}.0" for i in range(24))]
    split = ["pid,fold,fold2", *(f"P{i},x,{'test' if i % 4 == 0 else 'train'}_{i % 3}" for i in range(23))]
    (folder / "brca.csv").write_text("\n".join(table))
    (folder / "train_test_split.csv").write_text("\n".join(split))
    return folder


def zipped(folder: Path, inside: str = "") -> Path:
    """The same files in an archive; with a name, in an archive in an archive."""
    file = folder.parent / f"{folder.name}{inside and '-twice'}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, f"some folder/{path.relative_to(folder)}")
    if inside:
        raw = file.read_bytes()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(inside, raw)
            archive.writestr("about.txt", "not it")
    return file


MADE: dict[str, tuple[Callable[[Path], Path], Callable[..., data.Collection], dict[str, int]]] = {
    "hapt": (wearers, data.hapt, {"length": 8, "stride": 8}),
    "spoken-digits": (spoken, data.spoken_digits, {"mels": 8, "frames": 8}),
    "heart-disease": (hospitals, data.heart_disease, {}),
}


@pytest.mark.parametrize("name", MADE)
def test_a_folder_and_its_archives_are_the_same(name: str, tmp_path: Path) -> None:
    make, read, settings = MADE[name]
    (tmp_path / "x").mkdir()
    folder = make(tmp_path / "x")
    found = [read(path, **settings) for path in (folder, zipped(folder), zipped(folder, "inside.zip"))]
    for other in found[1:]:
        for part in ("train", "test"):
            ours, theirs = (whole(getattr(of, part)) for of in (found[0], other))
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])
    assert PUBLISHED[name].column in found[0].columns
    assert found[0].test_columns.keys() == found[0].columns.keys()


def test_no_window_of_a_wearer_belongs_to_two_recordings(tmp_path: Path) -> None:
    found = data.hapt(wearers(tmp_path), length=8, stride=4)
    # Of 10 readings one window of 8, of 20 four; the 8 of a change of posture are no class.
    assert (len(found.train), len(found.test)) == (2 * 5, 2 * 5)
    assert found.classes[:2] == ("walking", "walking upstairs")
    assert found.columns["wearer"].values[found.columns["wearer"].codes].tolist() == [1] * 5 + [2] * 5
    assert found.ordered_by == "wearer"  # as windows overlap
    assert not data.hapt(tmp_path / "HAPT", length=8, stride=8).ordered_by
    # What is behind the scaling: recordings 1 and 3 train, 2 and 4 test; each window is one of eight in a row.
    scaling = found.train.transforms[-1]  # type: ignore[attr-defined]
    mean, std = (np.array(of)[:, None] for of in (scaling.mean, scaling.std))
    for part, recordings in ((found.train, {1, 3}), (found.test, {2, 4})):
        inputs = whole(part)[0] * std + mean
        assert set(np.rint(inputs[:, 0]).astype(int).ravel().tolist()) == recordings
        np.testing.assert_allclose(np.diff(inputs[:, 1], axis=1), 0.01, atol=1e-5)
    assert len(data.hapt(tmp_path / "HAPT", length=8, stride=8, transitions=True).classes) == 12
    train = whole(found.train)[0]
    np.testing.assert_allclose(train.mean(axis=(0, 2)), 0, atol=1e-5)


def test_stations_train_before_they_test_and_gaps_are_what_was_there_last(tmp_path: Path) -> None:
    folder = dust(tmp_path)
    found = data.beijing_air(folder, hours=6, horizon=2, stride=1, predict="level")
    assert found.train.shape == (17, 6)
    # At each station two windows are left out: the gap is the last hour of the one, the target of the other.
    # Before the first rows nothing was measured, and the mean stands there.
    assert len(found.train) == 2 * (300 - 2 - 2)
    assert len(found.test) == 2 * (200 - 6 - 2 + 1)
    # A change of two hours is 2, or −22 past midnight, in 100 µg/m³.
    change = data.beijing_air(folder, hours=6, horizon=2, stride=1)
    assert set(np.rint(100 * whole(change.test)[1]).tolist()) == {2, -22}
    assert "persistence has MAE" in change.notes[2]
    scaling = found.train.transforms[-1]  # type: ignore[attr-defined]
    first = whole(found.train)[0] * np.array(scaling.std)[:, None] + np.array(scaling.mean)[:, None]
    dongsi = found.columns["station"].codes == 0
    # A window that saw 23, 0, 1, the gap, which is what was there last, 3, 4.
    (place,) = np.flatnonzero(np.isclose(first[dongsi][:, 0], [23, 0, 1, 1, 3, 4], atol=1e-3).all(axis=1))
    window = first[dongsi][place]
    np.testing.assert_allclose(window[11:13, 0], [0.5**0.5] * 2, atol=1e-5)  # from the north-east


def test_persistence_by_hand() -> None:
    words = stations.persistence(np.array([3.0, -1.0, 0.0, 0.0]), np.array(["b", "b", "a", "a"]))
    assert words == "persistence has MAE 1.0000 and RMSE 1.5811 on the test windows, RMSE 2.2361 at b"


def test_a_tone_is_loudest_in_its_band(tmp_path: Path) -> None:
    found = data.spoken_digits(spoken(tmp_path), mels=20, frames=10)
    assert (len(found.train), len(found.test), found.train.shape) == (2 * 2 * 3, 2 * 2 * 5, (1, 20, 10))
    bands = speakers.mel_bands(20)
    for hertz in (300, 600, 2000):
        tone = (8000 * np.sin(2 * np.pi * hertz * np.arange(8000) / 8000)).astype(np.int16)
        loudest = int(speakers.spectrogram(tone, bands, 10)[:, 3].argmax())
        assert abs(int(bands[:, round(hertz * 512 / 8000)].argmax()) - loudest) <= 1
    silence = speakers.spectrogram(np.zeros(10, dtype=np.int16), bands, 10)
    np.testing.assert_allclose(silence, np.log(1e-6))


def test_patients_with_an_empty_cell_are_left_out(tmp_path: Path) -> None:
    found = data.heart_disease(hospitals(tmp_path), test=0.25)
    assert len(found.train) + len(found.test) == 4 * 12
    assert found.features[-5:] == ("cp=2", "cp=3", "cp=4", "restecg=1", "restecg=2")
    assert found.classes == ("healthy", "ill")
    sizes = np.bincount(found.test_columns["hospital"].codes)
    assert sizes.tolist() == [3, 3, 3, 3]


def test_each_writer_has_digits_to_test_on(tmp_path: Path) -> None:
    found = data.mnist_by_writer(digits_by(tmp_path), test=0.2)
    assert (len(found.train), len(found.test), found.train.shape) == (24, 6, (1, 2, 2))
    assert found.columns["writer"].values.tolist() == [0, 7, 14]
    assert np.bincount(found.test_columns["writer"].codes).tolist() == [2, 2, 2]


def test_regions_keep_the_split_that_they_come_with(tmp_path: Path) -> None:
    found = data.tcga_brca(regions(tmp_path))
    assert (len(found.train), len(found.test), found.features, found.outputs) == (17, 6, ("age", "N1"), 1)
    assert np.bincount(found.test_columns["region"].codes).tolist() == [2, 2, 2]
    assert found.notes[0] == "1 patients are in no fold and left out"
    targets = found.test.targets.numpy()
    assert targets.tolist() == [[100 + i, i % 3 % 2] for i in range(0, 23, 4)]


@pytest.mark.parametrize(
    ("table", "split", "words"),
    [
        ("pid,a,E\nP0,1,1", "pid,fold,fold2\nP0,x,train_0", "has no column T"),
        ("pid,a,E,T\nP0,x,1,1", "pid,fold,fold2\nP0,x,train_0", "no number"),
        ("pid,a,E,T\nP0,1,2,1", "pid,fold,fold2\nP0,x,train_0", "neither 0 nor 1"),
        ("pid,a,E,T\nP0,1,1,1", "pid,fold,fold2\nP0,x,other_0", "in another one"),
        ("pid,a,E,T\nP0,1,1,1", "pid,fold,fold2\nP0,x,train_0", "patients of both folds"),
    ],
)
def test_regions_that_do_not_go_together_are_refused(table: str, split: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "brca.csv").write_text(table)
    (tmp_path / "train_test_split.csv").write_text(split)
    with pytest.raises(UserError, match=words):
        data.tcga_brca(tmp_path)


@pytest.mark.parametrize(
    ("read", "files", "words"),
    [
        (data.hapt, {"labels.txt": b"1 1 5 1 10"}, "fits no recording"),
        (data.hapt, {"acc_exp01_user01.txt": b"1 2 3", "labels.txt": b"1 1 5 1 1"}, "acc and gyro"),
        (data.hapt, {"labels.txt": b"1 x 5 1 10"}, "could not convert"),
        (data.hapt, {"labels.txt": b"1 1 5 1"}, "numbers"),
        (data.hapt, {"other.txt": b""}, "has no such files"),
        (data.spoken_digits, {"0_ann_0.wav": b"RIFF"}, "is no sound"),
        (data.spoken_digits, {"0_ann_0.wav": sound(np.zeros(9), rate=44100)}, "at 44,100 Hz"),
        (data.spoken_digits, {"0_ann_0.wav": sound(np.zeros(8), channels=2)}, "2 channels"),
        (data.spoken_digits, {"0_ann_0.wav": sound(np.zeros(9))}, "1 test takes of 1"),
        (data.spoken_digits, {"0_ann_0.wav": sound(np.zeros(90))[:100]}, "ends after 28 of 90 samples"),
        (data.beijing_air, {"PRSA_Data_X_20130301-20170228.csv": b"a,b\n1,2"}, "begins with 'a,b'"),
        (data.heart_disease, {"processed.va.data": b"1,2,3"}, "3 cells"),
        (data.heart_disease, {"processed.va.data": b"x" + b",1" * 13}, "could not convert"),
        (data.heart_disease, {"processed.va.data": b"inf" + b",1" * 13}, "not finite"),
        (data.heart_disease, dict.fromkeys(OF_HOSPITALS, b"?" + b",1" * 13), "without an empty cell"),
        (data.heart_disease, dict.fromkeys(OF_HOSPITALS[1:], b"1" + b",1" * 13), "has no processed.cleveland.data"),
        (data.tcga_brca, {"x": b""}, "has no brca.csv"),
        (data.mnist_by_writer, {"x": b""}, "has no qmnist-train-images"),
    ],
)
def test_what_is_not_as_published_is_refused(
    read: Callable[..., data.Collection], files: dict[str, bytes], words: str, tmp_path: Path
) -> None:
    for name, raw in files.items():
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(UserError, match=words):
        read(tmp_path)


@pytest.mark.parametrize(
    ("read", "settings"),
    [
        (data.hapt, {"length": 0}),
        (data.beijing_air, {"horizon": 0}),
        (data.beijing_air, {"predict": "x"}),
        (data.spoken_digits, {"mels": 1}),
        (data.heart_disease, {"test": 1.0}),
        (data.mnist_by_writer, {"test": -1.0}),
    ],
)
def test_settings_without_a_meaning_are_refused(
    read: Callable[..., data.Collection], settings: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(UserError):
        read(tmp_path, **settings)


# Where they are published.


def test_the_checksum_is_that_of_the_published_bytes(tmp_path: Path) -> None:
    (tmp_path / "processed.va.data").write_bytes(b"1")
    sums = {"processed.va.data": hashlib.sha256(b"1").hexdigest()}
    assert list(compared(PUBLISHED["heart-disease"]._replace(sums=sums), tmp_path)) == [("processed.va.data", True)]
    line = f"{sums['processed.va.data']}  processed.va.data\n"
    pattern = PUBLISHED["heart-disease"].files
    whole_of = PUBLISHED["heart-disease"]._replace(sums={pattern: hashlib.sha256(line.encode()).hexdigest()})
    assert list(compared(whole_of, tmp_path)) == [("1 files", True)]
