"""What befalls files: bytes that are lost, changed or moved, and other files under their names."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping

from drawn.case import Draw


def _flipped(draw: Draw, raw: bytes) -> bytes:
    spoiled = bytearray(raw)
    for _ in range(draw.choice([1, 1, 1, 3, 9])):
        spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
    return bytes(spoiled)


def _moved(draw: Draw, raw: bytes) -> bytes:
    a, b, c = sorted(draw.randrange(len(raw) + 1) for _ in range(3))
    return raw[:a] + raw[b:c] + raw[a:b] + raw[c:]


SPOILS: Mapping[str, Callable[[Draw, bytes], bytes]] = {
    "as it was": lambda draw, raw: raw,
    "flipped": _flipped,
    "flipped at its head": lambda draw, raw: _flipped(draw, raw[:120]) + raw[120:],
    "flipped at its end": lambda draw, raw: raw[:-100] + _flipped(draw, raw[-100:]),
    "cut off": lambda draw, raw: raw[: draw.randrange(len(raw))],
    "cut off at its end": lambda draw, raw: raw[: -draw.randrange(1, 12)],
    "without its head": lambda draw, raw: raw[draw.randrange(1, len(raw)) :],
    "empty": lambda draw, raw: b"",
    "zeros in it": lambda draw, raw: _zeroed(draw, raw, 0),
    "ones in it": lambda draw, raw: _zeroed(draw, raw, 255),
    "twice": lambda draw, raw: raw + raw,
    "more after it": lambda draw, raw: raw + draw.choice([b"\0", b"\n", b"more", bytes(600)]),
    "more before it": lambda draw, raw: draw.choice([b"\0", b"\n", b"\xef\xbb\xbf", b"more"]) + raw,
    "moved": _moved,
    "chance": lambda draw, raw: draw.randbytes(draw.randrange(1, 400)),
    "packed": lambda draw, raw: gzip.compress(raw, mtime=0),
    "text": lambda draw, raw: "ein Text, älter\n".encode(draw.choice(["utf-8", "latin-1", "utf-16"])) * 3,
    "a zip": lambda draw, raw: _zipped(),
    "JSON": lambda draw, raw: draw.choice([b"{}", b"[]", b"null", b"3", b'{"a": 1}', b"[" * 9000, b"1e999", b"NaN"]),
    "ends of lines": lambda draw, raw: raw.replace(b"\n", draw.choice([b"\r\n", b"\r", b"\n\n"])),
    "a number": lambda draw, raw: _numbered(draw, raw),
}


def _zeroed(draw: Draw, raw: bytes, value: int) -> bytes:
    begin = draw.randrange(len(raw))
    end = min(len(raw), begin + draw.randrange(1, 40))
    return raw[:begin] + bytes([value]) * (end - begin) + raw[end:]


def _zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("readme.txt"), "nothing else")
    return out.getvalue()


def _numbered(draw: Draw, raw: bytes) -> bytes:
    """Another number in the place of one that stands in it as text."""
    places = [i for i, byte in enumerate(raw) if chr(byte).isdigit()]
    if not places:
        return raw
    place = draw.choice(places)
    other = draw.choice([b"-1", b"1e999", b"9" * 5000, b"nan", b"true", b"", b"0", b"1_0", b"-0", b"1e-320", b'"x"'])
    return raw[:place] + other + raw[place + 1 :]
