"""Keras 3 on TensorFlow, as shipped."""

from collections.abc import Callable
from typing import Any

import numpy as np

from scripts.upstream.start import Finding, each_replica, run, say, strategy, trap, values

X = np.array([[0.1, 0.2], [0.3, 0.1], [2.0, 3.0], [4.0, 1.0]])  # the second half has the gradients
Y = np.array([[0.1], [0.0], [5.0], [-7.0]])


def trained(place: Any, make: Callable[[], tuple[Any, Any, Any]]) -> Any:
    """Weights after four updates, each by all examples; float64.

    Args:
        place: a strategy.
        make: called in its scope: (x → predictions, what holds the weights, optimizer).
    """
    import keras
    import tensorflow as tf

    keras.config.set_floatx("float64")
    with place.scope():
        predict, held, optimizer = make()
        optimizer.build(held.trainable_variables)
    replicas = place.num_replicas_in_sync
    xs, ys = (each_replica(place, np.split(one, replicas)) for one in (X, Y))

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(predict(x) - y)) / len(X)
        gradients = tape.gradient(loss, held.trainable_variables)
        optimizer.apply(gradients, held.trainable_variables)

    update = tf.function(lambda: place.run(step, (xs, ys)))
    for _ in range(4):
        update()
    return np.concatenate([one.ravel() for one in held.get_weights()])


def off(way: str, make: Callable[[], tuple[Any, Any, Any]]) -> Any:
    """How far two replicas are from one."""
    import tensorflow as tf

    distributed = trained(strategy(way), make)  # first, as it divides the processor
    return np.abs(distributed - trained(tf.distribute.OneDeviceStrategy("CPU:0"), make)).max()


def clipped(way: str) -> Any:
    """SGD with global_clipnorm."""
    import keras

    def make() -> tuple[Any, Any, Any]:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.set_weights([np.ones((2, 1)), np.zeros(1)])
        return model, model, keras.optimizers.SGD(0.1, global_clipnorm=1.0)

    return off(way, make)


@trap("keras3-clips-before-reducing")
def clips_before_reducing() -> Finding:
    """Gradients are clipped in each replica, and then summed: another algorithm."""
    gaps = {way: values(run(clipped, way))[0] for way in ("mirrored", "workers")}
    said = ", ".join(f"{gap:.1e} under {way}" for way, gap in gaps.items())
    return min(gaps.values()) > 1e-3, f"weights differ from serial by {said}"


def lookups(way: str) -> Any:
    """A table by which all examples are multiplied, with Adam."""
    import keras
    import tensorflow as tf

    def make() -> tuple[Any, Any, Any]:
        table = keras.layers.Embedding(2, 1, embeddings_initializer="ones")
        table.build()
        return (lambda x: x @ table(tf.range(2))), table, keras.optimizers.Adam(0.1)

    return off(way, make)


@trap("keras3-rows-are-squared-one-by-one")
def rows_squared() -> Finding:
    """Replicas' gradients of the same row are put side by side, and Adam adds their squares."""
    gaps = {way: values(run(lookups, way))[0] for way in ("mirrored", "workers")}
    said = ", ".join(f"{gap:.1e} under {way}" for way, gap in gaps.items())
    return min(gaps.values()) > 1e-3, f"a table differs from serial by {said}"


def divided(way: str) -> float:
    """How far three replicas' shares of a loss are from it, as a share of it; float64."""
    import keras
    import tensorflow as tf

    del way
    keras.config.set_floatx("float64")
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    place = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(3)])
    loss = keras.losses.MeanSquaredError()
    shares = place.run(lambda: loss(tf.zeros((1, 1), tf.float64), tf.ones((1, 1), tf.float64)))
    whole = place.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)
    return abs(float(whole.numpy()) - 1.0)


@trap("keras3-loss-of-three-replicas")
def loss_of_three_replicas() -> Finding:
    """In float64 a loss is divided by three replicas in float32."""
    (off,) = values(run(divided))
    return off > 1e-10, f"a float64 loss is off by {off:.1e} of itself"


def overflow(way: str) -> Any:
    """Weight and scale after three updates; in the second one the last replica overflows."""
    import keras
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        weight = keras.Variable(1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 4.0)
        optimizer.build([weight])

    def step(gradient: Any) -> None:
        optimizer.apply([gradient], [weight])

    update = tf.function(lambda gradient: place.run(step, (gradient,)))
    for i in range(3):
        update(each_replica(place, [4.0, np.inf if i == 1 else 4.0]))
        say(i)
    return [float(weight.numpy()), float(optimizer.dynamic_scale.numpy())]


@trap("keras3-loss-scale-mirrored")
def loss_scale_mirrored() -> Finding:
    """An overflow in one replica: its infinite gradient is applied in all."""
    ((weight, _),) = values(run(overflow, "mirrored"))
    return not np.isfinite(weight), f"the weight is {weight}"


@trap("keras3-loss-scale-multi-worker")
def loss_scale_multi_worker() -> Finding:
    """An overflow in one worker: it leaves out the all-reduce, and the other one waits for ever."""
    answers = run(overflow, "workers")
    hung = sum(one.hung for one in answers)
    return hung > 0, f"{hung} of 2 workers wait in the update after the overflow"


def reduced_within(way: str) -> Any:
    """The gradients that a rank applies; rank 1 overflows in update 1."""
    import horovod.tensorflow as hvd
    import keras

    del way
    hvd.init()
    applied = []

    def apply(gradients: Any, trainable_variables: Any) -> None:
        del trainable_variables
        (mean,) = hvd.grouped_allreduce(gradients, op=hvd.Average)
        applied.append(float(mean))
        say(len(applied))

    weight, inner = keras.Variable(0.0), keras.optimizers.SGD(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, 1.0)
    optimizer.build([weight])
    inner.apply = apply
    for i in range(3):
        overflows = i == 1 and hvd.rank() == 1
        gradient = keras.ops.convert_to_tensor(np.inf if overflows else 1.0 + i)
        optimizer.apply([optimizer.scale_loss(gradient)], [weight])
    return applied


@trap("keras3-loss-scale-horovod")
def loss_scale_horovod() -> Finding:
    """Horovod reduces within the scaled optimizer: one rank's update meets another's next one."""
    _, second = run(reduced_within, "ranks")  # the first one waits for ever
    (applied,), right = values([second]), [1.0, 3.0]
    return applied != right, f"rank 1 applied the gradients {applied}, right is {right}"


def skipped(way: str) -> int:
    """`iterations` after one update that is skipped and one that is not."""
    import tensorflow as tf

    del way
    variable = tf.keras.layers.Dense(1)
    variable.build((None, 1))
    variables = variable.trainable_variables
    inner = tf.keras.optimizers.SGD(0.1)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(inner)
    for value in (np.inf, 1.0):
        optimizer.apply_gradients([(tf.fill(one.shape, value), one) for one in variables])
    return int(inner.iterations.numpy())


@trap("keras3-skipped-update-not-counted")
def skipped_not_counted() -> Finding:
    """An update that the loss scale skips is counted in `iterations` by Keras 2, not by Keras 3."""
    new, old = (values(run(skipped, keras=version))[0] for version in (3, 2))
    return (new, old) == (1, 2), (
        f"iterations after one skipped and one made: Keras 3 {new}, Keras 2 {old}"
    )


def count_to_200(way: str) -> int:
    """`iterations` after 200 updates by two workers of parameter servers."""
    import keras
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        weight = keras.Variable(np.zeros(1, np.float32))
        optimizer = keras.optimizers.SGD(0.0)
        optimizer.build([weight])
    coordinator = tf.distribute.coordinator.ClusterCoordinator(place)

    def update() -> None:
        optimizer.apply([tf.ones(1)], [weight])

    step = tf.function(lambda: place.run(update))
    for _ in range(200):
        coordinator.schedule(step)
    coordinator.join()
    return int(optimizer.iterations.numpy())


@trap("keras3-parameter-server-loses-counts")
def loses_counts() -> Finding:
    """`assign_add` reads, adds and writes: of two workers at once only one counts."""
    (counted,) = values(run(count_to_200, "servers"))
    return counted < 200, f"iterations is {counted} after 200 updates"


def counted_centrally(way: str) -> Any:
    """A sum metric that two replicas add 1 to, after each of three steps."""
    import keras
    import tensorflow as tf

    place, totals = strategy(way), []
    with place.scope():
        metric = keras.metrics.Sum()

    def step() -> None:
        metric.update_state(1.0)

    update = tf.function(lambda: place.run(step))
    for _ in range(3):
        update()
        totals.append(float(metric.total.numpy()))
    return totals


@trap("keras3-central-storage-metrics")
def central_storage_metrics() -> Finding:
    """Each replica's sum holds what the variable held: the variable is added to itself."""
    (sums,), right = values(run(counted_centrally, "central")), [2.0, 4.0, 6.0]
    return sums != right, f"a sum after each step is {sums}, right is {right}"


def masks(way: str) -> Any:
    """Whether all replicas drop the same units of 1000."""
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        layer = tf.keras.layers.Dropout(0.5)
        layer.build((None, 1000))

    def draw() -> Any:
        mask = layer(tf.ones((1, 1000)), training=True)
        return tf.distribute.get_replica_context().all_gather(mask, axis=0)

    gathered = place.experimental_local_results(tf.function(lambda: place.run(draw))())[0].numpy()
    return bool((gathered == gathered[0]).all())


@trap("keras3-same-dropout-masks")
def same_masks() -> Finding:
    """All replicas drop the same units, because their seed generators begin alike."""
    found = {way: values(run(masks, way))[0] for way in ("mirrored", "workers")}
    (old,) = values(run(masks, "mirrored", keras=2))
    said = ", ".join(f"{'the same' if same else 'others'} under {w}" for w, same in found.items())
    return all(found.values()), (
        f"masks of two replicas: {said}; {'the same' if old else 'others'} with Keras 2"
    )


def moving_mean(way: str) -> Any:
    """The moving mean after one batch whose halves have the means 0 and 10; momentum 0."""
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        layer = tf.keras.layers.BatchNormalization(momentum=0.0)
        layer.build((None, 1))
    halves = each_replica(place, [np.zeros((4, 1)), np.full((4, 1), 10.0)])
    tf.function(lambda x: place.run(lambda one: layer(one, training=True), (x,)))(halves)
    return float(layer.moving_mean.numpy()[0])


@trap("keras3-moving-statistics-of-one-replica")
def moving_statistics() -> Finding:
    """Moving mean and variance of batch normalisation are those of one replica."""
    new, old = (values(run(moving_mean, "mirrored", keras=version))[0] for version in (3, 2))
    return new in (0.0, 10.0), f"halves with means 0 and 10: Keras 3 keeps {new}, Keras 2 {old}"


def fit(way: str) -> Any:
    """Stock compile and fit."""
    import keras
    import tensorflow as tf

    place = strategy(way)
    with place.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(4)
    model.fit(data, steps_per_epoch=2, epochs=1, verbose=0)
    return [one.tolist() for one in model.get_weights()]


def _fails(way: str) -> Finding:
    (answer, *_) = run(fit, way)
    return answer.value is None, f"fit: {answer}"


@trap("keras3-fit-multi-worker")
def fit_multi_worker() -> Finding:
    """`Model.fit` fails under MultiWorkerMirroredStrategy."""
    return _fails("workers")


@trap("keras3-fit-parameter-server")
def fit_parameter_server() -> Finding:
    """`Model.fit` fails under ParameterServerStrategy."""
    return _fails("servers")


def horovod_fit(way: str) -> Any:
    """Weights after three epochs, each rank on its half, as Horovod's examples train."""
    return _horovod_fit(way, [])


def horovod_fit_with_broadcast(way: str) -> Any:
    """The same with Horovod's callback for the initial weights."""
    import horovod.tensorflow.keras as hvd

    return _horovod_fit(way, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])


def _horovod_fit(way: str, callbacks: list[Any]) -> Any:
    import horovod.tensorflow.keras as hvd
    import keras

    del way
    hvd.init()
    half = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.set_weights([np.ones((2, 1)), np.zeros(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    model.fit(X[half], Y[half], epochs=3, verbose=0, callbacks=callbacks)
    return np.concatenate([one.ravel() for one in model.get_weights()]).tolist()


@trap("keras3-horovod-optimizer")
def horovod_optimizer() -> Finding:
    """Horovod's DistributedOptimizer does not reduce in `fit`: each rank trains a model alone."""
    gap = np.abs(np.subtract(*values(run(horovod_fit, "ranks")))).max()
    return gap > 1e-3, f"after three epochs the weights of two ranks differ by {gap:.1e}"


@trap("keras3-horovod-broadcast")
def horovod_broadcast() -> Finding:
    """Horovod's callback for the initial weights fails."""
    answer = run(horovod_fit_with_broadcast, "ranks")[0]
    return "'ref'" in answer.error, f"fit: {answer}"
