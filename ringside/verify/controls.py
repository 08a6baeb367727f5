"""Makes the deliberate mistakes of mistakes.py, around a started backend and a workload.

`fit` touches the stack through these two only. So a mistake is a changed workload, or a backend of
which some methods are others; what trains, and what looks on, is the code that users run.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, GradientReduction
from ringside.verify import control_data
from ringside.verify.control_data import BackendProxy, DatasetFn, Made, mapped
from ringside.verify.mistakes import TRAIN_EXAMPLES, VALIDATION_EXAMPLES, obstacle
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError, RunSpec
from ringside_core.workloads.pipeline import PAD_ID
from ringside_core.workloads.workload import Workload

# Keras rounds it to float32, in which this is exact: so that it can be computed by hand.
MOMENTUM = 0.875


def make_mistake(
    name: str, spec: RunSpec, workload: Workload, backend: Backend
) -> tuple[Workload, Backend]:
    """The workload and the backend with which `fit` makes a mistake.

    Args:
        name: see ringside/verify/mistakes.py.
        spec: of the run.
        workload: of the run; the one that `workload_of` names, or another in which it shows.
        backend: started; the one that comes back is good as long as this one is.

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


# Gradients


def _gradients_summed(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    factor = spec.topology.num_replicas

    def wrap_optimizer(optimizer: Any) -> Any:
        wrapped = backend.wrap_optimizer(optimizer)
        apply = wrapped.apply_gradients

        def apply_multiplied(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            # Before the reduction in one family, after it in the other: that is all the same.
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

    def wrap_optimizer(optimizer: Any) -> Any:
        wrapped = backend.wrap_optimizer(optimizer)
        backend.change_reduction(wrapped, reduction)
        return wrapped

    return BackendProxy(backend, wrap_optimizer=wrap_optimizer)


def _rate_scaled_twice(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    def optimizer() -> Any:
        made = workload.optimizer()
        made.learning_rate = float(made.learning_rate.numpy()) * spec.topology.num_replicas
        return made

    return dataclasses.replace(workload, optimizer=optimizer), backend


# Initial values


def _no_initial_broadcast(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    def model() -> Any:
        tf.keras.utils.set_random_seed(spec.seed + backend.rank)
        return workload.model()

    return dataclasses.replace(workload, model=model), BackendProxy(
        backend, begin_training=lambda model: None
    )


def _state_not_restored_everywhere(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """In a training that goes on from a checkpoint, all processes but the first lose the slots."""
    del spec

    def begin_training(model: Any) -> None:
        optimizer = model.optimizer
        # A new training has made no update yet, and has nothing to forget.
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
        for layer in built.submodules:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.synchronized = False
        return built

    return dataclasses.replace(workload, model=model), backend


# Evaluation


def _metric_mean_unweighted(spec: RunSpec, workload: Workload, backend: Backend) -> Made:
    """Each replica's share is evaluated on its own, so that it works where states are shared."""
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
            return backend.merged_results(metrics)  # of an epoch of training
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

        return mapped(dataset_fn(shard), emptied)

    return share


def _plain_mean(results: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The mean of results of metrics; what Ringside counts itself is added up, but for the loss."""
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
    "same_shard": control_data.same_shard,
    "fed_nothing": control_data.fed_nothing,
    "tail_dropped": control_data.tail_dropped,
    "validation_tail_dropped": control_data.validation_tail_dropped,
    "rate_scaled_twice": _rate_scaled_twice,
    "local_mean": control_data.local_mean,
    "batch_norm_not_synchronised": _batch_norm_not_synchronised,
    "metric_mean_unweighted": _metric_mean_unweighted,
    "state_not_restored_everywhere": _state_not_restored_everywhere,
    "float16_compression": _float16_compression,
    "padding_counted": control_data.padding_counted,
    "different_order": control_data.different_order,
}


# Workloads in which they show


def control_workload() -> Workload:
    """A dense network, small enough for many trainings in a second."""
    return _workload("control", [])


def control_workload_with_batch_norm() -> Workload:
    """The same with a batch normalisation that is to see the whole global batch."""
    return _workload(
        "control_with_batch_norm",
        [lambda: tf.keras.layers.BatchNormalization(momentum=MOMENTUM, synchronized=True)],
    )


def _workload(name: str, between: Sequence[Callable[[], Any]]) -> Workload:
    def model() -> Any:
        return tf.keras.Sequential(
            [
                tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,), name="hidden"),
                *[make() for make in between],
                tf.keras.layers.Dense(1, name="output"),
            ],
            name=name,
        )

    return Workload(
        name=name,
        model=model,
        train=_data(TRAIN_EXAMPLES, seed=0),
        validation=_data(VALIDATION_EXAMPLES, seed=1),
        loss=tf.keras.losses.MeanSquaredError(),
        # Not one that scales its updates, as Adam: gradients twice as large would not show.
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=MOMENTUM),
        # Not linear in the examples: a mean of it over shares is wrong even where they are equal.
        metrics=lambda: [tf.keras.metrics.RootMeanSquaredError(name="rmse")],
    )


def _data(count: int, *, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """x [count, 3] and y [count, 1], float64."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3))
    noise = 0.1 * generator.normal(size=(count, 1))
    return x, np.sin(x @ np.array([[1.0], [2.0], [-1.0]])) + x[:, :1] + noise
