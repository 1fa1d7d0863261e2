"""Folders of pictures: labels and clients by their names, and a word on all that was left out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError

image = pytest.importorskip("PIL.Image")


def picture(path: Path, colour: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (8, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new("RGB", size, colour).save(path)


def fill(folder: Path, *classes: str, each: int = 5) -> Path:
    for number, name in enumerate(classes):
        for i in range(each):
            picture(folder / name / f"{i}.png", (100 * number, 0, i))
    return folder


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    found = data.image_folder(fill(tmp_path / "pets", "cat", "dog"), test=0.2)
    assert (found.name, found.classes, found.train.shape) == ("pets", ("cat", "dog"), (3, 6, 8))
    assert (len(found.train), len(found.test), found.notes) == (8, 2, ())
    red = found.train.batch(torch.arange(8))[0][:, 0, 0, 0] * 255
    torch.testing.assert_close(red, found.train.targets * 100.0)


def test_folders_for_training_and_test_and_for_clients(tmp_path: Path) -> None:
    for split, clients in (("train", ("north", "south")), ("test", ("north",)), ("val", ("north",))):
        for client in clients:
            fill(tmp_path / split / client, "cat", "dog", each=2)
    found = data.image_folder(tmp_path, clients=True)
    assert (len(found.train), len(found.test)) == (8, 4)
    made = data.federate(found, data.ByColumn(column="client"), None, 0)
    assert (made.names, made.sizes.tolist()) == (("north", "south"), [4, 4])
    assert found.notes == ("not used: val",)


def test_what_is_no_picture_is_left_out_with_a_word(tmp_path: Path) -> None:
    fill(tmp_path, "cat", "dog")
    picture(tmp_path / ".ipynb_checkpoints" / "a.png")
    picture(tmp_path / "__MACOSX" / "cat" / "a.png")
    picture(tmp_path / "cat" / ".hidden.png")
    (tmp_path / "cat" / "._0.png").write_bytes(b"")
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "dog" / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    found = data.image_folder(tmp_path)
    assert found.classes == ("cat", "dog")
    assert len(found.train) + len(found.test) == 10
    for said in (".DS_Store", ".ipynb_checkpoints", "__MACOSX", "2 files in cat", "1 files in dog"):
        assert said in found.notes[0]


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    path = fill(tmp_path, "cat", "dog") / "dog" / "3.png"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UserError, match=r"dog/3\.png: cannot be read as an image"):
        data.image_folder(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"dog/3\.png"):
        data.image_folder(tmp_path)


def test_pictures_of_several_sizes(tmp_path: Path) -> None:
    picture(fill(tmp_path, "cat", "dog") / "dog" / "x.png", size=(9, 9))
    with pytest.raises(UserError, match="9 x 9 pixels") as error:
        data.image_folder(tmp_path)
    assert "size=64" in error.value.fix
    assert data.image_folder(tmp_path, size=4).train.shape == (3, 4, 4)
    with pytest.raises(UserError, match="size = 0"):
        data.image_folder(tmp_path, size=0)


def test_folders_without_pictures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "x.txt").touch()
    with pytest.raises(UserError, match=r"no pictures .* '\.txt'"):
        data.image_folder(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        data.image_folder(tmp_path / "cat" / "x.txt")


def test_pictures_of_more_than_eight_bits_are_refused(tmp_path: Path) -> None:
    """Pillow would make black and white of them."""
    from PIL import Image

    folder = fill(tmp_path, "a", "b")
    Image.fromarray((np.arange(48, dtype=np.uint16) * 1000).reshape(6, 8)).save(folder / "a" / "deep.png")
    with pytest.raises(UserError, match="has values from 0 to 47000"):
        data.image_folder(folder)
    Image.fromarray(np.arange(48, dtype=np.uint16).reshape(6, 8)).save(folder / "a" / "deep.png")
    assert len(data.image_folder(folder).train)


def test_pipes_and_links_to_folders_are_left_out_with_a_word(tmp_path: Path) -> None:
    folder = fill(tmp_path, "a", "b")
    os.mkfifo(folder / "a" / "pipe.png")
    os.symlink(folder, folder / "b" / "loop")
    assert "left out, as no pictures: 1 files in a, 1 files in b" in data.image_folder(folder).notes


def test_transparency_is_left_out_with_a_word(tmp_path: Path) -> None:
    """In every form in which Pillow has it; an alpha channel that is opaque everywhere is none."""
    folder = fill(tmp_path, "a", "b")
    image.new("RGBA", (8, 6), (10, 20, 30, 255)).save(folder / "a" / "opaque.png")
    assert data.image_folder(folder).notes == ()
    image.new("RGBA", (8, 6), (10, 20, 30, 0)).save(folder / "a" / "alpha.png")
    image.new("LA", (8, 6), (10, 128)).save(folder / "b" / "grey.png")
    image.new("P", (8, 6), 0).save(folder / "b" / "palette.png", transparency=0)
    (note,) = data.image_folder(folder).notes
    assert note.startswith("3 of 14 pictures have transparent parts: their alpha channel is left out")
    for part in ("train", "test"):
        picture(tmp_path / "parts" / part / "a" / "x.png")
        image.new("RGBA", (8, 6), (10, 20, 30, 9)).save(tmp_path / "parts" / part / "a" / "y.png")
    (note,) = data.image_folder(tmp_path / "parts").notes[:1]
    assert note.startswith("2 of 4 pictures")


def test_pictures_that_are_read_when_they_are_asked_for_are_drawn_alike(tmp_path: Path) -> None:
    """A folder whose pictures stay in their files, and the same pictures as an array: the same model to the bit."""
    found = data.image_folder(fill(tmp_path / "pets", "cat", "dog", each=12), test=0.25)
    held = [samples.batch(torch.arange(len(samples)))[:2] for samples in (found.train, found.test)]
    (inputs, targets), test = held
    arrays = data.arrays(inputs.numpy(), targets.numpy(), test=tuple(part.numpy() for part in test))
    digests = []
    for name, collection in (("read", found), ("held", arrays)):
        federation = pr.federate(collection, pr.data.Iid(), clients=3, seed=0)
        recipe = pr.fedavg(cohort=2, batch=4, lr=0.1)
        experiment = pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=3)
        run = pr.run(experiment, execution=pr.Execution(engine="torch"), out=tmp_path / name)
        digests.append(run.summary["digest"])
    assert digests[0] == digests[1]
