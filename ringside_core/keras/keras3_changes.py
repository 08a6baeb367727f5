"""What Ringside changes in Keras 3, for all programs of a process.

As shipped, Keras 3 computes something else under several replicas (docs/upstream.md):

- A variable adds in one operation. Keras writes `assign(self + value)`: parameter servers lose
  counts, and central storage adds a variable to itself.
- What layers keep beside their weights, such as moving statistics, is each replica's own, and its
  mean is read, as in legacy Keras.
- Each replica draws random numbers from a stream of its own. All would drop the same units.
- A weight for each example weighs all of its loss, which may be a map of pixels.
- A loss is divided by the number of replicas in its own type, not in float32.

And `RandomRotation` fails in float64.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow.core import Variable
from keras.src.losses import loss as loss_module

from ringside_core.keras.keras3_chance import answered_seed
from ringside_core.keras.tensorflow import flat, rotations, tf, with_rank

_here = threading.local()  # a strategy traces each replica in a thread of its own


def _at_once(change: str, upstream: Any) -> Any:
    """Add to a variable, or take from it, in one operation."""

    @functools.wraps(upstream)
    def changed(self: Any, value: Any) -> Any:
        if in_stateless_scope() or self._value is None:
            return upstream(self, value)
        value = self._convert_to_tensor(value, dtype=self._dtype)
        getattr(self._value, change)(tf.broadcast_to(value, self._value.shape))
        return self._value

    return changed


for _change in ("assign_add", "assign_sub"):
    setattr(Variable, _change, _at_once(_change, getattr(Variable, _change)))


def _of_each_replica(make: Any) -> Any:
    """Let what a layer keeps, and does not train, be each replica's own.

    As in legacy Keras it is made outside of a graph that is traced.
    """

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        with tf.init_scope(), _kept(not kwargs.get("trainable", True)):
            return make(*args, **kwargs)

    return made


def _aggregated(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, aggregation: str) -> Any:
        if getattr(_here, "kept", False) and aggregation == "none":
            aggregation = "mean" if "float" in self._dtype else "only_first_replica"
        return upstream(self, aggregation)

    return chosen


def _synchronized(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, synchronization: str) -> Any:
        if getattr(_here, "kept", False) and synchronization == "auto":
            synchronization = "on_read"
        return upstream(self, synchronization)

    return chosen


keras.Layer.add_weight = _of_each_replica(keras.Layer.add_weight)
Variable._map_aggregation = _aggregated(Variable._map_aggregation)
Variable._map_synchronization = _synchronized(Variable._map_synchronization)


def _seeded(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _kept(True):
            upstream(self, *args, **kwargs)

    return made


@contextlib.contextmanager
def _kept(kept: bool) -> Iterator[None]:
    before = getattr(_here, "kept", False)
    _here.kept = kept
    try:
        yield
    finally:
        _here.kept = before


_STREAM = 1_000_003  # between the seeds of two replicas
_ranks = [0]  # of this process, where each is a replica by itself


def _own_stream(upstream: Any) -> Any:
    """Let each replica draw from a stream of its own; the first one's is Keras'."""

    @functools.wraps(upstream)
    def drawn(self: Any, ordered: bool = True) -> Any:
        if (seed := answered_seed(self)) is not None:  # by the data, the same in every process
            return seed
        seed = upstream(self, ordered)
        context = tf.distribute.get_replica_context()
        replica = _ranks[0] + (0 if context is None else context.replica_id_in_sync_group)
        if isinstance(replica, int) and not replica:
            return seed
        return seed + tf.stack([tf.cast(replica, seed.dtype) * _STREAM, 0])

    return drawn


_Seeds = keras.random.SeedGenerator
_Seeds.__init__ = _seeded(_Seeds.__init__)
_Seeds.next = _own_stream(_Seeds.next)


def _weigh_examples(upstream: Any) -> Any:
    """Let a weight for each example weigh all of its loss: of its steps of time, of its pixels.

    Keras would lay the weights of a batch over the steps, or over columns of the map.
    """

    @functools.wraps(upstream)
    def weighed(values: Any, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        rank = len(getattr(values, "shape", ()))
        if sample_weight is not None and len(sample_weight.shape) == 1 and rank > 1:
            sample_weight = with_rank(tf.convert_to_tensor(sample_weight), rank)
        return upstream(values, sample_weight, *args, **kwargs)

    return weighed


loss_module.reduce_weighted_values = _weigh_examples(loss_module.reduce_weighted_values)


def _share_of_replicas(value: Any) -> Any:
    """A loss divided by the number of replicas."""
    return value / tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, value.dtype)


loss_module.scale_loss_for_distribution = _share_of_replicas


def _no_part_empty(upstream: Any) -> Any:
    """Let no replica predict nothing, which layers refuse: few arrays are filled up, and cut.

    A batch is divided into parts of one size, rounded up; the last ones would be empty.
    """

    @functools.wraps(upstream)
    def predicted(self: Any, x: Any, batch_size: Any = None, *args: Any, **kwargs: Any) -> Any:
        replicas, held = self.distribute_strategy.num_replicas_in_sync, flat(x)
        arrays = held and all(isinstance(one, np.ndarray | tf.Tensor) for one in held)
        if replicas == 1 or not arrays:
            return upstream(self, x, batch_size, *args, **kwargs)
        count = len(held[0])
        missing, size = -count % replicas, batch_size or 32
        if missing:
            x = tf.nest.map_structure(
                lambda one: np.concatenate([one, np.repeat(one[-1:], missing, axis=0)]), x
            )
        made = upstream(self, x, size + -size % replicas, *args, **kwargs)
        return tf.nest.map_structure(lambda one: one[:count], made)

    return predicted


keras.Model.predict = _no_part_empty(keras.Model.predict)


def _rotated_in_float64(upstream: Any) -> Any:
    """Keras turns degrees into radians in float32, and fails among float64."""

    @functools.wraps(upstream)
    def matrix(self: Any, angle: Any, height: Any, width: Any, **given: Any) -> Any:
        if angle.dtype != tf.float64:
            return upstream(self, angle=angle, height=height, width=width, **given)
        return rotations(angle * (math.pi / 180.0), height, width)

    return matrix


_rotation = keras.layers.RandomRotation
_rotation._compute_affine_matrix = _rotated_in_float64(_rotation._compute_affine_matrix)


def draw_by_rank(rank: int) -> None:
    """Let this process draw from streams of its own."""
    _ranks[0] = rank
