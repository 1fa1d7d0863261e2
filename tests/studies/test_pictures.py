"""Figures of pages: fewer bytes, and the same picture."""

from __future__ import annotations

from polyrhythm.studies.page.pictures import lean

SVG = (
    '<svg width="10" height="10"><path aria-label="a: 1" role="mark" d="M1.23456,2h3v4h-3Z" fill="#0D629E"/>'
    '<path d="M5,2h3v4h-3Z" fill="#0D629E"/><path d="M9,2h3v4h-3Z" fill="#FFFFFF"/>'
    "<text>b = 0.0025</text><text>−0.00125</text></svg>"
)


def test_what_is_written_stays_as_it_is() -> None:
    assert "<text>b = 0.0025</text><text>−0.00125</text>" in lean(SVG)


def test_marks_of_one_colour_in_a_row_are_one_mark() -> None:
    assert lean(SVG).count("<path") == 2
    assert '<path d="M1.23,2h3v4h-3ZM5,2h3v4h-3Z" fill="#0D629E"/>' in lean(SVG)
    assert "aria" not in lean(SVG)
