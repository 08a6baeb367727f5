"""A training step of the user's own is inspected: can it be divided among replicas?"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ringside
from ringside.verify.inspection import inspect_model
from ringside.verify.slices import Inspection
from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

BATCH = 12


class Stepping(tf.keras.Model):
    """Trains a line by a loss that a subclass makes."""

    def __init__(self) -> None:
        super().__init__()
        self.line = tf.keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.line(x)

    def loss_of(self, error: Any) -> Any:
        """From the errors [batch, 1] to a scalar."""
        return tf.reduce_mean(error**2)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(self(x) - y)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class Noisy(Stepping):
    """A number for each example."""

    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean((error + tf.random.normal(tf.shape(error), dtype=error.dtype)) ** 2)


class Summing(Stepping):
    def loss_of(self, error: Any) -> Any:
        return tf.reduce_sum(error**2)


class Sized(Stepping):
    """A weight for each example of a batch, as many as its author takes."""

    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean(error**2 * tf.ones([BATCH, 1]))


class OtherSized(Stepping):
    """Its author's batch was another one."""

    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean(tf.reshape(error, [BATCH + 1, 1]) ** 2)


class Queued(Stepping):
    """Keeps what it was given last, and the number of its steps."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("queue", (2 * BATCH, 1)), ("steps", ())):
            kept = self.add_weight(shape=shape, name=name, initializer="zeros", trainable=False)
            setattr(self, name, kept)

    def loss_of(self, error: Any) -> Any:
        self.steps.assign_add(1.0)
        self.queue.assign(tf.concat([error, self.queue], axis=0)[: 2 * BATCH])
        return tf.reduce_mean(error**2)


class InOneCall(Stepping):
    """A network drops in two batches at once, as the discriminator of a GAN."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = tf.keras.layers.Dropout(0.5, name="drop")

    def loss_of(self, error: Any) -> Any:
        dropped = self.drop(tf.concat([error, 2.0 * error], axis=0), training=True)
        return tf.reduce_mean(dropped**2)


class InRows(InOneCall):
    """Two rows of each example stand side by side, as of its steps of time."""

    def loss_of(self, error: Any) -> Any:
        rows = tf.reshape(tf.concat([error, 2.0 * error], axis=1), [-1, 1])
        return tf.reduce_mean(self.drop(rows, training=True) ** 2)


class Mixing(Stepping):
    """A mean and a sum."""

    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean(error**2) + tf.reduce_sum(tf.abs(error))


class Constant(Stepping):
    """A number for each of twelve examples, however many there are."""

    def loss_of(self, error: Any) -> Any:
        noise = tf.random.normal((BATCH, 1), dtype=error.dtype)
        return tf.reduce_mean(error**2) + tf.reduce_mean((self.line.kernel[0] - noise) ** 2)


class Contrasting(Stepping):
    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean((error - tf.transpose(error)) ** 4)


class Gathering(Stepping):
    """Couples the examples of the whole batch."""

    def loss_of(self, error: Any) -> Any:
        whole = ringside.gather(error)
        return tf.reduce_mean((whole - tf.transpose(whole)) ** 4)


class GatheringInPart(Stepping):
    """Couples its own examples too."""

    def loss_of(self, error: Any) -> Any:
        whole = ringside.gather(error)
        return tf.reduce_mean((whole - tf.transpose(whole)) ** 4) * tf.reduce_max(error)


class Tossing(Stepping):
    """Five numbers for the whole batch."""

    def loss_of(self, error: Any) -> Any:
        return tf.reduce_mean(error**2) * tf.random.uniform([5], dtype=error.dtype)[0]


class Idle(Stepping):
    """A bias that softmax takes out: its gradient should be zero, and is nothing but rounding."""

    def loss_of(self, error: Any) -> Any:
        shifted = tf.concat([error, 2.0 * error], -1) + self.shift
        return super().loss_of(tf.nn.softmax(shifted)[:, :1])

    def __init__(self) -> None:
        super().__init__()
        self.shift = tf.Variable(0.1, dtype=tf.keras.backend.floatx(), name="shift")


class Choosing(Stepping):
    """Chooses what it updates by the size of its batch."""

    def train_step(self, data: Any) -> dict[str, Any]:
        if len(data[0]) < BATCH:
            return {"loss": tf.constant(0.0)}
        return super().train_step(data)


def inspected(model: Callable[[], Any]) -> Inspection:
    """Inspect a step on twelve examples between 2 and 3 replicas."""
    generator = np.random.default_rng(5)
    shapes = (BATCH, 4), (BATCH, 1)
    data: Any = tuple(generator.normal(size=shape).astype(np.float32) for shape in shapes)
    workload = Workload(name="own", model=model, train=data, optimizer="sgd")
    return inspect_model(workload, batch=data, replicas=(1, 2, 3))


@pytest.mark.parametrize("model", [Stepping, Noisy, Idle])
def test_a_mean_over_examples_can_be_divided(model: Callable[[], Any]) -> None:
    """Also one with random numbers that belong to the examples; these are told."""
    found = inspected(model)

    assert found.obstacles == ()
    assert len(found.by_design) == (model is Noisy)


def test_a_step_that_couples_its_batch_is_by_design() -> None:
    """Each replica makes it with its part of the batch; so does the serial run."""
    found = inspected(Contrasting)

    assert found.obstacles == ()
    (coupled,) = found.by_design
    assert (coupled.layer, coupled.split) == ("Contrasting.train_step", True)


def test_a_loss_of_gathered_rows_is_that_of_the_whole_batch() -> None:
    """Nothing depends on the split; of one that is gathered in part, something does."""
    found = inspected(Gathering)
    assert (found.obstacles, found.by_design) == ((), ())

    (coupled,) = inspected(GatheringInPart).by_design
    assert (coupled.layer, coupled.split) == ("GatheringInPart.train_step", True)


def test_what_is_dropped_of_two_batches_in_one_call_belongs_to_the_examples() -> None:
    """So it is the same when the batch is split, and nothing couples the examples."""
    found = inspected(InOneCall)

    assert found.obstacles == ()
    (drawn,) = found.by_design
    assert (drawn.layer, drawn.split) == ("drop (Dropout)", False)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Summing, "Summing.train_step has a loss that is a sum over its batch"),
        (Mixing, "Mixing.train_step has a loss of which a part is a sum over its batch"),
        (Constant, "Constant.train_step draws random numbers for a constant number of examples"),
        (Tossing, "Tossing.train_step draws random numbers"),
        (Choosing, "Choosing.train_step updates other variables"),
        (Sized, "Sized.train_step cannot be called on 6 of 12 examples, a replica's part"),
        (InRows, "InRows.train_step has drop (Dropout), which draws several rows"),
        (Queued, "Queued.train_step assigns queue from its batch"),
        (OtherSized, "the model cannot be called: InvalidArgumentError: Input to reshape"),
    ],
)
def test_what_cannot_be_divided_is_named(model: Callable[[], Any], words: str) -> None:
    """The step, and why."""
    (found,) = inspected(model).obstacles
    assert found.startswith(words)
