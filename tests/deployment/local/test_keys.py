"""Keys of a federation on this machine: nobody else's to read, and made anew in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.deployment.local import keys
from polyrhythm.deployment.local.loopback import diagnosed

pytest.importorskip("cryptography", reason="comes with flwr: pip install 'polyrhythm[flower]'")


def test_certificates_are_renewed_before_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys.is_ending(tmp_path)
    keys.make_authority(tmp_path)
    assert not keys.is_ending(tmp_path)
    (tmp_path / "server.crt").write_text("no certificate")
    assert keys.is_ending(tmp_path)
    monkeypatch.setattr(keys, "DAYS", 29)
    keys.make_authority(tmp_path)
    assert keys.is_ending(tmp_path)
    monkeypatch.setattr(keys, "DAYS", 365)
    keys.make_authority(tmp_path)
    assert not keys.is_ending(tmp_path)


def test_what_belongs_to_a_federation_is_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / ".flower"
    folder.mkdir(mode=0o755)
    keys.make_private(folder)
    keys.make_authority(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_certificate_that_has_ended_is_said_in_words() -> None:
    log = "Traceback …\nSSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: certificate has expired"
    assert diagnosed(log).startswith("the SuperLink's certificate has ended")
