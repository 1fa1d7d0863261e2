"""Any text can be written in any encoding."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.cli.encoding import plainly

codecs.register_error("test.plain", plainly)


@given(st.characters(), st.sampled_from(["ascii", "latin-1", "cp1252"]))
def test_what_fits_stays_and_the_rest_becomes_ascii(character: str, encoding: str) -> None:
    written = f"a{character}z".encode(encoding, "test.plain").decode(encoding)[1:-1]
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        assert written
        assert written.isascii()
    else:
        assert written == character


@pytest.mark.parametrize(
    ("text", "written"),
    [("0.1 ± 0.02", "0.1 +/- 0.02"), ("8×8", "8x8"), ("é–…", "e-..."), ("名", "?"), ("\udcff", "?")],
)
def test_what_is_known_is_spelt_out(text: str, written: str) -> None:
    assert text.encode("ascii", "test.plain") == written.encode()


def test_other_mistakes_stay_mistakes() -> None:
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", "test.plain")
