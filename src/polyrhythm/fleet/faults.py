"""What goes wrong on devices and on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Ge

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Fraction, NonNegative, Positive, Settings


@final
@dataclass(frozen=True, kw_only=True)
class Faults(Settings):
    """Things that go wrong by chance, independently of each other and of the method.

    Each is drawn from a stream that is named by it and by the visit, so a plan is the same in every run
    with that seed, and one more fault moves none of the others. Everything at 0 is exactly no faults. Whatever becomes
    of a visit, its client goes on from the state of its last accepted one.

    Args:
        dropout: on devices, probability that a client gives a visit up, at a moment drawn uniformly over its duration;
            what it has cost by then is spent.
        crash: probability that its device fails in a visit, at such a moment, and is away for `downtime`.
        downtime: seconds until it is back.
        slow: probability that a visit computes `slowdown` times as long as it should, which nobody foresees.
        slowdown: 1 or more.
        nan: probability that the update of a visit that trained has a weight that is no number.
        inflate: probability that such an update is `inflation` times as long.
        inflation: a factor.
        malformed: probability that such a report has another shape, dtype, recipe or number of samples, or lacks what
            the method needs.
        secagg_dropout: four probabilities, that a client is gone before each stage of `secagg`: before it has sent its
            keys, its letters, its masked update, its shares of others. Empty for none.
        lost: on the way, probability that a report does not arrive; the server hears of it when it should have.
        duplicate: probability that a report arrives a second time, by up to as long later as the visit took.
        stray: probability that a report comes beside that nobody asked for: of another client, of another version, or
            of an assignment that there never was.
        corrupt: probability that some bits of a report are flipped.
        checksum: whether reports carry a checksum, by which every such report is known; else what is flipped to no
            number is refused, and the rest is taken for true.
    """

    dropout: Fraction = 0.0
    crash: Fraction = 0.0
    downtime: NonNegative = 600.0
    slow: Fraction = 0.0
    slowdown: Annotated[float, Ge(1)] = 10.0
    nan: Fraction = 0.0
    inflate: Fraction = 0.0
    inflation: Positive = 1000.0
    malformed: Fraction = 0.0
    secagg_dropout: tuple[Fraction, ...] = ()
    lost: Fraction = 0.0
    duplicate: Fraction = 0.0
    stray: Fraction = 0.0
    corrupt: Fraction = 0.0
    checksum: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.secagg_dropout) not in (0, 4):
            raise UserError(
                f"faults: secagg_dropout = {list(self.secagg_dropout)}",
                expected="four probabilities, for keys, letters, masked updates and shares",
                why="each stage of secagg has one of its own",
                fix="secagg_dropout = [0, 0, 0.1, 0]",
            )

    @property
    def on_reports(self) -> bool:
        """Whether anything happens to what clients send."""
        return any((self.nan, self.inflate, self.malformed, self.duplicate, self.stray, self.corrupt))
