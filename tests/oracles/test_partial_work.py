"""FedProx's partial work on three kinds of devices, with every number worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.fleet import Device, Devices, FixedLinks, Fleet, Place
from polyrhythm.methods.release.base import Deadline
from polyrhythm.methods.work.partial_work import PartialWork
from small import collection, dealt, logged


class Three(Devices):
    """Client i needs 1/8, 1/4 and 2 seconds for a sample."""

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=(0.125, 0.25, 2.0)[client])


# A logistic model of 4 features and 3 classes: 15 weights of 4 bytes, 1/2 second down and 1 second up.
FLEET = Fleet(devices=Three(), links=FixedLinks(down=120.0, up=60.0))
# Each holds 20 samples: an epoch of four steps of 5.
DATA: dict[str, Any] = {"federation": dealt(collection(), [20, 20, 20]), "fleet": FLEET, "rounds": 2}


def test_who_is_slow_does_what_it_can_by_hand() -> None:
    """Of 11.5 seconds 10 are left for computing.

    Client 0: 80 samples, 16 steps, of which it plans 12. Client 1: 40 samples, 8 steps. Client 2: 5 samples take 10
    seconds: one step, exactly in time.
    """
    recipe = pr.fedprox(mu=0.1, partial=11.5, cohort=3, epochs=3, batch=5)
    summary, log = logged(recipe=recipe, **DATA)
    assert {v.client: v.steps for v in log.visits} == {0: 12, 1: 8, 2: 1}
    assert {v.client: v.finished - v.started for v in log.visits} == {0: 9.0, 1: 11.5, 2: 11.5}
    assert [v.status for v in log.visits] == ["trained"] * 6
    assert [(v.accepted, v.dropped) for v in log.versions[1:]] == [(3, 0), (3, 0)]
    assert [v.time for v in log.versions] == [0.0, 11.5, 23.0]
    assert summary["local_steps"] == 2 * (12 + 8 + 1)


def test_who_is_slow_is_dropped_where_it_must_do_all() -> None:
    """They need 9, 16.5 and 121.5 seconds: with the same deadline FedAvg hears only the first."""
    recipe = pr.fedavg(cohort=3, epochs=3, batch=5) | pr.parts.deadline(seconds=11.5)
    _, log = logged(recipe=recipe, **DATA)
    assert (log.versions[1].accepted, log.versions[1].dropped, log.versions[1].time) == (1, 2, 11.5)
    assert [v.client for v in log.visits if v.version == 0 and v.status == "trained"] == [0]


def test_the_recipe_is_made_of_parts() -> None:
    whole = pr.fedprox(mu=0.1, partial=30.0, cohort=3)
    parts = pr.fedprox(mu=0.1, cohort=3) | PartialWork(seconds=30.0) | Deadline(seconds=30.0)
    assert whole.digest == parts.digest
    assert whole.title == "fedprox"
    assert pr.fedprox(mu=0.1, partial=None, cohort=3).digest == pr.fedprox(mu=0.1, cohort=3).digest
    with pytest.raises(pr.UserError) as refused:
        pr.fedprox(partial=-1.0)
    assert "partial_work: seconds = -1.0" in refused.value.found
