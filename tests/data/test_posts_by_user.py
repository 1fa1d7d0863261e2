"""Posts as their users wrote them: answers have the tags of their question, and are held out with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import polyrhythm as pr


def question(number: int, user: int | None, site: str = "beer", **more: Any) -> dict[str, Any]:
    said = {"site": site, "post_id": number, "user": user, "title": f"ask{number}", "tags": [f"tag{number % 3}", site]}
    return {**said, **more}


def answer(number: int, parent: int, user: int | None, site: str = "beer") -> dict[str, Any]:
    return {"site": site, "post_id": number, "parent": parent, "user": user, "text": f"reply{parent}", "tags": None}


def test_users_are_those_of_a_site_and_threads_stay_whole(tmp_path: Path) -> None:
    lines = [question(n, n % 4) for n in range(20)] + [answer(100 + n, n, (n + 1) % 4) for n in range(20)]
    lines += [question(0, 1, "ai"), answer(200, 0, 1, "ai"), question(50, None), answer(201, 999, 2)]
    path = tmp_path / "posts.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    posts = pr.data.stackoverflow_tags(path, words=1000, tags=10, test=0.3, by_user=True)
    assert len(posts.train) + len(posts.test) == 42, "neither without a user, nor without a question"
    users = {str(value) for columns in (posts.columns, posts.test_columns) for value in columns["user"].values}
    assert users == {"beer 0", "beer 1", "beer 2", "beer 3", "ai 1"}
    threads = [{int(word[3:]) for word in names(posts, part, "ask")} for part in ("train", "test")]
    replies = [{int(word[5:]) for word in names(posts, part, "reply")} for part in ("train", "test")]
    assert replies[0] <= threads[0] | {0}
    assert not (threads[0] & threads[1]) - {0}, "question 0 is one of each site"
    assert len(pr.data.stackoverflow_tags(path, words=1000, tags=10, test=0.3).train) < len(posts.train)


def names(posts: pr.data.Collection, part: str, begins: str) -> list[str]:
    """The words of a part that begin so, of those that training knows."""
    samples = posts.train if part == "train" else posts.test
    inputs, _ = samples.batch(torch.arange(len(samples)))
    found = (inputs != 0).any(0).nonzero()[:, 0].tolist()
    return [posts.features[place] for place in found if posts.features[place].startswith(begins)]
