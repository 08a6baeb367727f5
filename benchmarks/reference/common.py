"""What the hand-written scripts share: flags, data, model, input pipeline, one timer.

Written as the official tutorials do it; nothing of Ringside is imported. What still differs from a
run of Ringside stands in benchmarks/README.md.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from launch.watch import WAITING, progress_line

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclass(frozen=True)
class Job:
    """What is trained, with what.

    Attributes:
        replicas: in all processes together.
        global_batch: examples in one update; in one update of each worker if asynchronous.
        cores_per_replica, intra, inter: processors and threads of one replica.
        keras: 2: legacy Keras, the one under which every strategy's `fit` and Horovod work
            (keras#20585, keras#18624, horovod#4290); or 3.
        out: the JSON file that the chief leaves behind.
    """

    workload: str
    epochs: int
    replicas: int
    global_batch: int
    seed: int
    cores_per_replica: int
    intra: int
    inter: int
    keras: int
    out: str

    @property
    def per_replica_batch(self) -> int:
        """Examples of one replica in one update."""
        return self.global_batch // self.replicas


def job_from_flags() -> Job:
    """Read the command line; the flags are the fields of a Job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=["digits", "conv"], default="digits")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--global-batch", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cores-per-replica", type=int, default=1)
    parser.add_argument("--intra", type=int, default=1)
    parser.add_argument("--inter", type=int, default=2)
    parser.add_argument("--keras", type=int, choices=[2, 3], default=2)
    parser.add_argument("--out", required=True)
    return Job(**vars(parser.parse_args()))


def pin(job: Job, *, first_replica: int, replicas: int) -> None:
    """Keep this process on the processors of its replicas; before TensorFlow makes threads."""
    available = sorted(os.sched_getaffinity(0))
    first, count = first_replica * job.cores_per_replica, replicas * job.cores_per_replica
    os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(count)})


def tensorflow(job: Job, *, replicas: int) -> Any:
    """TensorFlow with the threads of so many replicas; each has a logical CPU of its own."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if job.keras == 2 else "0"
    import tensorflow as tf

    if job.keras == 2:
        import tf_keras

        sys.modules["keras"] = tf_keras  # Horovod imports `keras`: horovod#4290
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(job.intra * replicas)
    tf.config.threading.set_inter_op_parallelism_threads(job.inter * replicas)
    if replicas > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * replicas,
        )
    tf.keras.utils.set_random_seed(job.seed)
    return tf


def be_patient(job: Job) -> None:
    """Survive a freeze: TensorFlow gives a peer up that was silent for 10 s."""
    if (Path(job.out).parent / "turn").exists():
        from tensorflow.python.eager import context

        configured = context.context().configure_coordination_service
        context.context().configure_coordination_service = partial(
            configured, heartbeat_timeout_in_ms=3_600_000
        )


def load(workload: str) -> tuple[Any, Any]:
    """Images uint8 and labels int64 of the training split."""
    if workload == "conv":  # made up: 16 images again and again, random labels
        images = np.random.default_rng(2).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
        labels = np.random.default_rng(0).integers(0, 10, 768, dtype=np.int64)
        return images[np.arange(768) % 16], labels
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1797).permutation(len(labels))[:1437]
    return images.reshape(-1, 8, 8, 1).astype(np.uint8)[order], labels.astype(np.int64)[order]


def steps_per_epoch(job: Job) -> int:
    """Updates in one pass over the data, the short last batch included."""
    return -(-len(load(job.workload)[1]) // job.global_batch)


def batches(tf: Any, job: Job, batch: int, *, index: int = 0, count: int = 1) -> Any:
    """Endless batches from memory, shuffled anew in each epoch; part `index` of `count`."""
    images, labels = load(job.workload)
    largest = 16 if job.workload == "digits" else 255

    def scale(image: Any, label: Any) -> Any:
        return tf.cast(image, tf.float32) / largest, label

    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shard(count, index)
    dataset = dataset.shuffle(len(labels), seed=job.seed).batch(batch).repeat()
    dataset = dataset.map(scale, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def compiled_model(
    tf: Any, job: Job, wrap: Any = lambda optimizer: optimizer, kind: Any = None
) -> Any:
    """The model, a Sequential or another kind, ready for `fit`; called in a strategy's scope."""
    layers, kind = tf.keras.layers, kind or tf.keras.Sequential
    if job.workload == "digits":
        model = kind(
            [
                layers.InputLayer((8, 8, 1)),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = tf.keras.optimizers.Adam(2e-3)
    else:
        model = kind(
            [
                layers.InputLayer((32, 32, 3)),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", strides=2, activation="relu"),
                layers.Conv2D(32, 3, padding="same", strides=2, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(
        optimizer=wrap(optimizer),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train(
    tf: Any,
    job: Job,
    model: Any,
    data: Any,
    *,
    steps: int | None = None,
    callbacks: tuple[Any, ...] = (),
    is_chief: bool = True,
) -> None:
    """`Model.fit` with a timer; the chief writes what came out, and the process ends."""
    steps = steps or steps_per_epoch(job)
    turns = _turns(tf, job, steps, is_chief)
    callbacks = (timer(tf), *callbacks, _result(tf, job, steps, is_chief), turns)
    model.fit(data, epochs=job.epochs, steps_per_epoch=steps, callbacks=[*callbacks], verbose=0)


def timer(tf: Any) -> Any:
    """Seconds from the beginning to the end of each epoch; nothing is called for each step."""

    class Timer(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.model.seconds = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.seconds.append(time.perf_counter() - self.began)

    return Timer()


def _turns(tf: Any, job: Job, steps: int, is_chief: bool) -> Any:
    """Waits between epochs while another run has its turn; between is not timed.

    Beside the result a file `turn` may say after how many updates to wait; `progress/chief` answers
    that it waits.
    """
    folder = Path(job.out).parent

    class Turns(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            done = (epoch + 1) * steps
            if epoch + 1 == job.epochs or not (folder / "turn").exists():
                return
            if is_chief and done >= float((folder / "turn").read_text()):
                (folder / "progress").mkdir(exist_ok=True)
                line = progress_line(WAITING, done, job.epochs * steps)
                (folder / "progress" / "chief").write_bytes(line)
            while done >= float((folder / "turn").read_text()):
                time.sleep(0.0005)

    return Turns()


def _result(tf: Any, job: Job, steps: int, is_chief: bool) -> Any:
    class Result(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.losses: list[float] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.losses.append(float(logs["loss"]))

        def on_train_end(self, logs: Any = None) -> None:
            if is_chief:
                found = {
                    "job": asdict(job),
                    "seconds": list(self.model.seconds),
                    "steps_per_epoch": steps,
                    "updates": int(self.model.optimizer.iterations.numpy()),
                    "examples_per_epoch": len(load(job.workload)[1]),
                    "loss": self.losses,
                    "cores": sorted(os.sched_getaffinity(0)),
                }
                Path(job.out).write_text(json.dumps(found))

    return Result()
