"""Which examples were really fed to the model, counted within the training step itself."""

from typing import Any

from numpy.typing import NDArray

from legacy_keras import tf
from specs import LedgerDigest

# splitmix64 (Steele, Lea, Flood 2014): neighbouring ids get unrelated hashes.
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Ledger(tf.keras.metrics.Metric):
    """Count, sum and order-independent hash of example ids; padding (id below 0) is left out.

    It is a metric, so each backend sums it over replicas as it does every metric.
    """

    def __init__(self) -> None:
        super().__init__(name="ringside_ledger", dtype="int64")
        self._totals = self.add_weight(
            name="totals", shape=(3,), initializer="zeros", dtype=tf.int64
        )

    def update_state(self, ids: Any) -> Any:
        """Add a batch of ids, [batch] int64."""
        true = ids >= 0
        kept = tf.where(true, ids, 0)
        hashes = tf.where(true, mix(ids), 0)
        return self._totals.assign_add(
            tf.stack(
                [
                    tf.reduce_sum(tf.cast(true, tf.int64)),
                    tf.reduce_sum(kept),
                    tf.reduce_sum(hashes),
                ]
            )
        )

    def reset_state(self) -> None:
        """Begin a new epoch."""
        self._totals.assign(tf.zeros(3, tf.int64))

    def result(self) -> Any:
        """[count, sum of ids, sum of hashes modulo 2**64], int64."""
        return tf.identity(self._totals)


def mix(ids: Any) -> Any:
    """splitmix64 of each id, as int64; the sum of many wraps around."""
    z = tf.bitcast(ids, tf.uint64) + tf.constant(_GAMMA, tf.uint64)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        z = tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, tf.constant(shift, tf.uint64)))
        z = z * tf.constant(factor, tf.uint64)
    z = tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, tf.constant(31, tf.uint64)))
    return tf.bitcast(z, tf.int64)


def digest(totals: NDArray[Any]) -> LedgerDigest:
    """The digest of a ledger's result."""
    count, id_sum, hash_sum = (int(value) for value in totals)
    return LedgerDigest(count=count, id_sum=id_sum, id_hash=f"{hash_sum % 2**64:016x}")
