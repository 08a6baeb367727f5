"""Which examples were really fed to the model; counted within the training step itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import InputShard, LedgerDigest
from ringside_core.workloads.splitmix import GAMMA, mixed, word

_ONE_TIME = 1 << 40
LOOKED_UP_EXAMPLES = 1 << 16
"""The table is part of the step's graph, 24 bytes an example; so only small data get one."""


_here = threading.local()  # a strategy traces each replica in a thread of its own


@contextmanager
def feeding(ids: Any) -> Iterator[None]:
    """Within this block of a thread, the model is called on the examples of these ids [batch]."""
    before = current_ids()
    feed(ids)
    try:
        yield
    finally:
        feed(before)


def feed(ids: Any) -> None:
    """From here on this thread calls the model on the examples of these ids."""
    _here.ids = ids


def current_ids() -> Any:
    """Ids [batch] int64 of the examples on which this thread calls the model; None: of nobody's."""
    return getattr(_here, "ids", None)


def only_true(batch: Any, true: Any) -> Any:
    """The true examples of a nest of tensors; padding is at its end.

    At least one example is kept: layers need one.

    Args:
        batch: nest of [batch, …].
        true: number of true examples.
    """
    size = tf.maximum(true, 1)
    return tf.nest.map_structure(lambda tensor: tensor[:size], batch)


def in_parts(batch: Any, size: int) -> list[Any]:
    """A nest of tensors [batch, …], ids last, as nests of `size` examples each."""
    examples = tf.nest.flatten(batch)[-1].shape[0]  # a user's x and y may not say
    cuts = [slice(begin, begin + size) for begin in range(0, examples, size)]
    return [tf.nest.map_structure(lambda tensor, cut=cut: tensor[cut], batch) for cut in cuts]


class LedgerError(RuntimeError):
    """An epoch was not fed the examples that the plan holds."""


class Ledger(tf.keras.metrics.Metric):
    """Count, sum and hash of example ids, and their order; padding (id below 0) is left out.

    It is a metric, so each backend sums it over replicas as it does every metric. The order is the
    sum of batch k's hash times 2k + 1. So it says which examples batch k held, and not how they
    were divided among the replicas.
    """

    def __init__(self, examples: int | None = None) -> None:
        """Begin with nothing.

        Args:
            examples: number of examples; their ids begin at 0. What each one adds is then looked
                up: 5 operations in each step instead of 33, which took 2 % of a step of 2 ms. None,
                or more than LOOKED_UP_EXAMPLES: it is computed.
        """
        super().__init__(name="ringside_ledger", dtype="int64")
        self._rows = None
        if examples is not None and examples <= LOOKED_UP_EXAMPLES:
            self._rows = _rows(examples)
        self._totals = self.add_weight(
            name="totals", shape=(4,), initializer="zeros", dtype=tf.int64
        )

    # Nothing here has Python control flow on tensors: autograph need not rewrite it, which took a
    # fifth of a second at every start.
    @tf.autograph.experimental.do_not_convert
    def update_state(self, ids: Any, batch: Any = 0) -> Any:
        """Add ids [batch] int64 of global batch k; with examples looked up, padding is -1."""
        if self._rows is None:
            added = tf.reduce_sum(_added_by(ids), axis=0)
        else:
            added = tf.reduce_sum(tf.gather(tf.constant(self._rows), ids + 1), axis=0)
        order = added[2] * (2 * tf.cast(batch, tf.int64) + 1)
        return self._totals.assign_add(tf.concat([added, [order]], axis=0))

    def reset_state(self) -> None:
        """Begin a new epoch."""
        self._totals.assign(tf.zeros(4, tf.int64))

    @tf.autograph.experimental.do_not_convert
    def result(self) -> Any:
        """[count, sum of ids, sum of hashes, order], int64, wrapped around."""
        return tf.identity(self._totals)


class FedTable(tf.keras.metrics.Metric):
    """The full list of which id was fed where and when, so that a verdict can name examples.

    It is a table of id + 2: 0 says that nothing was fed, and 1 that padding was. One replica writes
    each place once an epoch. Each backend sums metrics over its replicas, so the sum is the whole
    table. The high bits count how often a place was written.
    """

    def __init__(self, *, steps: int, replicas: int, batch: int, per_reader: int) -> None:
        """Make room for one epoch.

        Args:
            steps: of the reader that has most.
            replicas: in the whole run.
            batch: examples of one replica in one step.
            per_reader: replicas that one reader feeds.
        """
        super().__init__(name="ringside_fed", dtype="int64")
        self._shape, self._per_reader = (steps, replicas, batch), per_reader
        self._table = self.add_weight(
            name="table", shape=self._shape, initializer="zeros", dtype=tf.int64
        )

    def update_state(self, ids: Any, tag: Any) -> Any:
        """Write down the batch of ids [batch] with the tag [reader, number of its batch]."""
        reader, number = tag[0], tag[1]
        place = [number // self._per_reader, reader * self._per_reader + number % self._per_reader]
        return self._table.assign_add(
            tf.scatter_nd([place], [ids + (2 + _ONE_TIME)], tf.constant(self._shape, tf.int64))
        )

    def reset_state(self) -> None:
        """Begin a new epoch."""
        self._table.assign(tf.zeros(self._shape, tf.int64))

    def result(self) -> Any:
        """The table [steps, replicas, batch], int64."""
        return tf.identity(self._table)


def fed_ids(table: NDArray[Any]) -> NDArray[Any]:
    """The ids of a table's result; -1 where padding was fed, -2 where nothing was.

    Raises:
        LedgerError: a place was written twice, so its ids are lost.
    """
    if (table >= 2 * _ONE_TIME).any():
        step, replica, _ = np.argwhere(table >= 2 * _ONE_TIME)[0]
        raise LedgerError(f"replica {replica} was fed two batches as that of step {step + 1}")
    return table % _ONE_TIME - 2


def tagged(dataset: Any, shard: InputShard, *, per_epoch: int, first: int) -> Any:
    """Each batch with its tag: [reader, number of the batch within the reader's epoch].

    Args:
        dataset: endless, the batches of one reader, its replicas in turn.
        shard: which reader that is.
        per_epoch: batches of this reader in an epoch.
        first: number of the first batch.
    """

    def tag(number: Any, batch: Any) -> Any:
        return batch, tf.stack([np.int64(shard.index), (number + first) % per_epoch])

    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return dataset.enumerate().map(tag).apply(endless)


def take_tag(data: Any, totals: Any) -> Any:
    """Add a batch to the totals, and return it without its tag.

    Args:
        data: (x, y, weight, scale, ids); if a full list is kept, a pair of that and the tag.
        totals: `trainers.totals.Totals`.
    """
    if totals.fed is not None:
        data, tag = data
        totals.fed.update_state(data[4], tag)
    totals.ledger.update_state(data[4], totals.batches)
    totals.batches.assign_add(1)
    return data


def mix(ids: Any) -> Any:
    """splitmix64 of each id, as int64, so that neighbours are unrelated; a sum wraps around."""
    return tf.bitcast(mixed(tf.bitcast(ids, tf.uint64) + word(GAMMA)), tf.int64)


def _added_by(ids: Any) -> Any:
    """What each of the ids [batch] adds to (count, sum, hash), [batch, 3]; padding adds 0."""
    true = ids >= 0
    added = tf.stack([tf.ones_like(ids), ids, mix(ids)], axis=1)
    return tf.where(true[:, tf.newaxis], added, tf.zeros_like(added))


def _rows(examples: int) -> NDArray[np.int64]:
    """What is added by padding, then by each of the examples, [1 + examples, 3]."""
    with tf.init_scope():
        rows: NDArray[np.int64] = _added_by(tf.range(-1, examples, dtype=tf.int64)).numpy()
    return rows


def digest(totals: NDArray[Any]) -> LedgerDigest:
    """The digest of a ledger's result, without the order."""
    count, id_sum, hash_sum = (int(value) for value in totals[:3])
    return LedgerDigest(count=count, id_sum=id_sum, id_hash=f"{hash_sum % 2**64:016x}")
