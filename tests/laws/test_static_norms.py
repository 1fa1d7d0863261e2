"""Static BatchNorm: statistics of norms neither move in training nor travel, and change no weight."""

from __future__ import annotations

from hypothesis import strategies as st

from polyrhythm.base.settings import Settings
from polyrhythm.base.vectors import Buffers
from polyrhythm.core import training, versions
from polyrhythm.methods.capacity.base import Widths
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Momentum

from .law import law, swap
from .trials import Trial, trials
from .world import alike, play, run, same

KINDS = (WidthPrefix, RollingWindow)
LEVELS = (1.0, (1.0, 0.5))


@law(
    trial=trials(nets=("perceptron", "dropout")),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    others=st.sampled_from(((), (Momentum(),))),
    broken_by={
        "half of it": swap(Widths, "level_of", lambda self, setup, client, version: 0.5 if self.static_norms else 1.0),
    },
)
def test_without_batchnorm_it_changes_nothing(
    trial: Trial, kind: type[Widths], levels: float | tuple[float, ...], others: tuple[Settings, ...]
) -> None:
    """Every model, update and loss, to the bit."""
    parts = (kind(ratio=levels, static_norms=still) for still in (False, True))
    assert alike(*(run(trial.recipe(*others, part), trial.federation) for part in parts))


def _moved(buffers: Buffers) -> Buffers:
    return tuple(buffer + 1 for buffer in buffers)


@law(
    trial=trials(nets=("batchnorm",)),
    kind=st.sampled_from(KINDS),
    levels=st.sampled_from(LEVELS),
    others=st.sampled_from(((), (Buffer(size=2),))),
    broken_by={
        "clients send their own": swap(training, "with_statistics", lambda layout, buffers, others: buffers),
        "the server keeps those of training": swap(
            versions, "with_statistics", lambda layout, own, others: tuple(b + 1 for b in others)
        ),
    },
)
def test_statistics_stay_as_they_were_and_weights_do_not_mind(
    trial: Trial, kind: type[Widths], levels: float | tuple[float, ...], others: tuple[Settings, ...]
) -> None:
    """In training a batch is normalised by itself, so all weights are those of a run with statistics, to the bit."""
    plain, still = (
        play(trial.recipe(*others, kind(ratio=levels, static_norms=on)), trial.federation) for on in (False, True)
    )
    begun = still.states[0].buffers
    for before, after in zip(plain.states, still.states, strict=True):
        assert same(before.weights, after.weights)
        assert all(same(a, b) for a, b in zip(after.buffers, begun, strict=True))
    for dispatch, report in still.reports.items():
        if report.fresh:
            assert all(same(a, b) for a, b in zip(report.buffers, still.assignments[dispatch].buffers, strict=True))
