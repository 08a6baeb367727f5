"""Train one small Keras model through TensorFlow's Estimator: alone or as one of two processes.

estimator/compare.py starts it. It imports nothing of Ringside, and nothing of Ringside imports it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH, STEPS = 48, 200  # a global batch; each worker takes its half

parser = argparse.ArgumentParser()
parser.add_argument("--under", choices=["serial", "multi_worker_mirrored", "horovod"])
parser.add_argument("--folder", type=Path, help="gets a folder for each worker")
options = parser.parse_args()

worker, workers = 0, 1
strategy = None
if options.under == "multi_worker_mirrored":
    tf_config = json.loads(os.environ["TF_CONFIG"])
    worker, workers = tf_config["task"]["index"], len(tf_config["cluster"]["worker"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif options.under == "horovod":
    import horovod.tensorflow.keras as hvd_keras
    from horovod import tensorflow as hvd

    hvd.init()
    worker, workers = hvd.rank(), hvd.size()

if options.under != "serial" and workers != 2:
    parser.error(f"--under {options.under} must run as two processes. Received: {workers}.")

# Under Horovod another seed for each rank: without the hook that brings rank 0's weights to all, it
# would show. MultiWorkerMirrored has no such hook: each worker begins with its own first weights
# (model_to_estimator writes them into its model_dir), so they must be the same.
tf.keras.utils.set_random_seed(worker if options.under == "horovod" else 0)
tf.keras.backend.set_floatx("float64")  # then only a mistake makes a difference, not rounding


def batches() -> tf.data.Dataset:
    """Every workers-th row of each global batch."""
    random = np.random.default_rng(0)
    x = random.normal(size=(20 * BATCH, 64))
    y = (x @ random.normal(size=(64, 10))).argmax(axis=1)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH)
    return data.map(lambda x, y: (x[worker::workers], y[worker::workers]))


class Clock(tf.estimator.SessionRunHook):
    """Writes examples per second, the first update left out: TensorFlow prepares itself in it."""

    def begin(self) -> None:
        """Before the session."""
        self.ends: list[float] = []

    def after_run(self, run_context: object, run_values: object) -> None:
        """After each update."""
        self.ends.append(time.perf_counter())

    def end(self, session: object) -> None:
        """After the last update."""
        speed = BATCH * (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])
        (options.folder / str(worker) / "examples_per_s").write_text(str(speed))


# The Estimator takes legacy optimizers only; others it replaces by their legacy form.
optimizer = tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9)
hooks: list[tf.estimator.SessionRunHook] = [Clock()]
if options.under == "horovod":
    optimizer = hvd_keras.DistributedOptimizer(optimizer)
    hooks.append(hvd.BroadcastGlobalVariablesHook(0))

model = tf.keras.Sequential(
    [tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)), tf.keras.layers.Dense(10)]
)
model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))

estimator = tf.keras.estimator.model_to_estimator(
    model,
    config=tf.estimator.RunConfig(
        model_dir=str(options.folder / str(worker)), train_distribute=strategy
    ),
)
# Not `estimator.train`: under MultiWorkerMirrored it refuses ("Only `STANDALONE_CLIENT` mode …").
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(batches, max_steps=STEPS, hooks=hooks),
    tf.estimator.EvalSpec(batches, steps=1),
)
