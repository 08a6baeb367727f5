"""Loss weights, class weights and metrics by output, against plain `Model.fit`."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import PipelineOptions, RefusalError, Surroundings
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.workload import Workload
from tests.training.exact.models import two_outputs
from tests.training.replicas.runs import train_serial
from tests.training.test_trainer import serial_spec
from tests.verify.zoo import ZOO
from trainers.build import build
from trainers.lookups import Lookups
from trainers.totals import Totals
from trainers.train_step import instrument

BATCH = 4


@pytest.fixture(autouse=True)
def _float64() -> None:
    tf.keras.backend.set_floatx("float64")


def trained(workload: Workload, examples: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Initial and final weights of one epoch under the serial backend, in the order of the data."""
    spec = serial_spec(
        precision="float64", global_batch=BATCH, pipeline=PipelineOptions(shuffle=False)
    )
    with make_backend(spec, Surroundings()) as backend:
        steps = -(-examples // BATCH)
        model = build(spec, workload, backend, steps)
        initial = model.get_weights()
        instrument(model, Totals(model, backend), spec, Lookups(model, spec))
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=True)
        model.fit(backend.distribute(pipeline.dataset), epochs=1, steps_per_epoch=steps, verbose=0)
        return initial, model.get_weights()


def plainly_trained(
    workload: Workload, data: Any, initial: list[np.ndarray], **options: Any
) -> list[np.ndarray]:
    """Final weights of `Model.fit` of plain Keras."""
    model = workload.model()
    model.set_weights(initial)
    model.compile(workload.optimizer(), workload.loss, loss_weights=workload.loss_weights)
    pairs = tf.data.Dataset.from_tensor_slices(data)
    # Keras' class weights need to know the size of a batch.
    batches = pairs.batch(BATCH, drop_remainder=len(pairs) % BATCH == 0)
    model.fit(batches, epochs=1, verbose=0, **options)
    return model.get_weights()


CLASS_WEIGHT = {0: 0.5, 1: 3.0, 2: 1.25}


def three_classes(
    labels: str, *, weighted: bool, scaled: bool = False, **changes: Any
) -> tuple[Workload, Any]:
    """A classifier, and its data as plain Keras takes them."""
    generator = np.random.default_rng(2)
    classes = generator.integers(0, 3, size=12)
    y = {"integer": classes, "column": classes[:, None], "one-hot": np.eye(3)[classes]}[labels]
    data = (generator.normal(size=(12, 3)), y, *([generator.uniform(1, 2, 12)] * weighted))
    one_hot = labels == "one-hot"

    def model() -> Any:
        return tf.keras.Sequential([tf.keras.layers.Dense(3, "softmax", input_shape=(3,))])

    fields = {
        "name": "three",
        "model": model,
        "train": data,
        "validation": data,
        "loss": "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy",
        "optimizer": lambda: tf.keras.optimizers.SGD(0.1),
        "class_weight": CLASS_WEIGHT,
        "preprocess": (lambda *element: element) if scaled else None,
    }
    return Workload(**{**fields, **changes}), data


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("labels", ["integer", "column", "one-hot"])
def test_class_weights_are_those_of_model_fit(labels: str, scaled: bool, weighted: bool) -> None:
    """Three steps end at plain Keras' weights, with and without sample weights and preprocess."""
    workload, data = three_classes(labels, weighted=weighted, scaled=scaled)

    initial, final = trained(workload, 12)

    expected = plainly_trained(workload, data, initial, class_weight=CLASS_WEIGHT)
    without = plainly_trained(workload, data, initial)
    for found, right, wrong in zip(final, expected, without, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)
        assert not np.allclose(found, wrong, rtol=1e-3)


@pytest.mark.parametrize("labels", ["integer", "one-hot"])
def test_a_column_of_sample_weights_is_weighed_by_class(labels: str) -> None:
    """[examples, 1] times the classes' [examples] is one weight for each; plain Keras fails."""
    workload, flat = three_classes(labels, weighted=True)
    x, y, weight = flat

    initial, final = trained(dataclasses.replace(workload, train=(x, y, weight[:, None])), 12)

    expected = plainly_trained(workload, flat, initial, class_weight=CLASS_WEIGHT)
    for found, right in zip(final, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)


def test_class_weights_do_not_count_in_validation() -> None:
    """There every example has its own weight, 1."""
    workload, _ = three_classes("integer", weighted=False)
    spec = serial_spec(precision="float64", global_batch=BATCH)
    with make_backend(spec, Surroundings()) as backend:
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=False)
        batches = list(pipeline.dataset(backend.input_shard).as_numpy_iterator())

    assert all((batch[2] == 1).all() for batch in batches)


@pytest.mark.parametrize(
    ("class_weight", "words"),
    [
        ({0: 1.0, 2: 1.0}, "without a gap"),
        ({0: 1.0, 1: float("nan"), 2: 1.0}, "finite"),
        ({0: 1.0, 1: 1.0}, "labels of class 2, weights of 2 classes"),
        ({0: 1.0, 1: "2", 2: 1.0}, "both numbers"),
        ({0: 1.0, 1: None, 2: 1.0}, "both numbers"),
        ({0: 1.0, "1": 1.0, 2: 1.0}, "both numbers"),
        ([1.0, 1.0, 1.0], "must be a dict"),
    ],
)
@pytest.mark.parametrize("labels", ["integer", "one-hot"])
def test_class_weights_that_do_not_fit_are_refused(
    labels: str, class_weight: Any, words: str
) -> None:
    """When the workload is made, where labels can be seen."""
    with pytest.raises(RefusalError, match=words):
        three_classes(labels, weighted=False, class_weight=class_weight)


def test_a_label_without_a_weight_ends_training() -> None:
    """Where labels are made on the way, before the batch is trained."""
    workload, _ = three_classes(
        "integer", weighted=False, scaled=True, class_weight={0: 1.0, 1: 1.0}
    )

    with pytest.raises(tf.errors.InvalidArgumentError, match="class_weight names 2 classes"):
        trained(workload, 12)


def test_several_outputs_have_no_class_weights() -> None:
    """Neither in the labels nor in the model."""
    two = two_outputs(7)

    with pytest.raises(RefusalError, match="labels of 2 outputs"):
        dataclasses.replace(two, class_weight={0: 1.0})
    one, _ = three_classes("integer", weighted=False, model=two.model)
    with pytest.raises(RefusalError, match="2 outputs"):
        one.build_model()


def test_loss_weights_are_those_of_model_compile() -> None:
    """Two outputs with 0.3 and 2: one epoch ends at plain Keras' weights."""
    base = two_outputs(8)
    workload = dataclasses.replace(base, optimizer=lambda: tf.keras.optimizers.SGD(0.1))

    initial, final = trained(workload, 8)

    expected = plainly_trained(workload, base.train.arrays, initial)
    for found, right in zip(final, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)


def image_to_image(examples: int) -> Workload:
    """An autoencoder of images as wide as a batch is large: its loss is a map of pixels."""
    images = np.random.default_rng(1).random((examples, BATCH, BATCH, 1))

    def model() -> Any:
        layers = [tf.keras.layers.Conv2D(1, 3, padding="same", input_shape=(BATCH, BATCH, 1))]
        return tf.keras.Sequential(layers)

    return Workload(
        name="image to image",
        model=model,
        train=(images, images),
        loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )


def test_a_weight_weighs_all_pixels_of_its_example() -> None:
    """With 6 examples in batches of 4 two are padding, which must count in no column of pixels."""
    workload = image_to_image(6)

    initial, final = trained(workload, 6)

    expected = plainly_trained(workload, workload.train.arrays, initial)
    for found, right in zip(final, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)


COUNTS = (
    lambda: tf.keras.metrics.BinaryIoU(target_class_ids=[0, 1]),
    lambda: tf.keras.metrics.IoU(2, [0, 1]),
    tf.keras.metrics.AUC,
    tf.keras.metrics.Precision,
    lambda: tf.keras.metrics.RecallAtPrecision(0.5),
)


@pytest.mark.parametrize("make", COUNTS)
@pytest.mark.parametrize("weights", [(1, 1, 0, 1), (3, 1, 0, 2)])
def test_a_weight_weighs_all_pixels_in_counts(make: Any, weights: tuple[int, ...]) -> None:
    """As many copies of an image as its weight says, and no weights, give the same number."""
    chance = np.random.default_rng(2)
    right = chance.integers(0, 2, (4, 5, 4, 1)).astype(float)
    guess = np.clip(right * 0.3 + chance.random((4, 5, 4, 1)) * 0.7, 0, 1)
    weighed, copied = make(), make()
    weighed.update_state(right, guess, sample_weight=tf.constant(weights, tf.float64))
    copied.update_state(np.repeat(right, weights, axis=0), np.repeat(guess, weights, axis=0))

    np.testing.assert_allclose(weighed.result(), copied.result(), rtol=1e-6)


@pytest.mark.parametrize("make", COUNTS)
@pytest.mark.parametrize(
    ("labels", "outputs"),
    [((6,), (6, 1)), ((6, 1), (6,)), ((6, 2), (6, 2, 1)), ((6, 2, 2), (6, 2, 2, 1))],
)
def test_labels_may_lack_the_last_axis_of_the_outputs(
    make: Any, labels: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    """As many copies of an example as its weight says, and no weights, give the same number."""
    chance, weights = np.random.default_rng(4), [3, 1, 2, 1, 0, 2]
    right, guess = chance.integers(0, 2, labels).astype(float), chance.random(outputs)
    weighed, copied = make(), make()
    weighed.update_state(right, guess, sample_weight=tf.constant(weights, tf.float64))
    copied.update_state(np.repeat(right, weights, axis=0), np.repeat(guess, weights, axis=0))

    np.testing.assert_allclose(weighed.result(), copied.result(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 4, 3)])
def test_a_weight_weighs_one_class(shape: tuple[int, ...]) -> None:
    """Keras takes one column of the outputs; a mask is a weight too."""
    chance = np.random.default_rng(2)
    right, guess = chance.integers(0, 2, shape).astype(float), chance.random(shape)
    weighed, cut = (tf.keras.metrics.Precision(class_id=1) for _ in range(2))
    weighed.update_state(right, guess, sample_weight=tf.constant([[True], [True], [False], [True]]))
    cut.update_state(right[[0, 1, 3]], guess[[0, 1, 3]])

    np.testing.assert_allclose(weighed.result(), cut.result(), rtol=1e-6)


def test_a_weight_weighs_all_pixels_of_several_classes() -> None:
    """Outputs [batch, height, width, class], and labels without the last axis."""
    chance = np.random.default_rng(2)
    right, guess = chance.integers(0, 3, (4, 5, 4)), chance.random((4, 5, 4, 3))
    weighed, cut = (tf.keras.metrics.MeanIoU(3, sparse_y_pred=False) for _ in range(2))
    weighed.update_state(right, guess, sample_weight=tf.constant([1.0, 1.0, 1.0, 0.0]))
    cut.update_state(right[:3], guess[:3])

    np.testing.assert_allclose(weighed.result(), cut.result(), rtol=1e-6)


@pytest.mark.parametrize("passes", [1, 2])
def test_losses_of_several_outputs_are_told(passes: int) -> None:
    """Of training too, over 27 examples in batches of 12: with their weights they make the loss."""
    workload = ZOO["two_in_two_out"]()

    _, epochs = train_serial(workload, gradient_accumulation_steps=passes)

    assert workload.loss_weights == {"value": 0.7, "kind": 1.9}
    for epoch in epochs:
        for told in (epoch.train, epoch.validation):
            weighed = 0.7 * told["value_loss"] + 1.9 * told["kind_loss"]
            assert told["loss"] == pytest.approx(weighed, rel=1e-12)


def test_metrics_of_several_outputs_are_told_apart() -> None:
    """A list of them is refused with what to do; a dict is taken."""
    base = two_outputs(8)
    with pytest.raises(RefusalError, match=r"must be a dict from output to list.*Return"):
        dataclasses.replace(base, metrics=lambda: ["mae"]).build_model()

    assert base.build_model().output_names == ["size", "sign"]


def test_a_model_is_built_by_its_first_call() -> None:
    """Before anything is trained: every backend must begin with the same weights."""

    class Subclassed(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    for model in (Subclassed, lambda: tf.keras.Sequential([tf.keras.layers.Dense(3)])):
        workload, _ = three_classes("integer", weighted=False, model=model)
        assert [w.shape for w in workload.build_model().get_weights()] == [(3, 3), (3,)]


def test_a_compiled_model_says_what_it_was_compiled_with() -> None:
    """Optimizer, loss, their weights and all metrics; new ones for each model."""

    def model() -> Any:
        made = two_outputs(4).model()
        made.compile(
            tf.keras.optimizers.Adam(0.03),
            loss={"size": "mae", "sign": "binary_crossentropy"},
            loss_weights={"size": 0.5, "sign": 2.0},
            metrics={"size": "mse"},
            weighted_metrics={"sign": [tf.keras.metrics.AUC(name="auc")]},
        )
        return made

    workload = dataclasses.replace(
        two_outputs(4), model=model, optimizer=None, loss=None, loss_weights=None, metrics=()
    )

    optimizer, metrics = workload.optimizer(), workload.metrics()
    assert type(optimizer) is tf.keras.optimizers.Adam
    assert float(optimizer.learning_rate) == pytest.approx(0.03)
    assert optimizer is not workload.optimizer()
    assert workload.loss == {"size": "mae", "sign": "binary_crossentropy"}
    assert workload.loss_weights == {"size": 0.5, "sign": 2.0}
    assert metrics["size"] == ["mse"]
    assert metrics["sign"][0].name == "auc"
    assert metrics["sign"][0] is not workload.metrics()["sign"][0]


def test_a_workload_needs_an_optimizer() -> None:
    """Its own, or that of a compiled model."""
    with pytest.raises(RefusalError, match=r"has no optimizer.*model.compile"):
        three_classes("integer", weighted=False, optimizer=None)


def test_sample_weights_are_one_for_all_outputs() -> None:
    """One for each is refused with the way out, when the first batch is made."""
    base = two_outputs(8)
    x, y, weight = base.train.arrays
    workload = dataclasses.replace(base, train=(x, y, {"size": weight, "sign": weight}))

    with pytest.raises(RefusalError, match=r"one sample weight.*loss_weights"):
        trained(workload, 8)


def test_weights_of_elements_are_those_of_model_fit() -> None:
    """A weight for each step of a sequence."""
    generator = np.random.default_rng(3)
    data = (
        generator.normal(size=(8, 5, 2)),
        generator.normal(size=(8, 5, 1)),
        generator.uniform(0, 1, size=(8, 5)),
    )
    workload = Workload(
        name="sequence",
        model=lambda: tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(5, 2))]),
        train=data,
        validation=data,
        loss="mse",
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )

    initial, final = trained(workload, 8)

    for found, right in zip(final, plainly_trained(workload, data, initial), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize(
    "given",
    [
        "adam",
        lambda: "adam",
        tf.keras.optimizers.Adam(),
        tf.keras.optimizers.Adam,
    ],
    ids=["name", "function of a name", "instance", "class"],
)
def test_an_optimizer_is_given_as_to_compile(given: Any) -> None:
    """Each call gives a new one, as plain Keras would make it; a copy of a workload does too."""
    workload = dataclasses.replace(two_outputs(8), optimizer=given)

    made = [
        one.optimizer() for one in (workload, workload, dataclasses.replace(workload, name="b"))
    ]

    plain = tf.keras.optimizers.Adam().get_config()
    if isinstance(given, tf.keras.optimizers.Optimizer):  # made in float32
        plain = given.get_config()
    assert [one.get_config() for one in made] == [plain] * 3
    assert len({id(one) for one in [*made, given]}) == 4


def test_a_copy_of_an_optimizer_keeps_what_its_config_does_not_hold() -> None:
    """Exclusions from weight decay."""
    given = tf.keras.optimizers.AdamW()
    given.exclude_from_weight_decay(var_names=["bias"])

    made = dataclasses.replace(two_outputs(8), optimizer=given).optimizer()

    assert made._exclude_from_weight_decay_names == ["bias"]


def test_a_schedule_needs_no_config() -> None:
    """`Model.fit` asks for none; the optimizer that was given keeps its own config."""

    class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 0.5 ** tf.cast(step, tf.float32)

    given = tf.keras.optimizers.SGD(Halving(), momentum=0.9)

    made = dataclasses.replace(two_outputs(8), optimizer=given).optimizer()

    weight = tf.Variable(0.0)
    for _ in range(3):
        made.apply_gradients([(tf.constant(1.0), weight)])
    # With momentum 0.9 and rates 1, 1/2, 1/4: velocities -1, -1.4, -1.51.
    assert weight.numpy() == pytest.approx(-3.91)
    assert given.iterations.numpy() == 0
    assert made.momentum == 0.9
    with pytest.raises(NotImplementedError):
        given.get_config()


@pytest.mark.parametrize("given", ["adamant", 5])
def test_what_is_no_optimizer_is_refused(given: Any) -> None:
    """With what was given."""
    with pytest.raises(RefusalError, match=f"must be a name that Keras knows.*{given}"):
        dataclasses.replace(two_outputs(8), optimizer=given).optimizer()


def test_metrics_are_given_as_to_compile() -> None:
    """Names stay, and instances are copied: training and validation need their own."""
    given = {"a": ["accuracy", tf.keras.metrics.MeanSquaredError(name="mse")]}
    workload = dataclasses.replace(two_outputs(8), metrics=given)

    first, second = workload.metrics(), workload.metrics()

    assert first["a"][0] == "accuracy"
    assert [one["a"][1].get_config() for one in (first, second)] == [given["a"][1].get_config()] * 2
    assert len({id(one["a"][1]) for one in (first, second, given)}) == 3
    assert dataclasses.replace(workload, metrics=["accuracy"]).metrics() == ["accuracy"]


def test_in_float64_every_layer_computes_in_float64() -> None:
    """Also one whose author chose another type: a proof needs it."""
    from ringside_core.keras import lowest_bits, policy_scope

    def model() -> Any:
        with policy_scope("mixed_float16"):
            dense = [tf.keras.layers.Dense(2, input_shape=(2,)), tf.keras.layers.Dense(1)]
            return tf.keras.Sequential(
                [*dense, tf.keras.layers.Activation("relu", dtype="float32")]
            )

    tf.keras.backend.set_floatx("float32")
    assert lowest_bits(model()) == 16
    tf.keras.backend.set_floatx("float64")
    assert {layer.compute_dtype for layer in model().layers} == {"float64"}


def test_in_float64_a_schedule_computes_in_float64() -> None:
    """A cosine in float32 is another in a graph: 1e-8 of the weights, and no certificate."""
    for floatx in ("float32", "float64"):
        tf.keras.backend.set_floatx(floatx)
        schedule = tf.keras.optimizers.schedules.CosineDecay(0.05, decay_steps=7)
        optimizer = tf.keras.optimizers.SGD(schedule)
        copied = type(optimizer).from_config(optimizer.get_config())
        assert copied._learning_rate(tf.constant(3)).dtype == floatx
        if floatx == "float64":
            expected = 0.05 * (1 + np.cos(np.pi * 3 / 7)) / 2
            assert abs(float(copied._learning_rate(tf.constant(3))) - expected) < 1e-16
