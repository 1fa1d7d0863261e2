"""Files of studies: what they say, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.studies.definition import Number, laid_over
from polyrhythm.studies.files.reading import read
from polyrhythm.studies.planning import planned

GOOD = """clients = 4
model = "logistic"
rounds = 3
seeds = "0-1"
validation = 0.2

[reproduces]
paper = "ccfl"
items = ["Table 9"]
title = "Two of them"
measure = "last20"
spread = "seeds"

[rows.One]
method = "fedavg(cohort=2, epochs=1)"

[rows.Other]
method = "fedprox(cohort=2, epochs=1)"

[columns.even]
partition = "iid"

[columns.skewed]
partition.alpha = 0.1

[paper]
One = ["78.76 ± 2.62", ""]
Other = ["80", "1.5 ± 0.1"]

[[claims]]
says = "{of} is above {against}"
pairs = [["One", "Other"], ["Other", "One"]]
more_than = 1

[tuning]
seeds = "7"
rounds = 1
space.method.lr = [0.1, 0.2]

[scales.smoke]
rounds = 1
method.epochs = 2
columns = ["even"]
seeds = "5"
tuning.space.method.lr = [0.3, 0.4]
"""

UNEQUAL = "rows.One.space.method.lr = [1, 2]\nrows.Other.space.method.lr = [1, 2, 3]\n"


def written(folder: Path, text: str = GOOD) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    found = read(written(tmp_path))
    assert list(found.rows) == ["One", "Other"]
    assert found.numbers == {
        ("One", "even"): Number(mean=78.76, sd=2.62),
        ("Other", "even"): Number(mean=80.0),
        ("Other", "skewed"): Number(mean=1.5, sd=0.1),
    }
    assert [(c.says, c.of, c.against) for c in found.claims] == [
        ("One is above Other", "One", "Other"),
        ("Other is above One", "Other", "One"),
    ]
    whole, smoke = planned(found, "paper"), planned(found, "smoke")
    assert (whole.seeds, whole.columns) == ((0, 1), ("even", "skewed"))
    assert (smoke.seeds, smoke.columns) == ((5,), ("even",))
    assert smoke.search is not None
    assert smoke.search.space == {"method.lr": (0.3, 0.4)}
    assert whole.search is not None
    assert whole.search.over == {"rounds": 1}


def test_a_cell_is_the_file_under_its_row_its_column_the_scale_and_what_was_asked_for(tmp_path: Path) -> None:
    scaled = planned(read(written(tmp_path)), "smoke", settings={"method.lr": 0.7})
    experiment, _ = scaled.cell("Other", "even").make({}, 3)
    told = experiment.describe()
    assert told["rounds"] == 1
    assert told["seed"] == 3
    assert told["method"] == "fedprox(cohort=2, epochs=2, lr=0.7)"
    assert told["partition"] == "iid"


def test_a_column_has_a_search_of_its_own(tmp_path: Path) -> None:
    own = "columns.skewed = {rounds = 3, space.method.lr = [0.5, 0.6, 0.7], rows.Other.space.method.lr = [1, 2, 3]}\n"
    own += "rows.Other.space.method.lr = [0.3, 0.4]\n"
    text = GOOD.replace("space.method.lr = [0.1, 0.2]\n", f"space.method.lr = [0.1, 0.2]\n{own}", 1)
    found = read(written(tmp_path, text))
    arms = planned(found, "paper").arms
    assert {name: [setting["method.lr"] for setting in arm.known() or ()] for name, arm in arms.items()} == {
        "One, even": [0.1, 0.2],
        "Other, even": [0.3, 0.4],
        "One, skewed": [0.5, 0.6, 0.7],
        "Other, skewed": [1, 2, 3],
    }
    assert [arm.make.fixed["rounds"] for arm in arms.values()] == [1, 1, 3, 3]
    before = planned(read(written(tmp_path)), "paper").arms
    assert arms["One, even"].called == before["One, even"].called  # what was tried of other columns stays what it is


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("columns.odd.rounds = 3", "unknown column 'odd' in the search"),
        ("columns.skewed.roundz = 3", "unknown key 'roundz'"),
        ("columns.skewed.rows.Third.space.method.lr = [1, 2]", "unknown row 'Third' in the search"),
        ("columns.skewed.rows = 3", "rows"),
        ("columns.skewed.space = 3", "space"),
        ("columns.skewed.space.method.lr = 3", "method.lr"),
        ("columns.skewed.rows.One.space.method.lr = [1, 2, 3]", "3 trials for One, skewed and 2 trials for Other"),
    ],
)
def test_a_slip_in_a_columns_search_is_refused(tmp_path: Path, new: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, GOOD.replace('[tuning]\nseeds = "7"', f'[tuning]\n{new}\nseeds = "7"', 1)))
    assert told in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_growth_keeps_the_order_in_which_it_is_told(tmp_path: Path) -> None:
    found = read(written(tmp_path, GOOD.replace("more_than = 1", 'grows_over = ["skewed", "even"]')))
    assert [claim.grows_over for claim in found.claims] == [("skewed", "even")] * 2
    assert len(list(planned(found, "paper").claims())) == 2
    assert list(planned(found, "smoke").claims()) == []  # which has one of the columns


def test_an_item_is_shown_by_the_rows_or_columns_that_it_names(tmp_path: Path) -> None:
    named = '[reproduces.shown_by]\n"Table 9" = ["skewed", "Other"]\n\n[rows.One]'
    found = read(written(tmp_path, GOOD.replace("[rows.One]", named).replace('["Table 9"]', '["Table 8", "Table 9"]')))
    assert planned(found, "paper").items == ("Table 8", "Table 9")
    assert planned(found, "paper", rows=["Other"], columns=["even"]).items == ("Table 8", "Table 9")
    assert planned(found, "paper", rows=["One"], columns=["even"]).items == ("Table 8",)
    assert planned(read(written(tmp_path)), "paper", rows=["One"]).items == ("Table 9",)


def test_a_later_text_undoes_what_was_put_into_the_one_before() -> None:
    assert list(laid_over({"method": "a", "method.lr": 1}, {"method": "b"})) == ["method.lr", "method"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('paper = "ccfl"', 'paper = "ccfll"', "ccfll"),
        ('measure = "last20"', 'measure = "mean"', "mean"),
        ("[rows.One]\nmethod", "[rows.One]\nmethode", "methode"),
        ('One = ["78.76 ± 2.62", ""]', 'One = ["78.76 ± 2.62"]', "other than 2 numbers for One"),
        ('"1.5 ± 0.1"', '"a lot"', "'a lot'"),
        ('pairs = [["One", "Other"]', 'pairs = [["One", "Third"]', "Third"),
        ('pairs = [["One", "Other"], ["Other", "One"]]', 'of = "One"', "nothing is compared"),
        ("more_than = 1", 'grows_over = ["even", "sqewed"]', "did you mean 'skewed'"),
        ("more_than = 1", 'grows_over = ["even"]', "nothing could grow over even"),
        ("more_than = 1", 'grows_over = ["even", "even"]', "nothing could grow over even"),
        ("more_than = 1", 'grows_over = ["even", "skewed"]\nratio_below = 1', "nothing could grow over even"),
        ("more_than = 1", 'grows_over = ["even", "skewed"]\ncolumns = ["even"]', "nothing could grow over even"),
        ("more_than = 1", "grows_over = true", "in the order in which the difference grows"),
        ('columns = ["even"]', 'columns = ["odd"]', "odd"),
        ("[scales.smoke]", "[scales.smoky]", "smoky"),
        ('seeds = "5"', 'seeds = "many"', "many"),
        ("space.method.lr = [0.1, 0.2]\n", UNEQUAL,
         "2 trials for One, even and 3 trials for Other, even"),
        ('rounds = 1\nspace', 'rounds = 1\ncolumn = "odd"\nspace', "odd"),
        ("tuning.space.method.lr = [0.3, 0.4]", "tuning.rows.One.space.method.momentum = [0.3, 0.4]",
         "4 trials for One, even and 2 trials for Other, even"),
        ('spread = "seeds"', 'spread = "seeds"\nfigures = ["acuracy"]', "did you mean 'accuracy'"),
        ('spread = "seeds"', 'spread = "seeds"\nfigures = ["accuracy against flop"]', "did you mean 'flops'"),
        ('spread = "seeds"', 'spread = "seeds"\nprogram = "pacings"', "did you mean 'pacing'"),
        ("more_than = 1", "more_than = true", "points of percent"),
        ("more_than = 1", "more_then = 1", "did you mean 'more_than'"),
        ("more_than = 1", 'ours = "yes"', "true of a claim that is not the paper's"),
        ("[rows.One]", '[reproduces.shown_by]\n"Table 7" = ["even"]\n[rows.One]', "did you mean 'Table 9'"),
        ("[rows.One]", '[reproduces.shown_by]\n"Table 9" = ["evn"]\n[rows.One]', "did you mean 'even'"),
        ("[rows.One]", '[reproduces.shown_by]\n"Table 9" = "even"\n[rows.One]', "one of which must be run for it"),
        ("[reproduces]", "[reproduce]", "reproduce"),
        ("[rows.One]", "[rows]\nseven = 7\n[rows.One]", "rows that are no tables"),
        ("[paper]\n", "[paper]\nseven = 7\n", "other than 2 numbers for seven"),
        ('columns = ["even"]', "columns = true", 'a list of names, such as ["FedAvg"]'),
        ('columns = ["even"]', 'rows = [["One"]]', 'a list of names, such as ["FedAvg"]'),
        ('columns = ["even"]', "expert_training = 3", "scales.smoke.expert_training that are no tables"),
        ("[scales.smoke]", "[scales]\nquick = 3\n[scales.smoke]", "scales.quick that are no tables"),
        ('"78.76 ± 2.62"', '"78.76 ± -1"', "'78.76 ± -1'"),
        ('"78.76 ± 2.62"', '"nan"', "'nan'"),
        ("more_than = 1", 'of = "One"', "of and pairs"),
        ("more_than = 1", 'against = "One"', "pairs and against"),
        ("more_than = 1", 'falling = "One"', "falling and pairs"),
        ('pairs = [["One", "Other"], ["Other", "One"]]', 'of = "One"\nrising = "Other"', "of and rising"),
        ("space.method.lr = [0.1, 0.2]\n", "rows.One.settings = [1]\n", "tables, each with keys of an experiment"),
        ("space.method.lr = [0.1, 0.2]\n", "space.method.lr = [0.1, 0.2]\nrows.One.spcae = 3\n",
         "did you mean 'space'"),
        ("space.method.lr = [0.1, 0.2]\n", 'rows.One = {space = {rounds = [1]}, settings = [{rounds = 1}]}\n',
         "One is said twice"),
        ("space.method.lr = [0.1, 0.2]\n", "space.method.lr = [2020-01-01]\n", "method.lr"),
        ("[reproduces]", 'name = "../../escaped"\n[reproduces]', "none of which begins with a dot"),
        ("[reproduces]", 'name = "/escaped"\n[reproduces]', "names with slashes between them"),
        ("[rows.One]", '[rows."a\\u0000b"]\nmodel = "mlp"\n[rows.One]', "printable characters"),
        ("[rows.One]", '[rows.""]\nmodel = "mlp"\n[rows.One]', "printable characters"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, GOOD.replace(old, new, 1)))
    assert told in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_all_slips_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("[rows.One]\nmethod", "[rows.One]\nmethode").replace('"1.5 ± 0.1"', '"a lot"')
    with pytest.raises(UserError, match="2 mistakes"):
        read(written(tmp_path, text))


def test_a_file_without_rows_has_nothing_to_run(tmp_path: Path) -> None:
    head = '[reproduces]\npaper = "alt"\nitems = ["Panel (z)"]\ntitle = "Nothing"\n'
    with pytest.raises(UserError, match="own has no rows"):
        read(written(tmp_path, head))
    unknown = read(written(tmp_path, head + 'unknown = "no caption in the text"\n'))
    with pytest.raises(UserError, match="no caption in the text"):
        planned(unknown, "paper")


BARE = """clients = 4
model = "logistic"
rounds = 3
seeds = "0-1"
validation = 0.2
"""
AS_TUNING = (
    BARE.replace('"0-1"', '"10-11"')
    + """
[rows.One]
method = "fedavg(cohort=2)"
[rows.Other]
method = "fedprox(cohort=2)"
[tuning]
search = "random"
trials = 3
seeds = "0-1"
space.method.lr = {low = 0.1, high = 1.0}
rows.Other.space.method.mu = [0.1, 0.2]
"""
)
AS_SWEEP = (
    BARE
    + """
[sweep]
search = "random"
trials = 3
fresh = "10-11"
space.method.lr = {low = 0.1, high = 1.0}
[sweep.methods.One]
method = "fedavg(cohort=2)"
[sweep.methods.Other]
method = "fedprox(cohort=2)"
space.method.mu = [0.1, 0.2]
"""
)


def test_a_search_has_two_names_that_say_the_same(tmp_path: Path) -> None:
    one, other = planned(read(written(tmp_path, AS_TUNING))), planned(read(written(tmp_path, AS_SWEEP)))
    assert [arm.describe() for arm in one.arms.values()] == [arm.describe() for arm in other.arms.values()]
    assert (one.seeds, one.rows, one.columns) == (other.seeds, other.rows, other.columns)
    assert [arm.known() for arm in one.arms.values()] == [arm.known() for arm in other.arms.values()]
    assert [cell.make({}, 0)[0].describe() for cell in one.cells] == [
        cell.make({}, 0)[0].describe() for cell in other.cells
    ]
    assert [cell.called for cell in one.cells] == ["One", "Other"]
    assert [cell.called for cell in other.cells] == ["own/One/best", "own/Other/best"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[sweep]", "[tuning]\nseeds = 3\n[sweep]", "two names of one table"),
        ("[sweep]", "[sweep]\ntrails = 3", "did you mean 'trials'"),
        ("[sweep]", '[sweep]\ncolumn = "even"', "unknown column 'even' in the search"),
        ("[sweep]", "[sweep]\nrows.Third.space.rounds = [1, 2, 3]", "unknown row 'Third' in the search"),
        ('fresh = "10-11"', 'fresh = "1-2"', "seeds [1] are tried and compared"),
        ("trials = 3", "trials = true", "of random and tpe"),
        ("space.method.mu = [0.1, 0.2]", "space = 3", "keys of an experiment, each with a list"),
        ("[sweep.methods.One]", "[sweep.methods]\nThird = 3\n[sweep.methods.One]", "sweep.methods"),
        ("rounds = 3", "roundz = 3", "unknown key 'roundz'"),
        ("[sweep]", "[sweep]\nrows.One.space.rounds = [1, 2, 3]", "One is said twice"),
    ],
)
def test_a_slip_in_a_search_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in AS_SWEEP
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, AS_SWEEP.replace(old, new, 1)))
    assert told in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_keys_in_a_search_hold_for_trials_alone(tmp_path: Path) -> None:
    plan = planned(read(written(tmp_path, AS_SWEEP.replace("trials = 3", "trials = 3\nrounds = 1"))))
    assert plan.arms["One"].make({}, 0)[0].rounds == 1
    assert plan.cell("One", "").make({}, 0)[0].rounds == 3


@pytest.mark.parametrize("line", ["scales = 3", "paper = 'ccfl'", "paper = 3", "rows = 3", "columns = 3", "claims = 3"])
def test_what_is_no_table_at_the_top_is_refused(tmp_path: Path, line: str) -> None:
    head, _, rest = GOOD.partition("[reproduces]")
    rest = rest.partition("[scales.smoke]")[0].partition("[paper]")[0] if "rows" in line else ""
    with pytest.raises(UserError, match=r"own\.toml"):
        read(written(tmp_path, f"{head}{line}\n[reproduces]{rest}" + "[rows.One]\nrounds = 1\n" * ("rows" not in line)))


def test_a_key_that_is_tried_cannot_be_asked_for(tmp_path: Path) -> None:
    study = read(written(tmp_path, AS_TUNING))
    planned(study, settings={"method.cohort": 3}).check()
    with pytest.raises(UserError, match=r"method\.lr = 0\.5 was asked for, and method\.lr is tried"):
        planned(study, settings={"method.lr": 0.5}).check()


def test_what_is_named_twice_is_run_once(tmp_path: Path) -> None:
    plan = planned(read(written(tmp_path, GOOD)), "paper", rows=["One", "One"], columns=["even"] * 2, seeds=(3, 3))
    assert (plan.rows, plan.columns, plan.seeds) == (("One",), ("even",), (3,))


@pytest.mark.parametrize(
    ("row", "column", "told"),
    [("One, Other", "Other, even", "one cell of this name"), ("One", "x" * 300, "at most 177 characters")],
)
def test_a_cell_that_is_called_as_another_or_as_no_run_is_refused(
    tmp_path: Path, row: str, column: str, told: str
) -> None:
    head = GOOD.partition("[reproduces]")[0]
    rows = "".join(f'[rows."{name}"]\n' for name in dict.fromkeys(("One", row)))
    cells = rows + f'[columns.even]\n[columns."{column}"]\n'
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, head + cells))
    assert told in str(caught.value)
