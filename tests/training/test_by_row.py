"""Random numbers for a whole batch: each row's are its example's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.by_row import by_row, row_keys
from ringside_core.workloads.dataset import take_apart
from tests.independent import splitmix64

EXAMPLES = 40


def images(batch: int = 8) -> Any:
    """Batches of images that are all different."""
    x = np.arange(EXAMPLES * 8 * 8 * 2, dtype=np.float32).reshape(EXAMPLES, 8, 8, 2)
    return tf.data.Dataset.from_tensor_slices((x, np.arange(EXAMPLES))).batch(batch)


def by_layers() -> Callable[..., Any]:
    """Keras layers over batches, as in the tutorial on data augmentation."""
    layers = tf.keras.Sequential(
        [tf.keras.layers.RandomFlip(), tf.keras.layers.RandomRotation(0.2)]
    )
    layers(np.zeros((1, 8, 8, 2), np.float32))
    return lambda x, y: (layers(x, training=True), y)


def by_uniform(x: Any, y: Any) -> Any:
    """tf.random over a batch, with a row for each example."""
    return x * tf.random.uniform([tf.shape(x)[0], 1, 1, 1]), y


def by_generator(x: Any, y: Any) -> Any:
    """A generator's numbers, with a row for each example."""
    return x + GENERATOR.normal(tf.shape(x)), y


GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.parametrize("name", ["layers", "uniform", "generator"])
def test_an_example_is_the_same_in_every_batch(name: str) -> None:
    """Alone, in a small batch or in a large one; and in another epoch it is another one."""
    augment = {"layers": by_layers(), "uniform": by_uniform, "generator": by_generator}[name]
    taken = take_apart(images().map(augment)).augment
    assert taken is not None
    assert taken.of_batch is not None
    x, y = next(iter(images(EXAMPLES)))
    numbers = tf.range(EXAMPLES, dtype=tf.int64)
    whole = tf.function(taken.batch)(5, 2, numbers, (x, y))[0].numpy()
    some = np.array([3, 39, 7, 0, 12, 1, 20])
    here = tf.function(taken.batch)(5, 2, numbers.numpy()[some], (x.numpy()[some], y.numpy()[some]))
    np.testing.assert_array_equal(here[0], whole[some])
    for number in (0, 17):
        alone = tf.function(taken.element)(5, 2, numbers[number], (x[number], y[number]))
        np.testing.assert_array_equal(alone[0], whole[number])
    later = tf.function(taken.batch)(5, 3, numbers, (x, y))[0].numpy()
    assert np.mean(np.any(later != whole, axis=(1, 2, 3))) > 0.9
    assert np.mean(np.any(x.numpy() != whole, axis=(1, 2, 3))) > 0.9


def one_for_all(x: Any, y: Any) -> Any:
    """A number for the whole batch."""
    return x * tf.random.uniform([]), y


def turned_round(x: Any, y: Any) -> Any:
    """Each row with the draw of another."""
    return x * tf.reverse(tf.random.uniform([tf.shape(x)[0], 1, 1, 1]), [0]), y


def eight_channels(x: Any, y: Any) -> Any:
    """A shape that begins with the size of a batch by chance."""
    return tf.tile(x, [1, 1, 1, 16]) * tf.random.uniform([32]), y


def seed_as_a_number(x: Any, y: Any) -> Any:
    """A generator's seeds as numbers of the data."""
    return x + tf.cast(GENERATOR.make_seeds(1)[0, 0], tf.float32), y


def seed_of_another_kind(x: Any, y: Any) -> Any:
    """A generator's seed, for an operation that has no rows."""
    seed = GENERATOR.make_seeds(1)[:, 0]
    kept = tf.random.stateless_binomial([8], seed, 4.0, 0.5, output_dtype=tf.float32)
    return x + kept[:1], y


def in_a_branch(x: Any, y: Any) -> Any:
    """A draw in a branch of the graph."""
    rows = tf.shape(x)[0]
    u = tf.cond(tf.reduce_all(y >= 0), lambda: tf.random.uniform([rows]), lambda: tf.zeros([rows]))
    return x + u[:, None, None, None], y


@pytest.mark.parametrize(
    "augment",
    [one_for_all, turned_round, eight_channels, seed_as_a_number, seed_of_another_kind],
)
def test_what_is_not_drawn_for_rows_is_done_for_single_examples(augment: Any) -> None:
    """There the draws still differ from epoch to epoch."""
    taken = take_apart(images().map(augment)).augment
    assert taken is not None
    assert taken.of_batch is None
    x, y = next(iter(images(2)))
    number = tf.constant(1, tf.int64)
    made = [
        tf.function(taken.element)(5, epoch, number, (x[1], y[1]))[0].numpy() for epoch in range(8)
    ]
    assert any(np.any(one != made[0]) for one in made)


def test_a_draw_in_a_branch_is_done_for_single_examples() -> None:
    """A branch of the graph may be taken for some batches only."""
    taken = take_apart(images().map(in_a_branch)).augment
    assert taken is not None
    assert taken.of_batch is None


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_what_mixes_examples_is_refused_though_its_draws_have_rows(share: float) -> None:
    """Always, or where a row's own number says so."""

    def augment(x: Any, y: Any) -> Any:
        u = tf.random.uniform([tf.shape(x)[0], 1, 1, 1])
        return tf.where(u < share, tf.roll(x, 1, axis=0), x), y

    with pytest.raises(RefusalError, match="mixes the examples of a batch"):
        take_apart(images().map(augment))


def test_an_authors_own_seed_keeps_its_numbers() -> None:
    """What has a seed of its author's is not random."""

    def augment(x: Any, y: Any) -> Any:
        fixed = tf.random.stateless_uniform([tf.shape(x)[0], 1, 1, 1], seed=[1, 2])
        return x + 0 * fixed + tf.random.stateless_uniform([8, 8, 2], seed=[1, 2]), y

    keys = row_keys(0, 0, tf.range(16))
    x, y = next(iter(images(16)))
    made = tf.function(lambda k, b: by_row(augment, k, b))(keys, (x, y))[0]
    np.testing.assert_array_equal(made, x + tf.random.stateless_uniform([8, 8, 2], seed=[1, 2]))


def drawn(function: Callable[[Any], Any], numbers: int = 4000) -> Any:
    """What a function of the batch's size draws for many examples."""
    keys = row_keys(7, 3, tf.range(numbers))
    batch = tf.zeros([numbers, 1])
    return tf.function(lambda k, b: by_row(lambda x: function(tf.shape(x)[0]), k, b))(
        keys, batch
    ).numpy()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_uniform_numbers_fill_their_interval_evenly(dtype: Any) -> None:
    """And neighbours, in a row or in a column, know nothing of each other."""
    found = drawn(lambda rows: tf.random.uniform([rows, 50], -1.0, 3.0, dtype=dtype))
    found = np.asarray(found, np.float64)
    assert found.min() >= -1.0
    assert found.max() < 3.0 if dtype in (tf.float32, tf.float64) else found.max() <= 3.0
    # The largest distance of 200,000 numbers' distribution from the true one (Kolmogorov): with
    # 0.0044 it is larger once in a thousand seeds; a 16-bit type adds its own steps.
    ordered = np.sort((found.ravel() + 1.0) / 4.0)
    distance = np.abs(ordered - (np.arange(ordered.size) + 0.5) / ordered.size).max()
    assert distance < 0.0044 + {tf.float16: 2**-11, tf.bfloat16: 2**-8}.get(dtype, 0)
    rows = found - found.mean()
    neighbours = (
        np.mean(rows[1:] * rows[:-1]) / rows.var(),
        np.mean(rows[:, 1:] * rows[:, :-1]) / rows.var(),
    )
    assert np.abs(neighbours).max() < 4 / np.sqrt(found.size)


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    """The first four."""
    found = drawn(lambda rows: tf.random.normal([rows, 50], 1.0, 2.0))
    standard = (found - 1.0) / 2.0
    # Standard errors over 200,000 numbers: 0.0022, 0.0032, 0.0087 and 0.022.
    moments = [np.mean(standard**power) for power in (1, 2, 3, 4)]
    np.testing.assert_array_less(
        np.abs(np.subtract(moments, [0, 1, 0, 3])), [0.01, 0.014, 0.04, 0.1]
    )


def test_truncated_normal_numbers_end_at_two_deviations() -> None:
    """As TensorFlow defines them."""
    found = drawn(lambda rows: tf.random.truncated_normal([rows, 50]))
    assert np.abs(found).max() <= 2.0
    # Variance of a normal distribution cut at 2: 1 - 2·2·φ(2) ÷ (2Φ(2) - 1) = 0.7737.
    assert abs(found.var() - 0.7737) < 0.01


def test_integers_are_all_equally_frequent() -> None:
    """From the lower bound to the one before the upper bound."""
    found = drawn(lambda rows: tf.random.uniform([rows, 50], -2, 5, tf.int32))
    values, counts = np.unique(found, return_counts=True)
    np.testing.assert_array_equal(values, np.arange(-2, 5))
    expected = found.size / 7
    # χ² with 6 degrees of freedom: above 22.5 once in a thousand seeds.
    assert np.sum((counts - expected) ** 2 / expected) < 22.5


def test_the_numbers_are_those_of_splitmix64() -> None:
    """Against the published generator in Python's integers, which adds its constant first."""
    golden = 0x9E3779B97F4A7C15

    def mixed(bits: int) -> int:
        return splitmix64(bits - golden)

    key = mixed(mixed((3 + 7 * golden) % 2**64) + 11 * golden & 2**64 - 1)
    row = mixed(key ^ mixed(golden))
    expected = [mixed((row + n * golden) % 2**64) / 2**64 for n in range(1, 51)]
    found = drawn(lambda rows: tf.random.uniform([rows, 50], dtype=tf.float64), 16)
    np.testing.assert_allclose(found[11], expected, rtol=0, atol=2**-53)
