"""Mistakes in the data; and BackendProxy, by which every mistake replaces methods of a backend."""

import dataclasses
from collections.abc import Callable
from typing import Any

from backends.base import Backend
from ringside.verify.mistakes import whole_validation_batches
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RunSpec
from ringside_core.workloads.pipeline import PAD_ID
from ringside_core.workloads.workload import Workload
from trainers.build import make_pipeline

Made = tuple[Workload, Any]
DatasetFn = Callable[[InputShard], Any]


class BackendProxy:
    """A started backend with some methods replaced; calls inside the backend use the old ones."""

    def __init__(self, backend: Backend, **replaced: Callable[..., Any]) -> None:
        self._backend = backend
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def same_shard(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Every replica is fed the examples of replica 0."""

    def feed(dataset_fn: DatasetFn, shard: InputShard) -> Any:
        replicas = spec.topology.num_replicas // shard.count
        first = dataset_fn(InputShard(index=0, count=shard.count))
        if _is_tagged(first):
            first = first.map(lambda batch, tag: batch)
        shares = first.shard(replicas, 0).flat_map(
            lambda *batch: tf.data.Dataset.from_tensors(batch).repeat(replicas)
        )
        return _fed_instead(shares, dataset_fn(shard))

    return workload, _feeding(backend, feed)


def different_order(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Each reader's pipeline has a seed of its own; it starts at the first epoch."""
    pipeline = make_pipeline(spec, workload, backend, training=True)

    def feed(dataset_fn: DatasetFn, shard: InputShard) -> Any:
        own = dataclasses.replace(pipeline, seed=spec.seed + shard.index)
        return _fed_instead(own.dataset(shard), dataset_fn(shard))

    return workload, _feeding(backend, feed)


def fed_nothing(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """One batch has weight 0 and no ids."""

    def feed(dataset_fn: DatasetFn, shard: InputShard) -> Any:
        last_of_second_update = 2 * (spec.topology.num_replicas // shard.count) - 1

        @tf.autograph.experimental.do_not_convert
        def emptied(number: Any, batch: Any) -> Any:
            x, y, weight, scale, ids = batch
            hit = number == last_of_second_update
            weight = tf.where(hit, tf.zeros_like(weight), weight)
            return x, y, weight, scale, tf.where(hit, tf.constant(PAD_ID, ids.dtype), ids)

        batches = dataset_fn(shard)
        return mapped(batches, emptied) if shard.index == shard.count - 1 else batches

    return workload, _feeding(backend, feed)


def local_mean(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """The scale is computed from the replica's own number of examples."""
    batch_size = spec.batch_plan.per_replica_batch

    def local(number: Any, batch: Any) -> Any:
        x, y, weight, scale, ids = batch
        true = tf.reduce_sum(tf.cast(ids >= 0, scale.dtype))
        return x, y, weight, batch_size / tf.maximum(true, 1), ids

    return workload, _feeding(backend, lambda dataset_fn, shard: mapped(dataset_fn(shard), local))


def padding_counted(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Padding has weight 1, in training and in evaluation."""
    del spec

    def counted(number: Any, batch: Any) -> Any:
        x, y, weight, scale, ids = batch
        return x, y, tf.where(ids >= 0, weight, tf.ones_like(weight)), tf.ones_like(scale), ids

    def stepper(step: Callable[[Any], Any], dataset_fn: DatasetFn) -> Callable[[int], None]:
        return backend.stepper(step, lambda shard: mapped(dataset_fn(shard), counted))

    return workload, _feeding(
        backend, lambda dataset_fn, shard: mapped(dataset_fn(shard), counted), stepper=stepper
    )


def tail_dropped(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """The training examples that `drop_remainder` would leave."""
    whole = workload.train.num_examples // spec.global_batch * spec.global_batch
    return dataclasses.replace(workload, train=workload.train.first(whole)), backend


def validation_tail_dropped(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Fewer held-out examples."""
    whole = whole_validation_batches(workload.validation.num_examples, spec)
    return dataclasses.replace(workload, validation=workload.validation.first(whole)), backend


def _feeding(
    backend: Backend,
    feed: Callable[[DatasetFn, InputShard], Any],
    **replaced: Callable[..., Any],
) -> BackendProxy:
    """The backend with other data for training only: evaluation does not call `distribute`."""

    def distribute(dataset_fn: DatasetFn) -> Any:
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return backend.distribute(lambda shard: feed(dataset_fn, shard).apply(endless))

    return BackendProxy(backend, distribute=distribute, **replaced)


def mapped(batches: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Change each batch by a function of its number and itself; keep its tag if it has one."""
    tagged = _is_tagged(batches)

    @tf.autograph.experimental.do_not_convert
    def one(number: Any, element: Any) -> Any:
        if tagged:
            return change(number, element[0]), element[1]
        return change(number, element)

    return batches.enumerate().map(one)


def _fed_instead(batches: Any, right: Any) -> Any:
    """Other batches, with the tags of the right ones."""
    if not _is_tagged(right):
        return batches
    return tf.data.Dataset.zip((batches, right.map(lambda batch, tag: tag)))


def _is_tagged(batches: Any) -> bool:
    """Whether an element is (batch, tag), see `trainers.ledger.take_tag`."""
    return len(batches.element_spec) == 2
