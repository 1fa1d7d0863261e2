"""Where a file cannot be written is said before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.base.output_file import check_output


def test_a_new_file_and_one_that_is_there_may_be_written(tmp_path: Path) -> None:
    check_output(tmp_path / "new.html", "the report")
    (tmp_path / "old.html").touch()
    check_output(tmp_path / "old.html", "the report")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.html"]


@pytest.mark.parametrize(
    ("place", "problem", "fix"),
    [
        ("nodir/x.html", "there is no folder", "mkdir -p"),
        ("a/b/c/x.html", "there is no folder", "mkdir -p"),
        ("folder", "it is a folder", "another file"),
        ("file/x.html", "is a file", "another file"),
        ("file/deeper/x.html", "cannot be written", "another file"),
        ("x" * 300 + ".html", "cannot be written", "another file"),
    ],
)
def test_what_is_in_the_way_is_said(tmp_path: Path, place: str, problem: str, fix: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as caught:
        check_output(tmp_path / place, "the report")
    assert problem in caught.value.found
    assert "the report" in caught.value.why
    assert fix in caught.value.fix


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="whoever may write everywhere is not refused")
def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="may not be written"):
        check_output(tmp_path / "x.html", "the report")
