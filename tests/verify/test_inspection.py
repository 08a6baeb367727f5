"""What the inspection names, and that it leaves clean models alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside.verify.inspection import inspect_model
from ringside.verify.slices import Inspection
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.workload import Workload

layers = tf.keras.layers
BATCH = 12


@pytest.fixture(autouse=True)
def float64() -> None:
    """As the gate inspects: rounding is far below what is looked for."""
    tf.keras.backend.set_floatx("float64")
    tf.keras.utils.set_random_seed(3)


def inspected(
    model: Callable[[], Any], *, x: Any = None, y: Any = None, loss: Any = "mse"
) -> Inspection:
    """Inspect a model on twelve examples between 1, 2 and 3 replicas."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(BATCH, 4)) if x is None else x
    y = generator.normal(size=(BATCH, 1)) if y is None else y
    workload = Workload(
        name="inspected",
        model=model,
        train=(x, y),
        validation=(x, y),
        loss=loss,
        optimizer=tf.keras.optimizers.SGD,
    )
    return inspect_model(workload, batch=(x, y), replicas=(1, 2, 3))


def chain(*inside: Any, shape: tuple[int, ...] = (4,)) -> Callable[[], Any]:
    """Builds Input, what is given, and one output."""
    return lambda: tf.keras.Sequential(
        [layers.Input(shape), *(make() for make in inside), layers.Flatten(), layers.Dense(1)],
        name="chain",
    )


class BatchMean(tf.keras.layers.Layer):
    """Takes the mean over the batch off."""

    def call(self, inputs: Any) -> Any:
        return inputs - tf.reduce_mean(inputs, axis=0)


class ReadsBatchSize(tf.keras.layers.Layer):
    """Divides by the number of examples."""

    def call(self, inputs: Any) -> Any:
        return inputs / tf.cast(tf.shape(inputs)[0], inputs.dtype)


class GivesBatchMean(tf.keras.layers.Layer):
    """A mean over the batch, which is no value of an example."""

    def call(self, inputs: Any) -> Any:
        return tf.reduce_mean(inputs, axis=0)


class FixedBatch(tf.keras.layers.Layer):
    """Was written for twelve examples."""

    def call(self, inputs: Any) -> Any:
        return tf.reshape(inputs, [BATCH, inputs.shape[-1]])


class AddsVariance(tf.keras.layers.Layer):
    """Adds the variance over the batch to the loss."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_sum(tf.math.reduce_variance(inputs, axis=0)))
        return inputs


class AddsMean(tf.keras.layers.Layer):
    """Adds a mean over the batch to the loss: the mean of the slices' means."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_mean(tf.square(inputs)))
        return inputs


class Pairs(tf.keras.layers.Layer):
    """Every example with every other."""

    def call(self, inputs: Any) -> Any:
        return inputs @ tf.transpose(inputs)


class OwnNorm(tf.keras.layers.BatchNormalization):
    """A subclass that computes something else."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        return super().call(inputs * 2.0, training=training)


def built(kind: Callable[[], Any]) -> Callable[[], Any]:
    """A subclassed model has weights only after its first call; Ringside asks for that."""

    def make() -> Any:
        model = kind()
        model(tf.zeros((1, 4), tf.keras.backend.floatx()))
        return model

    return make


class CentredModel(tf.keras.Model):
    """Couples the batch between its layers, not in one of them."""

    def __init__(self) -> None:
        super().__init__(name="centred")
        self.first, self.last = layers.Dense(5, activation="tanh"), layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        return self.last(hidden - tf.reduce_mean(hidden, axis=0))


class MeanInModel(CentredModel):
    """The same with the mean from a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = GivesBatchMean(name="middle")

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        return self.last(hidden - self.mean(hidden))


class NoisyModel(CentredModel):
    """Draws between its layers."""

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        return self.last(hidden + tf.random.normal([5], dtype=hidden.dtype)[0])


class PlainModel(CentredModel):
    """Subclassed, with a tf.function of its own and a layer within a list."""

    def __init__(self) -> None:
        super().__init__()
        self.more = [layers.Dense(5), layers.Dropout(0.5, name="inner_drop")]

    @tf.function
    def call(self, inputs: Any, training: Any = None) -> Any:
        hidden = self.first(inputs)
        for layer in self.more:
            hidden = layer(hidden, training=training)
        return self.last(hidden)


def dense() -> Any:
    """A layer in front of the one that matters: the first is not always to blame."""
    return layers.Dense(6, activation="tanh")


def noise() -> Any:
    """Draws where no generator of Keras is."""
    return layers.Lambda(lambda t: t + tf.random.normal(tf.shape(t), dtype=t.dtype), name="noise")


class Blurring(tf.keras.layers.Layer):
    """Draws in training only."""

    def call(self, x: Any, training: bool = False) -> Any:
        return x + tf.random.normal(tf.shape(x), dtype=x.dtype) if training else x


def blur() -> Any:
    """Such a layer."""
    return Blurring(name="blur")


def noise_for_all() -> Any:
    """Draws five numbers for all examples of a batch."""
    return layers.Lambda(lambda t: t + tf.random.normal([5, 1, 1], dtype=t.dtype)[0], name="noise")


class OneNoise(tf.keras.layers.Layer):
    """Draws one number for all examples of a batch."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + tf.random.normal([], dtype=inputs.dtype) if training else inputs


def drop_alike(name: str) -> Any:
    """The same units for all examples of a batch."""
    return layers.Dropout(0.5, noise_shape=(1, 6), name=name)


def nested(inside: Callable[[], Any]) -> Callable[[], Any]:
    """A model within a model."""
    return chain(lambda: chain(dense, inside)(), dense)


def with_mean_of_ops() -> Any:
    """A functional model whose mean over the batch is an operation, not a layer one wrote."""
    inputs = layers.Input((4,))
    hidden = dense()(inputs)
    rows = tf.reshape(hidden, [tf.shape(hidden)[0], 6])  # harmless, and first in the graph
    return tf.keras.Model(inputs, layers.Dense(1)(rows - tf.reduce_mean(rows, axis=0)))


IMAGES = np.random.default_rng(1).normal(size=(BATCH, 6, 6, 2))
TOKENS = np.random.default_rng(2).integers(1, 9, size=(BATCH, 5))
SEQUENCES = np.random.default_rng(3).normal(size=(BATCH, 5, 4))

SPLIT = "gives an example another output when its batch is split"
CHANCE = "draws random numbers that Ringside cannot tie to the example"
COUPLED = [
    (chain(dense, lambda: BatchMean(name="centre")), f"layer centre (BatchMean) {SPLIT}"),
    (chain(dense, lambda: ReadsBatchSize(name="size")), f"layer size (ReadsBatchSize) {SPLIT}"),
    (chain(dense, lambda: OwnNorm(name="own")), f"layer own (OwnNorm) {SPLIT}"),
    (nested(lambda: BatchMean(name="deep")), f"layer deep (BatchMean) {SPLIT}"),
    (chain(dense, noise_for_all, dense), f"layer noise (Lambda) {CHANCE}"),
    (nested(noise_for_all), f"layer noise (Lambda) {CHANCE}"),
    (built(CentredModel), f"model centred (CentredModel) {SPLIT}"),
    (built(MeanInModel), f"layer middle (GivesBatchMean) {SPLIT}"),
    (built(NoisyModel), f"model centred (NoisyModel) {CHANCE}"),
]


@pytest.mark.parametrize(
    ("model", "obstacle"), COUPLED, ids=lambda case: case[:30] if isinstance(case, str) else ""
)
def test_what_couples_or_draws_is_named_where_it_begins(
    model: Callable[[], Any], obstacle: str
) -> None:
    """One obstacle, which names the layer; nothing behind it is blamed."""
    assert inspected(model).obstacles == (obstacle,)


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        (chain(dense, blur, dense), "blur (Blurring)"),
        (nested(blur), "blur (Blurring)"),
        (chain(dense, lambda: OneNoise(name="one"), dense), "one (OneNoise)"),
    ],
)
def test_what_is_drawn_for_each_example_is_tied(model: Callable[[], Any], layer: str) -> None:
    """By tf.random too, in a layer of the user's own; and one number for the whole batch."""
    found = inspected(model)

    assert found.obstacles == ()
    assert [(one.layer, one.treated) for one in found.by_design] == [
        (layer, "drawn as a function of the example, the step and the layer, in every arm")
    ]


def test_many_layers_with_one_fault_are_told_in_one_line() -> None:
    """A graph network has dozens of dropout layers that drop nodes for all examples."""
    many = inspected(chain(dense, *[lambda n=n: drop_alike(f"drop_{n}") for n in "abc"], dense))

    assert many.obstacles == (f"layer drop_a (Dropout), like 2 others, {CHANCE}",)


def test_what_is_drawn_in_evaluation_too_is_named() -> None:
    """Each evaluation would be another one; what draws in training only is tied."""
    always = inspected(chain(dense, noise, dense))

    (obstacle,) = always.obstacles
    assert obstacle.startswith("layer noise (Lambda) draws random numbers in evaluation too")


def test_an_operation_of_a_functional_model_is_named() -> None:
    """The mean is to blame, not the subtraction it goes into, nor the harmless size before it."""
    found = inspected(with_mean_of_ops)

    assert len(found.obstacles) == 1
    assert "reduce_mean (TFOpLambda) gives" in found.obstacles[0]


def test_a_layer_for_one_size_of_batch_is_named() -> None:
    """It fails on a slice; the error is told, not raised."""
    found = inspected(chain(dense, lambda: FixedBatch(name="fixed"), shape=(4,)))

    assert len(found.obstacles) == 1
    assert found.obstacles[0].startswith(
        "layer fixed (FixedBatch) cannot be called on 6 of 12 examples: "
    )


def test_an_output_of_pairs_is_an_obstacle() -> None:
    """Nothing stands behind it that would show the harm."""
    inputs = layers.Input((4,))
    model = tf.keras.Model(inputs, Pairs(name="pairs")(dense()(inputs)))

    found = inspected(lambda: model, y=np.zeros((BATCH, BATCH)))

    assert found.obstacles == (f"layer pairs (Pairs) {SPLIT}",)


def test_one_seed_for_the_whole_batch_is_an_obstacle() -> None:
    """Such a layer draws where Ringside cannot reach; RandomFlip does not."""
    contrast = chain(lambda: layers.RandomContrast(0.5), layers.Flatten, shape=(6, 6, 2))
    found = inspected(contrast, x=IMAGES)
    flipped = inspected(chain(layers.RandomFlip, layers.Flatten, shape=(6, 6, 2)), x=IMAGES)

    assert flipped.obstacles == ()
    assert len(found.obstacles) == 1
    assert found.obstacles[0].startswith("layer random_")
    assert found.obstacles[0].endswith(CHANCE)
    assert len(found.random_layers) == 1
    assert found.by_design == ()


RANDOM = [
    (chain(dense, lambda: layers.Dropout(0.5, name="drop")), None, ["drop (Dropout)"]),
    (chain(dense, lambda: layers.GaussianNoise(0.5, name="g")), None, ["g (GaussianNoise)"]),
    (chain(dense, lambda: layers.GaussianDropout(0.5, name="g")), None, ["g (GaussianDropout)"]),
    (chain(dense, lambda: layers.AlphaDropout(0.5, name="a")), None, ["a (AlphaDropout)"]),
    (chain(dense, lambda: layers.Dropout(0.0)), None, []),
    (nested(lambda: layers.Dropout(1e-6, name="rare")), None, ["rare (Dropout)"]),
    (built(PlainModel), None, ["inner_drop (Dropout)"]),
    (
        chain(lambda: layers.SpatialDropout2D(0.5, name="s"), shape=(6, 6, 2)),
        IMAGES,
        ["s (SpatialDropout2D)"],
    ),
    (
        chain(lambda: layers.LSTM(3, dropout=0.3, name="lstm"), shape=(5, 4)),
        SEQUENCES,
        ["lstm (LSTM)"],
    ),
    (
        chain(lambda: layers.GRU(3, recurrent_dropout=0.3, name="gru"), shape=(5, 4)),
        SEQUENCES,
        ["gru_cell (GRUCell)"],
    ),
]


@pytest.mark.parametrize(("model", "x", "names"), RANDOM)
def test_what_can_be_tied_is_by_design(model: Callable[[], Any], x: Any, names: list[str]) -> None:
    """However seldom it draws; a layer that draws nothing is not named."""
    found = inspected(model, x=x)

    assert found.obstacles == ()
    assert list(found.random_layers) == names
    assert [one.layer for one in found.by_design] == names


def turned(layer: Any) -> Callable[[], Any]:
    """An image layer with one factor."""
    return chain(lambda: layer(0.2, name="moved"), shape=(6, 6, 2))


@pytest.mark.parametrize("layer", [layers.RandomRotation, layers.RandomZoom])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_image_layers_are_tied(layer: Any, precision: str) -> None:
    """In float64 too, where Keras' rotation would fail."""
    tf.keras.backend.set_floatx(precision)

    found = inspected(turned(layer), x=IMAGES.astype(precision))

    assert found.obstacles == ()
    assert found.random_layers == (f"moved ({layer.__name__})",)


def test_images_are_rotated_in_float64() -> None:
    """A quarter turn is NumPy's."""
    turned = layers.RandomRotation((0.25, 0.25), interpolation="nearest")(IMAGES, training=True)

    np.testing.assert_array_equal(turned, np.rot90(IMAGES, axes=(1, 2)))


def test_batch_norm_of_each_replica_is_by_design() -> None:
    """What stands behind it is not blamed; what else couples the batch still is."""
    norm = lambda: layers.BatchNormalization(name="norm")  # noqa: E731

    clean = inspected(chain(dense, norm, dense))
    coupled = inspected(chain(norm, dense, lambda: BatchMean(name="centre"), dense))

    assert clean.obstacles == ()
    assert [one.layer for one in clean.by_design] == ["norm (BatchNormalization)"]
    assert clean.split_layers == ("norm (BatchNormalization)",)
    assert coupled.obstacles == (f"layer centre (BatchMean) {SPLIT}",)
    assert coupled.split_layers == ("norm (BatchNormalization)", "centre (BatchMean)")


def two_in_two_out() -> Any:
    """One of its layers is called twice."""
    first, second = layers.Input((4,)), layers.Input((4,))
    shared = dense()
    both = layers.Concatenate()([shared(first), shared(second)])
    return tf.keras.Model([first, second], [layers.Dense(1)(both), layers.Dense(2)(both)])


def attention() -> Any:
    """With positions, which are no values of an example."""
    inputs = layers.Input((5, 4))
    hidden = layers.MultiHeadAttention(2, 3)(inputs, inputs)
    hidden = layers.LayerNormalization()(hidden + inputs)
    positions = tf.range(tf.shape(hidden)[1])
    hidden += layers.Embedding(5, 4)(positions)
    return tf.keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(hidden)))


def masked() -> Any:
    """Masks go from layer to layer and through a wrapper."""
    inputs = layers.Input((5,))
    hidden = layers.Embedding(9, 4, mask_zero=True)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(hidden)
    return tf.keras.Model(inputs, layers.Dense(1)(layers.GRU(3)(hidden)))


def variational() -> Any:
    """A mean over the batch that only goes into the loss."""
    inputs = layers.Input((4,))
    hidden = dense()(inputs)
    model = tf.keras.Model(inputs, layers.Dense(1)(hidden))
    model.add_loss(tf.reduce_mean(tf.square(hidden)))
    return model


def time_distributed() -> Any:
    """Time is folded into the batch, and is its first axis for a while."""
    inputs = layers.Input((5, 4))
    hidden = layers.TimeDistributed(tf.keras.Sequential([dense(), dense()]))(inputs)
    hidden = tf.transpose(hidden, [1, 0, 2])
    return tf.keras.Model(inputs, layers.Dense(1)(tf.transpose(hidden, [1, 0, 2])[:, 0]))


CLEAN = {
    "conv": (
        chain(
            lambda: layers.Conv2D(4, 3),
            lambda: layers.GroupNormalization(2),
            layers.MaxPooling2D,
            shape=(6, 6, 2),
        ),
        IMAGES,
    ),
    "lstm": (chain(lambda: layers.LSTM(3), shape=(5, 4)), SEQUENCES),
    "unfused lstm": (
        chain(lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)]), shape=(5, 4)),
        SEQUENCES,
    ),
    "embedding": (chain(lambda: layers.Embedding(9, 3), shape=(5,)), TOKENS),
    "masked": (masked, np.where(TOKENS < 4, 0, TOKENS)),
    "attention": (attention, SEQUENCES),
    "time distributed": (time_distributed, SEQUENCES),
    "subclassed": (lambda: built(PlainModelWithoutDropout)(), None),
    "nested": (nested(dense), None),
    "variational": (variational, None),
    "adds a mean": (chain(lambda: AddsMean()), None),
    "regularised": (
        chain(lambda: layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l2")),
        None,
    ),
    "synchronised": (
        chain(dense, lambda: layers.BatchNormalization(synchronized=True), dense),
        None,
    ),
    "spectrum": (
        chain(lambda: layers.Lambda(lambda t: tf.abs(tf.signal.fft(tf.cast(t, tf.complex128))))),
        None,
    ),
    "frozen norm": (chain(lambda: layers.BatchNormalization(trainable=False)), None),
}

LOSSES_OF_ACTIVATIONS = ("variational", "adds a mean", "regularised")


class PlainModelWithoutDropout(PlainModel):
    """Nothing in it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.more = [layers.Dense(5), layers.Dense(5)]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_models_have_no_findings(name: str) -> None:
    """Nothing that treats examples one by one is held up."""
    model, x = CLEAN[name]

    found = inspected(model, x=x)

    assert found == Inspection((), (), (), (), true_examples=name in LOSSES_OF_ACTIVATIONS)


def test_two_inputs_and_two_outputs_have_no_findings() -> None:
    """Nests go through, with a loss for each output."""
    generator = np.random.default_rng(7)
    x = tuple(generator.normal(size=(BATCH, 4)) for _ in range(2))
    y = (generator.normal(size=(BATCH, 1)), generator.integers(0, 2, size=BATCH))
    losses = ["mse", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)]

    assert inspected(two_in_two_out, x=x, y=y, loss=losses) == Inspection((), (), (), ())


def contrastive(y_true: Any, y_pred: Any) -> Any:
    """Every example against every other of its batch."""
    del y_true
    return tf.reduce_mean(tf.nn.softmax(y_pred @ tf.transpose(y_pred)), axis=1)


def batch_sum(y_true: Any, y_pred: Any) -> Any:
    """A sum where a mean is meant."""
    return tf.reduce_sum(tf.square(y_true - y_pred))


@pytest.mark.parametrize(
    ("inside", "loss"), [(dense, contrastive), (lambda: AddsVariance(name="spread"), "mse")]
)
def test_a_loss_that_couples_the_batch_is_by_design(inside: Any, loss: Any) -> None:
    """What replicas make of it is each one's part; the model is named."""
    found = inspected(chain(dense, inside), loss=loss)

    assert found.obstacles == ()
    (coupled,) = found.by_design
    assert coupled.layer == "the training of chain"
    assert coupled.split
    assert coupled.differs == "the gradients, which are those of each replica's part of the batch"


def test_a_loss_that_is_a_sum_is_named() -> None:
    """Another number of replicas would train by other gradients."""
    (obstacle,) = inspected(chain(dense), loss=batch_sum).obstacles

    assert obstacle.startswith("the training of chain has a loss that is a sum over its batch")


def test_a_batch_that_does_not_divide_is_refused() -> None:
    """Twelve examples make no five slices."""
    data = np.zeros((BATCH, 4)), np.zeros((BATCH, 1))
    workload = Workload("refused", chain(dense), data, data, "mse", tf.keras.optimizers.SGD)

    with pytest.raises(RefusalError, match="multiple of the number of replicas"):
        inspect_model(workload, batch=data, replicas=(5,))
