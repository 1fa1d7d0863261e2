"""Roles of plays and users of question sites, as they are published: tiny copies by hand."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

import polyrhythm as pr
from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.plays import speeches_of
from polyrhythm.data.sources.posts import posts_of

HAMLET = """HAMLET, PRINCE OF DENMARK

PERSONS REPRESENTED.

Hamlet.
Ghost.

ACT I.

Scene I. A platform before the Castle.

[Enter Hamlet
and Ghost.]

Ham.
Who's there?
Nay, answer   me.

[Exit.]

Stand, ho!

GHOST
Mark me. [Aside.] Mark
me.

Exeunt.

SCENE II. Another part.

Ham.
I will.

Ber.
Once.

Ham.

Ghost.
Adieu.

Ham.
Alas!

THE END
"""
SAID = {"hamlet:GHOST": ["Mark me. Mark me. Exeunt.", "Adieu."]}
SAID |= {"hamlet:HAM": ["Who's there? Nay, answer me. Stand, ho!", "I will.", "Alas!"]}
ROWS = [
    '<row Id="1" PostTypeId="1" Body="&lt;p&gt;Hops &amp;amp; malt?&lt;/p&gt;&lt;pre&gt;code&lt;/pre&gt;" '
    'OwnerUserId="7" Title="Ask &quot;A&quot;" Tags="&lt;hops&gt;&lt;taste&gt;" />',
    '<row Id="2" PostTypeId="2" ParentId="1" Body="&lt;p&gt;Yes\u00e9.&lt;/p&gt;" OwnerUserId="8" />',
    '<row Id="3" PostTypeId="5" Body="of a tag" OwnerUserId="8" Tags="|hops|" />',
    '<row Id="4" PostTypeId="2" ParentId="1" Body="nobody\'s" />',
    '<row Id="5" PostTypeId="1" Body="more" OwnerUserId="7" Title="B" Tags="|taste|" />',
]


def dump(folder: Path, site: str = "beer.stackexchange.com", rows: list[str] = ROWS) -> Path:
    (folder / site).mkdir(parents=True)
    lines = ["\ufeff<?xml version='1.0'?>", "<posts>", *(f"  {row}" for row in rows), "</posts>"]
    (folder / site / "Posts.xml").write_text("\n".join(lines), encoding="utf-8")
    return folder


def lines(path: Path, users: int = 3, posts: int = 12) -> Path:
    rows = [
        {"site": site, "post_id": n, "user": n % users, "title": f"{tag} word{n}", "tags": [tag, "rare" + str(n)]}
        for site, tag in (("beer", "hops"), ("ai", "nets"))
        for n in range(posts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_speeches_are_those_of_the_play(tmp_path: Path) -> None:
    plays = tmp_path / "plays"
    plays.mkdir()
    (plays / "hamlet_gut.txt").write_text(HAMLET)
    (plays / "hamlet_gut_f.txt").write_text("another spelling")
    assert speeches_of(plays) == SAID
    with zipfile.ZipFile(tmp_path / "plays.zip", "w") as archive:
        archive.write(plays / "hamlet_gut.txt", "texts/hamlet_gut.txt")
    assert speeches_of(tmp_path / "plays.zip") == SAID
    table = {role: {"train": said[:-1], "test": said[-1:]} for role, said in SAID.items()}
    (tmp_path / "by_role.json").write_text(json.dumps(table))
    assert speeches_of(tmp_path / "by_role.json") == SAID


def test_roles_are_asked_for_each_token_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "hamlet_gut.txt").write_text(HAMLET)
    found = data.roles(tmp_path, length=8, test=0.4)
    role = found.test_columns["role"]
    inputs, targets = found.test.batch(torch.arange(len(found.test)))
    texts = ["".join(found.features[t] for t in row[row != -100].tolist()) for row in targets]
    assert role.values[role.codes].tolist() == ["hamlet:GHOST", "hamlet:HAM"]
    assert texts == [f"{found.features[0]}dieu.", f"{found.features[0]}las!"], "no training speech has an A"
    assert inputs.shape == (2, 8)
    said, _ = found.train.batch(torch.arange(len(found.train)))
    of_ghost = said[torch.from_numpy(found.columns["role"].codes == 0)]
    tokens = [t for n, row in enumerate(of_ghost) for t in row[1 if n else 0 :].tolist()]
    joined = "".join(found.features[t] for t in tokens)
    assert joined.rstrip(found.features[0]) == SAID["hamlet:GHOST"][0]
    few = data.roles(tmp_path, least=30)
    assert few.columns["role"].values.tolist() == ["hamlet:HAM"], "the training speeches of the ghost are shorter"
    for wrong in ({"least": 1000}, {"least": -1}, {"length": 1}, {"test": 1.5}):
        with pytest.raises(UserError):
            data.roles(tmp_path, **wrong)


def test_a_dump_reads_as_its_lines_do(tmp_path: Path) -> None:
    posts = posts_of(dump(tmp_path), by_user=True)
    assert [(post.text, list(post.tags), post.user, post.site) for post in posts] == [
        ('Ask "A" Hops & malt?', ["hops", "taste"], "beer 7", "beer"),
        ("Yes\u00e9.", ["hops", "taste"], "beer 8", "beer"),
        ("B more", ["taste"], "beer 7", "beer"),
    ]
    assert posts[0].question == posts[1].question != posts[2].question
    assert len(posts_of(tmp_path / "beer.stackexchange.com", by_user=True)) == 3
    assert len(posts_of(tmp_path / "beer.stackexchange.com" / "Posts.xml", by_user=False)) == 2, "answers have no tags"
    dump(tmp_path, "ai.stackexchange.com")
    sites = [post.site for post in posts_of(tmp_path, by_user=True)]
    assert sites == ["ai"] * 3 + ["beer"] * 3
    assert len(data.stackoverflow_tags(tmp_path, test=0.5, by_user=True).train) >= 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (['<row PostTypeId="1" Tags="|a|" />'], "is a row without an Id"),
        ([], "has no line with tags"),
        (['<row Id="1" PostTypeId="1" OwnerUserId="1" Title="&lol9;" />'], "has no line with tags"),
    ],
)
def test_other_dumps_are_refused(rows: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        posts_of(dump(tmp_path, rows=rows), by_user=True)


def test_folders_without_dumps_and_other_letters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no Posts\.xml"):
        posts_of(tmp_path, by_user=True)
    (tmp_path / "Posts.xml").write_bytes(b'<row Id="1" Title="\xff" />')
    with pytest.raises(UserError, match="is no text in UTF-8"):
        posts_of(tmp_path, by_user=True)


def test_a_post_is_of_one_tag_or_one_site(tmp_path: Path) -> None:
    path = lines(tmp_path / "posts.jsonl")
    by_tag = data.sites(path, classes=2, words=50, common=0, test=0.25)
    assert by_tag.classes == ("hops", "nets")
    assert len(by_tag.train) + len(by_tag.test) == 24
    inputs, targets = by_tag.train.batch(torch.arange(len(by_tag.train)))
    assert inputs.norm(dim=1).tolist() == pytest.approx([1.0] * len(inputs))
    hops = by_tag.features.index("hops")
    assert [bool(x[hops]) for x in inputs] == [t == 0 for t in targets.tolist()]
    assert set(by_tag.columns["user"].values.tolist()) >= {"beer 0", "ai 2"}
    by_site = data.sites(path, target="site", words=50, common=2, test=0.25)
    assert by_site.classes == ("ai", "beer")
    federation = pr.federate(by_tag, data.ByColumn(column="user"), clients=None, seed=0, local_test="natural")
    recipe = pr.fedavg(cohort=3, batch=4, lr=5.0)
    run = pr.run(pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=8))
    assert run.history["test_accuracy"].iloc[-1] == 1.0
    assert not {"hops", "nets"} & set(by_site.features), "the two most frequent words are left out"
    with pytest.raises(UserError, match="no more than"):
        data.sites(path, common=1000)
    for wrong in ({"target": "user"}, {"classes": 1}, {"words": 0}, {"length": 2}):
        with pytest.raises(UserError):
            data.sites(path, **wrong)


def test_posts_as_tokens_have_marks_at_both_ends_and_a_mask(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "hops", "nets"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(zip(words, range(6), strict=True)), unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    found = data.sites(lines(tmp_path / "posts.jsonl"), classes=2, tokenizer=str(tmp_path), length=3, test=0.25)
    inputs, targets = found.train.batch(torch.arange(len(found.train)))
    assert found.structure is not None
    _, given = found.structure.unpack(inputs)
    assert given["input_ids"].tolist() == [[1, 4 + int(target), 2] for target in targets]
    assert given["attention_mask"].min() == 1
