"""Every table and figure of the five papers has a file, each file says something that can be run, and each is tried."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from polyrhythm import __version__
from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.studies.definition import SCALES
from polyrhythm.studies.files.catalogue import catalogue, find, items
from polyrhythm.studies.files.needs import costs, hours
from polyrhythm.studies.page import page
from polyrhythm.studies.page.findings import Findings
from polyrhythm.studies.planning import planned
from polyrhythm.studies.studying import study

NUMBERED = {
    "fedcl": {"table": range(1, 4), "figure": range(1, 60)},
    "client-centric": {"table": range(1, 3), "figure": range(1, 11)},
    "curriculum": {"table": range(1, 6), "figure": range(1, 13)},
    "ccfl": {"table": range(1, 5), "figure": range(1, 11)},
}
PAPERS_COSTS = {"fedcl", "alt", "client-centric", "curriculum", "ccfl"}
ALL = catalogue()
RUN = {name: of for name, of in ALL.items() if not of.unknown}


def test_every_item_of_every_paper_is_covered_once() -> None:
    found = Counter(item for item, _ in items())
    assert [slug for slug, times in found.items() if times > 1] == []
    wanted = {f"{paper}/{kind}-{n}" for paper, kinds in NUMBERED.items() for kind, ns in kinds.items() for n in ns}
    wanted |= {f"alt/panel-{letter}" for letter in "abcd"}
    assert wanted - found.keys() == set()
    ours = ("combinations/", "personal/", "heterogeneity/", "privacy/", "adapters/")
    assert {slug for slug in found if not slug.startswith(ours)} - wanted == set()


def test_an_item_finds_its_file() -> None:
    assert find("ccfl/table-2").name == "ccfl/table-2"
    assert "Figure 22" in find("fedcl/figure-22").items
    with pytest.raises(UserError, match="did you mean 'ccfl/table-2'"):
        find("ccfl/tabel-2")
    with pytest.raises(UserError, match="unknown study 'fedcll'"):
        find("fedcll")


@pytest.mark.parametrize("name", RUN)
def test_a_file_says_what_can_be_run_at_every_scale(name: str) -> None:
    """Names, settings and rows, without the data, which may not be at hand."""
    of = RUN[name]
    assert "smoke" in of.scales
    assert of.title
    assert of.says
    for scale in ("paper", *of.scales):
        assert scale in SCALES
        for cell in planned(of, scale).cells if not of.program else ():
            cell.make.make.configuration(cell.make.fixed, 0)


def test_what_studies_cost_was_counted_for_what_they_are() -> None:
    """`docs/measure_costs.py` was run since rows, columns, seeds or trials changed; tags depend on a file."""
    told = costs()["studies"]
    for name, of in RUN.items():
        if of.paper not in PAPERS_COSTS or of.program or name == "client-centric/table-2":
            assert name not in told
            continue
        plan = planned(of, "paper")
        assert told[name]["runs"] == len(plan.cells) * len(plan.seeds), f"{name}: run docs/measure_costs.py"
        assert told[name]["trials"] == sum(a.many * len(a.search.seeds) for a in plan.arms.values()), name
        assert hours(of) == told[name]["hours"] > 0


def test_a_page_says_what_is_not_the_scale_s_own() -> None:
    of = ALL["ccfl/table-2"]
    whole, quick = planned(of, "paper"), planned(of, "quick", settings={"rounds": 5})
    less = planned(of, "paper", settings={"rounds": 100}, columns=["10 %"])
    elsewhere = planned(ALL["privacy/tags"], "paper", settings={"data.path": "posts.jsonl.gz"})
    for plan, words in (
        (elsewhere, "Scale: paper.\n"),
        (whole, "Scale: paper, the size of the paper's own."),
        (less, "Scale: paper but for `rounds = 100`, 1 of 4 columns."),
        (quick, "Scale: quick; here `rounds = 5`."),
    ):
        text = page.markdown(plan, Findings(), page.made(plan, 0.0), {})
        assert words in text
        assert ("Scaled: " in text) == (plan not in (whole, elsewhere))


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ("0123456789abcdef0123456789abcdef01234567", "polyrhythm {} (commit 01234567), Python"),
        ("0123456789abcdef0123456789abcdef01234567-dirty", "polyrhythm {} (commit 01234567-dirty), Python"),
        ("", "polyrhythm {}, Python"),
    ],
)
def test_a_page_names_the_commit_of_the_code_that_made_it(
    known: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that was installed: a wheel has its commit written down."""
    monkeypatch.setattr(page, "commit", lambda: known)
    plan = planned(ALL["ccfl/table-2"], "quick")
    assert told.format(__version__) in page.markdown(plan, Findings(), page.made(plan, 0.0), {})


def of_each_paper(most: int) -> set[str]:
    """The first files of every paper."""
    found = Counter[str]()
    return {name for name in RUN if found.update([name.partition("/")[0]]) or found[name.partition("/")[0]] <= most}


def slow(name: str) -> bool:
    """Whether only the long suite runs it: `heterogeneity/pays` is two studies with searches of its own."""
    return name not in of_each_paper(2) or name == "heterogeneity/pays"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * slow(n)) for n in RUN])
def test_the_machinery_runs_to_a_page(name: str, tmp_path: Path) -> None:
    plan = planned(RUN[name], "smoke")
    result = study(plan, out=tmp_path, workers=1, output=tmp_path / "pages")
    found, path = result.findings, result.page
    assert path is not None
    text = path.read_text(encoding="utf-8")
    assert not any("has no result" in note for note in found.notes)
    assert found.verdict in text.replace("\\", "")
    assert f"polyrhythm study {name} --scale smoke" in text
    told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert len(told["cells"]) == (0 if RUN[name].program else len(plan.rows) * len(plan.columns))
    made = {entry.name for entry in path.parent.iterdir()}
    assert made <= {path.name, path.with_suffix(".json").name, "pictures"}, (
        "runs belong beside each other, not to pages"
    )
    for picture in found.pictures:
        assert (path.parent / picture.file).read_text(encoding="utf-8").startswith("<svg")


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    plan = planned(ALL["ccfl/table-2"], "smoke")
    for _ in range(2):
        study(plan, out=tmp_path, workers=1)
    runs = Run.all(tmp_path / "studies" / "ccfl" / "table-2" / "smoke")
    assert sorted(run.name for run in runs) == sorted(cell.name for cell in plan.cells)
