"""New texts, to a run's model: read as those were that it was trained on, or refused in words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.cli.app import app
from polyrhythm.config.names import model
from polyrhythm.results.using import USE, Use

HOPS, NETS = ["hops and malt", "malt", "hops hops"], ["nets of units", "units", "nets"]


def posts(path: Path, longest: int = 1) -> Path:
    rows = [
        {
            "site": site,
            "post_id": n,
            "user": n % 4,
            "title": title,
            "text": f"{word} " * (1 + n % longest),
            "tags": [tag],
        }
        for site, tag, title, word in (("beer", "hops", "hops", "malt"), ("ai", "nets", "nets", "units"))
        for n in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def carried(collection: data.Collection, folder: Path, model: Any, rounds: int = 4, **changes: Any) -> pr.Run:
    federation = pr.federate(collection, data.Iid(), clients=3, seed=0)
    recipe = pr.fedavg(cohort=3, batch=4, **{"lr": 5.0, **changes})
    run = pr.run(pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=rounds), out=folder)
    return pr.Run.open(run.id, folder) if isinstance(model, str) else run


def predict(run: pr.Run, new: Path, *options: str) -> Any:
    output = new.with_suffix(".out.csv")
    command = ["predict", run.id, "--out", str(run.folder), "--data", str(new), "-o", str(output), *options]
    done = CliRunner().invoke(app, command)
    return (pd.read_csv(output), done.output) if done.exit_code == 0 else " ".join(done.output.split())


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    folder = tmp_path_factory.mktemp("words")
    collection = data.sites(posts(folder / "posts.jsonl"), classes=2, words=50, common=0, test=0.25)
    return carried(collection, folder / "runs", "logistic")


def test_words_are_those_of_training(of_words: pr.Run) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    texts = [*HOPS, *NETS]
    expected = ["hops"] * 3 + ["nets"] * 3
    assert of_words.predict(texts).tolist() == expected
    for rows in (
        pd.DataFrame({"text": texts, "user": 1}),
        {"title": [text.split()[0] for text in texts], "body": [" ".join(text.split()[1:]) for text in texts]},
        [{"text": text} for text in texts],
        pyarrow.table({"text": texts}),
        np.array(texts),
        pd.Series(texts),
    ):
        assert of_words.predict(rows).tolist() == expected
        assert np.array_equal(of_words.predict(rows, probabilities=True), of_words.predict(texts, probabilities=True))
    assert of_words.evaluate((texts, expected))["accuracy"] == 1.0
    with pytest.warns(UserWarning, match="1 of 2 texts have none of the words"):
        of_words.predict(["hops", "zzz"])


def test_a_vector_of_words_is_the_training_posts_own(tmp_path: Path) -> None:
    """For both sources of bags: lengths 1, and means."""
    path = posts(tmp_path / "posts.jsonl", longest=3)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for collection in (
        data.sites(path, classes=2, words=50, common=0, test=0.25),
        data.stackoverflow_tags(path, words=50, tags=2, test=0.25),
    ):
        assert collection.texts is not None
        made = {tuple(np.round(row, 6)) for row in collection.texts.inputs(lines).tolist()}
        held, _ = collection.train.batch(torch.arange(len(collection.train)))
        assert {tuple(np.round(row, 6)) for row in held.tolist()} <= made


def test_files_of_texts_on_the_command_line(of_words: pr.Run, tmp_path: Path) -> None:
    texts = [*HOPS, *NETS]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pd.DataFrame({"title": texts}).to_csv(tmp_path / "new.csv", index=False)
    likely = of_words.predict(texts, probabilities=True)
    for name in ("new.txt", "new.jsonl", "new.csv"):
        table, _ = predict(of_words, tmp_path / name)
        assert list(table) == ["prediction", "probability"]
        assert table["prediction"].tolist() == ["hops"] * 3 + ["nets"] * 3
        assert table["probability"].tolist() == pytest.approx(likely.max(axis=1).tolist())
        shares, _ = predict(of_words, tmp_path / name, "--probabilities")
        assert list(shares) == ["prediction_hops", "prediction_nets"]
        assert shares.to_numpy() == pytest.approx(likely)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "hops\n\nmalt\n", "row 2 without text"),
        ("a.txt", "", "is empty"),
        ("a.txt", "hops\0", "zero bytes"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", '{"text": "hops"}\n3\n', "line 2 is no object"),
        ("a.json", '[{"text": "hops"}]', "line 1 is no object"),
        ("a.jsonl", '{"text": ["hops"]}\n', "a list in the column 'text'"),
        ("a.jsonl", '{"text": "hops"}\n{"test": "hops"}\n', "row 2 without text"),
        ("a.csv", "words\nhops\n", "rows with the columns words"),
        ("a.csv", "text,user\n,1\n", "row 1 without text"),
        ("missing.txt", None, "no such file"),
    ],
)
def test_other_files_are_refused(of_words: pr.Run, name: str, content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert words in predict(of_words, tmp_path / name)


def tokenizer(folder: Path, marks: bool = True) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "hops", "malt", "nets", "units", "and", "of"]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if marks:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


GIVEN: list[tuple[list[Any], list[Any]]] = []


class Reads(torch.nn.Module):
    """Classes by a mean of embeddings, which notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        GIVEN.append((input_ids.tolist(), attention_mask.tolist()))
        mask = attention_mask.unsqueeze(2).float()
        found: torch.Tensor = self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))
        return found


@pytest.fixture(scope="module")
def of_tokens(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    folder = tmp_path_factory.mktemp("tokens")
    place = tokenizer(folder / "tokenizer")
    collection = data.sites(posts(folder / "posts.jsonl"), classes=2, tokenizer=str(place), length=6, test=0.25)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Reads()
    return carried(collection, folder / "runs", model, rounds=6, lr=1.0)


def test_tokens_are_those_of_training(of_tokens: pr.Run) -> None:
    """Cut and marked as there, though every training post was shorter than the length; padding is masked."""
    texts = ["hops", "nets of units and of units and of units"]
    assert of_tokens.predict(texts).tolist() == ["hops", "nets"]
    ids, mask = GIVEN[-1]
    assert ids == [[1, 4, 2, 0, 0, 0], [1, 6, 9, 7, 8, 2]]
    assert mask == [[1, 1, 1, 0, 0, 0], [1] * 6]
    tokens = {"input_ids": [[1, 4, 2], [1, 6, 2]]}
    likely = of_tokens.predict(["hops", "nets"], probabilities=True)
    assert np.array_equal(of_tokens.predict(tokens, probabilities=True), likely), "tokens as before"
    long = [1, *[4] * 40, 2]
    for rows in ({"input_ids": [long, [1, 6, 2]]}, [{"input_ids": long}, {"input_ids": [1, 6, 2]}]):
        assert of_tokens.predict(rows).tolist() == ["hops", "nets"]
        assert GIVEN[-1][0] == [long, [1, 6, 2, *[0] * 39]], "padded to the longest of these"
    texts, labels = [*HOPS, *NETS], ["hops"] * 3 + ["nets"] * 3
    assert of_tokens.evaluate((texts, labels))["accuracy"] == 1.0
    for odd, words in (
        ({"words": ["hops"]}, "with the columns words"),
        (pd.DataFrame([["a", "b"]], columns=["text"] * 2), "several"),
    ):
        with pytest.raises(UserError, match=words):
            of_tokens.predict(odd)


def test_a_tokenizer_that_is_gone_or_another_is_an_error(tmp_path: Path) -> None:
    place = tokenizer(tmp_path / "tokenizer")
    collection = data.sites(posts(tmp_path / "posts.jsonl"), classes=2, tokenizer=str(place), length=6, test=0.25)
    run = carried(collection, tmp_path / "runs", Reads(), rounds=1)
    tokenizer(place, marks=False)
    with pytest.raises(UserError, match=r"another tokenizer\.json than the run was trained with"):
        run.predict(HOPS)
    (place / "tokenizer.json").unlink()
    with pytest.raises(
        UserError, match=r"the tokenizer that the run was trained with: .*tokenizer\.json cannot be read"
    ):
        run.predict(HOPS)


SAID = {"ann": "to be or not to be, " * 6, "bob": "be to not or be to, " * 6}


@pytest.fixture(scope="module")
def of_characters(tmp_path_factory: pytest.TempPathFactory) -> pr.Run:
    folder = tmp_path_factory.mktemp("characters")
    for name, said in SAID.items():
        (folder / f"{name}.txt").write_text(said)
    federation = pr.federate(data.text(folder, length=8), data.ByColumn(column="client"), clients=None, seed=0)
    network = model("char-lstm(hidden=8, layers=1, every=true)")
    recipe = pr.fedavg(cohort=2, batch=4, lr=1.0)
    experiment = pr.Experiment(federation=federation, model=network, recipe=recipe, rounds=2)
    return pr.run(experiment, out=folder / "runs")


def test_a_language_model_says_how_likely_a_text_is(of_characters: pr.Run) -> None:
    """Its perplexity: exp of the mean loss of each character but the first, over all rows of the text."""
    texts = ["to be or not to be", "be", "Xe", "b"]
    found = of_characters.predict(texts)
    features = [chr(0xFFFD), *sorted(set("".join(SAID.values())))]
    network, expected = of_characters.model(), []
    for text in texts[:3]:
        tokens = [features.index(character) if character in features else 0 for character in text]
        losses = list[float]()
        for begin in range(0, len(tokens) - 1, 7):
            row = tokens[begin : begin + 8]
            with torch.no_grad():
                logits = network(torch.tensor([row + [0] * (8 - len(row))]))[0]
            losses += functional.cross_entropy(logits[: len(row) - 1], torch.tensor(row[1:]), reduction="none").tolist()
        expected.append(math.exp(sum(losses) / len(losses)))
    assert found[:3].tolist() == pytest.approx(expected, rel=1e-5)
    assert math.isnan(found[3]), "nothing is asked of a single character"
    with pytest.raises(UserError, match="probabilities of texts under a language model"):
        of_characters.predict(texts, probabilities=True)
    assert of_characters.predict(np.zeros((2, 8), dtype=np.int64)).shape == (2, 8), "tokens as before"


def test_perplexities_stand_in_a_file(of_characters: pr.Run, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("to be or not\nor\n")
    table, _ = predict(of_characters, tmp_path / "new.txt")
    assert list(table) == ["perplexity"]
    expected = of_characters.predict(["to be or not", "or"]).tolist()
    assert table["perplexity"].tolist() == pytest.approx(expected)


def test_answers_alone_are_asked_for(tmp_path: Path) -> None:
    rows = [{"who": who, "asked": "Say: ", "said": said * 3} for who, said in SAID.items() for _ in range(4)]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    collection = data.text(tmp_path / "said.jsonl", column="said", prompt="asked", client="who", length=16)
    reading = collection.texts
    assert reading is not None
    (of_text,) = reading.token_rows({"asked": ["Say: "], "said": ["to be"]})
    assert [(len(row.tokens), row.given) for row in of_text] == [(10, 5)]
    for rows_of in (["to be"], {"said": ["to be"]}):
        with pytest.raises(UserError, match="'asked'"):
            reading.token_rows(rows_of)


def test_the_next_character_follows_the_end(tmp_path: Path) -> None:
    table = {who: {"train": [said, said], "test": [said]} for who, said in SAID.items()}
    (tmp_path / "by_role.json").write_text(json.dumps(table))
    collection = data.shakespeare(tmp_path / "by_role.json", length=10)
    reading = collection.texts
    assert reading is not None
    text = (SAID["ann"] + " " + SAID["ann"])[:10]
    inputs, _ = collection.train.batch(torch.arange(1))
    assert np.array_equal(reading.inputs(["?" + text]), inputs.numpy())
    for wrong, words in ((["short"], "of 5 characters in row 1"), ([text, text + "€"], "'€' in row 2")):
        with pytest.raises(UserError, match=words):
            reading.inputs(wrong)


def test_data_that_say_nothing_of_texts_refuse_them(tmp_path: Path) -> None:
    some = [[1, 2, 3], [2, 3], [3, 1, 2], [1, 3]] * 5
    padding = data.Padding(value={"input_ids": 0}, to="batch", mask="attention_mask")
    labels = [text[0] % 2 for text in some]
    run = carried(data.arrays({"input_ids": some}, labels, padding=padding), tmp_path, Reads(), rounds=1)
    for rows in (["hops"], {"text": ["hops"]}, pd.DataFrame({"text": ["hops"]})):
        with pytest.raises(UserError, match="does not say how texts became numbers"):
            run.predict(rows)


def test_runs_from_before_texts_were_recorded_are_read(of_words: pr.Run) -> None:
    about = json.loads((of_words.path / USE).read_text())
    kept = dict(about)
    del about["texts"]
    (of_words.path / USE).write_text(json.dumps(about))
    try:
        assert Use.read(of_words.path).texts is None
        with pytest.raises(UserError, match="does not say how texts became numbers"):
            of_words.predict(HOPS)
    finally:
        (of_words.path / USE).write_text(json.dumps(kept))
