"""Fashion-MNIST with the clients of CC-FedAvg's authors: the deal that their program makes with the seed it always has.

python docs/deal_of_ccfl.py                 how even its clients and cohorts are, beside random ones
python docs/deal_of_ccfl.py deal.npz        the data, with the client of each training sample
PYTHONPATH=docs polyrhythm study docs/deal_of_ccfl.toml --trust deal_of_ccfl
                                            Table 2 at 10 % with these data, and with these cohorts

Shards as in `shards(per_client=2)`. Which of them a client gets, and who is invited, follows from NumPy's global
generator, seeded with 111, as the program draws (github.com/benjiachong/ccfedavg, `utils/sampling.py` and
`main_fed.py`): two shards of those that are left, client by client, in the order in which CPython has a set of them;
then, round by round, a cohort, and coins for three quarters of the clients, whatever the method, so that all rows of
the paper's table share deal and cohorts. Pixels are scaled as `fashion_mnist` does it.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm import extend
from polyrhythm.data.sources.idx import fashion_mnist

SEED, CLIENTS, SHARDS, CLASSES, ROUNDS, LAST = 111, 100, 200, 10, 400, 20
DRAWS = 300


@final
@dataclass(frozen=True, kw_only=True)
class Drawn(extend.Participation):
    """The cohorts of the authors' program, whatever the seed; they are for 100 clients and 400 rounds.

    Args:
        cohort: clients a round.
    """

    cohort: extend.Count | None = None

    def invite(
        self, setup: extend.Setup, state: extend.State, context: extend.InvitationContext
    ) -> tuple[extend.State, extend.Invitations]:
        """Those that the program invites in this round."""
        return state, extend.to_train(tuple(map(int, drawn(self.size)[1][context.version])))


@functools.cache
def drawn(cohort: int) -> tuple[np.ndarray, np.ndarray]:
    """The shards of each client, [100, 2], and who is invited in each round, [400, cohort]."""
    random = np.random.RandomState(SEED)
    left = list(range(SHARDS))
    dealt = []
    for _ in range(CLIENTS):
        shards = {int(shard) for shard in random.choice(left, 2, replace=False)}
        left = list(set(left) - shards)  # not in order, once few are left
        dealt.append(sorted(shards))
    invited = []
    for number in range(ROUNDS):
        invited.append(random.choice(range(CLIENTS), cohort, replace=False))
        if number:
            random.rand(3 * (CLIENTS // 4))
    return np.array(dealt), np.array(invited)


def unevenness(dealt: np.ndarray, invited: np.ndarray) -> np.ndarray:
    """How far the classes of each cohort are from those of all: the total variation distance, [rounds]."""
    shares = np.zeros((CLIENTS, CLASSES))
    for who, shards in enumerate(dealt):
        np.add.at(shares[who], shards // (SHARDS // CLASSES), 0.5)
    found: np.ndarray = 0.5 * np.abs(shares[invited].mean(axis=1) - 1.0 / CLASSES).sum(axis=1)
    return found


def single(dealt: np.ndarray) -> int:
    """Clients both of whose shards are of one class."""
    classes = dealt // (SHARDS // CLASSES)
    return int((classes[:, 0] == classes[:, 1]).sum())


def compared(cohort: int) -> str:
    """Theirs beside random ones, in words."""
    dealt, invited = drawn(cohort)
    random = np.random.default_rng(0)
    alone, last = [], []
    for _ in range(DRAWS):
        other = random.permutation(SHARDS).reshape(CLIENTS, 2)
        cohorts = np.array([random.choice(CLIENTS, cohort, replace=False) for _ in range(LAST)])
        alone.append(single(other))
        last.append(unevenness(other, cohorts).mean())
    return (
        f"cohorts of {cohort}: {single(dealt)} clients of one class (random deals {np.mean(alone):.1f} ± "
        f"{np.std(alone):.1f}); the last {LAST} cohorts are {unevenness(dealt, invited)[-LAST:].mean():.3f} from even "
        f"(random ones {np.mean(last):.3f} ± {np.std(last):.3f})"
    )


def write(path: str) -> None:
    """Writes the arrays, with the client of each training sample."""
    data = fashion_mnist()
    by_class = np.argsort(np.asarray(data.train.targets), kind="stable").reshape(SHARDS, -1)
    client = np.empty(by_class.size, dtype=np.int64)
    for who, shards in enumerate(drawn(CLIENTS // 10)[0]):
        client[by_class[shards]] = who
    np.savez(
        path,
        x_train=data.train.inputs.numpy(),
        y_train=np.asarray(data.train.targets),
        client_train=client,
        x_test=data.test.inputs.numpy(),
        y_test=np.asarray(data.test.targets),
    )


def main() -> None:
    """Says how even they are, or writes the data."""
    if len(sys.argv) > 1:
        write(sys.argv[1])
    else:
        print(compared(10), compared(20), sep="\n")


if __name__ == "__main__":
    main()
