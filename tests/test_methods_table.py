"""The table of all methods is up to date, and no method is without a law or a computation by hand."""

from __future__ import annotations

from types import ModuleType

import pytest

from scripts import script

BOUNDS = ("centralised", "local_only")
"""FedAvg with all data in one place, and without a server: of no part of their own, and held by laws alone."""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return script("docs/make_methods.py")


def test_the_page_is_what_the_source_and_the_tests_give(maker: ModuleType) -> None:
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page(), "python docs/make_methods.py"


def test_every_method_has_a_law_that_can_fail_and_a_computation_by_hand(maker: ModuleType) -> None:
    rows = [maker.row(name) for name in maker.names()]
    assert [row.name for row in rows if not row.laws or row.mutants < len(row.laws)] == []
    assert [row.name for row in rows if not row.oracles and row.name not in BOUNDS] == []
    assert [row.name for row in rows if row.name not in (*BOUNDS, "fedavg") and not row.parts and not row.oracles] == []


def test_code_is_counted_without_words_about_it(maker: ModuleType) -> None:
    source = """
    class Part:
        \'\'\'What it is.

        At length.
        \'\'\'

        rate: float = 1.0  # a comment
        \'\'\'An attribute.\'\'\'

        def of(self) -> float:
            # Why.
            return (
                self.rate
            )
    """.replace("\\", "")
    assert maker.code_lines(source) == 6


def test_what_a_test_names_is_followed_through_its_file(maker: ModuleType) -> None:
    found = maker.tests_of(maker.TESTS / "methods" / "test_by_hand.py")
    assert "RateSampling" in found["test_rates_by_hand"]
    assert "DiverseSampling" not in found["test_rates_by_hand"]
