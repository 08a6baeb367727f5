"""The traps. Each function runs in every process of a way; what it must return is written above."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scripts.upstream.start import each_replica, free_ports, strategy

X = np.array([[0.1, 0.2], [0.3, 0.1], [2.0, 3.0], [4.0, 1.0]])  # the second half has the gradients
Y = np.array([[0.1], [0.0], [5.0], [-7.0]])
TWICE = (("mirrored", 3), ("workers", 3))  # (way, version of Keras)
RANKS = (("ranks", 2),)


class _Late:
    """A module that is imported when it is used: listing the names needs no TensorFlow."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


tf: Any = _Late("tensorflow")
keras: Any = _Late("keras")


@dataclass(frozen=True)
class Trap:
    """A function, where it is called, and what it returns where nothing is wrong."""

    function: Callable[[str], Any]
    cases: tuple[tuple[str, int], ...]
    right: Any


TRAPS: dict[str, Trap] = {}
Function = Callable[[str], Any]


def trap(name: str, *cases: tuple[str, int], right: Any) -> Callable[[Function], Function]:
    """Put a function on the list."""

    def register(function: Function) -> Function:
        TRAPS[name] = Trap(function, cases, right)
        return function

    return register


def _deviation(way: str, make: Callable[[], tuple[Any, Any, Any]]) -> float:
    """How far two replicas' weights are from one's after four updates; float64, three digits."""
    # `make` is called in the strategy's scope: (x → predictions, what holds the weights,
    # optimizer).
    keras.config.set_floatx("float64")

    def train(place: Any) -> Any:
        with place.scope():
            predict, holder, optimizer = make()
            optimizer.build(holder.trainable_variables)
        xs, ys = (each_replica(place, np.split(a, place.num_replicas_in_sync)) for a in (X, Y))

        def step(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(predict(x) - y)) / len(X)
            variables = holder.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

        update = tf.function(lambda: place.run(step, (xs, ys)))
        for _ in range(4):
            update()
        return np.concatenate([array.ravel() for array in holder.get_weights()])

    distributed = train(strategy(way))  # first, as it divides the processor
    serial = train(tf.distribute.OneDeviceStrategy("CPU:0"))
    return round(float(np.abs(distributed - serial).max()), 3)


@trap("keras3-clips-before-reducing", *TWICE, right=0.0)
def clip(way: str) -> float:
    """Gradients are clipped in each replica and then summed: weights differ from serial."""

    def make() -> tuple[Any, Any, Any]:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.set_weights([np.ones((2, 1)), np.zeros(1)])
        return model, model, keras.optimizers.SGD(0.1, global_clipnorm=1.0)

    return _deviation(way, make)


@trap("keras3-rows-are-squared-one-by-one", *TWICE, right=0.0)
def look_up(way: str) -> float:
    """Adam adds the squares of replicas' gradients of one row: a table differs from serial."""

    def make() -> tuple[Any, Any, Any]:
        table = keras.layers.Embedding(2, 1, embeddings_initializer="ones")
        table.build()
        return (lambda x: x @ table(tf.range(2))), table, keras.optimizers.Adam(0.1)

    return _deviation(way, make)


@trap("keras3-loss-scale", ("mirrored", 3), right=0.8)
def overflow(way: str) -> float:
    """Only the last replica overflows: its infinite gradient is applied in all."""
    place = strategy(way)
    with place.scope():
        weight = keras.Variable(1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 4.0)
        optimizer.build([weight])

    def step(gradient: Any) -> None:
        optimizer.apply([gradient], [weight])

    update = tf.function(lambda gradient: place.run(step, (gradient,)))
    for last in (4.0, np.inf):
        update(each_replica(place, [4.0, last]))
    return round(float(weight.numpy()), 6)


@trap("keras3-moving-statistics-of-one-replica", ("mirrored", 3), right=5.0)
def moving_mean(way: str) -> float:
    """Of halves of a batch with the means 0 and 10, batch normalisation keeps one."""
    place = strategy(way)
    with place.scope():
        layer = tf.keras.layers.BatchNormalization(momentum=0.0)
        layer.build((None, 1))
    halves = each_replica(place, [np.zeros((4, 1)), np.full((4, 1), 10.0)])
    tf.function(lambda x: place.run(lambda half: layer(half, training=True), (x,)))(halves)
    return float(layer.moving_mean.numpy()[0])


@trap("keras3-assign-add-reads-and-writes", ("central", 3), right=[2.0, 4.0, 6.0])
def count_centrally(way: str) -> list[float]:
    """`assign_add` is `assign(self + value)`: a sum to which two replicas add grows too fast."""
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


@trap("same-dropout-masks", *TWICE, ("workers", 2), *RANKS, right=2)
def count_masks(way: str) -> int:
    """All replicas of one seed drop the same units: one mask, not two."""
    place, hvd = strategy(way), _hvd() if way == "ranks" else None
    tf.keras.utils.set_random_seed(1)
    with place.scope():
        layer = tf.keras.layers.Dropout(0.5)

    def draw() -> Any:
        mask = layer(tf.ones((1, 1000)), training=True)
        if hvd:
            return hvd.allgather(mask)
        return tf.distribute.get_replica_context().all_gather(mask, axis=0)

    masks = place.experimental_local_results(tf.function(lambda: place.run(draw))())[0]
    return len(np.unique(masks.numpy(), axis=0))


@trap("sample-weights-over-columns", ("alone", 3), ("alone", 2), right=0.0)
def weigh_maps(way: str) -> float:
    """Weights of examples are laid over rows of maps: an example of weight 0 counts."""
    label, prediction = np.zeros((2, 2, 2, 2, 1), np.float32)
    prediction[1, 0] = 1.0
    loss = tf.keras.losses.MeanSquaredError()
    return float(loss(label, prediction, sample_weight=np.array([1.0, 0.0], np.float32)))


@trap("parameter-server-one-reader", ("servers", 2), right=[[0, 2], [1, 2]])
def ask_readers(way: str) -> list[list[int]]:
    """The dataset function of each of two workers gets pipeline 0 of 1."""
    place, readers = strategy(way), list[list[int]]()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(place)

    def dataset(context: Any) -> Any:
        readers.append([context.input_pipeline_id, context.num_input_pipelines])
        return tf.data.Dataset.range(1)

    batches = coordinator.create_per_worker_dataset(
        lambda: place.distribute_datasets_from_function(dataset)
    )
    coordinator.schedule(tf.function(lambda iterator: next(iterator)), args=(iter(batches),))
    coordinator.join()
    return readers


@trap("server-listens-on-all-interfaces", ("alone", 3), right=["0100007F"])
def listen(way: str) -> list[str]:
    """A server of 127.0.0.1 listens on all interfaces; addresses in hexadecimal."""
    (port,) = free_ports(1)
    server = tf.distribute.Server({"worker": [f"127.0.0.1:{port}"]}, job_name="worker")
    tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    del server
    return re.findall(rf"\d: ([0-9A-F]+):{port:04X} \S+ 0A ", tables)


# ---- Horovod -------------------------------------------------------------------------------------


def _hvd() -> Any:
    """Horovod, with the Keras of this process; it would always take Keras 3 (horovod#4290)."""
    is_legacy = os.environ["TF_USE_LEGACY_KERAS"] == "1"
    sys.modules["keras"] = import_module("tf_keras" if is_legacy else "keras")
    hvd = import_module("horovod.tensorflow.keras")
    hvd.init()
    return hvd


@trap("keras3-horovod-optimizer", ("ranks", 3), right=0.0)
def fit_on_keras3(way: str) -> float:
    """DistributedOptimizer does not reduce in `fit`: the weights of two ranks differ."""
    hvd = _hvd()
    half = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.set_weights([np.ones((2, 1)), np.zeros(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    model.fit(X[half], Y[half], epochs=3, verbose=0)
    first, second = hvd.allgather(model.get_weights()[0].reshape(1, 2))
    return round(float(np.abs(first - second).max()), 3)


@trap("horovod-imports-keras3", ("alone", 2), right="tf_keras")
def import_backend(way: str) -> str:
    """With TF_USE_LEGACY_KERAS=1 Horovod's Keras module still imports Keras 3."""
    return str(import_module("horovod.tensorflow.keras").K.__name__).partition(".")[0]


@trap("horovod-apply-gradients-does-not-reduce", *RANKS, right=-2.0)
def apply(way: str) -> float:
    """DistributedOptimizer reduces in `minimize` only: a custom training step trains alone."""
    hvd = _hvd()
    weight = tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    optimizer.apply_gradients([(tf.constant(1.0 + 2.0 * hvd.rank()), weight)])
    return float(weight.numpy())


@trap("horovod-broadcasts-after-the-first-batch", *RANKS, right=0.0)
def broadcast(way: str) -> float:
    """BroadcastGlobalVariablesCallback acts after batch 1: its gradients are of other weights."""
    hvd = _hvd()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    model.set_weights([np.full((1, 1), 1.0 + hvd.rank())])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0, callbacks=[callback])
    return float(model.get_weights()[0][0, 0])


@trap("horovod-synchronized-batch-norm", *RANKS, right=1.0)
def normalise(way: str) -> float:
    """`synchronized=True` is silently not synchronised: ranks hold 0 and 10, outputs are 0."""
    hvd = _hvd()
    layer = tf.keras.layers.BatchNormalization(synchronized=True)
    outputs = layer(tf.fill((4, 1), 10.0 * hvd.rank()), training=True)
    return round(float(np.abs(outputs).max()), 2)


@trap("horovod-hostfile-comment", ("alone", 2), right=False)
def read_hostfile(way: str) -> bool:
    """A comment or an empty line in a hostfile raises IndexError."""
    with tempfile.NamedTemporaryFile("w") as hosts:
        hosts.write("# two of us\n\nlocalhost slots=2\n")
        hosts.flush()
        command = ["horovodrun", "-np", "2", "--hostfile", hosts.name, "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "IndexError" in done.stderr + done.stdout


@trap("horovodrun-shows-the-environment", ("alone", 2), right=False)
def show_environment(way: str) -> bool:
    """horovodrun --gloo puts the environment into command lines, which all users can read."""
    command = ["horovodrun", "-np", "1", "--gloo", "sleep", "600"]
    process = subprocess.Popen(command, env={**os.environ, "UPSTREAM_SECRET": "hunter2"})
    while process.poll() is None:
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"UPSTREAM_SECRET=hunter2" in line.read_bytes():
                    return True
            except OSError:  # it has ended meanwhile
                continue
        time.sleep(0.1)
    return False
