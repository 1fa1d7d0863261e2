"""Tag prediction from short texts: bags of words in, several tags out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.keys import Keys
from polyrhythm.data.samples import BagSamples
from polyrhythm.data.sources.posts import TEXT, Post, posts_of, threads_apart
from polyrhythm.data.text_reading import TextReading

REFERENCE = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (tag prediction)'


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

    Reads Stack Exchange's dumps, a folder in which each site's folder has its Posts.xml (`polyrhythm data sites` says
    where they are), or one JSON object a line (.jsonl or .jsonl.gz) with "title", "tags" (a list, or text as the public
    dumps have it: c#|winforms, |c#|winforms| or <c#><winforms>) and, if there, "body" or "text" (joined to the title)
    and "user". Lines without tags (answers) are skipped. Words and tags are the most frequent of the training lines.
    Columns: "first_tag" (the line's most frequent tag, to make clients with `dirichlet(by="first_tag")`) and, if every
    line has one, "user" and "site".

    Args:
        path: of the file or the folder.
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
    lines = posts_of(path, by_user=by_user)
    if isinstance(test, (str, Path)):
        train, tested = lines, posts_of(test, by_user=by_user)
    else:
        train, tested = threads_apart(lines, test)
    vocabulary = most_frequent((word for line in train for word in line.words), words)
    kept = most_frequent((tag for line in train for tag in line.tags), tags)
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
        texts=TextReading(makes="words", columns=TEXT, vocabulary=tuple(vocabulary)),
    )


def most_frequent(items: Iterable[str], number: int | Sequence[str]) -> dict[str, int]:
    """The `number` most frequent items with their places; ties in order of the alphabet. Or those that are named."""
    if not isinstance(number, int):
        return {item: place for place, item in enumerate(dict.fromkeys(number))}
    ranked = sorted(Counter(items).items(), key=lambda pair: (-pair[1], pair[0]))
    return {item: place for place, (item, _) in enumerate(ranked[:number])}


def bags(posts: Sequence[Post], vocabulary: dict[str, int], targets: np.ndarray, *, unit: bool = False) -> BagSamples:
    """Posts as bags of the words of a vocabulary, with targets [n] or [n, C]; means, or vectors of length 1."""
    return BagSamples.of([post.words for post in posts], vocabulary, targets, unit=unit)


def of_whom(posts: Sequence[Post]) -> dict[str, Keys]:
    """The columns "user" and "site", if every post has one."""
    columns = {"user": [post.user for post in posts], "site": [post.site for post in posts]}
    return {name: Keys.of([str(v) for v in values]) for name, values in columns.items() if None not in values}


def _samples(lines: Sequence[Post], vocabulary: dict[str, int], tags: dict[str, int]) -> BagSamples:
    targets = np.zeros((len(lines), len(tags)), dtype=np.float32)
    for row, line in zip(targets, lines, strict=True):
        row[[tags[tag] for tag in line.tags if tag in tags]] = 1.0
    return bags(lines, vocabulary, targets)


def _columns(lines: Sequence[Post], tags: dict[str, int]) -> dict[str, Keys]:
    first = [min(line.tags, key=lambda tag: tags.get(tag, len(tags))) for line in lines]
    return {"first_tag": Keys.of([tag if tag in tags else "" for tag in first])} | of_whom(lines)
