"""A tf.data.Dataset as its author wrote it: its order, its batches, and what it draws at random."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError
from ringside_core.text import plural
from ringside_core.workloads.dataset import take_apart
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.randomness import SeededStream, drawing_from
from ringside_core.workloads.source import StreamSource, as_source
from tests.training.feed import BATCH, pipeline, rows_fed

COUNT = 20
AUTOTUNE = tf.data.AUTOTUNE
Fed = dict[tuple[int, int], np.ndarray]  # (epoch, id) → x


def images() -> Any:
    """Example i is an image [4, 4, 1] of distinct pixels, and i."""
    numbers = np.arange(COUNT, dtype=np.float32)
    pixels = numbers[:, None, None, None] * 100 + np.arange(16.0).reshape(4, 4, 1)
    return tf.data.Dataset.from_tensor_slices((pixels.astype(np.float32), numbers))


def fed(pipe: Pipeline, readers: int = 1, epochs: int = 2, **begin: int) -> Fed:
    """What each example was in each epoch."""
    found: Fed = {}
    for place, x, y in rows_fed(pipe, readers, epochs, **begin):
        assert y == place[1]
        found[place] = x
    return found


def same(one: Fed, other: Fed) -> bool:
    """Whether the same examples were the same."""
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def order(pipe: Pipeline, epochs: int = 1) -> list[int]:
    """Ids in the order in which they are fed."""
    steps = pipe.shares.steps_per_epoch(1) * epochs
    taken = pipe.dataset(InputShard(index=0, count=1)).take(steps).as_numpy_iterator()
    return [int(i) for *_, ids in taken for i in ids if i >= 0]


# Order and batches


def test_an_order_that_its_author_left_is_kept() -> None:
    """Unless the run asks for another; arrays are shuffled, as `Model.fit` does it."""
    in_order, numbers = list(range(COUNT)), np.arange(COUNT, dtype=np.float32)

    assert order(pipeline(images()), 2) == 2 * in_order
    assert order(pipeline(images(), cache=False), 2) == 2 * in_order
    for shuffled in (
        pipeline(images().shuffle(4)),
        pipeline(images().shuffle(4), cache=False),
        pipeline(images(), shuffle=True),
        pipeline((numbers[:, None], numbers)),
    ):
        assert order(shuffled) != in_order
        assert sorted(order(shuffled)) == in_order
    assert order(pipeline(images().shuffle(4), shuffle=False)) == in_order


def test_batches_are_taken_apart() -> None:
    """Batching, repeating, caching and prefetching are left to Ringside, and said."""
    scaled = images().cache().shuffle(8).batch(7).map(lambda x, y: (x * 2, y)).repeat()

    parts = take_apart(scaled.prefetch(AUTOTUNE))

    assert (parts.batch_size, parts.shuffled, parts.augment) == (7, True, None)
    x, y = zip(*parts.fixed.as_numpy_iterator(), strict=True)
    assert list(y) == list(range(COUNT))
    np.testing.assert_array_equal(x[3], 2 * next(iter(images().skip(3)))[0])
    assert [len(one.split()) > 3 for one in parts.said] == [True] * 3


@pytest.mark.parametrize(
    ("dataset", "keeps"),
    [
        (lambda data: data.shuffle(8).cache(), True),
        (lambda data: data.shuffle(8).batch(3).cache().prefetch(1), True),
        (lambda data: data.cache().shuffle(8), False),
        (lambda data: data.shuffle(8).cache().shuffle(8), False),
    ],
)
def test_a_cache_behind_a_shuffle_is_told(dataset: Any, keeps: bool) -> None:
    """By itself it would keep the order of the first epoch."""
    told = [one for one in take_apart(dataset(images())).said if "its cache would keep one" in one]

    assert bool(told) == keeps


def test_a_part_of_a_batched_data_set_is_that_part() -> None:
    """Two batches of seven are 14 examples."""
    assert sorted(order(pipeline(images().batch(7).take(2)))) == list(range(14))


# Files


def of_file(first: Any) -> Any:
    """Three elements of a file."""
    return tf.data.Dataset.range(first, first + 3)


def shuffled_files(seed: int | None = None, **kept: Any) -> Any:
    """Five of them, whose numbers are in no order."""
    return tf.data.Dataset.from_tensor_slices(FILES).shuffle(5, seed, **kept)


FILES = np.array([20, 0, 40, 10, 30], np.int64)
IN_TURN = [first + i for i in range(3) for first in FILES]
READ: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "flat_map": (
        lambda: shuffled_files().flat_map(of_file),
        [first + i for first in FILES for i in range(3)],
    ),
    "interleave": (lambda: shuffled_files().interleave(of_file, cycle_length=5), IN_TURN),
    "in parallel, in any order": (
        lambda: shuffled_files(3).interleave(of_file, 5, 1, AUTOTUNE, deterministic=False),
        IN_TURN,
    ),
    "as many as there are cores": (lambda: shuffled_files().interleave(of_file), IN_TURN),
    "mapped and repeated": (
        lambda: shuffled_files().map(lambda n: n + 1).repeat().interleave(of_file, 5),
        [number + 1 for number in IN_TURN],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_files_are_read_as_they_are_listed(name: str) -> None:
    """A shuffle of them only says in which order: Ringside has its own for each epoch."""
    make, listed = READ[name]

    found = take_apart(make().shuffle(4).map(lambda n: n * 2).batch(2))

    assert [int(n) for n in found.fixed] == [2 * n for n in listed]
    assert found.shuffled
    assert found.endless == ("repeat" in name)
    assert any("in the order in which they are listed" in one for one in found.said)


def test_a_kept_order_of_files_is_the_authors() -> None:
    """Seeded and the same each time: it is an order like any other, and a part of it is too."""
    kept = shuffled_files(4, reshuffle_each_iteration=False)
    author = [int(n) for n in kept.interleave(of_file, cycle_length=2)]

    found = take_apart(kept.interleave(of_file, cycle_length=2).take(7))

    assert [int(n) for n in found.fixed] == author[:7]
    assert not found.shuffled


def test_an_interleave_reads_as_many_files_in_turn_on_every_machine() -> None:
    """Left to TensorFlow, it is the number of cores, and the order follows it."""
    found = take_apart(tf.data.Dataset.from_tensor_slices(FILES).interleave(of_file))

    assert [int(n) for n in found.fixed] == IN_TURN
    assert found.said[0] == "its interleave reads 8 files in turn"


def test_records_of_shuffled_files_are_all_fed(tmp_path: Any) -> None:
    """As most programs read TFRecord files; TextLineDataset does not tell TensorFlow its files."""
    for file in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"{file}.tfrecord")) as writer:
            for i in range(4):
                writer.write(str(10 * file + i).encode())
        (tmp_path / f"{file}.txt").write_text("".join(f"{10 * file + i}\n" for i in range(4)))
    listed = [10 * file + i for file in range(3) for i in range(4)]
    names, texts = (
        tf.data.Dataset.list_files(f"{tmp_path}/*.{end}") for end in ("tfrecord", "txt")
    )

    for records in (
        tf.data.TFRecordDataset(names),
        tf.data.TextLineDataset(texts),
        names.interleave(tf.data.TFRecordDataset, 1, num_parallel_calls=AUTOTUNE),
    ):
        for _ in range(3):
            found = take_apart(records.map(tf.strings.to_number))
            assert [int(n) for n in found.fixed] == listed
            assert found.shuffled


def test_rows_of_a_csv_file_are_all_fed(tmp_path: Any) -> None:
    """With TensorFlow's own shuffles of files and of rows, which it makes by default."""
    for file in range(2):
        rows = "".join(f"{10 * file + i},{i % 2}\n" for i in range(7))
        (tmp_path / f"{file}.csv").write_text(f"x,y\n{rows}")
    given = {"batch_size": 3, "label_name": "y", "num_parallel_reads": 2}

    for epochs in (1, None):
        made = tf.data.experimental.make_csv_dataset(
            f"{tmp_path}/*.csv", num_epochs=epochs, sloppy=True, **given
        )
        found = take_apart(made)
        read = [int(x["x"]) for x, _ in found.fixed]
        assert read == [10 * f + i for i in range(7) for f in (0, 1)]
        assert (found.shuffled, found.batch_size, found.endless) == (True, 3, epochs is None)


# Random numbers


def flipped(x: Any, y: Any) -> Any:
    """As in many an author's program."""
    return tf.image.random_brightness(tf.image.random_flip_left_right(x), 0.5), y


GENERATOR = tf.random.Generator.from_seed(1)


def by_generator(x: Any, y: Any) -> Any:
    """With a generator, and control flow that autograph rewrites."""
    if GENERATOR.uniform([]) > 0.5:
        x = -x
    return x + GENERATOR.normal([]), y


def by_layer(x: Any, y: Any) -> Any:
    """Over batches, by layers of Keras."""
    return LAYER(x, training=True), y


LAYER = tf.keras.layers.GaussianNoise(1.0)
FLIPS = [tf.keras.layers.RandomFlip("horizontal"), tf.keras.layers.RandomTranslation(0.4, 0.4)]


def by_layers(x: Any, y: Any) -> Any:
    """As keras.io augments images."""
    for layer in FLIPS:
        x = layer(x, training=True)
    return x, y


@tf.function
def by_function(x: Any, y: Any) -> Any:
    """Traced by its author, who need not."""
    return x + tf.random.uniform([4, 4, 1]), y


def by_keras(x: Any, y: Any) -> Any:
    """Which of the two is a seed of Keras 3, in an operation that is named otherwise."""
    if not hasattr(tf.keras, "random"):  # Keras 2
        return x + tf.cast(tf.random.categorical(tf.zeros([1, 9]), 1)[0, 0], x.dtype), y
    return x + tf.cast(tf.keras.random.categorical(tf.zeros([1, 9]), 1)[0, 0], x.dtype), y


DRAWING: dict[str, Callable[[], Any]] = {
    "flip": lambda: images().map(flipped, num_parallel_calls=AUTOTUNE),
    "flip, then batches": lambda: images().shuffle(9).map(flipped).batch(4).prefetch(2),
    "generator": lambda: images().map(by_generator),
    "layer over batches": lambda: images().batch(5).map(by_layer),
    "layers over batches": lambda: images().batch(5).map(by_layers, num_parallel_calls=AUTOTUNE),
    "layer-like draw": lambda: images().map(by_keras),
    "layers of an example": lambda: images().map(by_layers),
    "tf.function": lambda: images().map(by_function),
    "shuffle of pixels": lambda: images().map(lambda x, y: (tf.random.shuffle(x), y)),
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_is_drawn_belongs_to_example_and_epoch(name: str) -> None:
    """The same at every size, from memory and streamed, and after a restart; new in each epoch."""
    tf.random.set_seed(5)  # as a training does
    once = fed(pipeline(DRAWING[name]()))

    assert same(once, fed(pipeline(DRAWING[name]())))
    assert same(once, fed(pipeline(DRAWING[name](), 2), readers=2))
    assert same(once, fed(pipeline(DRAWING[name](), 3)))
    assert same(once, fed(pipeline(DRAWING[name](), cache=False)))
    later = {key: x for key, x in once.items() if key[0] == 1}
    assert same(later, fed(pipeline(DRAWING[name](), 2), epochs=1, first_epoch=1))
    changed = [i for i in range(COUNT) if not np.array_equal(once[0, i], once[1, i])]
    assert len(changed) > COUNT / 3


@pytest.mark.parametrize("batches", [False, True])
def test_what_its_author_caches_is_drawn_once(batches: bool) -> None:
    """The same in all epochs and at every size; maps behind the cache draw anew."""
    dataset = images().batch(4) if batches else images()
    frozen = dataset.map(by_layer if batches else flipped).cache()

    found = fed(pipeline(frozen))

    assert all(np.array_equal(found[0, i], found[1, i]) for i in range(COUNT))
    assert not same(found, fed(pipeline(images())))
    assert same(found, fed(pipeline(frozen, 3)))
    again = fed(pipeline(frozen.map(by_layer)))
    assert not all(np.array_equal(again[0, i], again[1, i]) for i in range(COUNT))


def test_half_of_all_images_are_flipped() -> None:
    """Each as it is or mirrored, about as often; examples and epochs are independent."""
    flip = images().map(lambda x, y: (tf.image.random_flip_left_right(x), y))

    found = fed(pipeline(flip), epochs=10)

    plain = {i: x for i, (x, _) in enumerate(images().as_numpy_iterator())}
    turned = np.array(
        [[not np.array_equal(found[e, i], plain[i]) for i in plain] for e in range(10)]
    )
    for (epoch, i), x in found.items():
        np.testing.assert_array_equal(x, plain[i][:, ::-1] if turned[epoch, i] else plain[i])
    assert 0.4 < turned.mean() < 0.6  # 200 draws: 0.5 ± 2.8 deviations
    assert turned.mean(axis=0).min() > 0
    assert turned.mean(axis=0).max() < 1


def test_draws_of_close_seeds_differ() -> None:
    """Neither the second draw of a seed nor the first one of the next seed is a repetition."""
    seeds = itertools.product(range(4), range(4))
    streams = [SeededStream(tf.constant(seed)) for seed in seeds]

    drawn = []
    for stream in streams:
        with drawing_from(stream):
            drawn += [float(tf.random.uniform([], dtype=tf.float64)) for _ in range(6)]

    assert len(set(drawn)) == 4 * 4 * 6


def test_filtered_elements_are_those_of_the_author() -> None:
    """A map before a filter stays before it, one behind it may be done later."""
    numbers = tf.data.Dataset.range(10).map(lambda n: n * 3).filter(lambda n: n % 2 == 0)

    parts = take_apart(numbers.map(lambda n: n + 1).take(3))

    assert parts.decode is not None
    assert list(parts.raw.as_numpy_iterator()) == [0, 6, 12]
    assert list(parts.raw.map(parts.decode).as_numpy_iterator()) == [1, 7, 13]
    assert list(parts.fixed.as_numpy_iterator()) == [1, 7, 13]


def test_normal_numbers_are_normal() -> None:
    """Mean and deviation of 20 × 10 × 16 draws."""
    noisy = images().map(lambda x, y: (x * 0 + tf.random.normal(tf.shape(x), 2.0, 3.0), y))

    drawn = np.stack([*fed(pipeline(noisy), epochs=10).values()])

    assert drawn.mean() == pytest.approx(2.0, abs=0.2)  # 3.8 deviations
    assert drawn.std() == pytest.approx(3.0, abs=0.15)
    assert len(np.unique(drawn)) == drawn.size


# Partners


def of_two(x: Any, y: Any) -> Any:
    """A pair as an example of the first: both numbers, and that of the first."""
    return tf.stack([x[1], y[1]]), x[1]


def shuffled(count: int = COUNT, **given: Any) -> Any:
    """Its elements are (image, number)."""
    return images().repeat().take(count).shuffle(9, **given)


PAIRED: dict[str, Callable[[], Any]] = {
    "both shuffled": lambda: tf.data.Dataset.zip((shuffled(), shuffled())).map(of_two),
    "in batches, and again and again": lambda: tf.data.Dataset.zip(
        (shuffled().batch(4).repeat(), shuffled().batch(4).repeat())
    ).map(lambda x, y: (tf.stack([x[1], y[1]], axis=1), x[1])),
    "one in order": lambda: tf.data.Dataset.zip((images(), shuffled())).map(of_two).batch(4),
    "of a longer one": lambda: tf.data.Dataset.zip(
        (images(), images().concatenate(images().map(lambda x, y: (x, y + COUNT))).shuffle(9))
    ).map(of_two),
}


@pytest.mark.parametrize("name", PAIRED)
def test_partners_are_drawn_anew_for_each_example_and_epoch(name: str) -> None:
    """Each partner once in an epoch; the same at every size, streamed, and after a restart."""
    tf.random.set_seed(5)
    once = fed(pipeline(PAIRED[name]()), epochs=12)

    for epoch in range(12):
        pairs = np.array([once[epoch, i] for i in range(COUNT)])
        assert list(pairs[:, 0]) == list(range(COUNT))
        assert len(set(pairs[:, 1])) == COUNT
        if "longer" not in name:
            assert set(pairs[:, 1]) == set(range(COUNT))
    partners = np.array([[once[epoch, i][1] for i in range(COUNT)] for epoch in range(12)])
    # 12 draws of 20: 9.2 others on average, of 40: 10.5.
    assert np.mean([len(set(column)) for column in partners.T]) > 8
    assert len({tuple(row) for row in partners}) == 12
    assert same(once, fed(pipeline(PAIRED[name](), 2), readers=2, epochs=12))
    assert same(once, fed(pipeline(PAIRED[name](), 3, cache=False), epochs=12))
    later = {key: x for key, x in once.items() if key[0] == 7}
    assert same(later, fed(pipeline(PAIRED[name](), 2), epochs=1, first_epoch=7))


def test_partners_of_several_parts() -> None:
    """Of one seed they stay together, and else not; a shuffle that is used twice is two orders."""
    seeded = [shuffled(seed=seed).map(lambda x, y: y) for seed in (1, 1, 2)]
    shared = shuffled().map(lambda x, y: y)
    both = (shared.map(lambda y: y + 0), shared.map(lambda y: y - 0))
    zipped = tf.data.Dataset.zip((images().map(lambda x, y: y), *seeded, *both))
    author = np.array(list(zipped.as_numpy_iterator()))

    found = fed(pipeline(zipped.map(lambda *parts: (tf.stack(parts), parts[0]))), epochs=1)

    for elements in (author, np.array([*found.values()])):
        columns = [tuple(column) for column in elements.T]
        assert columns[1] == columns[2]
        assert len(set(columns)) == 5
        assert all(set(column) == set(range(COUNT)) for column in columns)


def test_what_a_part_of_a_zip_draws_is_drawn_anew() -> None:
    """As if the map stood behind the zip, which pairs the same examples."""

    def noisy(x: Any, y: Any) -> tuple[Any, Any]:
        return x + tf.random.uniform(tf.shape(x)), y

    def behind(parts: Any, y: Any) -> tuple[Any, Any]:
        return noisy(*parts)[0], y

    numbers = images().map(lambda x, y: y)
    within = tf.data.Dataset.zip((images().map(noisy), numbers)).map(lambda one, y: (one[0], y))
    take_apart(tf.data.Dataset.zip((images().map(noisy).map(noisy), numbers)))  # of one part
    expected = fed(pipeline(tf.data.Dataset.zip((images(), numbers)).map(behind)))

    for data in (within, within.shuffle(5)):
        found = fed(pipeline(data.batch(4)))
        assert same(found, expected)
        assert len({float(one.sum()) for one in found.values()}) == 2 * COUNT
    with pytest.raises(RefusalError, match="random numbers within a flat_map"):
        take_apart(tf.data.Dataset.zip((images().map(noisy).filter(lambda x, y: y > 1), numbers)))


def test_what_shuffled_parts_of_nested_zips_draw_is_drawn_anew() -> None:
    """Two views of an example, and one of another; behind the draws each is the one that it was."""

    def noisy(x: Any, y: Any) -> tuple[Any, Any]:
        return x + tf.random.uniform([], maxval=50.0), y

    weak, strong, other = (
        shuffled(seed=seed).map(lambda x, y: noisy(x, y)).batch(4) for seed in (1, 1, 2)
    )
    zipped = tf.data.Dataset.zip((tf.data.Dataset.zip((weak, strong)), other))
    found = fed(
        pipeline(
            zipped.map(
                lambda views, one: (
                    tf.stack([part[0][:, 0, 0, 0] for part in (*views, one)], axis=1),
                    views[0][1],
                )
            )
        )
    )

    for epoch in range(2):
        drawn = np.array([found[epoch, i] for i in range(COUNT)])
        of = np.floor(drawn / 100)
        np.testing.assert_array_equal(of[:, 0], np.arange(COUNT))
        np.testing.assert_array_equal(of[:, 1], np.arange(COUNT))
        assert (of[:, 2] != np.arange(COUNT)).any()
        assert set(of[:, 2]) == set(range(COUNT))
    noises = np.round(np.array([*found.values()]) % 100, 3)
    assert len(set(noises.ravel())) > 0.95 * noises.size


def test_draws_of_one_seed_are_alike() -> None:
    """Of an image and its mask: by operations, layers and generators, single and in batches."""
    layer = tf.keras.layers.RandomFlip

    def pairs_of(flips: Any, size: int = 0) -> list[Any]:
        one, other = flips
        apart = tf.data.Dataset.zip(
            (
                images().map(lambda x, y: (one(x), y)),
                images().map(lambda x, y: other(x)),
            )
        ).map(lambda a, b: (tf.stack([a[0], b]), a[1]))
        behind = images().batch(4) if size else images()
        together = behind.map(lambda x, y: (tf.stack([one(x), other(x)], axis=bool(size)), y))
        return [together] if size else [apart, together]

    def by_operation(x: Any) -> Any:
        return tf.image.random_flip_left_right(x, seed=7)

    def by_another(x: Any) -> Any:
        return tf.image.random_flip_left_right(tf.identity(x), seed=7)

    of_layers = [partial(layer("horizontal_and_vertical", seed=5), training=True) for _ in range(2)]
    flips = [(by_operation, by_another), tuple(of_layers)]
    found = [one for pair in flips for one in pairs_of(pair)] + pairs_of(of_layers, size=4)
    for data in found:
        rows = list(rows_fed(pipeline(data)))
        assert len(rows) == 2 * COUNT
        drawn = []
        for (_, i), (one, other), _ in rows:
            np.testing.assert_array_equal(one, other)
            drawn.append(int(one[0, 0, 0]) - 100 * i)  # which corner
        assert len(set(drawn)) > 1
    apart = images().map(
        lambda x, y: (
            tf.stack([by_operation(x), tf.image.random_flip_left_right(x, seed=8)]),
            y,
        )
    )
    assert any(not np.array_equal(one, other) for _, (one, other), _ in rows_fed(pipeline(apart)))


@pytest.mark.parametrize("take", [10, 30])
def test_a_part_of_an_endless_zip_is_as_long_as_its_author_says(take: int) -> None:
    """Its parts are read again and again; it is not."""

    def noisy(x: Any, y: Any) -> Any:
        return x + tf.random.uniform([]), y

    parts = (images().repeat().map(noisy), images().repeat())
    zipped = tf.data.Dataset.zip(parts).take(take).map(lambda a, b: a)

    assert pipeline(zipped).num_examples == take


def test_parts_of_a_zip_that_are_not_shuffled_keep_their_pairs() -> None:
    """In batches too; and those shuffled with one seed are one order of all."""
    numbers = images().map(lambda x, y: y)
    for pairs in (
        tf.data.Dataset.zip((numbers.batch(6), numbers.batch(6))),
        tf.data.Dataset.zip((numbers.shuffle(9, seed=1), numbers.shuffle(9, seed=1))),
    ):
        source = as_source(pairs, what="data")
        found = fed(pipeline(pairs))
        assert all(found[key] == key[1] for key in found)
        assert source.shuffled == (len(pairs) == COUNT)


def test_a_part_of_examples_with_partners_is_that_part() -> None:
    """Under a shuffle that is kept: its author's examples, in his order; partners are drawn."""
    zipped = tf.data.Dataset.zip((images(), shuffled())).map(of_two)
    kept = zipped.shuffle(COUNT, seed=2, reshuffle_each_iteration=False)
    author = [float(y) for _, y in kept.take(15)]
    rest = [float(y) for _, y in kept.skip(15)]

    for part, numbers in ((kept.take(15), author), (kept.skip(15).batch(3), rest)):
        pairs = pipeline(part.map(lambda x, y: (x, y)))
        batches = pairs.dataset(InputShard(index=0, count=1)).take(
            2 * pairs.shares.steps_per_epoch(1)
        )
        fed_now = np.concatenate([x[ids >= 0] for x, *_, ids in batches.as_numpy_iterator()])
        assert list(fed_now[:, 0]) == 2 * numbers
        assert len(set(fed_now[: len(numbers), 1])) == len(numbers)
        assert list(fed_now[: len(numbers), 1]) != list(fed_now[len(numbers) :, 1])


def test_partners_that_differ_are_told_between_processes() -> None:
    """The digest of the data holds them."""
    others = [images().map(lambda x, y: (x, -y)), images()]
    zipped = [tf.data.Dataset.zip((images(), one.shuffle(9))).map(of_two) for one in others]

    assert len({pipeline(one).data_digest for one in zipped}) == 2


@pytest.mark.parametrize(
    ("zipped", "words"),
    [
        (lambda: (shuffled().batch(4), shuffled().batch(5)), "batches of one size"),
        (lambda: (shuffled().batch(4), shuffled()), "batches of one size"),
        (lambda: (shuffled(18).batch(4), shuffled().batch(4)), "data sets of 18 and 20"),
        (lambda: (shuffled().repeat(), shuffled(18).repeat()), "must have one length"),
        (lambda: (shuffled(18, seed=1), shuffled(seed=1)), "must have one length"),
        (lambda: (shuffled().map(flipped).filter(lambda x, y: y > 1), shuffled()), "How many"),
        (lambda: (shuffled().batch(4).map(flipped), shuffled().batch(4)), "must not draw"),
        (lambda: (images().map(flipped), shuffled().map(flipped)), "on one part of a zip"),
        (
            lambda: (
                images().map(flipped).cache(),
                shuffled().map(lambda x, y: flipped(x, y)).cache(),
            ),
            "One part of a zip may cache",
        ),
        (lambda: (sentences().map(lambda x, y: x["words"]).shuffle(9), images()), "one size"),
    ],
)
def test_a_zip_that_cannot_be_drawn_is_refused(zipped: Callable[[], Any], words: str) -> None:
    """Before anything is trained, with what to do."""
    with pytest.raises(RefusalError, match=words) as caught:
        take_apart(tf.data.Dataset.zip(zipped()))
    assert caught.value.advice


# What cannot be tied


def with_numpy(x: Any, y: Any) -> Any:
    """Chance that TensorFlow does not know of."""
    drawn = tf.numpy_function(lambda: np.float32(np.random.random()), [], tf.float32)
    return x + tf.ensure_shape(drawn, []), y


def with_both(x: Any, y: Any) -> Any:
    """Chance of both kinds."""
    return with_numpy(x + tf.random.uniform([]), y)


def with_a_box(x: Any, y: Any) -> Any:
    """An operation that draws by itself."""
    begin, *_ = tf.image.sample_distorted_bounding_box([4, 4, 1], tf.zeros([1, 1, 4]))
    return x + tf.cast(begin[0], tf.float32), y


def sentences() -> Any:
    """Example i is i words, all i, beside [1, i] and i."""
    numbers = tf.data.Dataset.range(1, COUNT)
    return numbers.map(lambda i: ({"words": tf.fill([i], i), "pair": tf.stack([1, i])}, i))


def test_a_padded_batch_is_batches_of_padded_elements() -> None:
    """With the author's sizes and values; what they fit already is left as it is."""
    padded = sentences().padded_batch(
        6,
        padded_shapes=({"words": [COUNT], "pair": [3]}, []),
        padding_values=({"words": np.int64(-1), "pair": None}, None),
    )

    found = take_apart(padded)

    assert found.batch_size == 6
    assert found.decode is not None
    read = found.raw.map(found.decode)  # as a stream is
    for i, (x, y) in enumerate(read.as_numpy_iterator(), start=1):
        words = np.pad(np.full(i, i), (0, COUNT - i), constant_values=-1)
        np.testing.assert_array_equal(x["words"], words)
        np.testing.assert_array_equal(x["pair"], [1, i, 0])
        assert y == i
    assert i == COUNT - 1


@pytest.mark.parametrize(
    "padded",
    [
        lambda data: data.padded_batch(6, padding_values=np.int64(-1)),
        lambda data: data.cache().shuffle(9).repeat().padded_batch(6, padding_values=np.int64(-1)),
        lambda data: data.padded_batch(6, ({"words": [None], "pair": [2]}, []), np.int64(-1)),
    ],
)
def test_without_sizes_it_pads_to_the_longest_of_all(padded: Callable[[Any], Any]) -> None:
    """Not of each batch, which Ringside makes; and that is said. What has a size keeps it."""
    source = as_source(padded(sentences()), what="training data")

    assert isinstance(source, StreamSource)
    x, y = source.in_memory.arrays
    assert x["words"].shape == (COUNT - 1, COUNT - 1)
    assert x["pair"].shape == (COUNT - 1, 2)
    for words, i in zip(x["words"], y, strict=True):
        np.testing.assert_array_equal(words, [i] * i + [-1] * (COUNT - 1 - i))
    assert source.said[0] == (
        "its padded_batch pads to the longest example of all, [19], not of each batch: a model "
        "that masks the padding computes the same"
    )


def test_what_is_cut_in_batches_is_cut_before_its_maps() -> None:
    """Batches that are counted stay batches; the elements are those of the author."""
    cut = sentences().map(lambda x, y: (x["pair"], y)).batch(4).take(2)

    found = take_apart(cut)

    rows = [tuple(y for y in batch[1]) for batch in cut.as_numpy_iterator()]
    assert [int(y) for _, y in found.fixed] == list(np.concatenate(rows))
    read = found.raw if found.decode is None else found.raw.map(found.decode)
    assert [int(y) for _, y in read] == list(np.concatenate(rows))


@tf.function
def one_more(x: Any) -> Any:
    """Traced once, and used in a map."""
    return x + tf.random.uniform([])


def calls_a_function(x: Any, y: Any) -> Any:
    """Draws within a tf.function."""
    return one_more(x), y


def drawn_words(x: Any, y: Any) -> Any:
    """As many words as chance says."""
    return tf.fill([tf.random.uniform([], 1, 9, tf.int32)], y), y


def drags(x: Any, y: Any) -> Any:
    """Only the first of a batch keeps to itself."""
    return x + tf.random.uniform([]) * tf.concat([x[:1] * 0, x[:-1]], axis=0), y


def files() -> Any:
    """Two of them, in another order each time."""
    return tf.data.Dataset.from_tensor_slices(np.array([0, 100], np.int64)).shuffle(2)


def mixed(x: Any, y: Any) -> Any:
    """Mixes each image with another one of its batch."""
    share = tf.random.uniform([])
    return share * x + (1 - share) * tf.reverse(x, [0]), y


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (lambda: images().map(with_numpy), "Python code"),
        (lambda: images().map(with_both), "PyFunc"),
        (lambda: images().map(with_a_box), "SampleDistortedBoundingBox"),
        (lambda: images().map(calls_a_function), "RandomUniform"),
        (lambda: images().map(flipped).batch(5).batch(2), "batches of batches"),
        (lambda: images().batch(6).repeat(3).concatenate(images().batch(6)), "BatchDataset"),
        (lambda: sentences().map(drawn_words).padded_batch(6), "padded_batch without all sizes"),
        (
            lambda: files().flat_map(lambda n: tf.data.Dataset.range(n, n + 99).shuffle(9)),
            "shuffle",
        ),
        (lambda: images().batch(4).map(drags), "mixes the examples"),
        (lambda: tf.data.Dataset.zip((shuffled(), shuffled())).take(5), "a shuffle before a take"),
        (
            lambda: tf.data.Dataset.zip((shuffled(), images())).shuffle(9, seed=1).take(5),
            "before a take",
        ),
        (lambda: images().flat_map(lambda *e: tf.data.Dataset.from_tensors(flipped(*e))), "random"),
        (lambda: images().batch(4).map(mixed), "mixes the examples"),
        (lambda: images().map(flipped).filter(lambda x, y: x[0, 0, 0] > 5), "a filter after"),
        (lambda: images().shuffle(9).take(5), "a shuffle before a take"),
        (lambda: files().flat_map(of_file).take(5), "a shuffle before a take"),
        (lambda: files().take(1).flat_map(of_file), "a shuffle within"),
    ],
)
def test_chance_that_belongs_to_no_example_is_refused(
    dataset: Callable[[], Any], words: str
) -> None:
    """With the place where it is, and what to do."""
    with pytest.raises(RefusalError, match=words) as caught:
        take_apart(dataset())
    assert caught.value.advice


def test_a_draw_in_a_loop_is_refused() -> None:
    """All its rounds would get the same numbers."""

    def rows(x: Any, y: Any) -> Any:
        return tf.map_fn(lambda row: row + tf.random.uniform([]), x), y

    with pytest.raises(RefusalError, match="while_loop"):
        take_apart(images().map(rows))


def test_all_rows_of_a_vectorized_map_would_draw_the_same() -> None:
    """So it is refused too."""

    def rows(x: Any, y: Any) -> Any:
        return tf.vectorized_map(lambda row: row + tf.random.uniform([]), x), y

    with pytest.raises(RefusalError, match="outside of loops"):
        take_apart(images().map(rows))


def test_a_part_of_what_is_repeated_has_its_length() -> None:
    """As its author wrote it: an epoch of 50, of 20 from the fifth on, of three times all."""
    assert order(pipeline(images().repeat().take(50))) == list(range(50))
    found = fed_labels(images().repeat().skip(5).take(20))
    assert found == [float(i % COUNT) for i in range(5, 25)]
    assert fed_labels(images().batch(6).repeat(3)) == 3 * [float(i) for i in range(COUNT)]
    assert len(fed_labels(images().batch(6, drop_remainder=True))) == COUNT


def test_what_cannot_be_read_is_left_out_if_its_author_says_so() -> None:
    """An example, or the batch that has one, where ignore_errors() stands behind batch()."""
    checked = images().map(
        lambda x, y: (x, tf.debugging.check_numerics(tf.where(y == 4, np.nan, y), "bad"))
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        fed_labels(checked.batch(3))

    single = fed_labels(checked.ignore_errors().batch(3))
    batches = fed_labels(checked.batch(3).ignore_errors().prefetch(1))

    assert single == [float(i) for i in range(COUNT) if i != 4]
    assert batches == [float(i) for i in range(COUNT) if i not in (3, 4, 5)]


def test_a_rest_is_dropped_as_its_author_does() -> None:
    """Of what is shuffled it comes in the next epoch; a run may have batches of its own size."""
    kept = pipeline(images().batch(3, drop_remainder=True))
    anew = pipeline(images().shuffle(COUNT).batch(3, drop_remainder=True))

    batches = COUNT // BATCH
    assert COUNT % BATCH
    assert kept.shares.last_batch == anew.shares.last_batch == 0
    assert order(kept, 2) == 2 * list(range(batches * BATCH))
    assert anew.shares.steps_per_epoch(1) == batches
    found = order(anew, COUNT)  # epochs that hold each example so often
    assert set(np.bincount(found)) == {batches * BATCH}
    assert kept.prepared.said[-1] == (
        f"its drop_remainder leaves out the last {plural(COUNT % BATCH, 'example')} of {COUNT}"
    )
    assert "goes on where the last one ended" in anew.prepared.said[-1]
    held_out = dataclasses.replace(anew, training=False)
    assert held_out.num_examples == COUNT // 3 * 3  # of its author's batches


def fed_labels(dataset: Any) -> list[float]:
    """y of the elements in order."""
    return [float(y) for _, y in take_apart(dataset).fixed.as_numpy_iterator()]


def test_windows_stay_whole() -> None:
    """A map that needs whole batches gets them; what is left over is dropped as its author does."""
    windows = (
        images()
        .batch(6, drop_remainder=True)
        .map(lambda x, y: (tf.ensure_shape(x, [6, 4, 4, 1]), y))
    )

    assert len(fed_labels(windows)) == 18
    # Without an end its author drops nothing.
    assert fed_labels(windows.repeat()) == [float(i) for i in range(COUNT)]


def test_splits_draw_other_numbers() -> None:
    """Validation examples are not those of training."""
    noise = tf.data.Dataset.range(COUNT).map(
        lambda i: (tf.random.normal([3]) + 0 * tf.cast(i, tf.float32), i)
    )
    for dataset in (noise, noise.cache()):
        training = pipeline(dataset)
        validation = dataclasses.replace(
            training, source=as_source(dataset, what="validation data"), training=False
        )
        assert not np.allclose(fed(training, epochs=1)[0, 0], fed(validation, epochs=1)[0, 0])


def test_a_kept_shuffle_is_the_authors() -> None:
    """Seeded and not anew in each epoch, it is an order like any other."""
    kept = images().shuffle(COUNT, seed=4, reshuffle_each_iteration=False)

    source = as_source(kept, what="data")
    assert isinstance(source, StreamSource)
    assert not source.shuffled
    memory = source.in_memory
    assert sorted(memory.arrays[1]) == list(range(COUNT))


def test_ragged_rows_are_refused_and_the_advice_works() -> None:
    """They become tensors of one size, with nothing but zeros behind their ends."""
    ragged = tf.ragged.constant([[1, 2, 3], [4, 5], [6]])
    rows = tf.data.Dataset.from_tensor_slices((ragged, [0, 1, 0]))

    with pytest.raises(RefusalError, match="must be dense tensors"):
        as_source(rows.batch(3), what="training data")

    padded = rows.map(lambda x, y: (x, y)).padded_batch(3)
    source = as_source(padded, what="training data")
    assert isinstance(source, StreamSource)
    np.testing.assert_array_equal(source.in_memory.arrays[0], [[1, 2, 3], [4, 5, 0], [6, 0, 0]])


def test_ragged_batches_of_preprocess_are_refused() -> None:
    """A workload's own function makes them, so they are seen when the pipeline is built."""
    ragged = dataclasses.replace(
        pipeline(images()), preprocess=lambda x, y: (tf.RaggedTensor.from_tensor(x), y)
    )

    with pytest.raises(RefusalError, match="batches of `preprocess` must be dense tensors"):
        ragged.dataset(InputShard())
