"""Texts that a file names once: it reads as if everything were written out, and a slip in them is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.studies.files.reading import read

LET = """clients = 4
model = "{model}"
seeds = "0-{last}"
until = "accuracy=0.{last}"

[let]
local = "cohort=2, epochs=1, {rate}"
rate = "lr=0.1, momentum=0.9"
program = "critical_periods(rule=windowed)"
model = "logistic"
last = "1"

[reproduces]
paper = "ccfl"
items = ["Table 9"]
title = "Two of them, {local}"

[rows.One]
method = ["fedavg({local})", "{program}"]

[rows.Other]
method = "fedprox(mu=0.1, {local}) | {program}"

[columns.even]
partition = "iid"

[columns."{rate}"]
partition = "dirichlet(alpha=0.{last})"

[[claims]]
says = "{of} is above {against}"
pairs = [["One", "Other"]]

[tuning]
seeds = "7"
space.method = ["fedavg({rate})", "fedavg"]

[scales.smoke]
model = "mlp(hidden=[{last}])"
seeds = "{last}"
why = "{small}"
"""
TEXTS = {
    "{local}": "cohort=2, epochs=1, lr=0.1, momentum=0.9",
    "{program}": "critical_periods(rule=windowed)",
    "{model}": "logistic",
    "{last}": "1",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_reads_as_if_everything_were_written_out(tmp_path: Path) -> None:
    out = re.sub(r"\[let\].*?\n\n", "", LET, flags=re.DOTALL)
    for name, text in TEXTS.items():
        out = out.replace(name, text)
    out = out.replace('"fedavg({rate})"', '"fedavg(lr=0.1, momentum=0.9)"')
    short, long = read(written(tmp_path, LET)), read(written(tmp_path, out))
    assert short.title == "Two of them, {local}"  # words are for readers
    assert "{rate}" in short.columns  # and so are names
    assert short.make.values == long.make.values
    assert list(short.make.values) == list(long.make.values)
    same = replace(short, make=long.make, title=long.title)
    assert same == long
    assert repr(same) == repr(long)  # the order of keys, too, which decides what wins


def test_words_and_claims_keep_their_braces(tmp_path: Path) -> None:
    found = read(written(tmp_path, LET))
    assert found.scales["smoke"].why == "{small}"
    assert found.claims[0].says == "One is above Other"
    assert found.rows["One"] == {
        "method": ["fedavg(cohort=2, epochs=1, lr=0.1, momentum=0.9)", "critical_periods(rule=windowed)"]
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("mu=0.1, {local}", "mu=0.1, {locl}", r"line 22 \(rows.Other.method\)"),
        ("mu=0.1, {local}", "mu=0.1, {locl}", r"one of \{last\}, \{local\}, \{model\}, \{program\}, \{rate\}"),
        ("mu=0.1, {local}", "mu=0.1, {locl}", r"did you mean '\{local\}'"),
        ("fedavg({rate})", "fedavg({})", r"\(tuning.space.method.0\)"),
        ("hidden=[{last}]", "hidden=[{least}]", r"\(scales.smoke.model\)"),
        ('model = "{model}"', 'model = "{modal}"', r"line 2 \(model\)"),
        ("[let]", '[let]\nmore = "x"', "line 7: more in .let. is never used"),
        ('rate = "', 'rate = "{rate}', r"line 8 \(let.rate\): \{rate\} leads back to itself"),
        ('rate = "', 'rate = "{local}', r"\{local\} leads back to itself"),
        ('last = "1"', "last = 1", "line 6: .let. that does not consist of texts"),
        ("[let]", "let = 3\n[lot]", "line 6: .let. that does not consist of texts"),
    ],
)
def test_a_slip_is_refused_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in LET
    with pytest.raises(UserError, match=told) as caught:
        read(written(tmp_path, LET.replace(old, new, 1)))
    assert "own.toml" in str(caught.value)


def test_without_a_table_braces_are_braces(tmp_path: Path) -> None:
    text = re.sub(r"\[let\].*?\n\n", "", LET, flags=re.DOTALL)
    with pytest.raises(UserError, match=r"line 3: seeds '0-\{last\}'"):
        read(written(tmp_path, text))


def test_a_slip_in_a_text_is_told_once_however_often_that_is_used(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, LET.replace('rate = "', 'rate = "{speed}')))
    assert len(caught.value.mistakes) == 1
    assert r"(let.rate)" in caught.value.found
