"""Fashion-MNIST with the clients of CC-FedAvg's authors: the deal that their program makes with the seed it always has.

python docs/deal_of_ccfl.py deal.npz
polyrhythm study ccfl/table-2 --scale paper --column "10 %" --set "data=npz(path=deal.npz)" \
    --set "partition=by_column(column=client)" --set "fleet=uniform | budgets(levels=4, order=code)"

Shards as in `shards(per_client=2)`; which of them a client gets follows from NumPy's global generator, seeded with 111,
as `utils/sampling.py` of the program draws (github.com/benjiachong/ccfedavg): two of those that are left, client by
client. Pixels are scaled as `fashion_mnist` does it.
"""

from __future__ import annotations

import sys

import numpy as np

from polyrhythm.data.sources.idx import fashion_mnist

SEED, CLIENTS, SHARDS = 111, 100, 200


def deal() -> np.ndarray:
    """The shards of each client, [100, 2]."""
    random = np.random.RandomState(SEED)
    left = list(range(SHARDS))
    dealt = []
    for _ in range(CLIENTS):
        drawn = {int(shard) for shard in random.choice(left, 2, replace=False)}
        left = [shard for shard in left if shard not in drawn]
        dealt.append(sorted(drawn))
    return np.array(dealt)


def main(path: str) -> None:
    """Writes the arrays, with the client of each training sample."""
    data = fashion_mnist()
    by_class = np.argsort(np.asarray(data.train.targets), kind="stable")
    client = np.empty(len(by_class), dtype=np.int64)
    for who, shards in enumerate(deal()):
        for shard in shards:
            client[by_class.reshape(SHARDS, -1)[shard]] = who
    np.savez(
        path,
        x_train=data.train.inputs.numpy(),
        y_train=np.asarray(data.train.targets),
        client_train=client,
        x_test=data.test.inputs.numpy(),
        y_test=np.asarray(data.test.targets),
    )


if __name__ == "__main__":
    main(sys.argv[1])
