"""Every command, as a person, a pipe or a program meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyrhythm.results import Run
from terminal import Command

QUICK = ("--rounds", "3", "--model", "logistic")
FIELDS = {
    *("run_id", "rounds", "final_accuracy", "best_accuracy", "last20_mean", "last20_sd", "client_updates"),
    *("local_steps", "samples", "flops", "bytes_up", "bytes_down", "wall_seconds", "digest"),
    *("forward_flops", "backward_flops", "joules", "virtual_seconds", "compute_seconds", "link_seconds"),
    *("waiting_seconds", "utilisation", "fairness", "visits", "dropped_visits", "late_visits", "lost_visits"),
    *("faults", "worker_deaths"),
}


def test_a_run_prints_its_plan_curve_and_result(polyrhythm: Command, tmp_path: Path) -> None:
    found = polyrhythm("run", *QUICK, "--out", str(tmp_path), "--name", "first")
    assert found.code == 0
    assert found.err == ""
    for part in ("digits", "dirichlet(alpha=0.3)", "fedavg", "test accuracy", "final accuracy", "polyrhythm show"):
        assert part in found.out
    assert "classification: 10 classes, judged by accuracy" in found.out
    assert Run.open("first", tmp_path).status == "finished"


def test_json_is_one_line_with_every_field(polyrhythm: Command, tmp_path: Path) -> None:
    found = polyrhythm("run", *QUICK, "--out", str(tmp_path), "--json", "--clients", "5")
    line, rest = found.out.split("\n")
    summary = json.loads(line)
    assert rest == ""
    assert set(summary) >= FIELDS
    assert "note: cohort 10, but 5 clients hold data" in found.err
    assert summary["digest"] == Run.open(summary["run_id"], tmp_path).summary["digest"]


def test_the_same_experiment_in_three_forms_has_one_digest(polyrhythm: Command, tmp_path: Path) -> None:
    method = "fedprox(mu=0.1, cohort=5) | server_momentum(beta=0.5)"
    file = tmp_path / "experiment.toml"
    file.write_text(f'model = "logistic"\nrounds = 3\nmethod = {json.dumps(method.split(" | "))}\n')
    ways = [
        ("run", *QUICK, "--method", method),
        ("run", str(file)),
        ("run", *QUICK, "--set", f"method={method}"),
    ]
    digests = {json.loads(polyrhythm(*way, "--json", "--out", str(tmp_path / "r")).out)["digest"] for way in ways}
    assert len(digests) == 1


def test_seeds_make_a_run_each_and_their_spread(polyrhythm: Command, tmp_path: Path) -> None:
    found = polyrhythm("run", *QUICK, "--seeds", "0-2", "--out", str(tmp_path))
    assert found.out.count("final accuracy") == 3
    assert "sample sd over seeds" in found.out
    lines = polyrhythm("run", *QUICK, "--seeds", "1,2", "--json", "--out", str(tmp_path)).out.splitlines()
    assert len({json.loads(line)["digest"] for line in lines}) == 2


def test_show_and_runs(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    run_id = json.loads(polyrhythm("run", *QUICK, *out, "--json", "--name", "mine").out)["run_id"]
    for reference in (run_id, "mine", run_id[:-1]):
        assert run_id in polyrhythm("show", reference, *out).out
    assert json.loads(polyrhythm("show", "mine", *out, "--json").out)["run_id"] == run_id
    assert "mine" in polyrhythm("runs", *out).out
    assert json.loads(polyrhythm("runs", *out, "--json").out)["name"] == "mine"
    assert polyrhythm("show", "nobody", *out).code == 2
    assert polyrhythm("runs", "--out", str(tmp_path / "nothing")).code == 2


@pytest.mark.parametrize("command", ["methods", "models", "partitions", "data", "fleets"])
def test_lists_have_a_line_of_help_for_every_name(polyrhythm: Command, command: str) -> None:
    from polyrhythm.config import names
    from polyrhythm.data import PARTITIONS, SOURCES
    from polyrhythm.models.catalogue import MODELS

    known = {"methods": [*names.RECIPES, *names.PARTS], "models": MODELS, "partitions": PARTITIONS, "data": SOURCES}
    known |= {"fleets": [*names.DEVICES, *names.FLEETS, *names.OF_FLEETS]}
    found = polyrhythm(command)
    assert found.code == 0
    for name in known[command]:
        assert name in found.out


def test_data_show_prints_and_draws(polyrhythm: Command, tmp_path: Path) -> None:
    page = tmp_path / "labels.html"
    found = polyrhythm("data", "show", "--clients", "6", "--validation", "0.1", "-o", str(page))
    assert found.code == 0
    assert "label entropy" in found.out
    assert "vega" in page.read_text().lower()
    assert polyrhythm("data", "show", "-o", str(tmp_path / "labels.bmp")).code == 2


def test_fleet_show_prints_what_clients_are_like(polyrhythm: Command) -> None:
    fleet = "tiers(memory=[1e9, 2e9, 4e9]) | links(down=1e6) | periodic(zones=1, spread=0, on=0.5) | poisson(rate=0.01)"
    found = polyrhythm("fleet", "show", "--fleet", fleet, "--clients", "300", "--hours", "48")
    assert (found.code, found.err) == (0, "")
    lines = {re.split(r"  +", line.strip())[0]: line for line in found.out.splitlines()}
    assert "10 ms" in lines["time per sample"]
    assert "4 GB" in lines["memory"]
    assert "1 MB/s" in lines["receiving"]
    assert "sending" not in lines
    assert "12 h" in lines["time at a stretch"]
    assert "|██████      ██████      |" in lines["there"].replace("▁", " ")
    assert "tier 3" in lines["groups"]
    assert all(len(line) <= 80 for line in found.out.splitlines()[1:])
    spelt = polyrhythm("fleet", "show", "--fleet", fleet, "--clients", "300", "--hours", "48", encoding="ascii").out
    assert "|888888      888888      |" in spelt


def test_fleet_show_asks_for_data_where_a_fleet_goes_by_labels(polyrhythm: Command) -> None:
    show = ("fleet", "show", "--fleet", "uniform | by_labels")
    assert polyrhythm(*show).code == 2
    found = polyrhythm(*show, "--data", "digits", "--clients", "5")
    assert found.code == 0
    assert "5 clients" in found.out


def test_initial_weights_continue_a_run(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path), "--json")
    first = json.loads(polyrhythm("run", *QUICK, *out).out)
    weights = tmp_path / first["run_id"] / "final.safetensors"
    assert polyrhythm("run", *QUICK, *out, "--init", str(weights)).code == 0
    started = Run.open(json.loads(polyrhythm("run", *QUICK, *out, "--init", str(weights)).out)["run_id"], tmp_path)
    assert started.history["test_accuracy"].iloc[0] == pytest.approx(first["final_accuracy"])
    assert polyrhythm("run", "--model", "mlp", *out, "--init", str(weights)).code == 2
    weights.write_bytes(b"no weights")
    assert "not readable" in polyrhythm("run", *QUICK, *out, "--init", str(weights)).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "fedprx"), "did you mean 'fedprox'"),
        (("--data", "digitz"), "did you mean 'digits'"),
        (("--model", "lenet5"), "lenet5"),
        (("--partition", "dirichlet"), "alpha"),
        (("--partition", "dirichlet(alpha=-1)"), "alpha = -1"),
        (("--clients", "5000"), "5,000"),
        (("--rounds", "0"), "rounds = 0"),
        (("--seed", "-1"), "seed = -1"),
        (("--until", "accuracy"), "accuracy=0.9"),
        (("--method", "fedavg(schedule=cosine)", "--until", "updates=10"), "without rounds"),
        (("--fleet", "fast"), "unknown fleet"),
        (("--data", "fashion-mnist(folder=/nowhere)"), "/nowhere"),
        (("--data", "npz(path=/nowhere.npz)"), "/nowhere.npz"),
        (("--validation", "2"), "validation"),
        (("--model", "no_module:Net"), "no_module"),
    ],
)
def test_a_users_mistake_ends_with_2_and_four_lines(
    polyrhythm: Command, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    found = polyrhythm("run", *arguments, "--out", str(tmp_path / "runs"))
    assert found.code == 2, found.err
    assert words in found.err
    for line in ("error: ", "  expected: ", "  because:  ", "  do:       "):
        assert line in found.err
    assert "Traceback" not in found.err
    assert not list(tmp_path.glob("runs/*/"))


def test_a_folder_that_cannot_be_written_is_refused_before_round_1(polyrhythm: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = polyrhythm("run", *QUICK, "--out", str(tmp_path / "file"))
    assert found.code == 2
    assert "file" in found.err


def test_a_diverging_run_ends_with_1_and_keeps_its_record(polyrhythm: Command, tmp_path: Path) -> None:
    found = polyrhythm("run", "--method", "fedavg(lr=1e30)", "--rounds", "5", "--out", str(tmp_path))
    assert found.code == 1
    assert "lower the learning rate" in found.err
    assert "Traceback" not in found.err
    (folder,) = (p for p in tmp_path.iterdir() if p.is_dir())
    assert Run.open(folder.name, tmp_path).status == "failed"
    assert (folder / "final.safetensors").exists()


def test_what_a_users_model_raises_is_one_line_and_a_log(polyrhythm: Command, tmp_path: Path) -> None:
    (tmp_path / "brittle.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        if self.training and len(x) > 10:\n"
        "            raise KeyError('sensor')\n"
        "        return self.linear(x.flatten(1))\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        found = polyrhythm(
            *("run", "--model", "brittle:Net", "--method", "fedavg(batch=16)", "--out", str(tmp_path / "runs"))
        )
    finally:
        sys.path.remove(str(tmp_path))
    assert found.code == 1
    assert "KeyError: 'sensor' (this happened to client" in found.err
    assert "Traceback" not in found.err
    (log,) = (tmp_path / "runs").glob("*/error.log")
    assert "raise KeyError" in log.read_text()


@pytest.mark.parametrize(("encoding", "columns"), [("ascii", 80), ("utf-8", 30), ("latin-1", 200)])
def test_any_terminal_will_do(polyrhythm: Command, tmp_path: Path, encoding: str, columns: int) -> None:
    for arguments in (("run", *QUICK, "--out", str(tmp_path)), ("runs", "--out", str(tmp_path)), ("methods",)):
        found = polyrhythm(*arguments, encoding=encoding, columns=columns)
        assert found.code == 0, found.err


def test_the_package_can_be_run() -> None:
    """`python -m polyrhythm`, where the program is not on the path."""
    found = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("polyrhythm 0.")


def test_a_plan_names_the_fleet_where_one_was_asked_for(polyrhythm: Command, tmp_path: Path) -> None:
    for fleet, said in (("tiers", True), ("uniform", False)):
        found = polyrhythm("run", *QUICK, "--fleet", fleet, "--out", str(tmp_path))
        assert (f"fleet      {fleet}" in found.out) is said


def test_help_and_version(polyrhythm: Command) -> None:
    assert polyrhythm("--version").out.startswith("polyrhythm 0.")
    found = polyrhythm("run", "--help")
    for option in ("--data", "--clients", "--partition", "--model", "--method", "--fleet", "--rounds", "--until"):
        assert option in found.out
    for option in ("--seed", "--seeds", "--init", "--validation", "--set", "--out", "--name", "--json"):
        assert option in found.out
    assert polyrhythm("run", "--no-such-option").code == 2


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_stops_a_run_and_keeps_its_record(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["run", "--rounds", "100000", "--model", "logistic", "--out", str(tmp_path), "--json"]
    code = "from polyrhythm.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 240
    while time.monotonic() < end and not list(tmp_path.glob("*/best.safetensors")):
        time.sleep(0.1)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["status"] == "stopped"
    run = Run.open(summary["run_id"], tmp_path)
    assert run.status == "stopped"
    assert len(run.history) == summary["rounds"] + 1
    assert f"to go on: polyrhythm resume {run.id} --out {tmp_path}" in err


def test_whoever_stops_reading_stops_nothing(tmp_path: Path) -> None:
    code = "from polyrhythm.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=240) == 0
    process.stderr.close()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two seeds each, on uneven devices."""
    from polyrhythm.config.assembly import assemble
    from polyrhythm.config.configuration import configure
    from polyrhythm.experiments.run import run

    out = tmp_path_factory.mktemp("compared")
    for method in ("fedavg(cohort=5)", "scaffold(cohort=5)"):
        options = {"method": method, "fleet": "tiers | links(up=1e5)", "seeds": "0,1", "rounds": 4, "model": "logistic"}
        for experiment in assemble(configure(None, options, ["evaluation.groups=true"])):
            run(experiment, out=out)
    return out


def test_show_says_what_a_run_cost_and_what_a_goal_took(polyrhythm: Command, compared: Path) -> None:
    out = ("--out", str(compared))
    run = next(iter(Run.all(compared)))
    text = polyrhythm("show", run.id, *out, "--to", "0.3").out
    for part in ("computing", "on links", "waiting", "fairness", "energy", "traffic", "0 lost", "to 0.3: "):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80
    assert "to 0.99: not reached" in polyrhythm("show", run.id, *out, "--to", "0.99").out
    found = json.loads(polyrhythm("show", run.id, *out, "--to", "0.3", "--json").out)
    assert found["to"] == {"goal": 0.3, "on": "test", **(run.costs_to(0.3) or {})}
    assert {"joules", "compute_seconds", "link_seconds", "waiting_seconds", "utilisation", "fairness"} <= set(found)
    never = json.loads(polyrhythm("show", run.id, *out, "--to", "0.99", "--json").out)
    assert set(never["to"]) == set(found["to"])
    assert never["to"]["virtual_seconds"] is None
    assert polyrhythm("show", run.id, *out, "--to", "0.3", "--on", "validation").code == 2


@pytest.mark.parametrize("columns", [80, 120])
def test_compare_prints_a_row_for_each_method(
    polyrhythm: Command, compared: Path, tmp_path: Path, columns: int
) -> None:
    out, picture = ("--out", str(compared)), tmp_path / "costs.svg"
    found = polyrhythm("compare", *out, "--to", "0.3", "--at-time", "2", "-o", str(picture), columns=columns)
    assert found.code == 0, found.err
    assert max(map(len, found.out.splitlines())) <= columns
    assert found.out.count("2/2") == 2
    assert found.out.count("scaffold(cohort=5)") >= 3  # results, goal, differences
    assert picture.read_text().startswith("<svg")
    lines = polyrhythm("compare", *out, "--to", "0.3", "--json").out.splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["method"] for entry in entries] == ["fedavg(cohort=5)", "scaffold(cohort=5)"]
    assert all(entry["final_accuracy"]["n"] == entry["reached"] == 2 for entry in entries)


def test_compare_takes_some_runs_too(polyrhythm: Command, compared: Path) -> None:
    first, *_, last = Run.all(compared)
    found = polyrhythm("compare", first.id, last.id, "--out", str(compared), "--json")
    assert [json.loads(line)["n"] for line in found.out.splitlines()] == [1, 1]
    assert "±" not in polyrhythm("compare", first.id, "--out", str(compared)).out.splitlines()[3]
    assert polyrhythm("compare", "nobody", "--out", str(compared)).code == 2
    assert polyrhythm("compare", "--out", str(compared), "--on", "train").code == 2
