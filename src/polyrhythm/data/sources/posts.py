"""Posts of question sites: as Stack Exchange publishes them, Posts.xml of each site, or one JSON object a line."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.sources.files import corrupt, existing, opened
from polyrhythm.data.sources.members import MOST
from polyrhythm.data.sources.text_files import json_lines

FILE = "Posts.xml"
DOMAIN = ".stackexchange.com"
WHAT = "a .jsonl or .jsonl.gz file, or a folder in which each site's folder has its Posts.xml"
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9+#.\-]*[a-z0-9+#])?")
_ATTRIBUTE = re.compile(r'([A-Za-z]+)="([^"]*)"')
_CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL | re.IGNORECASE)
_MARK = re.compile(r"<[^<>]*>")
_NAMES = {
    "Id": "post_id",
    "ParentId": "parent",
    "OwnerUserId": "user",
    "Title": "title",
    "Tags": "tags",
    "Body": "text",
}
_KINDS = ("1", "2")  # questions and answers; other posts are about tags and the site


TEXT = ("title", "body", "text")
"""Columns of what a post says, which are joined by spaces."""


class Post(NamedTuple):
    """A post with the tags of its question.

    Args:
        text: title and body in one.
        tags: each once.
        question: number of the question, that all posts of its thread have.
        user: who wrote it, or None where nobody says.
        site: where, or None.
    """

    text: str
    tags: Sequence[str]
    question: int
    user: str | None
    site: str | None

    @property
    def words(self) -> list[str]:
        """Its words in small letters."""
        return words_of(self.text)


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, with the signs that tell c++, c# and node.js apart."""
    return _WORD.findall(text.lower())


def posts_of(path: str | Path, *, by_user: bool) -> list[Post]:
    """Posts that have tags.

    Args:
        path: lines of JSON with "title", "tags" and, if there, "text" or "body", "user", "site", "post_id", "parent";
            or a folder with Posts.xml of several sites, or of one.
        by_user: answers too, with the tags of their question; those without a user are skipped, and users are those of
            a site ("beer 12").

    Raises:
        UserError: damaged files, or no line with tags.
    """
    place = existing(path, what=WHAT)
    read = list(
        _of_dumps(place)
        if place.is_dir() or place.suffix == ".xml"
        else (line for _, line in json_lines(place) if isinstance(line, dict))
    )
    places = {_whose(line, "post_id"): number for number, line in enumerate(read) if by_user and line.get("tags")}
    found = list[Post]()
    for number, line in enumerate(read):
        if by_user and line.get("user") is None:
            continue
        question = places.get(_whose(line, "parent"), number) if by_user and line.get("parent") is not None else number
        tags = read[question].get("tags")
        if not tags or not isinstance(tags, (str, list)):
            continue
        text = " ".join(str(line[key]) for key in TEXT if line.get(key))
        user, site = (None if line.get(key) is None else str(line[key]) for key in ("user", "site"))
        if by_user and site is not None:
            user = f"{site} {user}"
        if known := _tags(tags):
            found.append(Post(text, known, question, user, site))
    if not found:
        raise corrupt(place, "has no line with tags", 'lines like {"title": "...", "tags": ["...", "..."]}')
    return found


def threads_apart(posts: Sequence[Post], test: float) -> tuple[list[Post], list[Post]]:
    """Posts to train on and to test on; the posts of a thread are on one side, the same for every seed.

    Raises:
        UserError: a share that is none, or leaves nothing to test on.
    """
    check_share("test", test)
    asked, question = np.unique([post.question for post in posts], return_inverse=True)
    out = held_out(np.zeros(len(asked), dtype=np.int64), None, test, stream(0, "split", "tags"))[question]
    train = [post for post, held in zip(posts, out, strict=True) if not held]
    tested = [post for post, held in zip(posts, out, strict=True) if held]
    if not tested:
        raise UserError(
            f"test = {test!r} of {len(posts):,} lines",
            expected="at least one test line",
            why="the model is tested on lines that nobody trained on",
            fix="a larger share, e.g. test=0.5, or a file of its own",
        )
    return train, tested


def _whose(line: dict[str, Any], key: str) -> tuple[str, str]:
    """Which post of which site a line names."""
    return str(line.get("site")), str(line.get(key))


def _of_dumps(place: Path) -> Iterator[dict[str, Any]]:
    """The questions and answers of Posts.xml, one or several, as lines of JSON would have them.

    A row is a line there. It is read as that, and by no reader of XML, to which a file could declare entities.
    """
    files = [place] if place.is_file() else sorted(f for f, _ in zip(place.rglob(FILE), range(MOST), strict=False))
    if not files:
        raise corrupt(place, f"has no {FILE}", WHAT)
    for file in files:
        site = file.absolute().parent.name.removesuffix(DOMAIN)
        with opened(file) as lines:
            for number, raw in enumerate(lines, start=1):
                if not raw.lstrip().startswith(b"<row "):
                    continue
                try:
                    row = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(raw.decode())}
                except UnicodeDecodeError as error:
                    raise corrupt(file, f"line {number} is no text in UTF-8 ({error})"[:160], WHAT) from None
                if not row.get("Id"):
                    raise corrupt(file, f"line {number} is a row without an Id", "rows of posts")
                if row.get("PostTypeId") in _KINDS:
                    line: dict[str, Any] = {name: row[key] for key, name in _NAMES.items() if key in row}
                    yield line | {"site": site, "text": _plain(line.get("text", ""))}


def _plain(body: str) -> str:
    """A body without its marks and without blocks of code."""
    return " ".join(html.unescape(_MARK.sub(" ", _CODE.sub(" ", body))).split())


def _tags(given: str | list[Any]) -> list[str]:
    """The tags of a line, each once. Dumps write them as |c#|winforms|, older ones as <c#><winforms>."""
    if isinstance(given, str):
        text = html.unescape(given)
        given = re.findall(r"<([^<>]+)>", text) if text.lstrip().startswith("<") else text.split("|")
    return list(dict.fromkeys(tag for tag in (str(tag).strip() for tag in given) if tag))
