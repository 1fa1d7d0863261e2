"""The golden numbers: what small runs of every kind compute, to the last bit, and whether they still do.

    python tests/golden.py --check                # every run, in every way; or those of some names: --check "part prox"
    python tests/golden.py --write                # the same, and holds what it finds
    python tests/golden.py --show "part prox"     # the decisions of a run line by line, to be compared with `diff`

Decisions (who was invited, what they did in what order, what it cost, when) are the same everywhere and are held once.
Weights and metrics follow how a processor and a library round, so they are held for each kind of machine: `--write` on
another kind adds that kind, and changes nothing that is held of others. The few runs whose decisions follow their
numbers are in `golden_runs.FOLLOWS`: theirs are held with the numbers.

Whatever is held may only be changed with an entry under *Results change* in the changelog.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import golden_runs
import polyrhythm as pr
from golden_ways import REAL_TIME, WAYS, Carried, missing

FILE = Path(__file__).with_suffix(".json")
PROBE = "native engine"
_VISIT = (
    *("client", "version", "visit", "status", "fault", "steps", "epochs", "samples", "num_samples", "forward_samples"),
    *("gradient_samples", "bytes_down", "bytes_up", "flops", "forward_flops", "backward_flops", "joules", "started"),
    *("finished", "down_seconds", "compute_seconds", "up_seconds"),
)
_VERSION = (
    *("version", "time", "cohort", "accepted", "dropped", "rate", "staleness_mean", "staleness_max", "client_updates"),
    *("local_steps", "samples", "flops", "bytes_up", "bytes_down", "joules", "compute_seconds", "link_seconds"),
    *("waiting_seconds", "visits", "dropped_visits", "late_visits", "lost_visits", "faults", "utilisation", "fairness"),
)
_MEASURED = ("version", "train_loss", "test", "validation", "train", "clients", "groups", "measures")
_TOTALS = ("version", "time", "visits", "local_steps", "bytes_up", "bytes_down", "joules")
Entry = dict[str, Any]


def decisions(run: pr.Run) -> Iterator[str]:
    """All that a run decided, and what it cost, as lines."""
    visits = run.visits
    for dispatch, row in zip(visits.index, visits[list(_VISIT)].itertuples(index=False), strict=True):
        yield _line("visit", dispatch, *row)
    for row in run.versions:
        yield _line("version", *(row[name] for name in _VERSION))
    for event, row in zip(run.events.index, run.events.itertuples(index=False), strict=True):
        yield _line("event", event, *row)
    for place, row in zip(run.answers.index, run.answers.itertuples(index=False), strict=True):
        yield _line("answer", *place, *row)


def decided(run: pr.Run) -> Entry:
    """The same in short: a digest, and a few totals that say what differs."""
    last = run.versions[-1]
    return {"decisions": _digest(decisions(run)), **{name: last[name] for name in _TOTALS}}


def computed(run: pr.Run) -> Entry:
    """What a run computed: its models, and all that was measured of them."""
    visits = run.visits
    losses = (_line(*row) for row in visits[["loss", "update_norm"]].itertuples())
    measured = (_line(*(row[name] for name in _MEASURED)) for row in run.versions)
    return {
        "engine": run.summary["engine"],
        "model": run.summary["digest"],
        "versions": _digest(row["digest"] for row in run.versions),
        "measured": _digest([*losses, *measured]),
        "test": {name: repr(value) for name, value in sorted((run.versions[-1]["test"] or {}).items())},
    }


def _line(*values: Any) -> str:
    return " ".join(map(_text, values))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(value[name])}" for name in sorted(value)) + "}"
    plain = value.item() if hasattr(value, "item") else value
    return "None" if plain is None or plain != plain else repr(plain)  # a column of numbers has NaN for none


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@functools.cache
def kind() -> str:
    """What numbers follow here: the library, the processor, and the kernels of the native engine."""
    with tempfile.TemporaryDirectory() as folder:
        run = pr.run(
            golden_runs.runs()[PROBE].experiment(rounds=1), execution=golden_runs.runs()[PROBE].execution(), out=folder
        )
    machine, by = run.machine, str(run.machine["computed_by"])
    maker = str(machine["cpu"]).partition(" ")[0]
    own = "" if machine["MKL_CBWR"] == "AUTO,STRICT" else f", MKL_CBWR={machine['MKL_CBWR']}"
    kernels = by if by.startswith("native") else "no native engine"
    return f"torch {run.libraries['torch']}, {maker} {machine['instructions']}, {kernels}{own}"


def read() -> Entry:
    """What is held."""
    return json.loads(FILE.read_text()) if FILE.exists() else {"runs": {}, "kinds": {}}


def write(held: Entry) -> None:
    """Holds it: a line for each run."""

    def lines(entries: Mapping[str, Any], indent: str) -> str:
        each = (f"{indent}{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        return ",\n".join(each)

    kinds = ",\n".join(
        f"    {json.dumps(name)}: {{\n{lines(entries, '      ')}\n    }}" for name, entries in held["kinds"].items()
    )
    FILE.write_text(f'{{\n  "runs": {{\n{lines(held["runs"], "    ")}\n  }},\n  "kinds": {{\n{kinds}\n  }}\n}}\n')


def found(name: str, run: pr.Run) -> tuple[Entry, Entry]:
    """What is to be held of a run everywhere, and on this kind of machine."""
    ways = ["in line", *(way for way, names in golden_runs.WAYS.items() if name in names)]
    everywhere, here = decided(run), computed(run)
    if golden_runs.runs()[name].watches:
        everywhere["read"] = _digest(map(str, golden_runs.READ))
    if golden_runs.runs()[name].follows:
        return {"follows": "numbers", "ways": ways}, {**everywhere, **here}
    return {**everywhere, "ways": ways}, here


def differences(held: Entry, name: str, way: str, run: pr.Run) -> list[str]:
    """Where a run differs from what is held of it, in words; numbers only count where they are held for this kind."""
    everywhere, here = found(name, run)
    pairs = [(held["runs"].get(name, {}), {} if way in REAL_TIME else everywhere)]
    if numbers := held["kinds"].get(kind(), {}).get(name):
        models = {key: here[key] for key in ("model", "versions")}
        pairs.append((numbers, models if way in REAL_TIME else here))
    return [
        f"{name}, {way}: {key} is {value!r}, held is {known.get(key)!r}"
        for known, new in pairs
        for key, value in new.items()
        if known.get(key) != value
    ]


def lacks(way: str) -> str:
    """What a way needs and is not here; else nothing."""
    return "the native engine" if way == "in threads" and "no native engine" in kind() else missing(way)


def carried_out(way: str, names: Iterable[str]) -> Carried:
    """The runs of these names, carried out in that way in a folder of their own."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    with contextlib.ExitStack() as after:
        after.callback(shutil.rmtree, folder, ignore_errors=True)
        yield from WAYS[way](names, folder)


def of_way(way: str, wanted: Collection[str]) -> list[str]:
    """The names of the runs that are carried out in that way, of those that are wanted."""
    every = golden_runs.runs() if way == "in line" else golden_runs.WAYS[way]
    return [name for name in every if name in wanted]


def check(wanted: Collection[str]) -> list[str]:
    """Carries runs out in every way; gives the differences from what is held."""
    held, wrong = read(), list[str]()
    for way in WAYS:
        names = of_way(way, wanted)
        if names and (needed := lacks(way)):
            print(f"left out, {way}: {len(names)} runs, which need {needed}")
            continue
        began = time.monotonic()
        for name, run in carried_out(way, names):
            wrong += differences(held, name, way, run)
        print(f"{way}: {len(names)} runs in {time.monotonic() - began:.0f} s")
    if kind() not in held["kinds"]:
        print(f"models were not compared: nothing is held for {kind()} (--write adds it)")
    return wrong


def rewrite(wanted: Collection[str]) -> list[str]:
    """Holds what runs in line give, here and everywhere; refuses to change what another kind of machine also gave."""
    held = read()
    everywhere, here = dict(held["runs"]), dict(held["kinds"].get(kind(), {}))
    others, wrong = held["kinds"].keys() - {kind()}, list[str]()
    for name, run in carried_out("in line", of_way("in line", wanted)):
        decisions_now, numbers_now = found(name, run)
        known = everywhere.get(name, {})
        changed = [key for key in decisions_now.keys() & known.keys() - {"ways"} if decisions_now[key] != known[key]]
        if others and changed:
            wrong.append(f"{name}: {', '.join(sorted(changed))} differ from what {len(others)} other kinds gave")
        if known and (known, here.get(name, numbers_now)) != (decisions_now, numbers_now):
            print(f"no longer what was held: {name}")
        everywhere[name], here[name] = decisions_now, numbers_now
    if not wrong:
        order = list(golden_runs.runs())
        kinds = held["kinds"] | {kind(): {name: here[name] for name in order if name in here}}
        write({"runs": {name: everywhere[name] for name in order if name in everywhere}, "kinds": kinds})
    return wrong


def main() -> int:
    """Checks or holds; says what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    task = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "write", "show"):
        task.add_argument(f"--{name}", nargs="*", metavar="NAME")
    given = parser.parse_args()
    names = next(names for names in (given.check, given.write, given.show) if names is not None)
    if unknown := set(names) - golden_runs.runs().keys():
        parser.error(f"no golden run is called {', '.join(sorted(unknown))}")
    wanted = names or list(golden_runs.runs())
    if given.show is not None:
        for name, run in carried_out("in line", wanted):
            print(f"# {name}", *decisions(run), sep="\n")
        return 0
    wrong = (rewrite(wanted) if given.write is not None else []) or check(wanted)
    print(*wrong, f"{len(wrong)} differences, on {kind()}", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
