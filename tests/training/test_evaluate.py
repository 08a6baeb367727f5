"""Which metrics and added losses are exact, and what the serial evaluation says of them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, Surroundings
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.workload import Workload
from tests.training.exact.epoch import still, trained_metrics
from tests.training.exact.models import SIZES, WORKLOADS, ProbabilityIoU, classifier, two_outputs
from tests.training.exact.reference import plain_keras
from tests.training.test_trainer import serial_spec
from trainers.build import build
from trainers.evaluate import Evaluation

GLOBAL_BATCH = 6


@pytest.fixture(autouse=True)
def _float64() -> None:
    tf.keras.backend.set_floatx("float64")


def evaluated(workload: Workload) -> tuple[dict[str, float], int, list[np.ndarray]]:
    """Metrics, count and weights under the serial backend."""
    spec = serial_spec(precision="float64", global_batch=GLOBAL_BATCH)
    with make_backend(spec, Surroundings()) as backend:
        model = build(spec, workload, backend, steps_per_epoch=1)
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=False)
        values, counted = Evaluation(model, workload, backend, pipeline)()
        return values, counted, model.get_weights()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_evaluation_is_that_of_plain_keras(name: str, size: int) -> None:
    """Names and values, whatever the batch of the other one: 5 divides neither size."""
    workload = WORKLOADS[name](size)

    values, counted, weights = evaluated(workload)

    expected, _ = plain_keras(workload, weights, batch=5)
    assert list(values) == list(expected)
    assert values == pytest.approx(expected, rel=1e-12)
    assert counted == size


@pytest.mark.parametrize("name", WORKLOADS)
def test_metrics_of_an_epoch_are_those_of_plain_keras(name: str) -> None:
    """The losses of the outputs are not among them: Keras takes the mean of batches for those."""
    workload = dataclasses.replace(WORKLOADS[name](7), optimizer=still)
    spec = serial_spec(precision="float64", global_batch=GLOBAL_BATCH)
    with make_backend(spec, Surroundings()) as backend:
        model = build(spec, workload, backend, steps_per_epoch=2)

        values = trained_metrics(spec, workload, backend, model)

        expected, _ = plain_keras(workload, model.get_weights(), batch=5)
    expected = {key: value for key, value in expected.items() if not key.endswith("loss")}
    assert values == pytest.approx(expected, rel=1e-12)


def test_the_loss_of_each_output_leaves_padding_out() -> None:
    """Nothing but padding fills 7 examples up to two batches of 6."""

    def model() -> Any:
        inputs, dense = tf.keras.Input((3,)), tf.keras.layers.Dense
        return tf.keras.Model(
            inputs, [dense(1, name="size")(inputs), dense(1, "sigmoid", name="sign")(inputs)]
        )

    workload = dataclasses.replace(two_outputs(7), model=model)

    values, _, (kernel, bias, *_) = evaluated(workload)

    x, y, weight = workload.validation.arrays
    error = (x @ kernel + bias - y["size"])[:, 0]
    assert values["size_loss"] == pytest.approx(np.mean(error**2 * weight), rel=1e-12)


class OneVariable(tf.keras.metrics.Metric):
    """A user's own metric with one variable that is updated as the subclass says."""

    def __init__(self, **options: Any) -> None:
        super().__init__(name="mine")
        self.state = self.add_weight(name="state", initializer="zeros", **options)

    def result(self) -> Any:
        """The variable."""
        return tf.identity(self.state)


class Largest(OneVariable):
    """A running maximum."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.state.assign(tf.maximum(self.state, tf.reduce_max(y_pred)))


class Counting(OneVariable):
    """Counts examples and never looks at their weights."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.state.assign_add(tf.cast(tf.shape(y_pred)[0], self.state.dtype))


class Overwriting(OneVariable):
    """Adds up weights, by reading and assigning."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.state.assign(self.state + tf.reduce_sum(sample_weight))


class WeightSum(OneVariable):
    """Adds up weights, exactly."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.state.assign_add(tf.reduce_sum(sample_weight))


class BatchSquares(OneVariable):
    """Adds up the square of what a batch weighs."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.state.assign_add(tf.reduce_sum(sample_weight) ** 2)


class Outside(WeightSum):
    """Keeps a part of its state where no backend looks."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """See a batch."""
        self.seen += 1
        super().update_state(y_true, y_pred, sample_weight)

    def result(self) -> Any:
        """Weight of a batch."""
        return self.state / self.seen


class OwnVariable(WeightSum):
    """Makes its variable without saying how replicas share it."""

    def __init__(self) -> None:
        tf.keras.metrics.Metric.__init__(self, name="mine")
        self.state = tf.Variable(0.0, dtype=tf.float64, trainable=False)


class Pair(WeightSum):
    """Two numbers."""

    def result(self) -> Any:
        """Twice the same."""
        return tf.stack([self.state, self.state])


class Unweighted(OneVariable):
    """Takes no weights."""

    def update_state(self, y_true: Any, y_pred: Any) -> None:
        """See a batch."""
        self.state.assign_add(tf.reduce_sum(y_pred))


def average() -> Any:
    """A variable of which strategies would take the mean."""
    return WeightSum(aggregation=tf.VariableAggregation.MEAN)


shared = functools.cache(WeightSum)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Largest, r"mine: its variable state.* cannot be summed over replicas"),
        (Counting, "mine: it counts examples of sample weight 0"),
        (Overwriting, r"mine: its variable state.* use assign_add"),
        (BatchSquares, "mine: its result depends on how examples are put into batches"),
        (Outside, "mine: its result does not follow from its variables alone"),
        (OwnVariable, r"mine: .*aggregation NONE\): make it with self.add_weight"),
        (average, r"mine: .*aggregation MEAN\): make it with self.add_weight"),
        (Pair, r"mine: its result must be one number, not \(2,\)"),
        (Unweighted, "sample_weight"),
        (shared, "`metrics` must build new metrics.*mine twice"),
    ],
)
def test_a_metric_that_replicas_cannot_share_is_refused(
    metric: Callable[[], Any], words: str
) -> None:
    """Before training, under the serial backend too, with its name and the reason."""
    with pytest.raises(RefusalError, match=words):
        evaluated(changed(metrics=lambda: ["accuracy", metric()]))


def test_a_metric_of_ones_own_is_exact() -> None:
    """A sum of weights is NumPy's."""
    workload = changed(metrics=lambda: [WeightSum()])

    values, *_ = evaluated(workload)

    assert values["mine"] == pytest.approx(workload.validation.arrays[2].sum(), rel=1e-12)


class Forked(tf.keras.layers.Layer):
    """An author's layer with an `if` on a tensor."""

    def call(self, inputs: Any) -> Any:
        """Half of a batch with more below zero."""
        if tf.reduce_sum(inputs) > 0:
            inputs *= 0.5
        return inputs


class Forking(tf.keras.metrics.Sum):
    """An author's metric with an `if` on a tensor."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Count a batch of which something holds."""
        if tf.reduce_sum(y_pred) > 0:
            return super().update_state(tf.reduce_sum(sample_weight))
        return super().update_state(0.0)


def forked_loss(y_true: Any, y_pred: Any) -> Any:
    """An author's loss with an `if` on a tensor."""
    loss = tf.reduce_mean(tf.square(y_pred - 1.0), axis=-1)
    if tf.reduce_mean(loss) > 0:
        loss *= 2.0
    return loss


def test_what_an_author_has_written_for_autograph_is_rewritten() -> None:
    """A layer, a loss and a metric; Ringside's own code goes without."""
    workload = changed(
        model=lambda: tf.keras.Sequential([tf.keras.layers.Input((3,)), Forked()]),
        loss=forked_loss,
        metrics=lambda: [Forking(name="mine")],
    )

    values, *_ = evaluated(workload)

    x, _, weight = (np.asarray(part, np.float64) for part in workload.validation.arrays)
    batches = [slice(at, at + GLOBAL_BATCH) for at in range(0, len(x), GLOBAL_BATCH)]
    halves = [x[part] * (0.5 if x[part].sum() > 0 else 1.0) for part in batches]
    losses = [
        2 * np.square(half - 1).mean(axis=1) @ weight[part]
        for half, part in zip(halves, batches, strict=True)
    ]
    counted = [
        weight[part].sum() for half, part in zip(halves, batches, strict=True) if half.sum() > 0
    ]
    assert values["loss"] == pytest.approx(sum(losses) / len(x), rel=1e-12)
    assert values["mine"] == pytest.approx(sum(counted), rel=1e-12)


def test_metrics_without_a_name_are_called_as_in_training() -> None:
    """Keras numbers them in the order in which they are made: validation makes more."""
    workload = changed(metrics=lambda: [ProbabilityIoU(4)])

    values, *_ = evaluated(workload)

    assert list(values) == ["loss", "probability_io_u"]


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (lambda: {"nowhere": ["accuracy"]}, "must fit the model's outputs.*nowhere"),
        (lambda: [ProbabilityIoU(4, name="loss")], "names of their own"),
    ],
)
def test_metrics_that_name_the_wrong_thing_are_refused(
    metrics: Callable[[], Any], words: str
) -> None:
    """An output that there is not, and the name of the loss."""
    with pytest.raises(RefusalError, match=words):
        evaluated(changed(metrics=metrics))


@pytest.mark.parametrize("mean", [True, False])
def test_a_loss_that_a_model_adds_is_a_mean_over_the_examples(mean: bool) -> None:
    """A mean is exact where padding would count; a sum is refused."""
    reduce = tf.reduce_mean if mean else tf.reduce_sum

    class Adding(tf.keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(reduce(inputs**2))
            return inputs

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [tf.keras.Input((3,)), Adding(), layers.Dense(4, "softmax", use_bias=False)]
        )

    workload = changed(model=model, metrics=list)
    if not mean:
        with pytest.raises(RefusalError, match="must be a mean over the batch"):
            evaluated(workload)
        return

    values, _, (kernel,) = evaluated(workload)

    x, labels, weight = workload.validation.arrays
    powers = np.exp(x @ kernel)
    likelihood = powers[np.arange(len(x)), labels] / powers.sum(axis=1)
    expected = np.mean(-np.log(likelihood) * weight) + np.mean(x**2)
    assert values == {"loss": pytest.approx(expected, rel=1e-12)}


def changed(**changes: Any) -> Workload:
    """The classifier on 7 examples with something else."""
    return dataclasses.replace(classifier(7), **changes)
