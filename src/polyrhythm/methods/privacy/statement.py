"""What may be said of the privacy of a run: one paragraph and a table, in honest words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

from polyrhythm.methods.privacy.accounting import Accountant, Sampling, visits_in
from polyrhythm.methods.privacy.effects import Law

_ZERO_OUT = "zero out (a client's data become nothing: it is drawn and answers as before, and adds zero)"
_RELATIONS: Mapping[Law, str] = {
    "poisson": _ZERO_OUT,
    "fixed_size": "replace one (a client's data become any others)",
    "bounded": _ZERO_OUT,
    "banded": _ZERO_OUT,
}
_BY: Mapping[Law, Mapping[Accountant, str]] = {
    "poisson": {"pld": "privacy loss distributions", "rdp": "Renyi divergences"},
    "fixed_size": {"pld": "Renyi divergences", "rdp": "Renyi divergences"},
    "bounded": {"pld": "the Gaussian mechanism's exact curve", "rdp": "the Gaussian mechanism's exact curve"},
    "banded": {"pld": "the Gaussian mechanism's exact curve", "rdp": "the Gaussian mechanism's exact curve"},
}


@final
@dataclass(frozen=True, kw_only=True)
class Statement:
    """Privacy statement of a run: the answers to what anybody should ask of an epsilon.

    Args:
        epsilon: of all versions; None where there is no noise, and so no guarantee.
        delta: the probability that it does not hold.
        unit: who is protected.
        relation: between which data sets it holds.
        sampling: who comes into versions.
        mechanism: what is done to what they say.
        released: what it covers, and how much of it there was.
        accountant: by which bound.
        guarantee: of which kind.
        outside: what it does not cover.
    """

    epsilon: float | None
    delta: float
    unit: str
    relation: str
    sampling: str
    mechanism: str
    released: str
    accountant: str
    guarantee: str
    outside: tuple[str, ...]

    @property
    def text(self) -> str:
        """The paragraph."""
        if self.epsilon is None:
            return "No guarantee of privacy: updates are clipped, and no noise is added to their sum."
        who = f"{self.sampling[:1].upper()}{self.sampling[1:]}"
        return (
            f"({self.epsilon:.4g}, {self.delta:g})-differential privacy of {self.unit}, {self.guarantee}. It covers "
            f"{self.released}; neighbours by {self.relation}. {who}; {self.mechanism}. "
            f"Bounded by {self.accountant}. It does not cover {'; '.join(self.outside)}."
        )

    @property
    def rows(self) -> dict[str, str]:
        """The table."""
        worth = "infinite" if self.epsilon is None else f"{self.epsilon:.4g}"
        told = {k: v for k, v in asdict(self).items() if isinstance(v, str)}
        return {"epsilon": worth, "delta": f"{self.delta:g}", **told, "outside": "; ".join(self.outside)}

    def plain(self) -> dict[str, Any]:
        """Everything, as the record has it."""
        return {**asdict(self), "outside": list(self.outside), "text": self.text}


def relation(law: Law) -> str:
    """Between which data sets a guarantee under a law holds."""
    return _RELATIONS[law]


def bound(law: Law, accountant: Accountant) -> str:
    """By what epsilon is bounded."""
    return _BY[law][accountant]


def sampling_words(sampling: Sampling, count: int) -> str:
    """Who comes into versions.

    Args:
        sampling: in numbers.
        count: what its law counts so far.
    """
    if sampling.law == "poisson":
        return f"every one of {sampling.population:,} clients by a coin of its own, with probability {sampling.rate:g}"
    if sampling.law == "fixed_size":
        return f"{sampling.cohort:,.0f} of {sampling.population:,} clients in each version, without replacement"
    if sampling.law == "banded":
        visits = visits_in(sampling, count)
        return (
            f"in turn, in one fixed order, none of {sampling.population:,} clients in two versions less than "
            f"{sampling.bands} apart, so in no more than {visits:,}"
        )
    if sampling.adapts:
        return (
            "by a schedule that follows released models, by which none of "
            f"{sampling.population:,} clients can have been in more than {count:,} version{'' if count == 1 else 's'}"
        )
    return (
        f"by a schedule that does not depend on private data, nobody of {sampling.population:,} clients in more than "
        f"{count:,} version{'' if count == 1 else 's'}"
    )
