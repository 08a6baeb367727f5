"""Trainings that leave something out (`RunSpec.ablation`): a breakdown of a step needs them."""

from collections.abc import Callable
from functools import reduce
from typing import Any

from backends import make_backend
from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import (
    REFERENCE,
    InputShard,
    RunSpec,
    Surroundings,
    Topology,
    backend_options,
)


def trained_on(spec: RunSpec, backend: Backend) -> Backend:
    """The backend that `fit` uses: the started one, or none at all where that is left unused.

    The started one keeps what it has taken: threads, connections, devices.
    """
    if spec.ablation != "unused":
        return backend
    plain = spec.replace(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        ablation="none",
    )
    return make_backend(plain, Surroundings())  # nothing of it needs to be started


def held(read: Callable[[InputShard], Any], num_replicas: int) -> Callable[[InputShard], Any]:
    """A reader's first batch of each of its replicas, in memory, again and again.

    The tensors are handed on as they are: nothing is looked up, computed or copied. What is left of
    the input is one call of a data set's iterator in each step, some microseconds, and whatever the
    backend adds to hand a batch to its replicas (a strategy has iterators of its own).

    Args:
        read: input shard → batches of one replica, its reader's replicas in turn.
        num_replicas: in the whole run.
    """

    def read_held(shard: InputShard) -> Any:
        with tf.init_scope():  # a coordinator traces this for its workers
            batches = list(read(shard).take(num_replicas // shard.count))
        kept = [tf.data.Dataset.from_tensors(batch) for batch in batches]
        repeated = reduce(lambda one, other: one.concatenate(other), kept).repeat()
        options = tf.data.Options()
        options.autotune.enabled = False  # as of all input, see ringside_core/workloads/pipeline.py
        return repeated.with_options(options)

    return read_held
