"""Random images to measure throughput: any size, any number of classes, well-known networks."""

from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError, unknown_name
from ringside_core.workloads.workload import Workload

APPLICATIONS = {"resnet50": "ResNet50", "mobilenet_v2": "MobileNetV2", "vgg16": "VGG16"}
BATCH = 48
NUM_DISTINCT = 16  # images in memory; the examples repeat them, so many examples need no more


def synthetic(
    model: str = "cnn",
    image_size: int = 32,
    classes: int = 10,
    width: int = 32,
    examples: int = 768,
    global_batch: int = BATCH,
) -> Workload:
    """Random images with random labels. There is nothing to learn, so there is no quality target.

    Args:
        model: `cnn` (three convolutions of `width` filters), resnet50, mobilenet_v2 or vgg16.
        image_size: height and width in pixels.
        classes: number of labels.
        width: filters of the cnn.
        examples: training examples in an epoch.
        global_batch: of training and validation.
    """
    for name, value in {
        "image_size": image_size,
        "classes": classes,
        "width": width,
        "examples": examples,
        "global_batch": global_batch,
    }.items():
        if not isinstance(value, int) or value < 1:
            raise RefusalError(
                f"{name} of the workload synthetic must be a whole number of at least 1.",
                received=repr(value),
            )
    if model != "cnn" and model not in APPLICATIONS:
        raise unknown_name("synthetic model", model, ["cnn", *APPLICATIONS])
    if model != "cnn" and image_size < 32:
        raise RefusalError(
            f"The model {model} needs images of at least 32 pixels.", received=str(image_size)
        )
    shape, held_out = (image_size, image_size, 3), max(1, min(BATCH, examples // 4))
    look_up = _look_up(shape)
    return Workload(
        name=f"synthetic-{model}",
        model=lambda: _model(model, shape, classes, width),
        train=_random_images(shape, classes, examples, seed=0)
        .shuffle(examples)
        .batch(global_batch)
        .map(look_up),
        validation=_random_images(shape, classes, held_out, seed=1)
        .batch(global_batch)
        .map(look_up),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        reference_batch=BATCH,
    )


def _random_images(shape: tuple[int, ...], classes: int, count: int, seed: int) -> Any:
    """Numbers of images, and labels."""
    rng = np.random.default_rng(seed)
    number = np.arange(count, dtype=np.int64) % NUM_DISTINCT
    labels = rng.integers(0, classes, count, dtype=np.int64)
    return tf.data.Dataset.from_tensor_slices((number, labels))


def _look_up(shape: tuple[int, ...]) -> Any:
    images = np.random.default_rng(2).integers(0, 256, (NUM_DISTINCT, *shape), dtype=np.uint8)

    def images_of(number: Any, label: Any) -> tuple[Any, Any]:
        # Scaled once, as the batches' graph is made: a batch only copies what is finished.
        floatx = np.dtype(tf.keras.backend.floatx())
        finished = images.astype(floatx) / floatx.type(255)
        return tf.gather(tf.constant(finished), number), label

    return images_of


def _model(model: str, shape: tuple[int, ...], classes: int, width: int) -> Any:
    if model in APPLICATIONS:
        build = getattr(tf.keras.applications, APPLICATIONS[model])
        return build(input_shape=shape, weights=None, classes=classes, classifier_activation=None)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(width, 3, padding="same", activation="relu", input_shape=shape),
            layers.Conv2D(width, 3, padding="same", strides=2, activation="relu"),
            layers.Conv2D(width, 3, padding="same", strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
        ],
        name="synthetic_cnn",
    )
