"""What a table's cells mean is decided here: as written, never as guessed; what cannot be is refused in words."""

from __future__ import annotations

import bz2
import datetime
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from polyrhythm import data
from polyrhythm.base.errors import UserError
from polyrhythm.data.sources import table_files

N = 40
BASE = pd.DataFrame({"a": np.arange(N) / 7, "y": np.arange(N) % 2})


def written(folder: Path, frame: pd.DataFrame, name: str = "t.csv", **how: Any) -> Path:
    frame.to_csv(folder / name, index=False, **how)
    return folder / name


def inputs(found: data.Collection) -> torch.Tensor:
    return torch.cat([part.batch(torch.arange(len(part)))[0] for part in (found.train, found.test)])


def refused(given: Any, **settings: Any) -> UserError:
    with pytest.raises(UserError) as error:
        data.table(given, **{"target": "y"} | settings)
    assert "delete" not in error.value.fix
    assert len(str(error.value)) < 1_500
    return error.value


def test_names_stay_as_they_are_written(tmp_path: Path) -> None:
    frame = BASE.assign(y=["None", "NA", "nan", "null"] * 10, who=["007", "7", "NA", "1e3"] * 10)
    found = data.table(written(tmp_path, frame), target="y", client="who")
    assert found.classes == ("NA", "None", "nan", "null")
    assert found.columns["who"].values.tolist() == ["007", "1e3", "7", "NA"]
    padded = data.table(written(tmp_path, BASE.assign(y=["01", "02"] * 20)), target="y")
    assert padded.classes == ("01", "02")
    numbers = data.table(written(tmp_path, BASE.assign(who=[2, 10] * 20)), target="y", client="who")
    assert numbers.columns["who"].values.tolist() == [2, 10]  # and not "10" before "2"


def test_only_empty_cells_and_those_that_are_named_are_missing(tmp_path: Path) -> None:
    frame = BASE.assign(b=["1.5", "NA", "?", "2"] * 10)
    path = written(tmp_path, frame)
    error = refused(path)
    assert "column 'b' holds numbers, and '?', 'NA' in 20 rows" in error.found
    assert "missing_values=['?', 'NA']" in error.fix
    assert "empty cells in b (20)" in refused(path, missing_values=["?", "NA"]).found
    found = data.table(path, target="y", missing_values=["?", "NA"], missing="drop")
    assert len(found.train) + len(found.test) == 20
    assert "20 of 40 rows with empty cells are left out, in b (20)" in found.notes[0]
    one = data.table(BASE.assign(b=[-999, 1] * 20), target="a", missing_values=[-999], missing="drop")
    assert len(one.train) + len(one.test) == 20


def test_what_went_with_dropped_rows_is_said(tmp_path: Path) -> None:
    frame = BASE.assign(who=["north", "south"] * 20, y=["p", "q", "r", "p"] * 10)
    frame.loc[frame.who == "south", "a"] = np.nan
    found = data.table(written(tmp_path, frame), target="y", client="who", missing="drop")
    assert found.notes[0].endswith("in a (20); with them went class q; with them went client south")


def test_headers_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text, said in {
        "y,a,b\n0,1,2,3\n": "line 2: 4 cells",
        "y,a,b\n0,1\n": "line 2: 2 cells",
        "y,a,y\n0,1,0\n": "several columns are named 'y'",
        "y,a, y \n0,1,0\n": "several columns are named 'y'",
        "y,a,\n0,1,2\n": "column 3 has no name",
        "y a\n": "leaves 0 rows",
        "nothing\n1\n": "one column, 'nothing'",
        '"y,a\n1,2\n': "cannot be read as a table",
        "5.1,3.5,setosa\n4.9,3,setosa\n": "the first line holds 2 numbers",
        "\n": "it is empty",
    }.items():
        path.write_text(text)
        assert said in refused(path).found, text
    path.write_text("\n".join("  ".join(f"{i * j:.7e}" for j in range(561)) for i in range(9)))
    assert "the first line holds 561 numbers" in refused(path).found
    path.write_text("\n".join(",".join(str(j) for j in range(4)) for i in range(9)))
    assert data.table(path, target="3", threshold=1).train.shape == (3,)  # numbers as names, as pandas writes them


def test_classes_of_truth_are_named_as_they_are_written(tmp_path: Path) -> None:
    for pair in (("FALSE", "TRUE"), ("false", "true"), ("False", "True"), ("no", "yes")):
        path = written(tmp_path, BASE.assign(y=[*pair] * 20, b=[*pair] * 20))
        found = data.table(path, target="y")
        assert found.classes == pair
        assert found.train.shape == (3 if pair == ("no", "yes") else 2,)  # as features, truth values are 0 and 1


def test_empty_lines_above_the_header_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n\r\n" + BASE.to_csv(index=False))
    assert data.table(path, target="y").train.shape == (1,)


def test_a_share_that_leaves_no_row_to_test_on_is_refused_in_words() -> None:
    for labels in (BASE.y, BASE.a):
        assert "test = 0.001 of 40 rows" in refused(BASE.assign(y=labels, b=labels * 2), test=0.001).found


def test_texts_that_numpy_would_hold_as_others_are_refused(tmp_path: Path) -> None:
    for column in ("y", "b", "who"):
        frame = BASE.assign(**{"who": ["u", "v"] * 20, column: ["a", "a\0"] * 20})
        assert "end in a zero character" in refused(frame, client="who").found


def test_columns_that_count_rows(tmp_path: Path) -> None:
    BASE.to_csv(tmp_path / "t.csv")
    found = data.table(tmp_path / "t.csv", target="y")
    assert found.train.shape == (1,)
    assert "counts the rows; it is left out" in found.notes[0]
    named = data.table(written(tmp_path, BASE.assign(id=range(N))), target="y")
    assert any("'id' counts the rows" in note for note in named.notes)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_encodings_are_seen(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, BASE.assign(kind=["é", "ü"] * 20), encoding=encoding)
    assert data.table(path, target="y").train.shape == (3,)


def test_other_encodings_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, BASE.assign(y=["é", "ü"] * 20), encoding="cp1252")
    assert "encoding='cp1252'" in refused(path).fix
    assert data.table(path, target="y", encoding="cp1252").classes == ("é", "ü")
    bare = written(tmp_path, BASE, encoding="utf-16-le")
    assert "encoding='utf-16'" in refused(bare).fix
    assert data.table(bare, target="y", encoding="utf-16-le").train.shape == (1,)
    for encoding in ("latin-7000", "zlib", "hex"):
        assert "nobody knows" in refused(path, encoding=encoding).found


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_separators_are_seen_or_said(tmp_path: Path, separator: str) -> None:
    path = written(tmp_path, BASE, "t.txt", sep=separator)
    for given in ("", separator):
        assert data.table(path, target="y", separator=given).train.shape == (1,)
    assert "separator = ',,'" in refused(path, separator=",,").found


def test_decimal_commas_are_said_and_read(tmp_path: Path) -> None:
    path = written(tmp_path, BASE, sep=";", decimal=",")
    error = refused(path)
    assert "column 'a' holds numbers with commas" in error.found
    assert "decimal=','" in error.fix
    found = data.table(path, target="y", decimal=",", scaling="none")
    assert sorted(inputs(found)[:, 0].tolist()) == pytest.approx(BASE.a.tolist())


@pytest.mark.parametrize("cells", [["1,5", "2e-3"], ["1.000,5", "999,5"], ["1,000.5", "999.5"], ["-1,5E2", "0"]])
def test_numbers_with_commas_are_no_categories(tmp_path: Path, cells: list[str]) -> None:
    path = written(tmp_path, BASE.assign(b=cells * 20, a=1), sep=";")
    assert "column 'b' holds numbers with commas" in refused(path).found
    if any("." in cell for cell in cells):
        assert "commas and points" in refused(path, decimal=",").found
    else:
        assert data.table(path, target="y", decimal=",").train.shape == (2,)
    texts = written(tmp_path, BASE.assign(b=["1,2", "x"] * 20), sep=";")
    assert data.table(texts, target="y").train.shape == (3,)


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "T.PARQUET", "t.feather", "t.csv.gz", "t.CSV", "t.csv.bz2"])
def test_a_files_form_is_told_by_how_it_begins(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if "csv" in name.lower():
        pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(BASE.to_csv(index=False).encode()))
    else:
        pytest.importorskip("pyarrow")
        BASE.to_feather(path) if "feather" in name else BASE.to_parquet(path)
    found = data.table(path, target="y")
    assert (found.name.lower(), found.train.shape) == ("t", (1,))


def test_other_files_are_named(tmp_path: Path) -> None:
    for raw, said in ((b"PK\x03\x04....", "Excel"), (b"\x93NUMPY", "NumPy"), (b"\xd0\xcf\x11\xe0", "old Excel")):
        (tmp_path / "t.csv").write_bytes(raw)
        assert said in refused(tmp_path / "t.csv").found
    (tmp_path / "t.parquet").write_text("a,y\n1,2\n")
    assert "no Parquet" in refused(tmp_path / "t.parquet").found
    assert "is a folder" in refused(tmp_path).found
    assert "of type ndarray" in refused(np.ones((3, 3))).found


TYPED: dict[str, tuple[Any, int | None]] = {
    "decimals": ([Decimal(f"{i}.25") for i in range(N)], 2),
    "moments": (pd.date_range("2024-01-01", periods=N, freq="h"), 2),
    "moments in a zone": (pd.date_range("2024-01-01", periods=N, freq="h", tz="Europe/Zurich"), 2),
    "dates": ([datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(N)], 2),
    "times": ([datetime.time(i % 24, i) for i in range(N)], 2),
    "durations": (pd.to_timedelta(np.arange(N), "s"), 2),
    "truth": (np.arange(N) % 3 == 0, 2),
    "small numbers": (np.arange(N, dtype=np.int8), 2),
    "large numbers": (np.full(N, 2**63, dtype=np.uint64) + np.arange(N, dtype=np.uint64), None),
    "nullable": (pd.array(range(N), dtype="Int64"), 2),
    "categories": (pd.Categorical(["u", "v"] * 20), 3),
    "text": (["u", "v"] * 20, 3),
    "numbers as text": (["1", "2"] * 20, 3),
    "lists": ([np.ones(3) * i for i in range(N)], None),
    "records": ([{"x": i} for i in range(N)], None),
    "bytes": ([b"%d" % i for i in range(N)], None),
}


@pytest.mark.parametrize("name", TYPED)
def test_typed_columns_are_what_their_type_says(tmp_path: Path, name: str) -> None:
    values, right = TYPED[name]
    frame = BASE.assign(c=values)
    given: list[Any] = [frame]
    if pytest.importorskip("pyarrow"):
        frame.to_parquet(tmp_path / "t.parquet")
        given.append(tmp_path / "t.parquet")
    for one in given:
        if right is None:
            assert "column 'c' holds" in refused(one).found
        else:
            assert data.table(one, target="y").train.shape == (right,)


def test_mixed_and_complex_columns_of_a_frame_are_refused() -> None:
    for values in ([1, "x"] * 20, [True, "x"] * 20, np.ones(N) * 1j, [None, "x"] * 20):
        assert "'c" in str(refused(BASE.assign(c=values))) or "in c (" in str(refused(BASE.assign(c=values)))


def test_text_that_is_another_one_in_each_row_is_refused(tmp_path: Path) -> None:
    frame = BASE.assign(name=[f"patient {i}" for i in range(N)], day=[f"2024-01-{i:02d}" for i in range(N)])
    error = refused(written(tmp_path, frame))
    assert "text column 'name' has 32 values in 32 rows" in str(error)
    assert "day" in str(error)
    assert data.table(written(tmp_path, frame), target="y", drop=["name", "day"]).train.shape == (1,)


def test_large_numbers_with_small_differences_stay_apart(tmp_path: Path) -> None:
    moments = 1_700_000_000 + np.random.default_rng(0).permutation(N) * 0.25
    for given in (written(tmp_path, BASE.assign(a=moments)), BASE.assign(a=(moments * 4).astype(np.int64))):
        assert data.table(given, target="y").train.batch(torch.arange(32))[0].unique().numel() == 32


def test_what_does_not_fit_float32_is_said_by_its_column(tmp_path: Path) -> None:
    for value in ("1e300", "1e400", "-1e39"):
        path = written(tmp_path, BASE.assign(b=[*["1"] * (N - 1), value]))
        assert "column 'b'" in refused(path, scaling="none").found
    wide = data.table(BASE.assign(b=np.arange(N) * 1e50), target="y")  # scaled before it becomes float32
    assert torch.isfinite(inputs(wide)).all()
    assert "column 'b'" in refused(BASE.assign(b=[np.inf] * N)).found


def test_a_test_table_is_read_as_the_training_one(tmp_path: Path) -> None:
    train = BASE.assign(kind=["u", "v"] * 20, code=["1", "x"] * 20)
    test = BASE.head(6).assign(kind=["u", "w"] * 3, code="1")[["code", "kind", "y", "a"]]
    found = data.table(written(tmp_path, train, "a.csv"), target="y", test=written(tmp_path, test, "b.csv"))
    assert found.test.shape == (5,)
    assert any("3 test rows have values of 'kind' that no training row has, 'w'" in note for note in found.notes)
    assert any("another order" in note for note in found.notes)
    unknown = written(tmp_path, test.assign(y=[0, 1, 0, 1, 0, "unknown"]), "b.csv")
    error = refused(written(tmp_path, train, "a.csv"), test=unknown)
    assert "column 'y' holds text here, 'unknown'" in error.found
    assert str(unknown) in error.found
    assert "kind are in one table only" in refused(train, test=test.drop(columns="kind")).found


def test_frames_are_taken_in_python() -> None:
    frame = BASE.assign(who=["007", "7"] * 20).set_index(np.arange(N)[::-1])
    found = data.table(frame, target="y", client="who", test=frame.head(8))
    assert (found.name, found.columns["who"].values.tolist()) == ("table", ["007", "7"])
    arrow = pytest.importorskip("pyarrow")
    assert data.table(arrow.Table.from_pandas(BASE), target="y").train.shape == (1,)
    assert data.table(pd.DataFrame(np.arange(80).reshape(N, 2)), target="1", threshold=40).train.shape == (1,)
    assert "several columns are named 'a'" in refused(pd.concat([BASE, BASE[["a"]]], axis=1)).found


def test_constant_columns_are_said() -> None:
    found = data.table(BASE.assign(flat=3), target="y")
    assert "one value in all training rows, which tells nothing: 'flat'" in found.notes


def test_a_table_that_is_too_wide_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{i}" for i in range(200_000)) + "\n" + ",".join(["1"] * 200_000))
    assert "200,000 columns" in refused(path).found
    path.write_text("a,y\n" + "1" * (table_files._LONGEST_LINE + 1))
    assert "a line of" in refused(path).found or "field" in refused(path).found


@pytest.mark.parametrize("form", ["csv", "parquet", "frame", "csv, beyond 64 bits", "frame, unsigned", "named"])
def test_whole_numbers_that_floats_would_take_for_one_are_refused(tmp_path: Path, form: str) -> None:
    first = {"csv, beyond 64 bits": 10**20, "frame, unsigned": 2**63}.get(form, 2**60)
    frame = pd.DataFrame({"id": [first + row // 4 for row in range(40)], "a": range(40), "y": ["u", "v"] * 20})
    given: Any = frame
    if form.startswith("csv") or form == "named":
        given = written(tmp_path, frame)
    elif form == "parquet":
        given = tmp_path / "t.parquet"
        frame.to_parquet(given)
    settings = {"features": ["id", "a"]} if form == "named" else {}
    error = refused(given, target="y", **settings)
    assert "column 'id' holds" in error.found
    assert "whole numbers beyond 2^53" in error.found
    assert data.table(given, target="y", drop=["id"]).features == ("a",)
    if "unsigned" not in form:
        assert len(set(data.table(given, target="y", client="id").columns["id"].values)) == 10  # names are all there


def test_seconds_that_are_not_scaled_are_said(tmp_path: Path) -> None:
    path = written(tmp_path, pd.DataFrame({"t": 1.7e9 + np.arange(40.0) / 3, "y": ["u", "v"] * 20}))
    notes = data.table(path, target="y", scaling="none").notes
    assert any("feature 't' has 32 different values, of which 1 are left in float32" in note for note in notes)
    assert len(inputs(data.table(path, target="y")).unique()) == 40


def test_the_answer_among_the_features_is_said(tmp_path: Path) -> None:
    """As one who saves a table with the label twice has it: under another name, or in other words."""
    answer = np.arange(60) % 3
    other = {"label.1": answer, "grade": np.array(["mild", "severe", "none"])[answer], "number": np.arange(60.0)[::-1]}
    path = written(tmp_path, pd.DataFrame({"label": answer, "a": np.random.default_rng(0).normal(size=60), **other}))
    notes = data.table(path, target="label").notes
    said = [note for note in notes if "in other words" in note]
    assert [note.split("'")[1] for note in said] == ["label.1", "grade"]
    assert "drop=['grade'] leaves it out" in said[1]
    numbers = pd.DataFrame({"y": np.arange(60) / 7, "copy": np.arange(60) / 7, "row": np.arange(60.0) ** 2})
    said = [note for note in data.table(written(tmp_path, numbers), target="y").notes if "in other words" in note]
    assert [note.split("'")[1] for note in said] == ["copy"]


def test_what_differs_only_in_blanks_is_one_and_that_is_said(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": np.arange(40) / 7, "site": ["Oslo", "Oslo "] * 20, "y": ["yes", "no", "yes ", "no "] * 10}
    )
    said = "values of 'site' 'Oslo' and 'Oslo ' differ only in blanks around them, and are taken for one"
    for found in (
        data.table(written(tmp_path, frame), target="y", client="site"),
        data.table(frame, target="y", client="site"),
    ):
        assert found.classes == ("no", "yes")
        assert said in found.notes
        assert any(
            "'yes' and 'yes ' differ only in blanks around them, as do the forms of 1 more" in n for n in found.notes
        )
    plain = frame.assign(site="Oslo", y=["yes", "no"] * 20)
    assert not any("blanks" in note for note in data.table(plain, target="y", client="site").notes)
    numbers = frame.assign(a=["1", " 1"] * 20, site="Oslo", y=["yes", "no"] * 20)
    assert not any("blanks" in note for note in data.table(written(tmp_path, numbers), target="y", client="site").notes)


def test_names_that_look_alike_are_said(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "caf\u00e9": np.arange(40) / 7,
            "cafe\u0301": np.arange(40) / 3,
            "site": ["Oslo", "OSLO"] * 20,
            "y": ["Yes", "no", "yes", "No"] * 10,
        }
    )
    notes = data.table(written(tmp_path, frame), target="y", client="site").notes
    assert "columns 'caf\u00e9' and 'cafe\u0301' differ only in how letters are encoded, and are two features" in notes
    assert "values of 'site' 'Oslo' and 'OSLO' differ only in capitals, and are clients of their own" in notes
    assert any("differ only in capitals, and are classes of their own" in note for note in notes)
