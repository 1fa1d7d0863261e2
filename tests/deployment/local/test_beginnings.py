"""What is looked at before a federation on this machine is started: ports, its folder, its certificates."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.consent import NOBODY
from polyrhythm.cli.flowering import _project
from polyrhythm.deployment.local import keys, loopback
from polyrhythm.deployment.local.folder import make_private
from polyrhythm.deployment.local.loopback import Loopback, diagnosed
from polyrhythm.deployment.local.ports import check_free
from polyrhythm.deployment.local.processes import Processes, Started


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_is_refused_with_its_program_and_the_option(taken: int) -> None:
    with pytest.raises(pr.UserError) as refused:
        check_free({"superlink": taken - 2, "node 0": taken - 1, "node 1": taken})
    words = str(refused.value)
    assert f"port {taken} on 127.0.0.1, for the node 1, cannot be used: address in use" in words
    assert f"free ports from {taken - 2} to {taken}" in words
    assert "--port" in words


def test_ports_that_do_not_exist_are_refused() -> None:
    with pytest.raises(
        pr.UserError, match=r"port 65536 on 127\.0\.0\.1, for the node 535, cannot be used: the last port"
    ):
        check_free({f"node {n}": 65_001 + n for n in range(535, 540)})


@pytest.mark.parametrize("who", ["superlink", "node 0"])
def test_up_refuses_at_once_what_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, who: str
) -> None:
    monkeypatch.setattr(loopback, "programs", lambda: None)
    federation = Loopback(tmp_path / "f", port=taken if who == "superlink" else taken - 1)
    with pytest.raises(pr.UserError, match=f"for the {who}, cannot be used: address in use"):
        federation.up(1)
    assert not (tmp_path / "f" / "processes.json").exists()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / ".flower"
    folder.mkdir(parents=True, mode=0o755)  # as an earlier version has left it
    (folder / "state.db").touch(0o644)
    (folder / "nodes").mkdir(mode=0o755)
    make_private(folder)
    assert [mode(path) for path in (folder, folder / "nodes", folder / "flwr", folder / "logs")] == [0o700] * 4
    assert mode(folder / "state.db") == 0o600


def test_a_folder_with_other_things_in_it_stays_open(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir(mode=0o755)
    (folder / "thesis.tex").touch(0o644)
    make_private(folder)
    assert (mode(folder), mode(folder / "nodes"), mode(folder / "state.db")) == (0o755, 0o700, 0o600)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(pr.UserError, match="cannot be made"):
        make_private(tmp_path / "file" / ".flower")


def test_a_project_of_somebody_s_is_not_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "project" / "pyproject.toml"
    mine.parent.mkdir()
    mine.write_text("[project]\nname = 'mine'\n")
    with pytest.raises(pr.UserError, match="is there, and none of polyrhythm's projects"):
        _project(None, tmp_path, [], NOBODY)
    assert mine.exists()
    for _ in range(2):  # its own it writes again
        assert _project(None, tmp_path / "f", [], NOBODY) == tmp_path / "f" / "project"


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """A federation with certificates for ten more days."""
    pytest.importorskip("cryptography", reason="needs polyrhythm[flower]")
    monkeypatch.setattr(keys, "DAYS", 10)
    assert keys.make_authority(tmp_path)
    monkeypatch.setattr(keys, "DAYS", 365)
    told: list[str] = []
    federation = Loopback(tmp_path, tell=told.append)
    federation.told = told  # type: ignore[attr-defined]
    return federation


def test_certificates_are_made_anew_before_they_end(certificates: Loopback) -> None:
    certificates._certify(running=True)  # not under programs that hold them
    assert 9 < (keys.days_left(certificates.folder) or 0) < 11
    certificates._certify(running=False)
    assert 364 < (keys.days_left(certificates.folder) or 0) < 366
    certificates._certify(running=False)
    told = certificates.told  # type: ignore[attr-defined]
    assert told == ["the certificates of this federation were good for 10 more days, and are made anew"]


def test_certificates_that_have_ended(certificates: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "days_left", lambda folder: -5.0)
    with pytest.raises(pr.UserError, match="ended 5 days ago, and the federation is still up"):
        certificates._certify(running=True)
    certificates._certify(running=False)
    assert certificates.told == ["the certificates of this federation were out of date, and are made anew"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["ca.crt", "server.crt", "ca.key", "server.key"])
def test_damaged_or_missing_keys_are_made_anew(certificates: Loopback, name: str) -> None:
    path = certificates.folder / name
    path.write_bytes(b"")
    assert keys.make_authority(certificates.folder)
    os.unlink(path)
    assert keys.make_authority(certificates.folder)
    assert not keys.make_authority(certificates.folder)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired (_ssl.c:1006)",
            "expired",
        ),
        ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid", "clocks"),
        ("CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate", "not from the authority"),
        ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 8001): address already in use", "--port"),
        ("OSError: [Errno 98] Address already in use", "address in use"),
    ],
)
def test_a_log_is_understood(log: str, words: str) -> None:
    assert words in diagnosed(log)


def test_a_federation_on_this_machine_listens_on_loopback_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="needs flwr: pip install 'polyrhythm[flower]'")
    started = dict[str, list[str]]()

    def start(self: Processes, name: str, command: list[str], environment: Any) -> Started:
        started[name] = command
        return Started(name=name, pid=0, born="", log="")

    monkeypatch.setattr(loopback, "programs", lambda: None)
    monkeypatch.setattr(loopback, "check_free", lambda ports: None)
    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(Loopback, "flwr", lambda self, *arguments: {})
    Loopback(tmp_path / "f", 8000, tell=lambda text: None).up(2)
    assert set(started) == {"superlink", "node 0", "node 1"}
    for name, command in started.items():
        hosts = [command[place + 1] for place, word in enumerate(command) if word == "--host"]
        assert hosts == ["127.0.0.1"], name
        assert not [word for word in command if "0.0.0.0" in word or word == "--insecure"], name
    assert "--enable-supernode-auth" in started["superlink"]
    assert "--ssl-certfile" in started["superlink"]
