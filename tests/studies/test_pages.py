"""What becomes of odd names, options and picture files on the page of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.studies import Search, Study
from polyrhythm.studies.files.reading import read
from polyrhythm.studies.page.page import command, slug
from polyrhythm.studies.planning import planned
from study_makers import made

FILE = """clients = 4
model = "logistic"
rounds = 1

[rows.A]
method = "fedavg(cohort=2)"
"""


def test_columns_whose_names_have_the_same_letters_have_pictures_of_their_own(tmp_path: Path) -> None:
    columns = {"+1": {"lr": 0.1}, "-1": {"lr": 1e-9}, "α": {"lr": 0.2}}
    what = Study(name="s", rows={"": made}, columns=columns, figures=("accuracy",))
    files = [picture.file for picture in pr.study(what, out=tmp_path, workers=1).findings.pictures]
    assert len({*files}) == 3
    page = tmp_path / "studies" / "s"
    assert len({(page / file).read_text() for file in files}) == 3


def test_a_name_without_a_letter_of_ours_is_a_file_that_is_seen() -> None:
    assert slug("研究") != slug("究研")
    assert not slug("研究").startswith(".")
    assert slug("T t") == "t-t"


def test_the_command_of_a_page_has_all_that_was_said(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(FILE)
    study = read(file, options={"name": "other"}, settings=["seeds=3", "reproduces.title=Hello"])
    plan = planned(study, settings={"method.lr": 0.2})
    told = command(plan).partition("own.toml")[2]
    assert told == " --name other --set seeds=3 --set reproduces.title=Hello --set method.lr=0.2"


@pytest.mark.parametrize("workers", [0, -1, True])
def test_no_workers_are_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(UserError, match="1 or more"):
        pr.study(Study(name="s", rows={"": made}), out=tmp_path, workers=workers)


def test_the_page_may_be_said_as_a_text(tmp_path: Path) -> None:
    found = pr.study(Study(name="s", rows={"": made}), out=tmp_path, workers=1, output=str(tmp_path / "own.md"))
    assert found.page == tmp_path / "own.md"


def test_a_program_takes_no_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="with --seeds"):
        pr.study(planned(Study(name="p", rows={}, program="pacing", file=Path("p.toml")), seeds=(7,)), out=tmp_path)


@pytest.mark.parametrize(
    ("wrong", "told"), [({"rows": [made]}, "rows is a list"), ({"rows": {"": made}, "seeds": 3}, "seeds is a int")]
)
def test_a_definition_of_another_kind_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Study(name="s", search=Search(space={"lr": (0.1,)}, seeds=(9,)), **wrong)  # type: ignore[arg-type]


def test_a_result_of_clients_without_tests_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="who have no tests of their own"):
        pr.study(Study(name="s", rows={"": made}, measure="clients"), out=tmp_path)
    assert not (tmp_path / "runs.sqlite").exists()
