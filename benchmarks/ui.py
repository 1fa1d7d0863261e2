"""How long the dashboard's pages take: a list of 1,000 runs, and the page of one with 10,000 rounds.

The runs are made up, and recorded as real ones are. A page is timed in Chromium, by its own clock, from the click to
what its visitor came for: the rows, or the first figure; keys in the search box are timed from the stroke to the
layout. After the pages comes a report, as a whole command. Each load is in a fresh context, so the browser has kept
nothing; the first of them is the server's first, too, and the median of all follows. One JSON line for each page.

    python benchmarks/ui.py
    python benchmarks/ui.py --folder DIR       keeps the database there, to look at it
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from polyrhythm.runs.database import FILE
from polyrhythm.runs.database_writer import Writer
from polyrhythm.runs.records import VersionRecord, VisitRecord

METHODS = ("fedavg(cohort=10)", "fedprox(mu=0.01)", "scaffold(cohort=10)", "fedcl", "alt", "ccfl")
CLIENTS, COHORT, BYTES = 100, 10, 220_000


def version(number: int, rate: float) -> VersionRecord:
    """A version of a run that learns, with some noise."""
    accuracy = 0.95 - 0.85 * math.exp(-number / rate) + 0.01 * math.sin(7.3 * number)
    visits = COHORT * number
    return VersionRecord(
        **{"version": number, "time": 2.5 * number, "wall": 0.01 * number, "rate": 0.1, "train_loss": 1.2 - accuracy},
        **{"cohort": COHORT, "accepted": COHORT, "dropped": 0, "validation": None, "train": None, "clients": None},
        test={"loss": 1.3 - accuracy, "accuracy": accuracy},
        **{"client_updates": visits, "visits": visits, "local_steps": 20 * visits, "samples": 200 * visits},
        **{"flops": 10**7 * visits, "bytes_up": BYTES * visits, "bytes_down": BYTES * visits, "joules": 0.1 * visits},
        **{"digest": f"{number:064x}", "utilisation": 0.2 if number else None, "fairness": 0.9 if number else None},
    )


def visit(number: int) -> VisitRecord:
    """One of the visits of a run."""
    made = number // COHORT
    return VisitRecord(
        **{"dispatch": number, "client": number * 37 % CLIENTS, "version": made, "visit": number // CLIENTS},
        **{
            "status": "trained",
            "steps": 20,
            "epochs": 2.0,
            "samples": 200,
            "num_samples": 100,
            "loss": 0.5,
            "update_norm": 1.0,
        },
        **{"bytes_down": BYTES, "bytes_up": BYTES, "flops": 10**7, "started": 2.5 * made, "finished": 2.5 * made + 1},
    )


def record(folder: Path, number: int, rounds: int, *, visits: bool, status: str = "finished") -> str:
    """Records a made-up run; gives its id."""
    run_id = f"20260101-{number // 3600:02}{number // 60 % 60:02}{number % 60:02}-{number:04}"
    method, seed = METHODS[number // 3 % len(METHODS)], number % 3
    config = {
        "data": "digits",
        "clients": CLIENTS,
        "method": method,
        "rounds": rounds,
        "seed": seed,
        "batch": number // 18,
    }
    started = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000+00:00"
    about = {
        "name": f"night {number}" if number % 4 else "",
        "recipe": method.partition("(")[0],
        "recipe_digest": "0" * 64,
    }
    writer = Writer(folder)
    writer.start(
        {"run_id": run_id, **about, "status": "running", "started": started, "seed": seed, "rounds": rounds}
        | {"headline": "accuracy", "parameters": 55210, "clients": CLIENTS, "config": config, "config_digest": "0" * 64}
        | {"notices": [], "libraries": {"python": "3.11"}, "machine": {"cores": 2}}
    )
    (folder / run_id).mkdir()
    last = version(0, 1.0)
    for made in range(rounds + 1):
        last = version(made, 2.0 + rounds / (4 + number % 5))
        writer.add(last)
        for dispatch in range(COHORT * made, COHORT * (made + 1)) if visits and made < rounds else ():
            writer.add(visit(dispatch))
    accuracy = (last.test or {})["accuracy"]
    writer.finish(status=status, reason="all rounds made", ended=started, summary={"final_accuracy": accuracy})
    return run_id


def fill(folder: Path, runs: int, rounds: int, long: int) -> str:
    """Many runs, and one with many rounds, whose id is given."""
    for number in range(runs - 1):
        record(folder, number, rounds, visits=False)
    return record(folder, runs - 1, long, visits=True)


def served(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A dashboard of a folder, and its address."""
    command = [sys.executable, "-m", "polyrhythm", "ui", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+", line):
            return process, found[0].rstrip("/")
    raise RuntimeError("the dashboard did not start")


def timed(browser: Any, address: str, ready: str) -> float:
    """Seconds from asking for a page until it has shown something, by its own clock."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    took = page.wait_for_selector(f"{ready}[data-shown]", state="attached").get_attribute("data-shown")
    context.close()
    return float(took) / 1000


KEYS = """async () => {
  const box = document.querySelector('#search'), took = [];
  for (const text of ['s', 'sc', 'sca', 'scaf', 'scaff', 'scaffold', '', 'n', 'ni', 'nig', 'nigh', 'night', '']) {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const begun = performance.now();
    box.value = text;
    box.dispatchEvent(new Event('input'));
    document.body.offsetHeight;
    took.push(performance.now() - begun);
  }
  return took;
}"""
"""Types into the search box; gives the milliseconds of each key until the list lies as it will be painted."""


def typed(browser: Any, address: str) -> list[float]:
    """Seconds of each key in the search box of a list."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-shown]", state="attached")
    took = page.evaluate(KEYS)
    context.close()
    return [value / 1000 for value in took]


def measure(folder: Path, run_id: str, runs: int, repeats: int) -> None:
    """Prints the times."""
    from playwright.sync_api import sync_playwright

    process, address = served(folder)
    try:
        time.sleep(5)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
            pages = {
                f"list of {runs:,} runs": (address, "html"),
                "the long run, its first figure": (f"{address}/run?run={run_id}", "#figure-accuracy"),
                "the long run, how it stands": (f"{address}/run?run={run_id}", "html"),
            }
            timed(browser, address, "html")  # Chromium's own start
            for name, (page, ready) in pages.items():
                times = [timed(browser, page, ready) for _ in range(repeats)]
                line = {"page": name, "first_seconds": times[0], "median_seconds": statistics.median(times)}
                print(
                    json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}), flush=True
                )
            keys = [key for _ in range(repeats) for key in typed(browser, address)]
            line = {"page": f"a key in the search box of {runs:,} runs", "median_seconds": statistics.median(keys)}
            line["longest_of_20"] = statistics.quantiles(keys, n=20)[-1]
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)
            browser.close()
    finally:
        process.terminate()
        process.wait()


def report(repeats: int) -> None:
    """Prints the seconds of `polyrhythm report` as a whole command, of 20 runs of six methods, 100 rounds each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(20):
            record(folder, number, 100, visits=True)
        command = [
            sys.executable,
            "-m",
            "polyrhythm",
            "report",
            "--out",
            str(folder),
            "-o",
            str(folder / "report.html"),
        ]
        wall, processor = list[float](), list[float]()
        for _ in range(repeats):
            begun, used = time.perf_counter(), os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            now = os.times()
            wall.append(time.perf_counter() - begun)
            processor.append(now.children_user + now.children_system - used.children_user - used.children_system)
        line = {"page": "report of 20 runs", "first_seconds": wall[0], "median_seconds": statistics.median(wall)}
        line["median_processor_seconds"] = statistics.median(processor)
        print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()}), flush=True)


def main() -> None:
    """Makes the runs and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100, help="of each run")
    parser.add_argument("--long", type=int, default=10_000, help="rounds of the long run")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        long = f"20260101-{(chosen.runs - 1) // 3600:02}"
        if not (folder / FILE).exists():
            long = fill(folder, chosen.runs, chosen.rounds, chosen.long)
        else:
            long = max(path.name for path in folder.iterdir() if path.name.startswith(long))
        size = (folder / FILE).stat().st_size
        print(
            json.dumps({"runs": chosen.runs, "rounds": chosen.rounds, "long": chosen.long, "bytes": size}), flush=True
        )
        measure(folder, long, chosen.runs, chosen.repeats)
    report(min(3, chosen.repeats))


if __name__ == "__main__":
    main()
