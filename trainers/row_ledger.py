"""Which rows were trained, in which order: a hash that each replica adds up within its step."""

from functools import partial
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from trainers.rows import cut, row_hash

_KEPT = 1000  # batches of an epoch whose rows are kept one by one
_ODD = 6_364_136_223_846_793_005
_MORE = 2**30  # than rows of a batch: every so many are the first row alone


class RowLedger:
    """A hash of rows in their order, and their number, over all replicas.

    The sum over replicas does not depend on how a global batch is divided, so a serial run and an
    arm that were fed the same global batches in the same order have the same ledger.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend, self._before = backend, (0, 0)
        make = partial(
            tf.Variable,
            dtype=tf.int64,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
        )
        with backend.scope():
            self._hash = make(0, aggregation=tf.VariableAggregation.SUM)
            self._rows = make(0, aggregation=tf.VariableAggregation.SUM)
            only_first = tf.VariableAggregation.ONLY_FIRST_REPLICA
            self._factor = make(1, aggregation=only_first)
            self._batches = make(0, aggregation=only_first)
            self._read = make([0] * _KEPT, aggregation=only_first)  # hashes of their first rows

    def note(
        self,
        part: Any,
        rows: Any,
        number: int,
        size: int,
        batch: Any,
        *,
        hashed: int = 1,
        same: bool = True,
    ) -> None:
        """Add the rows of a step; called in the step of each replica.

        Args:
            part: the replica's rows: number::size of the global batch.
            rows: how many of them count: 0 where the replica has none.
            number: of the replica.
            size: replicas.
            batch: that this process has read; None: rows are counted only.
            hashed: of which so many-th batch of an epoch rows are hashed; 0: of none.
            same: whether all processes read the same rows; else as many of them.
        """
        self._rows.assign_add(tf.cast(rows, tf.int64))
        if batch is None:
            return
        if self._backend.size > 1:
            first, _, n = cut(batch, 0, _MORE)
            place = tf.one_hot(tf.minimum(self._batches, _KEPT - 1), _KEPT, dtype=tf.int64)
            seen = tf.cast(n, tf.int64) + (row_hash(first, whole=batch) if same else 0)
            self._read.assign_add(place * seen)

        def add() -> Any:
            some = tf.cast(tf.minimum(rows, 1), tf.int64)
            self._hash.assign_add(row_hash(part, number, size, batch) * some * self._factor)
            self._factor.assign(self._factor * _ODD)
            return tf.zeros([])

        if hashed == 1:
            add()
        elif hashed:
            tf.cond(self._batches % hashed == 0, add, lambda: tf.zeros([]))
        self._batches.assign_add(1)

    def begin(self, rows: int = 0, hashed: int = 0, factor: int = 1) -> None:
        """Forget all rows, or go on from what `state` has returned."""
        self._before = rows, hashed
        with self._backend.scope():
            self._hash.assign(0)
            self._rows.assign(0)
            self._factor.assign(factor)
            self._batches.assign(0)
            self._read.assign([0] * _KEPT)

    def check_same_batches(self, epoch: int, *, before: int = 0) -> None:
        """Refuse processes that have read different batches; all of them must call it.

        Args:
            epoch: from 0.
            before: batches of it that were read before `begin`.

        Raises:
            RefusalError: with the number of the first one.
        """
        if self._backend.size == 1:
            return
        read = self._backend.local_values(self._read)[0]
        differ = np.flatnonzero(read != self._backend.broadcast(read))
        here = differ[0] if len(differ) else _KEPT
        first = _KEPT - int(self._backend.all_reduce(np.array([float(_KEPT - here)]), "max")[0])
        if first < _KEPT:
            number = f"batch {before + first + 1}" if first < _KEPT - 1 else "a later batch"
            raise RefusalError(
                "Every process must read the same batches.",
                received=f"other rows or another number of them, first in {number} of epoch "
                f"{epoch + 1}",
                advice="Seed what draws them, such as the np.random.default_rng() of a generator, "
                "and sort what comes from a set.",
            )

    def least(self) -> int:
        """Rows of the replica that had fewest; all processes must call it."""
        fewest = min(int(rows) for rows in self._backend.local_values(self._rows))
        return -int(self._backend.all_reduce(np.array([-fewest]), "max")[0])

    def read(self) -> tuple[int, int]:
        """(rows, hash from 0 to 2**64 - 1) over all replicas; all processes must call it."""
        rows, found = (int(self._backend.summed(v)) for v in (self._rows, self._hash))
        return rows + self._before[0], (found + self._before[1]) % 2**64

    def state(self) -> tuple[int, int, int]:
        """(rows, hash, factor of the next batch) for `begin`; all processes must call it."""
        return *self.read(), int(self._backend.local_values(self._factor)[0])
