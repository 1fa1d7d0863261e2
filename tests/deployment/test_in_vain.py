"""What comes to nothing in a real federation ends in words: failing clients, lost messages, deadlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.config import names
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.messages import Present
from polyrhythm.deployment.registry import TRIES, Reply
from polyrhythm.deployment.wire import Parcel, pack
from pretend import JumpingClock, PretendTransport, nodes_of
from small import federation

CLIENTS = 4
Answers = Callable[[Parcel], Parcel]


def experiment(method: str = f"fedavg(cohort={CLIENTS}, batch=5)", rounds: int = 5) -> pr.Experiment:
    return pr.Experiment(
        federation=federation(clients=CLIENTS), model="logistic", recipe=names.recipe(method), rounds=rounds
    )


class Line(PretendTransport):
    """A transport on which messages are lost, and nodes are listed that are not there."""

    def __init__(self, clock: JumpingClock, nodes: dict[int, Answers], **more: Any) -> None:
        self.unsent: Callable[[int, Parcel], bool] = more.pop("unsent", lambda node, parcel: False)
        self.listed: Callable[[int, float], bool] = more.pop("listed", lambda node, now: True)
        self.tries = 0
        self.left: list[Reply] = []
        super().__init__(clock, nodes, **more)

    def nodes(self) -> Collection[int]:
        return [node for node in self.nodes_by if self.listed(node, self.clock.time - 1000.0)]

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> list[str]:
        ids = []
        for node, parcel in letters:
            if self.unsent(node, parcel):
                self.tries += 1
                ids.append(f"unsent {self.tries}")
                self.left.append(Reply(to=ids[-1], trouble="it is too large", unsent=True))
            else:
                ids += super().push([(node, parcel)])
        return ids

    def pull(self, messages: Collection[str]) -> list[Reply]:
        left, self.left = self.left, []
        return left + super().pull([message for message in messages if not message.startswith("unsent")])


def visits(parcel: Parcel) -> bool:
    return '"Order"' in parcel.text


def failing(answer: Answers, times: int = 10**9) -> Answers:
    """A node that raises in its first visits."""
    left = times

    def fails(parcel: Parcel) -> Parcel:
        nonlocal left
        if visits(parcel) and left:
            left -= 1
            raise ValueError("no sensor")
        return answer(parcel)

    return fails


def federated(folder: Path, made: pr.Experiment, line: Line, clock: JumpingClock, **serving: Any) -> dict[str, Any]:
    told: list[str] = []
    how = Serving(**{"out": folder / "runs", "wait": 20.0, **serving})
    try:
        summary = serve(made, line, how, clock=clock, tell=told.append)
    except pr.RunFailed as failure:
        summary = {"status": "failed", "reason": str(failure)}
    run = pr.Run.all(folder / "runs")[-1]
    assert run.status == summary["status"]
    return {**summary, "told": told, "run": run, "seconds": clock.time - 1000.0}


def nodes(folder: Path, method: str | None = None) -> dict[int, Answers]:
    return nodes_of(lambda: experiment() if method is None else experiment(method), folder / "nodes", CLIENTS)


@pytest.mark.parametrize(
    "method",
    [
        f"fedavg(cohort={CLIENTS}, batch=5)",
        "fedavg(cohort=2, batch=5)",
        "fedbuff(concurrency=2, batch=5)",
        "power_of_choice(cohort=2, batch=5)",
    ],
    ids=["all", "some", "asynchronous", "measured"],
)
def test_a_run_in_which_every_client_fails_is_a_failed_run(tmp_path: Path, method: str) -> None:
    clock = JumpingClock()
    line = Line(clock, {n: failing(answer) for n, answer in nodes(tmp_path, method).items()})
    done = federated(tmp_path, experiment(method, rounds=400), line, clock)
    assert done["status"] == "failed"
    assert "no report was accepted in" in done["reason"]
    assert "so nothing was learnt. client " in done["reason"]
    assert "it has failed: ValueError: no sensor" in done["reason"]
    assert done["seconds"] < 200  # long before all rounds were over
    assert set(done["run"].visits["status"]) == {"lost"}


def test_a_run_that_is_over_before_anything_came_is_a_failed_run(tmp_path: Path) -> None:
    clock = JumpingClock()
    line = Line(clock, {n: failing(answer) for n, answer in nodes(tmp_path).items()})
    done = federated(tmp_path, experiment(rounds=1), line, clock)
    first = "no report was accepted in 4 visits, so nothing was learnt. client 1: it has failed: ValueError: no sensor"
    assert done["reason"] == first
    assert len(done["run"].visits) == 4


def test_answers_that_are_all_lost_are_a_failed_run(tmp_path: Path) -> None:
    clock = JumpingClock()
    line = Line(clock, nodes(tmp_path), spoilt={n: lambda parcel: Parcel(text="?") for n in range(CLIENTS, 99)})
    done = federated(tmp_path, experiment(rounds=2), line, clock)
    assert done["status"] == "failed"
    assert "client 1: it has sent a message that cannot be read" in done["reason"]


@pytest.mark.parametrize("failures", [1, 2])
def test_clients_that_fail_at_first_do_not_end_the_run(tmp_path: Path, failures: int) -> None:
    clock = JumpingClock()
    answering = nodes(tmp_path)
    broken = {n: failing(a, failures) for n, a in answering.items() if n != 103 or failures == 1}
    done = federated(tmp_path, experiment(), Line(clock, answering | broken), clock)
    assert (done["status"], done["rounds"]) == ("finished", 5)


def test_a_message_that_is_never_taken_is_a_lost_visit_with_the_reason(tmp_path: Path) -> None:
    clock = JumpingClock()
    line = Line(clock, nodes(tmp_path), unsent=lambda node, parcel: visits(parcel) and node == 102)
    done = federated(tmp_path, experiment(rounds=2), line, clock, returns=1e6)
    assert done["status"] == "finished"
    assert line.tries == 2 * TRIES
    lost = done["run"].visits.query("client == 2")
    assert lost["reason"].unique().tolist() == [f"it was not sent, in {TRIES} tries: it is too large"]
    assert lost["fault"].unique().tolist() == ["transit"]
    assert "client 2 was not sent its visit 0: it is too large" in done["told"]


def test_a_greeting_that_is_never_taken_is_given_up(tmp_path: Path) -> None:
    clock = JumpingClock()
    line = Line(clock, nodes(tmp_path), unsent=lambda node, parcel: node == 102)
    with pytest.raises(pr.UserError, match=f"node 102 was asked {TRIES} times who it is, in vain: it is too large"):
        serve(experiment(), line, Serving(out=tmp_path / "runs", wait=900.0), clock=clock, tell=lambda text: None)
    assert line.tries == TRIES


def test_a_message_that_is_taken_in_the_end_counts(tmp_path: Path) -> None:
    clock, left = JumpingClock(), [5]

    def unsent(node: int, parcel: Parcel) -> bool:
        left[0] -= 1
        return node == 102 and left[0] >= 0

    done = federated(tmp_path, experiment(), Line(clock, nodes(tmp_path), unsent=unsent), clock)
    assert (done["status"], done["lost_visits"]) == ("finished", 0)


@pytest.mark.parametrize("unlisted", [4.0, 30.0])
def test_a_client_comes_back_as_another_node(tmp_path: Path, unlisted: float) -> None:
    """Under a new key, while the one that it was is still listed: it is asked again when that has gone."""
    clock = JumpingClock()
    answering = nodes(tmp_path)
    answering[202] = answering[102]

    def listed(node: int, now: float) -> bool:
        return now < unlisted if node == 102 else node != 202 or now >= 2.0

    line = Line(clock, answering, listed=listed, away={102: (1001.5, 1e9)})
    done = federated(tmp_path, experiment(rounds=10), line, clock)
    assert (done["status"], done["lost_visits"]) == ("finished", 0)
    assert any("node 202 says that it is client 2, which node 102 is already" in words for words in done["told"])
    assert done["run"].visits.groupby("client").size().tolist() == [10] * CLIENTS
    # Its node does not answer, so it is not waited for until nobody lists it any more.
    assert done["seconds"] < 20.0


def test_a_second_node_of_a_client_that_answers_stays_refused(tmp_path: Path) -> None:
    clock = JumpingClock()
    answering = nodes(tmp_path)
    answering[202] = answering[102]
    line = Line(clock, answering, listed=lambda node, now: node != 202 or now >= 2.0)
    done = federated(tmp_path, experiment(rounds=10), line, clock)
    assert done["status"] == "finished"
    assert {node for node, parcel in line.sent if visits(parcel)} == {100, 101, 102, 103}
    assert sum("which node 102 is already" in words for words in done["told"]) == 1


@pytest.mark.parametrize("dead", ["away", "silent"])
def test_a_deadline_with_too_few_reports_is_waited_for_so_long_and_no_longer(tmp_path: Path, dead: str) -> None:
    method = f"fedavg(cohort={CLIENTS}, batch=5) | deadline(seconds=5) | min_reports(count={CLIENTS})"
    clock = JumpingClock()
    how: dict[str, Any] = {"away": {103: (1000.5, 1e9)}} if dead == "away" else {}
    takes = (lambda node, number: 1e9 if node == 103 and number >= CLIENTS else 1.0) if dead == "silent" else None
    if takes is not None:
        how["takes"] = takes
    line = Line(clock, nodes(tmp_path, method), **how)
    if dead == "away":
        line.away = {103: (1001.5, 1e9)}
    done = federated(tmp_path, experiment(method, rounds=2), line, clock, returns=1e9, alone=50.0)
    said = "version 1: 5 s are over with 3 reports, where 4 are needed; client 3 waited for, 50 s at most"
    assert said in done["told"]
    assert done["status"] == "failed"
    assert done["reason"].startswith(
        "no version was made of any report, so nothing was learnt. The last one: reports: 3"
    )
    assert done["run"].visits.query("client == 3")["reason"].iloc[0] == "no answer long after the deadline"
    assert done["seconds"] < 150.0


def test_a_visit_that_takes_long_is_said(tmp_path: Path) -> None:
    clock = JumpingClock()
    line = Line(clock, nodes(tmp_path), takes=lambda node, number: 2000.0 if number == 6 else 1.0)
    done = federated(tmp_path, experiment(rounds=1), line, clock)
    said = [words for words in done["told"] if "has been at its visit 0 for" in words]
    assert [words.split(" for ")[1].split(" s;")[0] for words in said] == ["300", "600", "1201"]


@pytest.mark.parametrize(("claimed", "said"), [(10**9, True), (40, False)])
def test_a_client_that_says_it_holds_nearly_everything_is_named(tmp_path: Path, claimed: int, said: bool) -> None:
    def lying(answer: Answers) -> Answers:
        def lies(parcel: Parcel) -> Parcel:
            return pack(Present(client=2, num_samples=claimed, engine="torch"))

        return lambda parcel: answer(parcel) if visits(parcel) else lies(parcel)

    clock, answering = JumpingClock(), nodes(tmp_path)
    answering[102] = lying(answering[102])
    done = federated(tmp_path, experiment(rounds=1), Line(clock, answering), clock)
    words = f"client 2 says that it holds {claimed:,} of all {claimed + 45:,} samples, more than all others together"
    assert any(words in told for told in done["told"]) is said
