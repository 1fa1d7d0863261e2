"""Who may come in, and what a browser is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.conftest import Asking, Client
from polyrhythm.dashboard.access import POLICY, is_loopback
from polyrhythm.dashboard.application import application

TOKEN = "a-token-of-43-characters"


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:9000", "[::1]:8642", "192.168.1.7", "LOCALHOST"])
def test_addresses_and_localhost_are_let_in(client: Client, host: str) -> None:
    assert client(host=host).get("/api/runs").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8642", "localhost.evil.example", "1.2.3"])
def test_a_name_that_was_made_to_lead_here_is_refused(client: Client, host: str) -> None:
    answer = client(host=host).get("/api/runs")
    assert (answer.status_code, list(answer.json())) == (421, ["error"])


def test_this_machine_may_be_called_by_its_names(client: Client) -> None:
    assert client(host="lab-7:8642", names=("lab-7",)).get("/").status_code == 200


def test_without_the_token_nothing_is_shown(client: Client) -> None:
    asking = client(token=TOKEN)
    for path in (
        "/",
        "/run",
        "/static/style.css",
        "/api/runs",
        "/api/news",
        "/?token=wrong",
        "/api/runs?token=" + TOKEN,
    ):
        answer = asking.get(path)
        assert answer.status_code == 401, path
        assert "trial" not in answer.text
    assert not asking.cookies


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(client: Client) -> None:
    asking = client(token=TOKEN, cookie="its_name")
    first = asking.get(f"/?token={TOKEN}")
    assert first.status_code == 200
    assert TOKEN not in first.text
    cookie = first.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
    assert asking.get("/api/runs").status_code == 200


def test_a_cookie_of_another_dashboard_does_not_open_this_one(client: Client) -> None:
    asking = client(token=TOKEN, cookie="its_name")
    asking.cookies.set("its_name", "another")
    assert asking.get("/api/runs").status_code == 401


def test_every_answer_has_its_headers(client: Client) -> None:
    asking = client(token=TOKEN)
    answers = [asking.get("/"), asking.get(f"/?token={TOKEN}"), asking.get("/"), asking.get("/api/runs")]
    answers += [asking.get("/api/figure"), asking.get("/static/nothing.js"), asking.get("/nowhere")]
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY


def stop(asking: Asking, run: Path, **headers: str) -> int:
    return asking.post("/api/stop", params={"run": run.name}, headers=headers).status_code


@pytest.mark.parametrize("ask", ["get", "post"])
def test_no_other_site_is_told_that_it_may(client: Client, ask: str) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    for path in ("/", "/api/runs", "/api/stop"):
        answer = getattr(client(control=True), ask)(path, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8642", "sec-fetch-site": "cross-site"},
    ],
)
def test_what_changes_something_must_come_from_here(client: Client, folder: Path, headers: dict[str, str]) -> None:
    run = next(path for path in folder.iterdir() if path.is_dir())
    assert stop(client(control=True), run, **headers) == 403
    assert not (run / "stop").exists()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("lab", False)],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_only_two_addresses_take_anything(tmp_path: Path) -> None:
    """All others answer to GET and HEAD alone."""
    taking = {r.path for r in application(tmp_path).routes if set(r.methods) - {"GET", "HEAD"}}  # type: ignore[attr-defined]
    assert taking == {"/api/stop", "/api/label"}
