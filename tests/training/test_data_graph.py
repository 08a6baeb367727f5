"""What a data set is made of: which draws may be each process's own, and who reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from trainers.data_graph import authors_batch_of, drawn_again, draws_in_parallel, reads_the_same

IMAGES = tf.data.Dataset.from_tensor_slices(np.zeros((8, 4, 4, 3), np.float32))


def flip(image: Any) -> Any:
    """A map that draws."""
    return tf.image.random_flip_left_right(image)


def seeded(image: Any) -> Any:
    """A map that draws, also where it is made in another function."""
    return tf.image.random_flip_left_right(image, seed=1)


def mapped(data: Any, function: Callable[[Any], Any] = flip, **how: Any) -> Any:
    """Several elements at once."""
    return data.map(function, num_parallel_calls=2, **how)


def by_layer(data: Any) -> Any:
    """A layer that draws, in a map."""
    layer = tf.keras.layers.RandomFlip()
    return mapped(data.batch(2), lambda images: layer(images, training=True))


def in_any_order(data: Any) -> Any:
    """With an option that lets go of the order."""
    options = tf.data.Options()
    options.deterministic = False
    return mapped(data).with_options(options)


def files(**how: Any) -> Any:
    """Numbers of three files."""
    return tf.data.Dataset.range(3).interleave(lambda _: IMAGES, num_parallel_calls=2, **how)


def drawn_files() -> Any:
    """Files, some of whose rows are drawn."""
    kept = IMAGES.filter(lambda _: tf.random.uniform([]) > 0.5)
    return tf.data.Dataset.range(3).interleave(lambda _: kept, num_parallel_calls=2)


def generated() -> Any:
    """What Python yields."""
    spec = tf.TensorSpec([4, 4, 3], tf.float32)
    return tf.data.Dataset.from_generator(
        lambda: iter([np.zeros((4, 4, 3))]), output_signature=spec
    )


FREE = {
    "map, batch": lambda: mapped(IMAGES).shuffle(4).batch(2).prefetch(1),
    "layer": lambda: by_layer(IMAGES),
    "Python": lambda: mapped(IMAGES, lambda i: tf.numpy_function(np.abs, [i], tf.float32)),
    "two": lambda: tf.data.Dataset.zip((mapped(IMAGES), mapped(IMAGES))).repeat().batch(2),
    "behind a filter": lambda: mapped(IMAGES.filter(lambda _: True)).batch(2),
    "behind files": lambda: mapped(files()).batch(2),
}
HELD = {
    "nothing drawn": lambda: mapped(IMAGES, tf.abs).batch(2),
    "files": lambda: files().batch(2),
    "a generator": lambda: generated().batch(2),
    "one at a time": lambda: IMAGES.map(flip).batch(2),
    "filtered by what is drawn": lambda: mapped(IMAGES).filter(lambda i: i[0, 0, 0] > 0.5).batch(2),
    "in any order": lambda: mapped(IMAGES, deterministic=False).batch(2),
    "nothing drawn, in any order": lambda: mapped(IMAGES, tf.abs, deterministic=False).batch(2),
    "files in any order": lambda: mapped(files(deterministic=False)).batch(2),
    "option": lambda: in_any_order(IMAGES).batch(2),
    "a generator's rows": lambda: mapped(generated()).batch(2),
    "an author's shard": lambda: mapped(IMAGES.shard(2, 1)).batch(2),
    "drawn within files": lambda: mapped(drawn_files()).batch(2),
    "within files": lambda: (
        tf.data.Dataset.range(3).flat_map(lambda _: mapped(IMAGES, seeded)).batch(2)
    ),
    "arrays": lambda: np.zeros((4, 2)),
}


SAME = {"nothing drawn", "files", "a generator", "one at a time", "arrays"}


@pytest.mark.parametrize("name", [*FREE, *HELD])
def test_draws_are_free_where_no_element_depends_on_them(name: str) -> None:
    """Which elements there are, and their order, must be the same in every process.

    Where nothing that runs in parallel draws or loses its order, no determinism is needed.
    """
    data = (FREE | HELD)[name]()

    assert draws_in_parallel(data) == (name in FREE)
    assert reads_the_same(data) == (name in SAME)


def test_what_draws_again_at_a_restart_is_found() -> None:
    """A generator, a function in a map, and a shuffle whose iterator another part makes late."""
    rows = tf.data.Dataset.range(8)

    for data in (generated(), FREE["Python"]()):
        assert drawn_again(data.batch(2)) == "The data run Python"
    assert (
        drawn_again(rows.shuffle(8).shuffle(4)) == "A shuffle stands behind a shuffle of the data"
    )
    assert drawn_again(rows.shuffle(8).cache()).startswith("A cache stands")
    for data in (FREE["layer"](), rows.shuffle(8).batch(2).repeat()):
        assert not drawn_again(data)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (IMAGES.batch(3).map(tf.abs).prefetch(1).repeat(2), 3),
        (IMAGES.padded_batch(5).take(1), 5),
        (IMAGES.batch(2, num_parallel_calls=2).cache(), 2),
        (IMAGES.batch(2).unbatch(), None),
        (IMAGES.batch(4).rebatch(2), None),
        (IMAGES, None),
    ],
)
def test_the_size_of_an_authors_batches_is_found(data: Any, size: int | None) -> None:
    """Unless something behind it changes them."""
    assert authors_batch_of(data) == size
