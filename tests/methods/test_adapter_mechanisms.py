"""Every recipe of adapters with every mechanism of the five papers: it runs, or is refused in words before any work."""

from __future__ import annotations

import pytest
import torch

from grid.trip import travel
from polyrhythm.base.errors import UserError
from polyrhythm.methods.recipe import Recipe
from scripts import script

MAKER = script("docs/make_methods.py")
SMALL = "rank_prefix(rank=[3, 1])"
CASES = [*((name, "") for name in MAKER.ADAPTERS), *((name, SMALL) for name in MAKER.RANKED)]


@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_each_pair_runs_or_is_refused_in_words(name: str, ranks: str) -> None:
    ran = refused = 0
    for mechanism in (one for some in MAKER.MECHANISMS.values() for one in some):
        try:
            recipe = MAKER.with_mechanism(name, mechanism, ranks)
        except UserError as error:
            refused += all((error.found, error.expected, error.why, error.fix))
            continue
        trip = travel(recipe, "adapters")
        assert trip.finite, (name, mechanism)
        assert not torch.equal(trip.models[0][0], trip.models[-1][0]), (name, mechanism)
        ran += 1
    assert ran + refused == sum(map(len, MAKER.MECHANISMS.values()))
    assert ran >= 10


def test_what_is_refused_is_a_matter_of_the_equation() -> None:
    """Each recipe takes ALT and all curricula, whose equations do not ask how adapters are averaged."""
    for name in MAKER.ADAPTERS:
        for mechanism in (*MAKER.MECHANISMS["ALT"], *MAKER.MECHANISMS["curricula"]):
            assert isinstance(MAKER.with_mechanism(name, mechanism), Recipe)
