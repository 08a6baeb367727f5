"""Legacy Keras (tf_keras), and what both Keras do alike."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scripts.upstream.start import Finding, run, same_or_other, strategy, trap, values


def momentum(way: str) -> float:
    """How far a float64 weight is from the formula, after ten updates by SGD with momentum."""
    import tensorflow as tf

    del way
    weight = tf.Variable(0.0, dtype=tf.float64)
    optimizer = tf.keras.optimizers.SGD(0.125, momentum=0.9)
    expected, velocity = 0.0, 0.0
    for _ in range(10):
        optimizer.apply_gradients([(tf.constant(1.0, tf.float64), weight)])
        velocity = 0.9 * velocity - 0.125
        expected += velocity
    return abs(float(weight.numpy()) - expected) / abs(expected)


@trap("keras2-momentum-is-float32")
def momentum_is_float32() -> Finding:
    """Momentum is rounded to float32 also where weights are float64."""
    (off,) = values(run(momentum, keras=2))
    return off > 1e-10, f"a float64 weight is off by {off:.1e} of itself after ten updates"


def fused(way: str) -> None:
    """A fused batch normalisation in float64."""
    import tensorflow as tf

    del way
    layer = tf.keras.layers.BatchNormalization(fused=True, dtype="float64")
    layer(tf.zeros((2, 2, 2, 1), tf.float64), training=True)


@trap("keras2-fused-batch-norm-float64")
def fused_in_float64() -> Finding:
    """Fused batch normalisation does not exist in float64."""
    (answer,) = run(fused, keras=2)
    return bool(answer.error), str(answer)


def over_columns(way: str) -> Any:
    """Losses of maps of 2 × 2, the second one of weight 0: all of the loss is in its first row."""
    import tensorflow as tf

    del way
    true = np.zeros((2, 2, 2, 1), np.float32)
    predicted = np.zeros((2, 2, 2, 1), np.float32)
    predicted[1, 0] = 1.0
    loss = tf.keras.losses.MeanSquaredError()
    return float(loss(true, predicted, sample_weight=np.array([1.0, 0.0], np.float32)))


@trap("sample-weights-over-columns")
def weights_over_columns() -> Finding:
    """A weight for each example of a map is laid over its rows, if there are as many."""
    new, old = (values(run(over_columns, keras=version))[0] for version in (3, 2))
    return new != 0 and old != 0, (
        f"the loss of an example of weight 0 counts {new} (Keras 3), {old} (Keras 2), right is 0"
    )


def central_clipping(way: str) -> None:
    """One update by a legacy optimizer that clips."""
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        weight = tf.Variable(1.0)
        optimizer = tf.keras.optimizers.legacy.SGD(0.1, clipnorm=1.0)
    place.run(lambda: optimizer.apply_gradients([(tf.constant(2.0), weight)]))


@trap("keras2-central-storage-clipping")
def clipping_under_central_storage() -> Finding:
    """Legacy optimizers refuse to clip under CentralStorageStrategy."""
    (answer,) = run(central_clipping, "central", keras=2)
    return bool(answer.error), str(answer)


def after_restart(way: str) -> Any:
    """Of a run of six steps that fails after three: what its restart is fed, and all updates."""
    import tensorflow as tf

    del way
    fed: list[int] = []

    class Fails(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise InterruptedError

    def example(number: Any) -> Any:
        def note(one: Any) -> Any:
            fed.append(int(one))
            return np.float32(0)

        zero = tf.py_function(note, [number], tf.float32)
        return tf.reshape(zero, (1, 1)), tf.zeros((1, 1))

    with tempfile.TemporaryDirectory() as folder:
        for callbacks in ([Fails()], []):
            model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            kept = tf.keras.callbacks.BackupAndRestore(str(Path(folder) / "kept"), save_freq=1)
            before = len(fed)
            data = tf.data.Dataset.range(6).map(example)
            try:
                model.fit(
                    data, epochs=1, steps_per_epoch=6, verbose=0, callbacks=[kept, *callbacks]
                )
            except InterruptedError:
                continue
    return fed[before:], int(model.optimizer.iterations.numpy())


@trap("backup-and-restore-begins-the-data-again")
def begins_again() -> Finding:
    """BackupAndRestore restores the step, and the data begin again."""
    new, old = (values(run(after_restart, keras=version))[0] for version in (3, 2))
    return new[0][0] == old[0][0] == 0, (
        f"after three of six steps a restart is fed {new[0]} and has made {new[1]} updates at the "
        f"end (Keras 3); {old[0]} and {old[1]} (Keras 2)"
    )


def collectives(way: str) -> dict[str, int]:
    """All-reduces in the graph of a training step, by what `fit` is given."""
    import tensorflow as tf

    place, found = strategy(way), {}
    for name, metrics, times in (
        ("endless data", None, None),
        ("two metrics", ["mae", "mape"], None),
        ("data that end", None, 8),
    ):
        with place.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse", metrics=metrics)
        batch = (tf.zeros((4, 1)), tf.zeros((4, 1)))
        data = tf.data.Dataset.from_tensors(batch).repeat(times)
        step = model.make_train_function()
        step(iter(place.experimental_distribute_dataset(data)))
        graph = step._list_all_concrete_functions()[-1].graph.as_graph_def()
        nodes = [*graph.node, *(one for f in graph.library.function for one in f.node_def)]
        found[name] = sum("CollectiveReduce" in one.op for one in nodes)
    return found


@trap("keras2-multi-worker-reduces-metrics")
def reduces_metrics() -> Finding:
    """Each step of `fit` reduces each variable of each metric, under this strategy alone."""
    found = values(run(collectives, "workers", keras=2))[0]
    seen = found["two metrics"] > found["endless data"]
    return seen, f"all-reduces in the graph of a step: {found}"


def same_draws(way: str) -> Any:
    """The mask of 1000 units that each process draws, seeded as people seed all processes."""
    import tensorflow as tf

    place = strategy(way)
    tf.keras.utils.set_random_seed(1)
    with place.scope():
        layer = tf.keras.layers.Dropout(0.5)
    step = tf.function(lambda: layer(tf.ones((1, 1000)), training=True))
    return place.experimental_local_results(place.run(step))[0].numpy().ravel().tolist()


@trap("keras2-same-dropout-masks")
def same_masks() -> Finding:
    """Processes with one seed drop the same units: MultiWorkerMirrored, Horovod."""
    first, second = values(run(same_draws, "workers", keras=2))
    return first == second, f"two workers with one seed drop {same_or_other(first, second)} units"
