"""`polyrhythm advise`: what it says, tries and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from terminal import Command


def test_the_command(polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(
        'data = "digits"\nclients = 10\nmodel = "logistic"\nmethod = "fedavg(cohort=3, epochs=1)"\nrounds = 10\n'
        'validation = 0.1\nuntil.time = 1e9\nseeds = "4-5"\n'
    )
    words = polyrhythm("advise", "mine.toml", "--budget", "updates=30", columns=200)
    assert words.code == 0, words.err
    assert "10 rounds of FedAvg" in words.out
    assert "fedavg(cohort=3, epochs=1, batch=10, lr=0.1)" in words.out
    assert "note: the evidence is of small images" in words.out
    assert not Path("mine-advised.toml").exists()
    done = polyrhythm("advise", "mine.toml", "--budget", "updates=30", "--try", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    chosen = told["tried"]["method"]
    assert f'method = "{chosen}"' in Path("mine-advised.toml").read_text()
    assert told["tried"]["rungs"][0]["tried"][0]["method"] == chosen
    checked = json.loads(polyrhythm("check", "mine-advised.toml", "--json", "--no-estimate").out)
    assert checked["valid"]
    assert checked["configuration"]["rounds"] == told["tried"]["rounds"]
    assert checked["seeds"] == [4]
    blind = polyrhythm("advise", "mine.toml", "--try", "--set", "validation=0")
    assert blind.code == 2
    assert "without validation data" in blind.err
    assert not blind.out  # it is refused before anything is measured
    refused = polyrhythm("advise", "mine.toml", "--budget", "hours=3")
    assert refused.code == 2
    assert "unknown resource 'hours'" in refused.err
