"""Texts for language models: what becomes of them is held to rows by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.models import build

ROWS = [("ann", "To say: ", "abcab"), ("ann", "", "ba"), ("bob", "Say ", "cccc"), ("bob", "x", "ab"), ("cid", "y", "a")]


def written(folder: Path, form: str) -> Path:
    frame = pd.DataFrame(ROWS, columns=["who", "asked", "said"])
    place = folder / f"said.{form}"
    if form == "csv":
        frame.to_csv(place, index=False)
    elif form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
        frame.to_parquet(place)
    else:
        place.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    return place


def rows(samples: data.Samples) -> list[tuple[list[int], list[int]]]:
    inputs, targets = samples.batch(torch.arange(len(samples)))
    return list(zip(inputs.tolist(), targets.tolist(), strict=True))


def test_each_token_but_a_texts_first_is_asked_for_once(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("abcdefgh")
    (tmp_path / "bob.txt").write_text("ha")
    found = data.text(tmp_path, length=4, test=tmp_path)
    assert found.features == (chr(0xFFFD), *"abcdefgh")
    assert rows(found.train) == [
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ([4, 5, 6, 7], [4, 5, 6, 7]),
        ([7, 8, 0, 0], [7, 8, -100, -100]),
        ([8, 1, 0, 0], [8, 1, -100, -100]),
    ]
    column = found.columns["client"]
    assert column.values[column.codes].tolist() == ["ann"] * 3 + ["bob"]
    assert found.outputs == 9


def test_the_loss_is_of_answers_alone(tmp_path: Path) -> None:
    place = written(tmp_path, "csv")
    found = data.text(place, column="said", prompt="asked", client="who", length=6, test=place)
    token = {character: number for number, character in enumerate(found.features)}

    def numbers(text: str) -> list[int]:
        return [token[character] for character in text]

    left = [-100]
    assert rows(found.train) == [
        # The answer is whole, and the end of what stands before it.
        (numbers(" abcab"), left + numbers("abcab")),
        # Without a prompt the first token is asked of nobody, though it stands there.
        (numbers("ba") + 4 * [0], numbers("ba") + 4 * left),
        (numbers("y cccc"), 2 * left + numbers("cccc")),
        (numbers("xab") + 3 * [0], left + numbers("ab") + 3 * left),
        (numbers("ya") + 4 * [0], left + numbers("a") + 4 * left),
    ]
    short = data.text(place, column="said", prompt="asked", length=3, test=place)
    assert rows(short.train)[0] == (numbers(" ab"), left + numbers("ab"))


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_forms_of_files_are_the_same(form: str, tmp_path: Path) -> None:
    found = data.text(written(tmp_path, form), column="said", client="who", length=4, test=0.3)
    other = data.text(written(tmp_path, "csv"), column="said", client="who", length=4, test=0.3)
    assert rows(found.train) == rows(other.train)
    assert rows(found.test) == rows(other.test)


def test_the_last_rows_of_each_client_test(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(chr(97 + i) for i in range(21)))
    found = data.text(tmp_path, length=3, test=0.5)
    # Ten rows each, of which about half are held out: none of them begins before one that trains.
    for client in (0, 1):
        begins, ends = (
            [row[0] for row, code in zip(rows(part), columns["client"].codes, strict=True) if code == client]
            for part, columns in ((found.train, found.columns), (found.test, found.test_columns))
        )
        assert max(begins) < min(ends)
    assert len(found.train) + len(found.test) == 20
    assert found.ordered_by == "client"


def test_folders_of_clients_hold_several_texts(tmp_path: Path) -> None:
    for name in ("ann/1.txt", "ann/2.txt", "bob/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("abcdef")
    found = data.text(tmp_path, length=6, test=tmp_path)
    assert found.columns["client"].values.tolist() == ["ann", "bob"]
    assert len(found.train) == 3


def test_characters_that_no_training_text_has_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.txt").write_text("ab")
    (tmp_path / "b" / "x.txt").write_text("azb")
    assert rows(data.text(tmp_path / "a", length=3, test=tmp_path / "b").test) == [([1, 0, 2], [1, 0, 2])]


def test_what_fills_rows_up_changes_no_loss(tmp_path: Path) -> None:
    place = written(tmp_path, "csv")
    losses = []
    for length in (14, 30):
        found = data.text(place, column="said", prompt="asked", length=length, test=place)
        torch.manual_seed(0)
        model = build("char-lstm", (length,), found.outputs, hidden=8, layers=1, every=True).eval()
        inputs, targets = found.train.batch(torch.arange(len(found.train)))
        with torch.no_grad():
            outputs = model(inputs)
        aim = pr.task("next_token")
        losses.append(aim.read(aim.tally(outputs, targets))["loss"])
        assert aim.loss(outputs, targets).item() == pytest.approx(losses[0], abs=1e-6)
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)


def tokenizer(folder: Path) -> Path:
    """Words as tokens, with a mark before a text."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    words = {word: number for number, word in enumerate(["<unk>", "<s>", "to", "be", "or", "not"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_a_folders_tokenizer_is_used_with_its_marks(tmp_path: Path) -> None:
    named = str(tokenizer(tmp_path / "words"))
    place = tmp_path / "x.jsonl"
    place.write_text('{"q": "to be", "text": "or not"}\n{"q": "be", "text": "to"}')
    found = data.text(place, prompt="q", tokenizer=named, length=8, test=place)
    assert found.features[:-1] == ("<unk>", "<s>", "to", "be", "or", "not")
    assert found.outputs == 6
    assert found.train.targets.tolist() == [[-100, -100, -100, 4, 5], [-100, -100, 2, -100, -100]]
    assert found.structure is not None
    plain = data.text(place, tokenizer=named, length=8, test=place)
    assert plain.train.targets.tolist() == [[1, 4, 5], [1, 2, -100]]


@pytest.mark.parametrize(
    ("name", "raw", "settings", "words"),
    [
        ("x.jsonl", "{", {}, "line 1 is not JSON"),
        ("x.jsonl", '{"a": 1}', {}, "line 1 has no text 'text'"),
        ("x.jsonl", '{"text": "ab"}', {"client": "who"}, "no text 'who'"),
        ("x.csv", "a,b\n1,2", {}, "'text'"),
        ("x.csv", "text,b\na,2", {}, "0 rows of 2 tokens"),
        ("x.csv", "text,b\nab,2", {"test": 0.0}, "0 to test on"),
        ("x.csv", "text,b\nab,2", {"length": 1}, "length = 1"),
        ("x.csv", "text,b\nab,2", {"tokenizer": "nowhere"}, "nowhere|tokenizers is not installed"),
        ("x/y.dat", "", {}, "has no .txt files"),
        ("x/y.txt", "\udcff", {}, "is no text"),
    ],
)
def test_what_cannot_be_read_is_refused(
    name: str, raw: str, settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(raw, errors="surrogateescape")
    with pytest.raises(UserError, match=words):
        data.text(file if file.parent == tmp_path else file.parent, **settings)  # type: ignore[arg-type]
