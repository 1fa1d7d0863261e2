"""What a part does to the privacy of clients: it leaves it alone, changes the law of accounting, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Law = Literal["poisson", "fixed_size", "bounded", "banded"]
"""How clients come into versions, as far as accounting may know:

- "poisson": every client by a coin of its own in each version, so that the others are no secret's neighbours;
- "fixed_size": so many in each version, drawn without replacement;
- "bounded": by any schedule that does not depend on private data, nobody in more than k versions;
- "banded": nobody in two versions less than b apart, with noise that is correlated over b. No part draws by it: it is
  "bounded", in turns, with such noise.
"""
LAWS: frozenset[Law] = frozenset({"poisson", "fixed_size", "bounded"})


@final
@dataclass(frozen=True, kw_only=True)
class PrivacyEffect:
    """Effect of a part on the guarantee that `dp` gives.

    Args:
        words: what it does, as the end of "it …" or, if refused, why it cannot be accounted for.
        refused: whether there is no guarantee with it.
        draws: the law by which it draws clients, if it does that.
        keeps: the laws that hold with it; another one becomes "bounded".
        excludes: the laws with which it is refused.
        adapts: whether who is in a version follows from the models of earlier ones.
        fix: what to do if it is refused.
    """

    words: str
    refused: bool = False
    draws: Law | None = None
    keeps: frozenset[Law] = LAWS
    excludes: frozenset[Law] = frozenset()
    adapts: bool = False
    fix: str = ""


def inside(words: str = "works inside a client's visit, of which only the clipped update counts") -> PrivacyEffect:
    """What happens before a client's update is clipped."""
    return PrivacyEffect(words=words)


def after(words: str = "works on released models: post-processing") -> PrivacyEffect:
    """What only looks at what has noise already."""
    return PrivacyEffect(words=words)


def timed(words: str, *keeps: Law, excludes: Law | None = None) -> PrivacyEffect:
    """What decides by clock, order or chance, and never by private data, who is in a version.

    Args:
        words: how.
        keeps: the laws that hold with it, beside "bounded".
        excludes: a law with which it makes no sense.
    """
    return PrivacyEffect(
        words=words,
        keeps=frozenset({"bounded", *keeps}),
        excludes=frozenset() if excludes is None else frozenset({excludes}),
    )


def drawing(law: Law, words: str) -> PrivacyEffect:
    """What draws clients by a law."""
    return PrivacyEffect(words=words, draws=law)


def adapting(words: str) -> PrivacyEffect:
    """What decides by released models, and so by their noise, how many are in a version.

    Nobody's chances are known before, nor how often anybody will have been in: the account is of the most that may be.

    Args:
        words: how.
    """
    return PrivacyEffect(words=words, keeps=frozenset({"bounded"}), adapts=True)


def refused(why: str, fix: str = "") -> PrivacyEffect:
    """What cannot be accounted for."""
    return PrivacyEffect(words=why, refused=True, fix=fix)


INSIDE = inside()
"""The effect of what happens before a client's update is clipped."""
AFTER = after()
"""The effect of what only looks at what has noise already."""
UNSAID = refused(
    "it does not say what it does to privacy, and whatever looks at what clients sent may give it away",
    "if it never looks past the clipped sum, say so: `privacy = INSIDE` or `privacy = AFTER` of polyrhythm.extend in "
    "its class",
)
