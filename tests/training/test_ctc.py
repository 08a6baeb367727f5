"""CTC in float64: by NumPy over all paths, by differences, and by TensorFlow's own kernel."""

from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.keras.ctc import minus_log_probability

CLASSES = 4  # the last one is the blank
LABELS = [[0], [1, 2], [1, 1], [2, 0, 2], [0, 3, 9]]  # from the last class on: no label
LENGTHS = [5, 4, 5, 3, 4]
STEPS = max(LENGTHS)


def logits() -> np.ndarray:
    """[time, batch, classes]."""
    return np.random.default_rng(4).normal(size=(STEPS, len(LABELS), CLASSES))


def by_numpy(given: np.ndarray, labels: list[int], length: int) -> float:
    """- log of the sum over all paths that say the labels."""
    e = np.exp(given[:length])
    p = e / e.sum(axis=1, keepdims=True)
    wanted = [label for label in labels if label < CLASSES - 1]
    total = 0.0
    for path in product(range(CLASSES), repeat=length):
        said = [label for label, _ in groupby(path) if label < CLASSES - 1]
        if said == wanted:
            total += float(np.prod(p[np.arange(length), path]))
    return -np.log(total)


def by_tensorflow(given: np.ndarray, labels: list[list[int]] = LABELS) -> tuple[Any, Any]:
    """Loss [batch] and its gradient, as `ctc_batch_cost` of Keras calls it."""
    sparse = tf.cast(
        tf.RaggedTensor.from_row_lengths(np.concatenate(labels), [*map(len, labels)]).to_sparse(),
        tf.int32,
    )

    @tf.function
    def loss(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tf.compat.v1.nn.ctc_loss(inputs=x, labels=sparse, sequence_length=LENGTHS)
        return found, tape.gradient(found, x)

    return loss(tf.constant(given))


def test_it_is_the_sum_over_all_paths() -> None:
    """To the last bits, with labels twice in a row, and of none."""
    loss, _ = by_tensorflow(logits())

    expected = [by_numpy(logits()[:, i], LABELS[i], LENGTHS[i]) for i in range(len(LABELS))]
    np.testing.assert_allclose(loss, expected, rtol=1e-14)


def test_the_gradient_is_that_of_the_sum() -> None:
    """By central differences; nothing of what comes after the end of a sequence."""
    _, gradient = by_tensorflow(logits())

    step = 1e-5
    expected = np.zeros_like(logits())
    for at in np.ndindex(*expected.shape):
        ends = []
        for sign in (1, -1):
            moved = logits()
            moved[at] += sign * step
            ends.append(by_numpy(moved[:, at[1]], LABELS[at[1]], LENGTHS[at[1]]))
        expected[at] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_the_kernel_says_the_same_in_float32() -> None:
    """What runs is its own."""
    wide, gradient = by_tensorflow(logits())
    narrow, other = by_tensorflow(logits().astype(np.float32))

    np.testing.assert_allclose(wide, narrow, rtol=1e-6)
    np.testing.assert_allclose(gradient, other, atol=1e-6)


def test_labels_that_do_not_fit_are_told_by_the_kernel() -> None:
    """Four labels in three steps."""
    labels = [*LABELS[:3], [2, 1, 0, 1], LABELS[4]]

    with pytest.raises(tf.errors.InvalidArgumentError, match="Not enough time"):
        by_tensorflow(logits(), labels)


def test_two_labels_alike_need_a_blank_between_them() -> None:
    """Three labels in three steps: the kernel's loss is infinite too."""
    labels = [*LABELS[:3], [2, 2, 0], LABELS[4]]

    for given in (logits(), logits().astype(np.float32)):
        loss, _ = by_tensorflow(given, labels)
        assert np.isinf(loss[3])


def test_a_rounding_of_float32_is_not_seen() -> None:
    """A move of 1e-9 changes the loss as calculus says, and not by roundings of 6e-8."""
    loss, gradient = by_tensorflow(logits())
    direction = np.random.default_rng(5).normal(size=logits().shape)

    moved, _ = by_tensorflow(logits() + 1e-9 * direction)

    expected = 1e-9 * (np.asarray(gradient) * direction).sum(axis=(0, 2))
    np.testing.assert_allclose(np.subtract(moved, loss), expected, rtol=1e-5)


def test_columns_of_labels_do_not_count() -> None:
    """`tf.sparse.from_dense` leaves gaps where class 0 stands."""
    given = tf.constant(logits()[:, :2])
    rows, values = [0, 0, 1], tf.constant([1, 2, 1])

    def loss(columns: list[int]) -> Any:
        places = tf.constant(list(zip(rows, columns, strict=True)), tf.int64)
        sparse = tf.SparseTensor(places, values, [2, 4])
        return tf.compat.v1.nn.ctc_loss(inputs=given, labels=sparse, sequence_length=[5, 4])

    expected = [by_numpy(logits()[:, 0], [1, 2], 5), by_numpy(logits()[:, 1], [1], 4)]
    for columns in ([0, 1, 0], [1, 3, 2]):
        np.testing.assert_allclose(loss(columns), expected, rtol=1e-14)


def test_without_labels_only_blanks_are_said() -> None:
    """TensorFlow's kernel reads beyond its table there."""
    loss = minus_log_probability(tf.constant(logits()[:, :1]), tf.constant([[3]]), tf.constant([2]))

    np.testing.assert_allclose(loss, [by_numpy(logits()[:, 0], [], 2)], rtol=1e-14)
