"""Make the deliberate mistakes of mistakes.py, in a workload or a started backend.

`fit` reaches the stack only through these two. So a mistake is a changed workload, or a backend
with some methods replaced. The code that trains and the code that watches are what users run.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, GradientReduction
from ringside.verify.mistakes import obstacle, whole_validation_batches
from ringside_core.keras import has_own_step, tf
from ringside_core.specs import InputShard, RefusalError, RunSpec
from ringside_core.workloads.pipeline import PAD_ID, make_pipeline
from ringside_core.workloads.workload import Workload

Made = tuple[Workload, Any]
DatasetFn = Callable[[InputShard], Any]


class BackendProxy:
    """A started backend with some methods replaced; calls inside the backend use the old ones."""

    def __init__(self, backend: Backend, **replaced: Callable[..., Any]) -> None:
        self._backend = backend
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def make_mistake(
    name: str, spec: RunSpec, workload: Workload, backend: Backend
) -> tuple[Workload, Backend]:
    """The workload and the backend with which `fit` makes a mistake.

    Args:
        name: see ringside/verify/mistakes.py.
        spec: of the run.
        workload: of the run; the one that `workload_of` names, or another that shows the mistake.
        backend: started; the returned one can be used as long as this one.

    Raises:
        RefusalError: unknown name, or a mistake that cannot be made in this run.
    """
    reason = obstacle(name, spec)
    if reason is not None:
        raise RefusalError(
            f"The mistake {name} must be one that this arm can make.", received=reason.rstrip(".")
        )
    changed, proxy = _MAKERS[name](spec, workload, backend)
    return changed, cast(Backend, proxy)


# Data


def _same_shard(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
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


def _different_order(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Each reader's pipeline has a seed of its own; it starts at the first epoch."""
    pipeline = make_pipeline(spec, workload, backend.capabilities, training=True)

    def feed(dataset_fn: DatasetFn, shard: InputShard) -> Any:
        own = dataclasses.replace(pipeline, seed=spec.seed + shard.index)
        return _fed_instead(own.dataset(shard), dataset_fn(shard))

    return workload, _feeding(backend, feed)


def _fed_nothing(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
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
        return _mapped(batches, emptied) if shard.index == shard.count - 1 else batches

    return workload, _feeding(backend, feed)


def _local_mean(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """The scale is computed from the replica's own number of examples."""
    batch_size = spec.batch_plan.per_replica_batch

    def local(number: Any, batch: Any) -> Any:
        x, y, weight, scale, ids = batch
        true = tf.reduce_sum(tf.cast(ids >= 0, scale.dtype))
        return x, y, weight, batch_size / tf.maximum(true, 1), ids

    return workload, _feeding(backend, lambda dataset_fn, shard: _mapped(dataset_fn(shard), local))


def _padding_counted(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Padding has weight 1, in training and in evaluation."""
    del spec

    def counted(number: Any, batch: Any) -> Any:
        x, y, weight, scale, ids = batch
        return x, y, tf.where(ids >= 0, weight, tf.ones_like(weight)), tf.ones_like(scale), ids

    def stepper(step: Callable[[Any], Any], dataset_fn: DatasetFn) -> Callable[[int], None]:
        return backend.stepper(step, lambda shard: _mapped(dataset_fn(shard), counted))

    return workload, _feeding(
        backend, lambda dataset_fn, shard: _mapped(dataset_fn(shard), counted), stepper=stepper
    )


def _tail_dropped(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """The training examples that `drop_remainder` would leave."""
    whole = workload.train.num_examples // spec.global_batch * spec.global_batch
    return dataclasses.replace(workload, train=workload.train.first(whole)), backend


def _validation_tail_dropped(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
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


def _mapped(batches: Any, change: Callable[[Any, Any], Any]) -> Any:
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


# Gradients


def _gradients_summed(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    factor = spec.topology.num_replicas

    def wrap_optimizer(optimizer: Any, **how: Any) -> Any:
        wrapped = backend.wrap_optimizer(optimizer, **how)
        apply = wrapped.apply_gradients

        def apply_multiplied(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            # One family reduces after this, the other before; the result is the same.
            pairs = [(tf.math.scalar_mul(factor, g), v) for g, v in grads_and_vars]
            return apply(pairs, *args, **kwargs)

        wrapped.apply_gradients = apply_multiplied
        return wrapped

    return workload, BackendProxy(backend, wrap_optimizer=wrap_optimizer)


def _not_reduced(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    del spec
    return workload, _reducing(backend, lambda reduce, gradients, variables: gradients)


def _partly_reduced(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    del spec
    return workload, _reducing(
        backend,
        lambda reduce, gradients, variables: [
            *reduce(gradients[:-1], variables[:-1]),
            gradients[-1],
        ],
    )


def _float16_compression(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    del spec

    def compressed(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        halves = reduce([tf.cast(gradient, tf.float16) for gradient in gradients], variables)
        return [
            tf.cast(half, gradient.dtype) for half, gradient in zip(halves, gradients, strict=True)
        ]

    return workload, _reducing(backend, compressed)


def _reducing(backend: Backend, reduction: GradientReduction) -> BackendProxy:
    """The backend whose optimizer reduces gradients in another way."""

    def wrap_optimizer(optimizer: Any, **how: Any) -> Any:
        wrapped = backend.wrap_optimizer(optimizer, **how)
        backend.change_reduction(wrapped, reduction)
        return wrapped

    return BackendProxy(backend, wrap_optimizer=wrap_optimizer)


def _rate_scaled_twice(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    def scaled(made: Any) -> Any:
        made.learning_rate = float(made.learning_rate.numpy()) * spec.topology.num_replicas
        return made

    def model() -> Any:
        made = workload.model()
        if workload.of_script and has_own_step(made):  # which may name its optimizer
            scaled(made.optimizer)
        return made

    return dataclasses.replace(
        workload, model=model, optimizer=lambda: scaled(workload.optimizer())
    ), backend


# Initial values


def _no_initial_broadcast(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    def model() -> Any:
        tf.keras.utils.set_random_seed(spec.seed + backend.rank)
        return workload.model()

    return dataclasses.replace(workload, model=model), BackendProxy(
        backend, begin_training=lambda model: None
    )


def _state_not_restored_everywhere(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """In a training that continues from a checkpoint, only the first process keeps the slots."""
    del spec

    def begin_training(model: Any) -> None:
        optimizer = model.optimizer
        # A new training has made no update yet, so it has nothing to forget.
        if backend.rank and int(optimizer.iterations.numpy()):
            rate = optimizer.learning_rate
            with backend.scope():
                for variable in optimizer.variables:
                    if variable is not optimizer.iterations and variable is not rate:
                        variable.assign(tf.zeros_like(variable))

    return workload, BackendProxy(backend, begin_training=begin_training)


def _batch_norm_not_synchronised(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    del spec

    def model() -> Any:
        built = workload.model()
        for layer in built._flatten_layers():
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.synchronized = False
        return built

    return dataclasses.replace(workload, model=model), backend


# Evaluation


def _metric_mean_unweighted(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Evaluate each replica's share alone, so that it works where replicas share metric states."""
    replicas = range(spec.topology.num_replicas)
    asked: list[Callable[[], None]] = []

    def stepper(step: Callable[[Any], Any], dataset_fn: DatasetFn) -> Callable[[int], None]:
        whole = backend.stepper(step, dataset_fn)
        parts = [
            backend.stepper(step, _share_of(replica, spec, dataset_fn)) for replica in replicas
        ]

        def run(steps: int) -> None:
            whole(steps)
            asked[:] = [partial(part, steps) for part in parts]

        return run

    def merged_results(metrics: list[Any]) -> dict[str, NDArray[Any]]:
        if not any(metric.name == "ringside_count" for metric in metrics):
            return backend.merged_results(metrics)  # these are of a training epoch
        results = []
        for run_part in asked:
            with backend.scope():
                for metric in metrics:
                    metric.reset_state()
            run_part()
            results.append(backend.merged_results(metrics))
        return _plain_mean(results)

    return workload, BackendProxy(backend, stepper=stepper, merged_results=merged_results)


def _share_of(replica: int, spec: RunSpec, dataset_fn: DatasetFn) -> DatasetFn:
    """Batches in which only one replica has examples."""

    def share(shard: InputShard) -> Any:
        local = spec.topology.num_replicas // shard.count

        @tf.autograph.experimental.do_not_convert
        def emptied(number: Any, batch: Any) -> Any:
            x, y, weight, scale, ids = batch
            own = shard.index * local + number % local == replica
            weight = tf.where(own, weight, tf.zeros_like(weight))
            return x, y, weight, scale, tf.where(own, ids, tf.constant(PAD_ID, ids.dtype))

        return _mapped(dataset_fn(shard), emptied)

    return share


def _plain_mean(results: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The mean of metric results. Ringside's own counts are added up, except for the loss."""
    merged = {
        name: np.sum([result[name] for result in results], axis=0)
        if name.startswith("ringside_")
        else np.mean([result[name] for result in results], axis=0)
        for name in results[0]
    }
    losses = [r["ringside_loss_sum"] / np.maximum(r["ringside_count"], 1) for r in results]
    merged["ringside_loss_sum"] = np.mean(losses) * merged["ringside_count"]
    return merged


_MAKERS: Mapping[str, Callable[[RunSpec, Workload, Backend], Made]] = {
    "gradients_summed": _gradients_summed,
    "not_reduced": _not_reduced,
    "partly_reduced": _partly_reduced,
    "no_initial_broadcast": _no_initial_broadcast,
    "same_shard": _same_shard,
    "fed_nothing": _fed_nothing,
    "tail_dropped": _tail_dropped,
    "validation_tail_dropped": _validation_tail_dropped,
    "rate_scaled_twice": _rate_scaled_twice,
    "local_mean": _local_mean,
    "batch_norm_not_synchronised": _batch_norm_not_synchronised,
    "metric_mean_unweighted": _metric_mean_unweighted,
    "state_not_restored_everywhere": _state_not_restored_everywhere,
    "float16_compression": _float16_compression,
    "padding_counted": _padding_counted,
    "different_order": _different_order,
}
