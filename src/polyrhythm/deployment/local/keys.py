"""Keys for a federation: an authority of its own, the server's certificate, and a key for each node."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

DAYS = 365
RENEWED = 30
"""Days before its certificates end at which an authority is made anew."""


def days_left(folder: Path) -> float | None:
    """How many days the certificates in a folder are still good for; None where there are none, or none can be read."""
    from cryptography import x509

    try:
        ends = [
            x509.load_pem_x509_certificate((folder / name).read_bytes()).not_valid_after_utc
            for name in ("ca.crt", "server.crt")
        ]
        keys = [(folder / name).read_bytes() for name in ("ca.key", "server.key")]
    except (OSError, ValueError):
        return None
    return (min(ends) - datetime.datetime.now(datetime.UTC)) / datetime.timedelta(days=1) if all(keys) else None


def make_authority(folder: Path) -> bool:
    """Writes `ca.key`, `ca.crt`, `server.key` and `server.crt` for a server on this machine.

    What is there stays as it is while it is good for some weeks; gives whether it was made anew.
    """
    left = days_left(folder)
    if left is not None and left > RENEWED:
        return False
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("polyrhythm loopback authority")
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = _certificate(issuer, issuer, authority.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    root = root.add_extension(signs, critical=True)
    own, by = x509.SubjectKeyIdentifier.from_public_key, x509.AuthorityKeyIdentifier.from_issuer_public_key
    root = root.add_extension(own(authority.public_key()), critical=False)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    served = _certificate(_name("localhost"), issuer, server.public_key())
    served = served.add_extension(x509.SubjectAlternativeName(names), critical=False)
    served = served.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    served = served.add_extension(own(server.public_key()), critical=False)
    served = served.add_extension(by(authority.public_key()), critical=False)
    _write(folder / "ca.key", _private(authority, openssh=False))
    _write(folder / "ca.crt", root.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
    _write(folder / "server.key", _private(server, openssh=False))
    _write(folder / "server.crt", served.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
    return True


def make_node_key(path: Path) -> None:
    """Writes a node's private key, and beside it the public one with the ending `.pub`, if they are not there."""
    public = path.with_suffix(".pub")
    if public.exists():
        return
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, _private(key, openssh=True))
    _write(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _name(common: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _certificate(subject: Any, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _private(key: Any, *, openssh: bool) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    form = PrivateFormat.OpenSSH if openssh else PrivateFormat.PKCS8
    written: bytes = key.private_bytes(Encoding.PEM, form, NoEncryption())
    return written


def _write(path: Path, content: bytes) -> None:
    """A file that nobody else may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
