"""What is fed is held against the workload's own elements, in all its data."""

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from backends import make_backend
from backends.base import Backend
from ringside.verify.elements import look, own_elements, own_weight
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RunSpec, Surroundings
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.source import ArraySource, StreamSource
from ringside_core.workloads.workload import Workload
from tests.verify.arms import subject

EXAMPLES, HELD_OUT = 1500, 100
# Element i of a part is 100 × part + i, as text; the first part holds 3 elements, the second 5.
STREAM = StreamSource(
    parts=("0", "1"),
    read=lambda part: tf.data.Dataset.range(tf.where(part == "0", np.int64(3), np.int64(5))).map(
        lambda i: tf.strings.as_string(i + 100 * tf.strings.to_number(part, tf.int64))
    ),
    lengths=(3, 5),
    decode=lambda text: (tf.strings.to_number(text, tf.int64), text),
)


def even(number: Any, _: Any) -> Any:
    """A filter."""
    return number % 2 == 0


def test_own_elements_are_those_of_the_source() -> None:
    """In the order that is asked for, some twice; a filter acts before they are counted."""
    arrays = ArraySource((np.arange(10) * 11, np.arange(10.0)))

    numbers, _ = own_elements(arrays, np.array([7, 0, 7]))
    assert numbers.tolist() == [77, 0, 77]
    numbers, texts = own_elements(STREAM, np.array([4, 2, 7]))
    assert numbers.tolist() == [101, 2, 104]
    assert texts.tolist() == [b"101", b"2", b"104"]
    # 0, 2, then 100, 102 and 104
    assert own_elements(STREAM, np.array([2, 1]), even)[0].tolist() == [100, 2]
    # 0, 22, 44, 66 and 88
    assert own_elements(arrays, np.array([4, 1]), even)[0].tolist() == [88, 22]


def test_own_weights_are_sample_weights_times_class_weights() -> None:
    """Labels as numbers, in a column, and one-hot."""
    weight = np.array([1.0, 2.0, 0.5])
    by_class = {0: 10.0, 1: 100.0}
    x = np.zeros((3, 2))
    for y in (np.array([1, 0, 1]), np.array([[1], [0], [1]]), np.eye(2)[[1, 0, 1]]):
        assert own_weight(3, (x, y, weight), by_class).tolist() == [100, 20, 50]
    assert own_weight(3, (x, x), None).tolist() == [1, 1, 1]
    assert own_weight(3, (x, x, np.ones((3, 2)) * weight[:, None]), None).shape == (3, 2)


def workload() -> Workload:
    """Pairs (i, 2 i), and what belongs to them."""
    numbers = np.arange(EXAMPLES)
    return Workload(
        name="pairs",
        model=lambda: tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
        train=(numbers, 2 * numbers % 3, 1.0 + numbers % 2),
        validation=(numbers[:HELD_OUT], 2 * numbers[:HELD_OUT] % 3),
        preprocess=_features,
        loss="mse",
        optimizer=tf.keras.optimizers.SGD,
        class_weight={0: 1.0, 1: 2.0, 2: 5.0},
    )


def _features(number: Any, *others: Any) -> Any:
    x = tf.cast(tf.stack([number, 2 * number], axis=1), tf.keras.backend.floatx()) / 7
    return x, *others


def _changed(backend: Backend, change: Callable[..., Any]) -> Backend:
    """A backend that feeds something else for ids from 1000 on, in training."""
    changed = copy.copy(backend)

    def distribute(dataset_fn: Callable[..., Any]) -> Any:
        def fed(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> Any:
            hit = ids >= 1000
            x, y, weight = change(hit, x, y, weight)
            return x, y, weight, scale, ids

        return backend.distribute(lambda shard: dataset_fn(shard).map(fed))

    vars(changed)["distribute"] = distribute
    return changed


CHANGES: dict[str, Callable[..., Any]] = {
    "x": lambda hit, x, y, w: (tf.where(hit[:, None], tf.roll(x, 1, 0), x), y, w),
    "y": lambda hit, x, y, w: (x, tf.where(hit, (y + 1) % 3, y), w),
    "weight": lambda hit, x, y, w: (x, y, tf.where(hit, w / 2, w)),
}


def test_the_right_id_with_another_element_is_found() -> None:
    """Beyond the first thousand, which no case of a certificate reaches."""
    spec: RunSpec = subject("serial", 1, epochs=4).spec
    pairs = workload()
    with make_backend(spec, Surroundings()) as backend:
        clean = look(spec, pairs, backend, seed=3)
        found = {what: look(spec, pairs, _changed(backend, c), 3) for what, c in CHANGES.items()}

    assert clean.wrong == ""
    sizes = {"training": EXAMPLES, "validation": HELD_OUT}
    assert clean.examples == sum(min(48, sizes[p.split] - 48 * p.step) for p in clean.places)
    for what, looked in found.items():
        assert looked.wrong.startswith(f"{what} of example 1"), looked.wrong


def test_data_sets_keep_their_type_though_they_are_kept_in_memory() -> None:
    """As Keras leaves them; arrays are given Keras' type. What is certified is fed as it is run."""
    spec: RunSpec = subject("serial", 1, global_batch=8).spec
    x, y = np.linspace(0, 1, 40).reshape(20, 2), np.zeros(20)
    pairs = tf.data.Dataset.from_tensor_slices((x, y))
    for data, kind in ((pairs, tf.float64), ((x, y), tf.float32)):
        made = dataclasses.replace(workload(), train=data, validation=data, preprocess=None)
        made = dataclasses.replace(made, class_weight=None)
        with make_backend(spec, Surroundings()) as backend:
            assert look(spec, made, backend, seed=3).wrong == ""
        pipeline = partial(make_pipeline, spec, capabilities=spec.capabilities, training=True)
        for train in (made.train, pipeline(made).prepared):
            cut = dataclasses.replace(made, train=train.first(12))
            assert pipeline(cut).dataset(InputShard()).element_spec[0].dtype == kind
