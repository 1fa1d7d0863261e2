"""Keys for a federation: an authority of its own, the server's certificate, and a key for each node."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

DAYS = 365
_LEFT = 30  # days; a federation may be up for so long


def make_authority(folder: Path) -> None:
    """Writes `ca.key`, `ca.crt`, `server.key` and `server.crt` for a server on this machine, in place of older ones."""
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


def is_ending(folder: Path) -> bool:
    """Whether what `make_authority` has written is not there, damaged, or valid for less than a month."""
    from cryptography import x509

    try:
        certificates = [
            x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes()) for name in ("ca", "server")
        ]
    except (OSError, ValueError):
        return True
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_LEFT)
    return any(certificate.not_valid_after_utc < until for certificate in certificates)


def make_private(folder: Path) -> None:
    """Makes a folder that nobody else may enter, or shuts one that is there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


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
