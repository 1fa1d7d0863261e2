"""Tag prediction from short texts: bags of words in, several tags out."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.keys import Keys
from polyrhythm.data.samples import BagSamples
from polyrhythm.data.sources.files import content, corrupt, existing

REFERENCE = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (tag prediction)'
# Words keep the signs that tell languages apart: c++, c#, asp.net, node.js, objective-c.
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9+#.\-]*[a-z0-9+#])?")


def stackoverflow_tags(
    path: str | Path,
    *,
    words: int | Sequence[str] = 10_000,
    tags: int | Sequence[str] = 500,
    test: str | Path | float = 0.2,
    by_user: bool = False,
    name: str = "stackoverflow-tags",
) -> Collection:
    """Questions with several tags: the mean of one-hot words in, one output a tag.

    Reads one JSON object a line (.jsonl or .jsonl.gz) with "title", "tags" (a list, or text as the public dumps have
    it: c#|winforms, |c#|winforms| or <c#><winforms>) and, if there, "body" or "text" (joined to the title) and "user".
    Lines without tags (answers) are skipped. Words and tags are the most frequent of the training lines. Columns:
    "first_tag" (the line's most frequent tag, to make clients with `dirichlet(by="first_tag")`) and, if every line has
    one, "user" and "site".

    Args:
        path: the file.
        words: size of the vocabulary, or the words themselves in order; other words are dropped.
        tags: number of tags, or the tags themselves in order; other tags are dropped, and a question left without any
            stays as one with no tag.
        test: a second file, or the share of lines to hold out, the same for every seed.
        by_user: posts as their users wrote them, for clients that the data itself names (`by_column("user")`). Answers
            (lines with "parent", the "post_id" of a question of their "site") have the tags of their question, and are
            held out with it; lines without a user are skipped, and users are those of a site ("beer 12").
        name: of the collection.

    Raises:
        UserError: a damaged file, or no line with title and tags.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
    """
    if any(wanted < 1 if isinstance(wanted, int) else not wanted for wanted in (words, tags)):
        raise UserError(
            f"stackoverflow-tags: words={words}, tags={tags}",
            expected="both at least 1",
            why="they are the model's inputs and outputs",
            fix="words=10000, tags=500 are the paper's",
        )
    lines = _lines(existing(path, what="a .jsonl or .jsonl.gz file"), by_user)
    if isinstance(test, (str, Path)):
        train, tested = lines, _lines(existing(test, what="a .jsonl or .jsonl.gz file"), by_user)
    else:
        check_share("test", test)
        asked, question = np.unique([line["question"] for line in lines], return_inverse=True)
        out = held_out(np.zeros(len(asked), dtype=np.int64), None, test, stream(0, "split", "tags"))[question]
        train = [line for line, held in zip(lines, out, strict=True) if not held]
        tested = [line for line, held in zip(lines, out, strict=True) if held]
        if not tested:
            raise UserError(
                f"test = {test!r} of {len(lines):,} lines",
                expected="at least one test line",
                why="the model is tested on lines that nobody trained on",
                fix="a larger share, e.g. test=0.5, or a file of its own",
            )
    vocabulary = _most_frequent((word for line in train for word in line["words"]), words)
    kept = _most_frequent((tag for line in train for tag in line["tags"]), tags)
    return Collection(
        name=name,
        task="multilabel",
        classes=tuple(kept),
        train=_samples(train, vocabulary, kept),
        test=_samples(tested, vocabulary, kept),
        columns=_columns(train, kept),
        features=tuple(vocabulary),
        test_columns=_columns(tested, kept),
        reference=REFERENCE,
    )


def _lines(path: Path, by_user: bool) -> list[dict[str, Any]]:
    read = list(_read(path))
    places = {_whose(line, "post_id"): place for place, line in enumerate(read) if by_user and line.get("tags")}
    lines = []
    for place, line in enumerate(read):
        if by_user and line.get("user") is None:
            continue
        question = places.get(_whose(line, "parent"), place) if by_user and line.get("parent") is not None else place
        tags = read[question].get("tags")
        if not tags or not isinstance(tags, (str, list)):
            continue
        text = " ".join(str(line[key]) for key in ("title", "body", "text") if line.get(key))
        keys = {key: line.get(key) for key in ("user", "site")}
        if by_user and keys["site"] is not None:
            keys["user"] = f"{keys['site']} {keys['user']}"
        if known := _tags(tags):
            lines.append({"words": _WORD.findall(text.lower()), "tags": known, "question": question, **keys})
    if not lines:
        raise corrupt(path, "has no line with tags", 'lines like {"title": "...", "tags": ["...", "..."]}')
    return lines


def _whose(line: dict[str, Any], key: str) -> tuple[str, str]:
    """Which post of which site a line names."""
    return str(line.get("site")), str(line.get(key))


def _read(path: Path) -> Iterable[dict[str, Any]]:
    """The objects of a file."""
    for number, raw in enumerate(content(path).splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise corrupt(path, f"line {number} is not JSON ({error})") from None
        if isinstance(line, dict):
            yield line


def _tags(given: str | list[Any]) -> list[str]:
    """The tags of a line, each once. Dumps write them as |c#|winforms|, older ones as <c#><winforms>."""
    if isinstance(given, str):
        text = html.unescape(given)
        given = re.findall(r"<([^<>]+)>", text) if text.lstrip().startswith("<") else text.split("|")
    return list(dict.fromkeys(tag for tag in (str(tag).strip() for tag in given) if tag))


def _most_frequent(items: Iterable[str], number: int | Sequence[str]) -> dict[str, int]:
    """The `number` most frequent items with their places; ties in order of the alphabet. Or those that are named."""
    if not isinstance(number, int):
        return {item: place for place, item in enumerate(dict.fromkeys(number))}
    ranked = sorted(Counter(items).items(), key=lambda pair: (-pair[1], pair[0]))
    return {item: place for place, (item, _) in enumerate(ranked[:number])}


def _samples(lines: Sequence[dict[str, Any]], vocabulary: dict[str, int], tags: dict[str, int]) -> BagSamples:
    known = [[vocabulary[word] for word in line["words"] if word in vocabulary] for line in lines]
    targets = np.zeros((len(lines), len(tags)), dtype=np.float32)
    for row, line in zip(targets, lines, strict=True):
        row[[tags[tag] for tag in line["tags"] if tag in tags]] = 1.0
    offsets = np.concatenate([[0], np.cumsum([len(k) for k in known])])
    flat = np.array([word for k in known for word in k], dtype=np.int64)
    return BagSamples(torch.from_numpy(flat), torch.from_numpy(offsets), torch.from_numpy(targets), len(vocabulary))


def _columns(lines: Sequence[dict[str, Any]], tags: dict[str, int]) -> dict[str, Keys]:
    first = [min(line["tags"], key=lambda tag: tags.get(tag, len(tags))) for line in lines]
    columns = {"first_tag": Keys.of([tag if tag in tags else "" for tag in first])}
    for key in ("user", "site"):
        if all(line[key] is not None for line in lines):
            columns[key] = Keys.of([str(line[key]) for line in lines])
    return columns
