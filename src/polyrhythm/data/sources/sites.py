"""Which tag or which site a post belongs to: posts of question sites by who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.collection import Collection
from polyrhythm.data.keys import Keys
from polyrhythm.data.sources.files import corrupt
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.posts import TEXT, Post, posts_of, threads_apart
from polyrhythm.data.sources.tags import bags, most_frequent, of_whom
from polyrhythm.data.sources.tokenizers import tokenizer_of
from polyrhythm.data.structured import Padding
from polyrhythm.data.text_reading import TextReading

REFERENCE = "Stack Exchange, CC BY-SA 3.0 before May 2018 and 4.0 since"
WORDS = "words"
MASK = "attention_mask"


def sites(
    path: str | Path,
    *,
    target: Literal["tag", "site"] = "tag",
    classes: int = 20,
    tokenizer: str = WORDS,
    words: int = 2_000,
    common: int = 100,
    length: int = 32,
    test: float = 0.3,
) -> Collection:
    """Posts of question sites (Stack Exchange) by their users: which tag, or which site, each belongs to; one class.

    Reads a dump's Posts.xml of each site (FOLDER/beer.stackexchange.com/Posts.xml), or lines of JSON as
    `stackoverflow_tags` does. A post is its title and its text, without code; an answer has the tags of its question.
    Its class is the most frequent of its tags among the training posts, and posts with none of the frequent ones are
    left out. Questions with their answers are held out together, the same for every seed. Partition with
    `by_column(column="user")`, whose users are those of a site, or "site".

    Args:
        path: of the folder or the file.
        target: "tag" or "site".
        classes: tags, the most frequent ones of training.
        tokenizer: "words", how often each stands there, scaled to length 1, for `logistic` and `mlp`; or a folder with
            tokenizer.json, such as the model's own, for `hf(head=classes)`, which needs the extra `text`.
        words: size of the vocabulary, the most frequent ones of training.
        common: words left out before, the most frequent of all, such as "the": they tell tags from nothing.
        length: tokens of a post, the first ones.
        test: share of threads that test.

    Raises:
        UserError: no such files, or no posts with tags and users.

    Reference: Stack Exchange, by site and number of the post.
    """
    if target not in ("tag", "site"):
        raise unknown("target", target, ["tag", "site"])
    if classes < 2 or words < 1 or common < 0 or length < 3:
        raise UserError(
            f"sites: classes={classes}, words={words}, common={common}, length={length}",
            expected="2 classes, 1 word, 0 common ones and 3 tokens, or more",
            why="they are the model's outputs and inputs, and a tokenizer adds marks at both ends",
            fix="classes=20, words=2000, common=100, length=32",
        )
    train, tested = threads_apart(posts_of(path, by_user=True), test)
    tags = most_frequent((tag for post in train for tag in post.tags), classes)
    train, labels = _classed(train, target, tags, None)
    known = sorted(set(labels))
    tested, test_labels = _classed(tested, target, tags, frozenset(known))
    if len(known) < 2 or not tested:
        raise corrupt(Path(path), f"has posts of {len(known)} classes, {len(tested)} to test", "2 classes or more")
    columns, test_columns = of_whom(train), of_whom(tested)
    if tokenizer != WORDS:
        made = tokenizer_of(tokenizer, ())
        inputs, test_inputs = ({"input_ids": [made.begin(p.text, length) for p in of]} for of in (train, tested))
        reading = TextReading(
            makes="tokens", columns=TEXT, length=length, tokenizer=str(Path(tokenizer)), digest=made.digest
        )
        collection = arrays(
            inputs,
            labels,
            test=(test_inputs, test_labels),
            task="classification",
            classes=known,
            columns=columns,
            test_columns=test_columns,
            padding=Padding(value={"input_ids": 0}, to="batch", mask=MASK),
            name="sites",
            reference=REFERENCE,
            features=made.tokens,
        )
        return replace(collection, texts=reading)
    ranked = most_frequent((word for post in train for word in post.words), common + words)
    vocabulary = {word: place for place, word in enumerate(list(ranked)[common:])}
    if not vocabulary:
        raise corrupt(Path(path), f"has no more than {len(ranked):,} words", "more", fix="a smaller common=")
    return Collection(
        name="sites",
        task="classification",
        classes=tuple(known),
        train=bags(train, vocabulary, _numbers(labels, known), unit=True),
        test=bags(tested, vocabulary, _numbers(test_labels, known), unit=True),
        columns=columns,
        test_columns=test_columns,
        features=tuple(vocabulary),
        reference=REFERENCE,
        texts=TextReading(makes="words", columns=TEXT, vocabulary=tuple(vocabulary), unit=True),
    )


def _classed(
    posts: Sequence[Post], target: str, tags: dict[str, int], among: frozenset[str] | None
) -> tuple[list[Post], list[str]]:
    """The posts that have a class, one of these if there are any given, and each one's class."""
    found = [(post, name) for post in posts if (name := _class(post, target, tags))]
    kept = [(post, name) for post, name in found if among is None or name in among]
    return [post for post, _ in kept], [name for _, name in kept]


def _class(post: Post, target: str, tags: dict[str, int]) -> str:
    """The class of a post; "" for none."""
    if target == "site":
        return post.site or ""
    return min((tag for tag in post.tags if tag in tags), key=tags.__getitem__, default="")


def _numbers(labels: Sequence[str], known: Sequence[str]) -> np.ndarray:
    return Keys.of([*known, *labels]).codes[len(known) :].astype(np.int64)
