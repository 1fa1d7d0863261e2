"""Ward's rule: joins what is least unlike, as long as no group becomes too heavy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def merged(away: np.ndarray, masses: Sequence[int], most: int, least: int) -> list[list[int]]:
    """The members of each group, in the order of their first ones.

    The tree of all joins is Ward's, by the recurrence of Lance and Williams on the distances as they are given; of its
    levels it is the one with the fewest groups that has at least `least`, none of them heavier than `most` unless it
    is of one member.

    Args:
        away: distances [n, n].
        masses: of each.
        most: mass of a group.
        least: groups.
    """
    count = len(masses)
    groups = {i: [i] for i in range(count)}
    squares = away.astype(np.float64) ** 2
    np.fill_diagonal(squares, np.inf)
    levels = [list(groups.values())]
    for _ in range(count - max(1, least)):
        i, j = sorted(divmod(int(squares.argmin()), count))
        a, b, between = len(groups[i]), len(groups[j]), squares[i, j]
        for k in groups:
            if k not in (i, j):
                c = len(groups[k])
                joined = ((a + c) * squares[i, k] + (b + c) * squares[j, k] - c * between) / (a + b + c)
                squares[i, k] = squares[k, i] = joined
        squares[j, :] = squares[:, j] = np.inf
        groups[i] = groups[i] + groups.pop(j)
        levels.append(list(groups.values()))
    for level in reversed(levels):
        if all(len(group) == 1 or sum(masses[i] for i in group) <= most for group in level):
            break
    return sorted((sorted(group) for group in level), key=lambda group: group[0])
