"""The table of ways to train and precisions: one small net, and what plain Keras makes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import get_weights, set_weights, tf
from ringside_core.specs import RecordInProgress, RefusalError, RunSpec
from ringside_core.workloads.workload import Workload
from tests.training.programs.models import BATCH, EPOCHS
from trainers.authors_fit import train_call
from trainers.fit_call import fit_call
from trainers.prepare import prepare
from trainers.step import Steps
from trainers.train import train

EXAMPLES = 16  # the last batch holds 4: at two replicas the second one is part-filled
# Precision of a cell → (the policy's floatx, bound on the difference from plain Keras).
PRECISIONS = {
    "float64": ("float64", 1e-10),
    "float32": ("float32", 2e-5),
    "mixed_float16": ("float32", 20 * 2**-11),
    "mixed_bfloat16": ("float32", 20 * 2**-8),
}


# Keras' own step in `fit`, the loop's, and one of the author's; in each precision. And a model that
# a script has compiled, with a loss scale.
CELLS = [
    *product(("fit", "loop", "own step in loop"), PRECISIONS),
    ("script in fit", "mixed_float16"),
]


class OwnStep(tf.keras.Sequential):
    """A net with a training step of its author's."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            made = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=made)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Within this block Keras computes so."""
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx(PRECISIONS[precision][0])
    tf.keras.mixed_precision.set_global_policy(precision)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(None)
        tf.keras.backend.set_floatx(before)


def data(precision: str) -> tuple[Any, Any]:
    """x [EXAMPLES, 3] and y [EXAMPLES, 1]; in float16 the gradient of one example overflows.

    The others are far from that: Horovod's rank has the mean over its own examples, which may be
    larger than the mean over all.
    """
    drawn = np.random.default_rng(0)
    x = 0.15 * drawn.normal(size=(EXAMPLES, 3))
    y = np.sin(x.sum(axis=1, keepdims=True))
    if precision == "mixed_float16":
        y[2 * BATCH] = 300  # of the third batch, in the first replica's part
    floatx = PRECISIONS[precision][0]
    return x.astype(floatx), y.astype(floatx)


def net(kind: Any = tf.keras.Sequential) -> Any:
    """Two layers; the last one's sum is not left in 16 bits."""
    layers = tf.keras.layers
    return kind(
        [
            layers.Dense(8, "tanh", input_shape=(3,)),
            layers.Dense(1),
            layers.Activation("linear", dtype=tf.keras.backend.floatx()),
        ]
    )


def optimizer() -> Any:
    """With a state."""
    return tf.keras.optimizers.SGD(0.5, momentum=0.5)


def compiled() -> Any:
    """As its author compiles it, with weights of his own seed."""
    tf.keras.utils.set_random_seed(3)
    model = net()
    model.compile(optimizer(), "mse")
    return model


def cell(
    spec: RunSpec, backend: Backend, run_dir: Path, way: str, precision: str
) -> dict[str, Any]:
    """Where a training began and ended, and its loss; or why it is refused."""
    trainer = way.split()[-1]
    spec = spec.replace(
        precision=PRECISIONS[precision][0], epochs=EPOCHS, save="record", trained_by=trainer
    )
    kind = OwnStep if way.startswith("own") else tf.keras.Sequential
    with computing_in(precision):
        work = Workload(
            name="cell",
            model=partial(net, kind),
            train=data(precision),
            loss="mse",
            optimizer=optimizer,
        )
        record = RecordInProgress.begun(spec)
        try:
            if not way.startswith("script"):
                return _trained(record, work, backend, run_dir)
            with backend.scope():
                model = compiled()
            return _fitted(record, model, backend, run_dir, precision)
        except (RefusalError, ValueError) as error:  # a script's author builds his model himself
            return {"refused": str(error)}


def _trained(
    record: RecordInProgress, work: Workload, backend: Backend, run_dir: Path, **how: Any
) -> dict[str, Any]:
    driver = prepare(record, work, backend, run_dir=run_dir, **how)
    model = driver.training.model
    initial = get_weights(model)
    train(driver)
    return {
        **{f"initial {i}": weight for i, weight in enumerate(initial)},
        "loss": [epoch.train["loss"] for epoch in record.epochs],
        **_left(model),
    }


def _fitted(
    record: RecordInProgress, model: Any, backend: Backend, run_dir: Path, precision: str
) -> dict[str, Any]:
    x, y = data(precision)
    call = fit_call(model, x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False)
    initial = get_weights(model)
    train_call(call, record, Steps(backend), run_dir=run_dir, number=1)
    return {
        **{f"initial {i}": weight for i, weight in enumerate(initial)},
        "loss": [epoch.train["loss"] for epoch in record.epochs],
        **_left(model),
    }


def _left(model: Any) -> dict[str, Any]:
    left = {f"final {i}": weight for i, weight in enumerate(get_weights(model))}
    left["iterations"] = model.optimizer.iterations.numpy()
    if isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer):
        left["scale"] = model.optimizer.loss_scale.numpy()
        left["counter"] = model.optimizer.dynamic_counter.numpy()
    return left


def by_plain_keras(precision: str, initial: list[Any]) -> dict[str, Any]:
    """`Model.fit` on the same batches in order, without Ringside."""
    with computing_in(precision):
        model = net()
        model.compile(optimizer(), "mse")
        set_weights(model, initial)
        x, y = data(precision)
        told = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
        return {"loss": told.history["loss"], **_left(model)}
