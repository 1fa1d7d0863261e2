"""Reports: numbers are those of the record, text is only text, and every language takes it."""

from __future__ import annotations

import html
import html.parser
import math
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from scipy import stats

import polyrhythm as pr
from polyrhythm import report
from polyrhythm.base.errors import UserError
from polyrhythm.report import latex, markdown
from polyrhythm.results import Run, result_tables
from polyrhythm.results.tables import Table, amounts, signed
from polyrhythm.runs.paired import difference, student_t
from polyrhythm.runs.result_rule import READINGS, read
from small import experiment, federation

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`$\\input{x}$`&%#_^~{} ]](x) *b* 中 \u2028"
EMPTY = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, three seeds each, and validation data; the second one has a name that means harm."""
    out = tmp_path_factory.mktemp("reported")
    for name, epochs in (("plain", 1), (NASTY, 3)):
        for seed in range(3):
            recipe = pr.fedavg(cohort=2, epochs=epochs, batch=5, lr=0.03)
            held = federation(validation=0.2)
            pr.run(experiment(recipe=recipe, seed=seed, rounds=25, name=name, federation=held), out=out)
    return out


class Page(NamedTuple):
    """A page that was written, and what was told meanwhile."""

    text: str
    told: list[tuple[int, int]]


@pytest.fixture(scope="module")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page on all of them, written once: its figures take seconds."""
    heard: list[tuple[int, int]] = []
    file = tmp_path_factory.mktemp("page") / "report.html"
    written = report.write(folder, file, told=lambda done, of: heard.append((done, of)))
    assert written == file
    return Page(written.read_text(), heard)


class Tags(html.parser.HTMLParser):
    """Every tag of a page with its attributes, and whether all of them are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 101])
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.95, 0.999])
def test_students_t_is_scipys(level: float, freedom: int) -> None:
    assert student_t(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-9)


def test_an_interval_is_that_of_a_paired_t_test() -> None:
    ours, others = [0.91, 0.95, 0.93, 0.97], [0.90, 0.91, 0.94, 0.92]
    found = difference([a - b for a, b in zip(ours, others, strict=True)], 0.9)
    expected = stats.ttest_rel(ours, others).confidence_interval(0.9)
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert found.n == 4


def test_a_single_pair_has_no_interval_and_none_has_nothing() -> None:
    one = difference([0.5])
    assert (one.mean, one.low, one.high, one.n) == (0.5, None, None, 1)
    assert difference([]).mean is None


def test_seeds_are_paired_and_not_mixed(folder: Path) -> None:
    found = pr.compare(folder)
    base, other = found.methods
    for reading in READINGS:
        ours, theirs = (found.read(name, reading) for name in (other, base))
        expected = stats.ttest_rel([ours[s] for s in range(3)], [theirs[s] for s in range(3)])
        given = found.differences(reading=reading)[other]
        assert given.n == 3
        if given.sd:
            assert given.low == pytest.approx(expected.confidence_interval(0.95).low)


def test_only_seeds_that_both_have_are_pairs(tmp_path: Path) -> None:
    for epochs, seeds in ((1, (0, 1)), (2, (1, 2))):
        for seed in seeds:
            recipe = pr.fedavg(cohort=2, epochs=epochs, batch=5)
            pr.run(experiment(recipe=recipe, seed=seed, rounds=2), out=tmp_path)
    (given,) = pr.compare(tmp_path).differences().values()
    assert (given.n, given.low) == (1, None)
    text = report.write(tmp_path, tmp_path / "r.md").read_text()
    assert "A single pair, or pairs that all differ by the same, have no interval" in text


@pytest.mark.parametrize(("reading", "field"), [("final", "final"), ("best", "best"), ("last20", "last20")])
def test_readings_are_those_of_the_summary(folder: Path, reading: Any, field: str) -> None:
    field = {"final": "final_accuracy", "best": "best_accuracy", "last20": "last20_mean"}[field]
    for members in pr.compare(folder).methods.values():
        for run in members:
            assert read(run.versions, run.headline, reading) == pytest.approx(run.summary[field])


def test_a_diverged_run_has_no_last_20() -> None:
    rows = [
        {"version": v, "test": {"accuracy": a}, "validation": None, "client_updates": v}
        for v, a in ((1, 0.5), (2, math.nan))
    ]
    assert read(rows, "accuracy", "last20") is None
    assert read(rows, "accuracy", "final") is None
    assert read(rows, "accuracy", "best") == 0.5


def test_the_page_is_well_formed_and_nothing_in_it_is_markup_of_a_run(page: Page) -> None:
    text = page.text
    tags = Tags(text).found
    assert not [
        tag for tag, _ in tags if tag in ("script", "iframe", "object", "embed", "form", "link") and tag != "link"
    ]
    assert not [attrs for _, attrs in tags for name in attrs if name.startswith("on") or name == "style"]
    sources = [v for _, attrs in tags for k, v in attrs.items() if k in ("src", "srcset", "href") and v is not None]
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "&lt;script&gt;alert(1)" in text
    policy = next(attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


def test_the_page_has_landmarks_headings_and_captions(page: Page) -> None:
    tags = Tags(page.text).found
    names = [tag for tag, _ in tags]
    assert names.count("h1") == names.count("main") == names.count("header") == names.count("footer") == 1
    assert names.count("caption") == names.count("table")
    assert all(attrs.get("scope") for tag, attrs in tags if tag == "th")
    assert all(attrs.get("alt") for tag, attrs in tags if tag == "img")
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {v[1:] for _, attrs in tags if (v := attrs.get("href")) and v.startswith("#")} <= set(ids)


def test_every_language_begins_with_the_sentence_that_sums_up(folder: Path, page: Page, tmp_path: Path) -> None:
    told = pr.compare(folder).verdict
    assert "ends highest, final accuracy" in told
    assert f'<p class="verdict">{html.escape(told, quote=False)[:9]}' in page.text
    assert page.text.index('class="verdict"') < page.text.index("<nav")
    assert markdown.escaped(told) in report.write(folder, tmp_path / "r.md").read_text()
    assert f"% {latex.escaped(told)}" in report.write(folder, tmp_path / "r.tex").read_text()


def test_it_says_how_many_figures_are_drawn(page: Page) -> None:
    heard = page.told
    assert heard == [(done, len(heard) - 1) for done in range(len(heard))]
    assert len(heard) > 5


def test_a_report_can_be_of_the_values_of_a_setting(folder: Path, tmp_path: Path) -> None:
    text = report.write(folder, tmp_path / "r.md", group_by="recipe.work.epochs", baseline="epochs 3").read_text()
    assert "| epochs 1 | 3 |" in text
    assert "to epochs 3, paired by seed" in text


def test_of_rows_that_pool_methods_each_is_run_again_and_nothing_is_called_shared(tmp_path: Path) -> None:
    for epochs in (1, 2):
        for batch in (5, 10):
            recipe = pr.fedavg(cohort=2, epochs=epochs, batch=batch)
            pr.run(experiment(recipe=recipe, rounds=2), out=tmp_path)
    found = report.contents(Run.all(tmp_path), group_by="recipe.work.epochs")
    assert len(found.recipes) == 4
    (common,) = (one for section in found.sections for one in section.tables if one.name == "common")
    assert dict(common.rows)["recipe.batch"] == "5, 10"  # in each row, and so no difference between them
    assert any("also differ in recipe.batch" in notice for notice in found.notices)


def test_a_page_of_small_runs_is_small(page: Page) -> None:
    assert len(page.text.encode()) < 3e6


def test_markdown_tables_keep_their_columns(folder: Path, tmp_path: Path) -> None:
    lines = report.write(folder, tmp_path / "report.md").read_text().split("\n")
    heads = [i for i, line in enumerate(lines) if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert len(heads) >= 6
    for i in heads:
        columns = lines[i].count("|")
        rows = [i - 1, *range(i + 1, next(j for j in range(i + 1, len(lines)) if not lines[j]))]
        assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[row])) for row in rows} == {columns}
    assert not any("<script" in line.replace("\\<", "") for line in lines if line.startswith("|"))


def test_a_goal_is_what_every_run_reached_and_no_initial_model_had(folder: Path, tmp_path: Path) -> None:
    def goal(*runs: list[float]) -> float | None:
        rows = [[{"version": v, "test": {"accuracy": a}} for v, a in enumerate(run)] for run in runs]
        return result_tables.goal(SimpleNamespace(versions={"m": rows}, headline="accuracy"), "test")  # type: ignore[arg-type]

    assert goal([0.1, 0.86, 0.7], [0.2, 0.93]) == 0.85
    assert goal([0.1, 0.15]) == 0.15
    assert goal([0.1, 0.86], [0.86, 0.93]) is None
    assert goal([0.1, 0.86], []) is None
    assert "was 0.123 for" in report.write(folder, tmp_path / "r.md", to=0.123).read_text()


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("report.docx", {}, "cannot write a report"),
        ("report.html", {"baseline": "nobody"}, "unknown method"),
        ("no/such/report.md", {}, "cannot be written"),
        ("report.md", {"level": 1.5}, "level = 1.5"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path, path: str, options: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        report.write(folder, tmp_path / path, **options)


def test_validation_that_nobody_has_is_refused(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    with pytest.raises(UserError, match="validation"):
        report.write([run], tmp_path / "r.md", on="validation")
    assert "chosen by the test set, which flatters it" in report.write([run], tmp_path / "r.md").read_text()


def test_the_command_takes_names_and_says_where_it_wrote(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyrhythm.cli import main

    file = tmp_path / "r.md"
    monkeypatch.setattr(sys, "argv", ["polyrhythm", "report", "plain", "--out", str(folder), "-o", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("3 runs reported in")
    text = file.read_text()
    assert text.startswith("# plain\n")
    assert "Difference in" not in text  # there is nothing to compare it with


def test_unfinished_runs_and_other_versions_are_told_first(folder: Path) -> None:
    runs = [run for members in pr.compare(folder).methods.values() for run in members]
    runs[0]._known = {**runs[0]._known, "status": "failed", "reason": "a <b>bad</b> day"}
    runs[1]._known = {**runs[1]._known, "libraries": {**runs[1].libraries, "torch": "0.0"}}
    told = "\n".join(report.contents(runs).notices)
    assert "is failed" in told
    assert "a <b>bad</b> day" in told
    assert "not all runs had the same libraries: torch" in told


def test_the_experiment_file_is_one(tmp_path: Path) -> None:
    from polyrhythm.cli import running
    from polyrhythm.config import assembly, configuration

    written = configuration.configure(None, {"rounds": 1, "clients": 4, "out": str(tmp_path), "seeds": "0-1"}, [])
    running.run_all(written, as_json=True)
    (recipe,) = report.contents(pr.compare(tmp_path).methods["fedavg"]).recipes
    assert tomllib.loads(recipe.text)["seeds"] == [0, 1]
    file = tmp_path / "again.toml"
    file.write_text(recipe.text)
    again = list(assembly.assemble(configuration.configure(file, {}, [])))
    assert [e.recipe.digest for e in again] == [e.recipe.digest for e in assembly.assemble(written)]
    assert [e.seed for e in again] == [0, 1]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles(folder: Path, tmp_path: Path) -> None:
    report.write(folder, tmp_path / "tables.tex")
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs,textcomp,array,graphicx,longtable}"
        "\\begin{document}\\input{tables}\\end{document}"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_latex_without_an_engine_is_balanced(folder: Path, tmp_path: Path) -> None:
    text = report.write(folder, tmp_path / "tables.tex").read_text()
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert text.count("\\begin{table}") == text.count("\\end{table}") >= 3
    assert text.count("\\begin{longtable}") == text.count("\\end{longtable}}") == text.count("{\\footnotesize") == 1
    assert text.count("\\resizebox{\\textwidth}{!}{%") == text.count("\\end{tabular}}")
    assert "\\input{x}" not in text.replace("\\textbackslash{}input", "")
    assert text.isascii() or set(filter(lambda c: not c.isascii(), text)) <= set(map(chr, range(0xC0, 0x100)))


def wide(rows: int, columns: int, cell: str, head: str = "cost") -> Table:
    names = [f"fedbuff(concurrency={i}, buffer=3)" for i in range(max(rows, columns))]
    if head == "cost":
        return Table(
            name="costs",
            caption="What.",
            head=(head, *names[:columns]),
            rows=((("energy (J)", *[cell] * columns),) * rows),
        )
    body = tuple((name, *[cell] * columns) for name in names[:rows])
    return Table(name="results", caption="What.", head=(head, *["final"] * columns), rows=body)


@pytest.mark.parametrize(("head", "columns"), [("cost", 7), ("method", 6)])
def test_a_latex_table_is_made_narrower_before_it_is_shrunk(head: str, columns: int) -> None:
    """Seven methods of 32 letters and deviations would be three times as wide as the text: none is shrunk by half."""
    given = wide(7, columns, "19,660 ± 475", head)
    assert latex.width(given) > 1.7 * latex.TEXT_WIDTH
    text = "\n".join(latex.table(given))
    assert r"\resizebox{\textwidth}{!}{%" in text
    assert ("(7) fedbuff(concurrency=6, buffer=3)." in text) is (head == "cost")
    assert r"\shortstack[r]{19,660 \\ $\pm$ 475}" in text
    assert latex.width(latex._narrower(given)) < 1.6 * latex.TEXT_WIDTH


def test_a_latex_table_that_fits_is_left_as_it_is() -> None:
    given = wide(2, 2, "0.5", "method")
    text = "\n".join(latex.table(given))
    assert "resizebox" not in text
    assert "shortstack" not in text
    assert "fedbuff(concurrency=0, buffer=3) & 0.5" in text


@pytest.mark.parametrize("methods", [2, 6])
def test_settings_in_latex_share_the_width_and_go_on_over_pages(methods: int) -> None:
    head = ("setting", *(f"m{i}" for i in range(methods)))
    rows = ((("recipe.participation.cohort", *["5"] * (methods - 1), "6"),)) * 90
    text = "\n".join(latex.words(Table(name="settings", caption="C.", head=head, rows=rows, code=True, numbers=False)))
    shares = [float(share) for share in re.findall(r"\\dimexpr ([\d.]+)\\textwidth", text)]
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    assert len(shares) == (3 if methods == 2 else 2)
    assert r"recipe.\allowbreak{}participation.\allowbreak{}cohort & 5" in text
    if methods == 6:
        assert "& 5; 6 (6) " in text
    assert r"\endhead" in text


def test_texts_are_escaped_whatever_they_hold() -> None:
    assert latex.escaped("a_b & 5% {x}") == r"a\_b \& 5\% \{x\}"
    assert latex.escaped("中") == "{[}U+4E2D{]}"
    assert markdown.escaped("1. a | b") == r"1\. a \| b"
    assert markdown.escaped("0.95") == "0.95"
    assert markdown.escaped("a\nb\x00") == "a b"


def test_numbers_read_as_people_write_them() -> None:
    assert signed(-0.00001, digits=4) == "0.0000"
    assert signed(-0.5, digits=1) == "−0.5"
    assert amounts({"mean": 38437.3, "sd": 686.2}) == "38,437 ± 686"
    assert amounts({"mean": 60.0, "sd": 0.0}) == "60"
    assert amounts({"mean": None, "sd": None}) == "–"
    assert amounts({"mean": 0.3, "sd": 5e-17}, factor=100) == "30"  # equal but for rounding


def test_reprs_in_a_notebook_are_small_and_escaped(folder: Path) -> None:
    found = pr.compare(folder)
    for shown in (found, *(members[0] for members in found.methods.values())):
        text = shown._repr_html_()
        tags = Tags(text).found
        assert not [tag for tag, _ in tags if tag in ("script", "img")]
        assert len(text) < 20_000
    assert "&lt;script&gt;" in found._repr_html_()
