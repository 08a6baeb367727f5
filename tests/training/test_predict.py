"""Predictions under the serial backend, against plain Keras and by hand."""

from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import PipelineOptions, RefusalError, Surroundings
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.source import StreamSource
from ringside_core.workloads.workload import Workload
from tests.training.exact.models import WORKLOADS, classifier
from tests.training.exact.reference import plain_keras
from tests.training.test_trainer import serial_spec
from trainers import predict
from trainers.build import build
from trainers.predict import Prediction
from trainers.rehearsal import Rehearsal


def predicted(workload: Workload, **changes: Any) -> tuple[Any, list[np.ndarray]]:
    """Predictions and weights under the serial backend."""
    spec = serial_spec(**changes)
    with make_backend(spec, Surroundings()) as backend:
        model = build(spec, workload, backend, steps_per_epoch=1)
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=False)
        like = Rehearsal(model, workload, backend, pipeline).predictions
        return Prediction(model, backend, pipeline, like=like)(), model.get_weights()


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_predictions_are_those_of_plain_keras(name: str, precision: str) -> None:
    """All 23 examples in order, in the precision of the run, as the model's nest."""
    tf.keras.backend.set_floatx(precision)
    workload = WORKLOADS[name](23)
    # Keras has no `in_top_k` in float64, and its IoU mixes precisions: only predictions here.
    found, weights = predicted(workload, precision=precision)

    _, expected = plain_keras(workload, weights, batch=23)

    assert isinstance(found, list) == (len(expected) > 1)
    for array, other in zip(tf.nest.flatten(found), expected, strict=True):
        assert array.dtype == other.dtype == precision
        np.testing.assert_allclose(array, other, rtol=1e-12 if precision == "float64" else 1e-5)


def index_of_largest(values: np.ndarray, *, outputs: str = "integers") -> Workload:
    """A model that tells the place of the largest of three values, or its examples unchanged."""

    def model() -> Any:
        inputs = tf.keras.Input((3,))
        if outputs == "integers":
            return tf.keras.Model(inputs, tf.argmax(inputs, axis=-1))
        return tf.keras.Model(inputs, {"truth": inputs > 0})

    return Workload(
        name="largest",
        model=model,
        train=(values, values[:, 0]),
        validation=(values, values[:, 0]),
        loss="mse",
        optimizer=tf.keras.optimizers.SGD,
    )


def test_integers_stay_integers() -> None:
    """An output of class numbers is NumPy's, in the order of the data."""
    values = np.random.default_rng(1).normal(size=(13, 3)).astype(np.float32)

    found, _ = predicted(index_of_largest(values))

    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, values.argmax(axis=1))


def test_what_cannot_be_collected_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that are no numbers, and a split that is too large."""
    values = np.ones((13, 3), np.float32)
    with pytest.raises(RefusalError, match=r"numbers.*bool"):
        predicted(index_of_largest(values, outputs="truth"))

    monkeypatch.setattr(predict, "LARGEST_TABLE_BYTES", 13 * 8 - 1)
    with pytest.raises(RefusalError, match="104 bytes for 13 examples"):
        predicted(index_of_largest(values))


def test_a_policy_that_feeds_examples_twice_is_refused() -> None:
    """Two readers, each of which reads everything."""
    base = classifier(7)
    whole = tf.data.Dataset.from_tensor_slices(base.validation.arrays)
    stream = StreamSource(("all",), lambda _: whole, (7,))
    workload = Workload(
        name="stream",
        model=base.model,
        train=stream,
        validation=stream,
        loss=base.loss,
        optimizer=base.optimizer,
    )
    spec = serial_spec(pipeline=PipelineOptions(shard="off", cache=False))
    with make_backend(spec, Surroundings()) as backend:
        model = build(spec, workload, backend, steps_per_epoch=1)
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=False)
        monkeyed = TwoReaders(backend)
        with pytest.raises(RefusalError, match="14 of 7 examples"):
            Prediction(model, monkeyed, pipeline, like=())  # type: ignore[arg-type]


class TwoReaders:
    """A started backend that says it has two readers."""

    num_readers = 2

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
