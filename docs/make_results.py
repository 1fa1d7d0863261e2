"""Writes docs/results/index.md, and the table of results in README.md, from the pages that `polyrhythm study` made.

python docs/make_results.py

A test compares both with what this gives, so run it whenever a page was added or made again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.report.markdown import escaped
from polyrhythm.studies.definition import PAPERS, SHORT, Study
from polyrhythm.studies.files.catalogue import catalogue
from polyrhythm.studies.files.needs import costs, duration, in_words

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
REPRODUCED = ("fedcl", "alt", "client-centric", "curriculum", "ccfl")
"""The papers of which every table and figure has a study."""
COSTS = costs()
"""What studies take at the paper's own size, by `docs/measure_costs.py`."""
BEGIN = "<!-- made by docs/make_results.py -->"
END = "<!-- until here -->"


def found() -> list[Mapping[str, Any]]:
    """What the pages say, as data, in the order of the papers."""
    pages = [json.loads(path.read_text(encoding="utf-8")) | {"page": path.stem} for path in RESULTS.glob("*.json")]
    order = list(PAPERS)
    return sorted(pages, key=lambda page: (order.index(page["paper"]), _number(page["items"][0]), page["page"]))


def _number(item: str) -> tuple[bool, int]:
    digits = "".join(sign for sign in item if sign.isdigit())
    return not item.startswith("Table"), int(digits or 0)


def index(pages: Sequence[Mapping[str, Any]]) -> str:
    """The page that lists them all."""
    return "\n".join(_index(pages)).rstrip("\n") + "\n"


def _index(pages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Tables and figures of the papers, reproduced"
    yield ""
    yield (
        "Each line is a page with the paper's numbers beside ours, what it claims and what came out, what it cost, and "
        "the command that made it. [How to make one](../studies.md), and what the verdicts mean. What nobody has run "
        'yet stands among them. Claims "of ours" are none of the paper and are counted apart. Made by '
        "`python docs/make_results.py` from the pages and the studies."
    )
    yield ""
    yield (
        "**At its own size** is what the paper's whole experiment takes, and **quick** that scale, on one core of "
        f"{escaped(COSTS['machine'])}: the measured time of a sample of each network, times the samples of all rows, "
        f"columns, seeds and trials (`python docs/measure_costs.py`, {COSTS['date']}; "
        "[by network](#what-a-sample-takes))."
    )
    yield from _reproduced(pages)
    for paper, words in PAPERS.items():
        own = [page for page in pages if page["paper"] == paper]
        if paper in REPRODUCED or not own:
            continue
        yield from ("", f"## {escaped(words)}", "")
        yield "| item | what | scale | scaled | seeds | verdict |"
        yield "| --- | --- | --- | --- | ---: | --- |"
        for page in own:
            yield f"| {_items(page)} | {_linked(page)} | {_how(page)} | {escaped(page['verdict'] or '–')} |"
    yield from _times()


def _reproduced(pages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One table of every table and figure of the papers: its page, or what keeps it away."""
    yield from ("", "## Every table and figure of the five papers", "")
    yield "| paper | item | what | as it was run | verdict | at its own size |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for paper in REPRODUCED:
        own = [page for page in pages if page["paper"] == paper]
        there = {item for page in own for item in page["items"]}
        left = [(by, [i for i in by.items if i not in there]) for by in catalogue().values() if by.paper == paper]
        lines = [(_place(page["items"]), _line_of(page)) for page in own]
        lines += [(_place(missing), _line_without(study, missing)) for study, missing in left if missing]
        for _, line in sorted(lines):
            yield f"| {escaped(SHORT[paper])} | {line} |"


def _place(items: Sequence[str]) -> tuple[bool, int, str]:
    return (*_number(items[0]), items[0])


def _line_of(page: Mapping[str, Any]) -> str:
    """What has a page."""
    found, scaled, seeds = COSTS["studies"].get(page["name"]), _scaled(page["page"]), len(page["seeds"])
    run = f"{page['scale']}, {seeds} seed{'s' * (seeds > 1)}" + (f": {scaled}" if scaled else "")
    cost = "–" if found is None else duration(found["hours"])
    return f"{_briefly(page['items'])} | {_linked(page)} | {run} | {escaped(page['verdict'] or '–')} | {cost}"


def _line_without(study: Study, missing: Sequence[str]) -> str:
    """What nobody has run and committed yet, and what it waits for."""
    made = "–" if study.unknown else f"not yet: `polyrhythm study {study.name}`"
    return f"{_briefly(missing)} | {escaped(study.title)} | {made} | – | {escaped(_what_it_takes(study))}"


def _briefly(items: Sequence[str]) -> str:
    """Several of a kind with its name once: "Figures 2, 4, 20"."""
    kinds: dict[str, list[str]] = {}
    for item in items:
        kind, _, number = item.partition(" ")
        kinds.setdefault(kind, []).append(number)
    return escaped(", ".join(f"{kind}{'s' * (len(of) > 1)} {', '.join(of)}" for kind, of in kinds.items()))


def _linked(page: Mapping[str, Any]) -> str:
    return f"[{escaped(page['title'])}]({page['page']}.md)"


def _how(page: Mapping[str, Any]) -> str:
    """At which scale it was run, with what in place of the paper's, and over how many seeds."""
    return f"{page['scale']} | {_scaled(page['page']) or '–'} | {len(page['seeds'])}"


def _scaled(page: str) -> str:
    """What a page says that it has in place of the paper's."""
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(r"^- Scaled: (.*)\.$", text, re.MULTILINE)
    return "" if found is None else found[1].replace("|", "\\|")


def _times() -> Iterator[str]:
    """What the costs go by: a line for each data set and network."""
    yield from ("", "## What a sample takes", "")
    yield (
        "Milliseconds a sample in training, measured as `polyrhythm check` does it, on one thread with other programs "
        "on the other core, in batches as the papers have them; ResNet-50's is of a single first step. What a recipe "
        "computes beside its steps, or skips, is not in it, and a test sample counts as a third. "
        f"`{COSTS['command']}`, {COSTS['date']}."
    )
    yield ""
    yield "| data | network | ms a sample |"
    yield "| --- | --- | ---: |"
    for one in COSTS["kinds"]:
        yield f"| {escaped(one['data'])} | `{one['model']}` | {1e3 * one['seconds_per_sample']:.3g} |"


def _what_it_takes(study: Study) -> str:
    found = COSTS["studies"].get(study.name)
    if study.unknown or found is None:
        return study.unknown or in_words(study, everywhere=True) or "somebody who runs it"
    quick = f", quick {duration(found['quick_hours'])}" if "quick_hours" in found else ""
    return f"{duration(found['hours'])}{quick}"


def _items(page: Mapping[str, Any]) -> str:
    return escaped(", ".join(page["items"]))


def table(pages: Sequence[Mapping[str, Any]]) -> str:
    """The table of the README: how much of each paper was tried, and how much of it came out, where runs are over."""
    columns = []
    for paper in PAPERS:
        own = [page for page in pages if page["paper"] == paper and not page["command"].endswith("--so-far")]
        if own:
            verdicts = [claim["verdict"] for page in own for claim in page["claims"] if not claim.get("ours")]
            average = verdicts.count("holds on average")
            hold = sum(verdict.startswith("holds") for verdict in verdicts) - average
            whole = [page for page in own if page["scale"] == "paper"]  # with fewer rounds none can be as high
            near, compared = (sum(counted) for counted in zip((0, 0), *map(_numbers, whole), strict=True))
            numbers = f"{near} of {compared}" if compared else "–"
            claims = f"{hold} of {len(verdicts)}" + (f", {average} on average only" if average else "")
            columns.append((SHORT[paper], "---:", numbers, claims))
    heads = ("", "---", "numbers within spread, at the paper's size", "claims that hold, at any")
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(heads, *columns, strict=True))


def _numbers(page: Mapping[str, Any]) -> tuple[int, int]:
    """How many of a page's numbers are within the paper's spread, of how many that are compared."""
    found = re.search(r"(\d+) of (\d+) numbers within spread", page["verdict"] or "")
    return (int(found[1]), int(found[2])) if found else (0, 0)


def readme(text: str, pages: Sequence[Mapping[str, Any]]) -> str:
    """README.md with that table between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(pages)}\n{END}{after}"


def main() -> None:
    """Writes both."""
    pages = found()
    (RESULTS / "index.md").write_text(index(pages), encoding="utf-8")
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8"), pages), encoding="utf-8")


if __name__ == "__main__":
    main()
