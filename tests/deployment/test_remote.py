"""A server whose nodes may send anything: each bad answer is a lost visit, and the run goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.vectors import spans_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.messages import Answer, Order, Present, Refusal
from polyrhythm.deployment.registry import Reply
from polyrhythm.deployment.wire import Parcel, pack, unpack
from polyrhythm.experiments.prepared import prepare
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 6
FIRST = CLIENTS  # the number of the first message that is no greeting
Change = Callable[[Parcel], Parcel]


def experiment(recipe: pr.Recipe, **changes: Any) -> pr.Experiment:
    values: dict[str, Any] = {"federation": federation(clients=CLIENTS), "model": "logistic", "rounds": 4}
    return pr.Experiment(**values | {"recipe": recipe} | changes)


def rounds() -> pr.Experiment:
    return experiment(pr.fedavg(cohort=3, epochs=1, batch=5))


def measured() -> pr.Experiment:
    return experiment(pr.power_of_choice(cohort=2, batch=5))


def asynchronous() -> pr.Experiment:
    return experiment(pr.cc_fedadam(cohort=4, buffer=2, batch=5, clock="event"), rounds=6)


def federated(folder: Path, made: Callable[[], pr.Experiment] = rounds, **line: Any) -> dict[str, Any]:
    clock, told = JumpingClock(), list[str]()
    nodes = nodes_of(made, folder / "nodes", CLIENTS)
    nodes |= {node: instead(nodes[node]) for node, instead in line.pop("instead", {}).items()}
    wire = PretendTransport(clock, nodes, **line)
    how = Serving(out=folder / "runs", wait=20.0, log_updates=True)
    summary = serve(made(), wire, how, clock=clock, tell=told.append)
    run = pr.Run.open(summary["run_id"], folder / "runs")
    return {**summary, "told": told, "run": run, "seconds": clock.time - 1000.0, "line": wire}


def reported(**changes: Any) -> Change:
    """Another report in an answer, as the node itself could have written it."""

    def change(parcel: Parcel) -> Parcel:
        spans = spans_of(prepare(rounds()).chosen.engine.layout)
        answer = unpack(parcel, Answer, Answer, spans=spans)
        assert isinstance(answer, Answer)
        fields = {name: value(answer.report) if callable(value) else value for name, value in changes.items()}
        return pack(dataclasses.replace(answer, report=dataclasses.replace(answer.report, **fields)))

    return change


def lost(done: dict[str, Any]) -> Any:
    visits = done["run"].visits
    return visits[visits["status"] == "lost"]


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.uint8, torch.float64])
def test_an_update_of_another_dtype_is_a_lost_visit(tmp_path: Path, dtype: torch.dtype) -> None:
    spoilt = {FIRST + 1: reported(update=lambda report: report.update.to(dtype))}
    done = federated(tmp_path, spoilt=spoilt)
    assert (done["status"], done["rounds"], done["faults"]) == ("finished", 4, {"dtype": 1})
    (visit,) = lost(done).to_dict("records")
    assert f"it has sent what does not fit: the update is {dtype}" in visit["reason"]
    assert visit["update_norm"] != visit["update_norm"]  # none was computed
    assert pr.replay(done["run"], rounds(), from_updates=True).equal


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": lambda report: report.version + 1}, "a report of version 1, where 0 was sent"),
        ({"visit": lambda report: report.visit + 1}, "a report of visit 1, where 0 was sent"),
        ({"kind": "measure"}, "a report of kind measure, where train was sent"),
        ({"recipe": "0" * 64}, "a report from another recipe"),
        ({"client": lambda report: report.client + 1}, "a report of client"),
        ({"dispatch": lambda report: report.dispatch + 1}, "a report of dispatch"),
        ({"num_samples": 10**9}, "1000000000 samples held"),
        ({"loss": float("nan")}, "a report with loss nan"),
    ],
)
@pytest.mark.parametrize("made", [rounds, asynchronous])
def test_a_report_of_something_else_is_a_lost_visit_and_not_waited_for(
    tmp_path: Path, made: Callable[[], pr.Experiment], changes: dict[str, Any], words: str
) -> None:
    done = federated(tmp_path, made, spoilt={FIRST: reported(**changes)})
    assert done["status"] == "finished"
    (visit,) = lost(done).to_dict("records")
    assert words in visit["reason"].replace(",", "") or words in visit["reason"]
    assert any(visit["reason"] in words for words in done["told"])
    assert done["seconds"] < 30.0
    # What came is billed, and the client is invited again.
    assert visit["bytes_up"] > 0
    assert visit["bytes_down"] > 0
    assert (done["run"].visits["client"] == visit["client"]).sum() > 1
    assert pr.replay(done["run"], made()).equal


def test_the_answer_to_a_measuring_visit_is_held_against_it(tmp_path: Path) -> None:
    spoilt = {FIRST: reported(measures={}), FIRST + 1: reported(kind="train"), FIRST + 2: reported(steps=3)}
    done = federated(tmp_path, measured, spoilt=spoilt)
    assert done["status"] == "finished"
    assert lost(done)["reason"].tolist() == [
        "it has sent no measure of loss",
        "it has sent a report of kind train, where measure was sent",
        "it has sent training in a visit that measures",
    ]
    assert pr.replay(done["run"], measured()).equal


def test_the_answer_of_another_run_or_visit_is_none(tmp_path: Path) -> None:
    first = federated(tmp_path / "1")
    earlier = [parcel for parcel in first["line"].answers if '"Answer"' in parcel.text]
    kept: list[Parcel] = []

    def keep(parcel: Parcel) -> Parcel:
        kept.append(parcel)
        return parcel

    spoilt = {FIRST: lambda parcel: earlier[0], FIRST + 1: keep, FIRST + 3: lambda parcel: kept[0]}
    done = federated(tmp_path / "2", spoilt=spoilt)
    reasons = lost(done)["reason"].tolist()
    assert reasons[0].startswith(f"it has sent a report of the run '{first['run_id']}', where ")
    assert reasons[1].startswith("it has sent a report of dispatch 1, where 3 was sent")


def test_other_messages_in_place_of_an_answer(tmp_path: Path) -> None:
    wicked = Refusal(client=0, found="not a finite number\x1b[2J\n" + "x" * 9_000, expected="", why="", fix="")
    spoilt: dict[int, Change] = {
        FIRST: lambda parcel: pack(Present(client=0, num_samples=1, engine="torch")),
        FIRST + 1: lambda parcel: pack(wicked),
        FIRST + 2: lambda parcel: Parcel(text='{"format": 1}'),
    }
    done = federated(tmp_path, spoilt=spoilt)
    reasons = lost(done)["reason"].tolist()
    assert reasons[0] == "it has sent a Present, where a Answer or a Refusal is expected"
    # All of a version were lost, and one of them said what would end the run if the server had found it itself.
    assert reasons[1].startswith("it has refused: not a finite number [2J xxx")
    assert len(reasons[1]) < 2_000
    assert done["rounds"] == 4


@pytest.mark.parametrize("update", [torch.nan, torch.inf])
def test_one_node_alone_ends_no_run_by_what_is_no_number(tmp_path: Path, update: float) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.fedavg(cohort=1, epochs=1, batch=5))

    spoilt = {FIRST: reported(update=lambda report: torch.full_like(report.update, update))}
    done = federated(tmp_path, made, spoilt=spoilt)
    assert (done["rounds"], done["lost_visits"]) == (4, 1)
    assert "it has sent a report that cannot be used: version 1: every update had to be" in lost(done)["reason"].item()
    assert pr.replay(done["run"], made()).equal


def test_where_several_send_no_numbers_training_diverges(tmp_path: Path) -> None:
    nothing = reported(update=lambda report: torch.full_like(report.update, torch.nan))
    with pytest.raises(pr.RunFailed, match="Training diverges"):
        federated(tmp_path, spoilt={FIRST + i: nothing for i in range(3)})

    def made() -> pr.Experiment:
        return experiment(pr.fedavg(cohort=1, epochs=1, batch=5), rounds=30)

    with pytest.raises(pr.RunFailed, match="Training diverges"):
        federated(tmp_path / "one", made, spoilt={FIRST + i: nothing for i in range(30)})


def test_an_endless_update_reaches_no_sum(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.fedavg(cohort=3, epochs=1, batch=5) | pr.parts.server_adam(lr=0.1))

    endless = reported(update=lambda report: torch.full_like(report.update, 3e38))
    done = federated(tmp_path, made, spoilt={FIRST: endless, FIRST + 4: endless})
    assert (done["rounds"], done["faults"]) == (4, {"too_far": 2})
    assert "an update whose length is no number" in lost(done)["reason"].iloc[0]


def test_what_a_part_of_the_recipe_cannot_read_is_a_lost_visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyrhythm.methods.correction import ControlVariates

    def refuses(self: Any, setup: Any, state: Any, report: Any) -> None:
        if report.dispatch == 1:
            raise KeyError("what was never sent")

    def made() -> pr.Experiment:
        return experiment(pr.scaffold(cohort=3, epochs=1, batch=5))

    monkeypatch.setattr(ControlVariates, "refuses", refuses)
    done = federated(tmp_path, made)
    assert "it has sent a report that cannot be used: KeyError: 'what was never sent'" in lost(done)["reason"].item()
    assert done["rounds"] == 4


@pytest.mark.parametrize("change", [3, None, "x"])
def test_a_change_of_a_control_variate_that_is_no_tensor_is_refused(tmp_path: Path, change: Any) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.scaffold(cohort=3, epochs=1, batch=5))

    done = federated(tmp_path, made, spoilt={FIRST: reported(extras={"control_variates": {"change": change}})})
    assert (done["rounds"], done["dropped_visits"]) == (4, 1)


def test_a_node_that_answers_badly_at_once_does_not_use_versions_up(tmp_path: Path) -> None:
    def bad(honest: Change) -> Change:
        return lambda parcel: honest(parcel) if '"Greeting"' in parcel.text else Parcel(text="")

    takes = lambda node, number: 0.0 if node == 102 else 5.0  # noqa: E731
    done = federated(tmp_path, asynchronous, instead={102: bad}, takes=takes)
    assert done["rounds"] == 6
    history = done["run"].history
    assert (history["accepted"][1:] >= 1).all()
    # No more than once a version.
    visits = lost(done)
    assert not visits["version"].duplicated().any()
    assert pr.replay(done["run"], asynchronous()).equal


@pytest.mark.parametrize("made", [rounds, measured, asynchronous])
def test_where_no_node_answers_well_the_run_has_failed(tmp_path: Path, made: Callable[[], pr.Experiment]) -> None:
    def bad(honest: Change) -> Change:
        return lambda parcel: honest(parcel) if '"Greeting"' in parcel.text else Parcel(text="{}")

    with pytest.raises(pr.RunFailed, match=r"no report was accepted in .*: it has sent no message in format 1"):
        federated(tmp_path, made, instead={100 + client: bad for client in range(CLIENTS)})
    run = pr.Run.all(tmp_path / "runs")[-1]
    assert run.status == "failed"
    assert set(run.visits["status"]) == {"lost"}


def test_a_visit_is_not_sent_for_ever_to_a_node_that_says_it_went_away(tmp_path: Path) -> None:
    def made() -> pr.Experiment:
        return experiment(pr.fedavg(cohort=6, epochs=1, batch=5), rounds=2)

    clock, told = JumpingClock(), list[str]()
    line = PretendTransport(clock, nodes_of(made, tmp_path / "nodes", CLIENTS))
    push, gone = line.push, list[Reply]()

    def pushed(letters: Any) -> Any:
        mine = [letter for letter in letters if letter[0] == 101 and '"Order"' in letter[1].text]
        ids = push([letter for letter in letters if letter not in mine])
        numbers = iter(ids)
        found = []
        for letter in letters:
            if letter in mine:
                gone.append(Reply(to=f"-{len(gone) + 1}", trouble="away", gone=True))
                found.append(gone[-1].to)
            else:
                found.append(next(numbers))
        return found

    pull = line.pull
    line.push = pushed  # type: ignore[method-assign]
    line.pull = lambda messages: [*(r for r in gone if r.to in messages), *pull(messages)]  # type: ignore[method-assign]
    summary = serve(made(), line, Serving(out=tmp_path / "runs", wait=20.0), clock=clock, tell=told.append)
    assert (summary["rounds"], summary["lost_visits"]) == (2, 2)
    assert len(gone) == 2 * 9
    assert clock.time - 1000.0 < 2 * 150.0


def test_an_answer_that_no_message_waits_for_settles_no_visit(tmp_path: Path) -> None:
    """A doubled answer, of which the second claims to be of a visit that is out."""
    clock, told = JumpingClock(), list[str]()
    line = PretendTransport(clock, nodes_of(rounds, tmp_path / "nodes", CLIENTS), lambda node, number: 1.0 + number % 3)
    pull = line.pull

    def pulled(messages: Any) -> Any:
        found = pull(messages)
        forged = [Reply(to="999", parcel=line.answers[-1])] if len(line.answers) > CLIENTS else []
        return [*forged, *found]

    line.pull = pulled  # type: ignore[method-assign]
    summary = serve(rounds(), line, Serving(out=tmp_path / "runs", wait=20.0), clock=clock, tell=told.append)
    honest = federated(tmp_path / "honest")
    assert (summary["digest"], summary["lost_visits"]) == (honest["digest"], 0)
    assert any("that was not asked for now is ignored" in words for words in told)


def test_a_node_that_holds_something_else_now_is_asked_again(tmp_path: Path) -> None:
    greeted: list[int] = []

    def grown(honest: Change) -> Change:
        def answer(parcel: Parcel) -> Parcel:
            if '"Greeting"' not in parcel.text:
                return honest(parcel)
            greeted.append(1)
            return pack(Present(client=0, num_samples=7 if len(greeted) == 1 else 10, engine="torch"))

        return answer

    done = federated(tmp_path, lambda: experiment(pr.fedavg(cohort=6, batch=5)), instead={100: grown})
    # Its next answer may be there before it has been heard.
    assert 1 <= len(lost(done)) <= 2
    assert set(lost(done)["reason"]) == {"it has sent a report of 10 samples held, where it has declared 7"}
    assert 2 <= len(greeted) <= 3
    assert (done["run"].visits.query("client == 0")["status"] == "trained").sum() >= 2


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (Present(client=-1, num_samples=10, engine="torch"), "says that it is client -1 of 6"),
        (Present(client=10**9, num_samples=10, engine="torch"), "says that it is client 1000000000 of 6"),
        (Present(client=0, num_samples=-1, engine="torch"), "with -1"),
        (Present(client=0, num_samples=2**60, engine="torch"), "with 1152921504606846976"),
        (Present(client=0, num_samples=10**400, engine="torch"), "num_samples of a Present is too large"),
        (Present(client=0, num_samples=True, engine="torch"), "num_samples of a Present is a bool"),
        (Present(client=0, num_samples=10, engine="\ud800"), "UnicodeEncodeError"),
        (Present(client=0, num_samples=10, engine="x" * 20_000), "engine of a Present is too large"),
        (Refusal(client=0, found="\x1b[2J" + "y" * 5_000, expected="", why="", fix=""), "does not take part: [2Jyyy"),
        (Answer(seconds=0.0, report=None), "a Answer, where a Present or a Refusal is expected"),  # type: ignore[arg-type]
    ],
)
def test_a_greeting_that_is_answered_badly_is_a_node_refused(tmp_path: Path, present: Any, words: str) -> None:
    def bad(parcel: Parcel) -> Parcel:
        if "\ud800" not in str(present):
            return pack(present)
        fine = pack(dataclasses.replace(present, engine="HERE"))
        return Parcel(text=fine.text.replace("HERE", "\\ud800"))

    nodes = {**nodes_of(rounds, tmp_path / "nodes", CLIENTS), 100: bad}
    clock, told = JumpingClock(), list[str]()
    with pytest.raises(pr.UserError, match="client 0 not there after 20 s"):
        serve(rounds(), PretendTransport(clock, nodes), Serving(out=tmp_path, wait=20.0), clock=clock, tell=told.append)
    assert any(words in line for line in told)
    assert all((len(line) < 3_000 and line.isprintable()) or "\n" in line for line in told)
    "".join(told).encode()


def test_a_node_that_comes_back_with_nothing_is_refused(tmp_path: Path) -> None:
    """Who may be invited is settled when the run begins; else a draw would ask for a client that there is not."""
    seen: list[int] = []

    def emptied(honest: Change) -> Change:
        def answer(parcel: Parcel) -> Parcel:
            if '"Greeting"' not in parcel.text:
                return reported(num_samples=11)(honest(parcel))
            seen.append(1)
            return honest(parcel) if len(seen) == 1 else pack(Present(client=1, num_samples=0, engine="torch"))

        return answer

    def made() -> pr.Experiment:
        return experiment(pr.power_of_choice(cohort=3, batch=5), rounds=6)

    done = federated(tmp_path, made, instead={101: emptied})
    assert done["rounds"] == 6
    assert any("says that client 1 holds 0 samples, not 10" in words for words in done["told"])


def test_an_order_is_refused_by_a_node_in_words(tmp_path: Path) -> None:
    answer = nodes_of(rounds, tmp_path / "nodes", 1)[100]
    line = federated(tmp_path)["line"]
    parcel = next(parcel for node, parcel in line.sent if node == 100 and '"Order"' in parcel.text)
    order = unpack(parcel, Order, Order)
    assert isinstance(order, Order)
    wrong: list[dict[str, Any]] = [
        {"visit": -1},
        {"accepted": 5},
        {"version": -3},
        {"total_rounds": -3},
        {"buffers": (torch.zeros(3),)},
        {"briefs": {"nobody": {}}},
        {"client": 3},
        {"recipe": "0" * 64},
        {"weights": order.assignment.weights.double()},
        {"weights": order.assignment.weights[1:]},
        {"samples": 0},
    ]
    for changes in wrong:
        changed = dataclasses.replace(order, assignment=dataclasses.replace(order.assignment, **changes))
        assert isinstance(unpack(answer(pack(changed)), Answer, Refusal), Refusal), changes
    for more in ({"population": 0}, {"eligible": 7}, {"population": 2**60}, {"run": "../x"}, {"run": "r" * 5000}):
        assert isinstance(unpack(answer(pack(dataclasses.replace(order, **more))), Answer, Refusal), Refusal), more
    assert isinstance(unpack(answer(pack(order)), Answer, Refusal), Answer)
    tree = json.loads(parcel.text)
    assert tree["sum"]
