"""What a command line names, and how it would name more."""

from __future__ import annotations

import sys

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.cli.consenting import consented


@pytest.mark.parametrize(
    ("named", "model", "settings", "modules"),
    [
        (None, None, None, ()),
        (["nets", "my_lab.nets", "nets"], None, None, ("nets", "my_lab.nets")),
        (["nets:Net"], None, None, ("nets:Net",)),
        (None, "mlp(hidden=[3])", ["model=lenet5"], ()),
        (None, "nets:Net", None, ("nets",)),
        (None, "nets:Net(width=3)", None, ("nets",)),
        (None, "with_projection(my_lab.nets:Net(width=3), size=4)", None, ("my_lab.nets",)),
        (["other"], None, ["model = nets:Net", "rounds=3"], ("other", "nets")),
        (None, None, ["model.width=nets:Net", "method.lr=nets:Net", "model.inner.model=nets:Net"], ()),
        (None, None, ["method=fedavg | nets:Calm(budgets=lab:Own)"], ("nets", "lab")),
        (None, "mlp(hidden=nets:Net)", ["model=[nets:Net"], ()),
        (None, "nets:(", ["nonsense", "model="], ()),
    ],
)
def test_what_is_named(
    named: list[str] | None, model: str | None, settings: list[str] | None, modules: tuple[str, ...]
) -> None:
    assert consented(named, {"model": model} if model else {}, settings).modules == modules


@pytest.mark.parametrize("name", ["nets.py", "./nets.py", "lab/nets", ""])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="name of a module") as refused:
        consented([name])
    assert not name or refused.value.fix in ("--trust nets", "--trust lab.nets")


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        (["polyrhythm", "check", "exp.toml"], "polyrhythm check exp.toml --trust nets"),
        (["/usr/bin/polyrhythm", "run", "my exp.toml"], "polyrhythm run 'my exp.toml' --trust nets"),
        (["x/polyrhythm.exe", "verify", "night"], "polyrhythm verify night --trust nets"),
        (["/src/polyrhythm/__main__.py", "check", "e.toml"], "polyrhythm check e.toml --trust nets"),
        (["polyrhythm", "check", "--", "-e.toml"], "polyrhythm check --trust nets -- -e.toml"),
        (["/x/pytest/__main__.py", "tests"], "the same command with --trust nets"),
        ([""], "the same command with --trust nets"),
    ],
)
def test_what_to_type(monkeypatch: pytest.MonkeyPatch, typed: list[str], again: str) -> None:
    monkeypatch.setattr(sys, "argv", typed)
    assert consented(None).asked_for("nets") == again
