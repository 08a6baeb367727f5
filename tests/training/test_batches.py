"""A keras.utils.Sequence that draws random numbers: as NumPy draws them by hand, everywhere."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError
from ringside_core.workloads.batches import read_batches
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import as_source, going_on
from tests.training.feed import SEED, pipeline, rows_fed
from tests.training.momentum import spec_of
from trainers.planned import _planned

COUNT, BATCH = 22, 4
X = np.arange(COUNT, dtype=np.float32)[:, None] * 100
image = tf.keras.preprocessing.image


class Noisy(tf.keras.utils.Sequence):
    """Batches of four and a rest of two, with noise of NumPy, of Python and of TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.order = np.arange(COUNT)

    def __len__(self) -> int:
        return -(-COUNT // BATCH)

    def __getitem__(self, index: int) -> Any:
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        return X[rows] + self.noise(len(rows)), rows

    def noise(self, count: int) -> Any:
        """One for each example, and one for all."""
        drawn = np.random.normal(size=[count, 1]) + random.random()
        return (drawn + float(tf.random.uniform([]))).astype(np.float32)


class Reordered(Noisy):
    """Its examples change their batches after each epoch."""

    def on_epoch_end(self) -> None:
        """As most authors write it."""
        self.order = np.arange(COUNT)
        np.random.shuffle(self.order)


def fed(pipe: Pipeline, readers: int = 1, epochs: int = 3, **begin: int) -> dict[Any, Any]:
    """(x, y) of each id in each epoch, in the order in which they are fed."""
    rows = rows_fed(pipe, readers, epochs, **begin)
    return {place: (x.ravel()[0], int(y)) for place, x, y in rows}


def by_hand(batches: Any, epoch: int) -> list[Any]:
    """(x, y) of each example of an epoch, in the Sequence's order, with the documented seeds."""
    seed = 2 * SEED
    made: list[Any] = []
    if hasattr(batches, "on_epoch_end"):
        np.random.seed([seed, epoch])
        batches.on_epoch_end()
    for number in range(len(batches)):
        np.random.seed([seed, epoch, number])
        random.seed(str((seed, epoch, number)))
        if hasattr(batches, "total_batches_seen"):
            batches.total_batches_seen = epoch * len(batches) + number
        random.getrandbits(63)  # TensorFlow's seed
        x, y = batches[number]
        made += zip(x.reshape(len(x), -1)[:, 0], y, strict=True)
    return made


@pytest.mark.parametrize("kind", [Noisy, Reordered])
def test_its_numbers_are_those_of_seed_epoch_and_batch(kind: Any) -> None:
    """NumPy's and Python's own, one stream for each batch; another in each epoch."""

    class Kind(kind):
        def noise(self, count: int) -> Any:
            return (np.random.normal(size=[count, 1]) + random.random()).astype(np.float32)

    found = fed(pipeline(Kind()))

    assert len(found) == 3 * COUNT
    for epoch in range(3):
        for example, (x, y) in enumerate(by_hand(Kind(), epoch)):
            np.testing.assert_allclose(found[epoch, example][0], x, rtol=1e-6)
            assert found[epoch, example][1] == y
        assert {found[epoch, example][1] for example in range(COUNT)} == set(range(COUNT))


@pytest.mark.parametrize("kind", [Noisy, Reordered])
def test_every_process_reads_the_same_and_a_restart_too(kind: Any) -> None:
    """Also where the numbers are TensorFlow's."""
    once = fed(pipeline(kind()))

    assert len({x for x, _ in once.values()}) == 3 * COUNT
    assert fed(pipeline(kind(), 2), readers=2) == once
    assert fed(pipeline(kind(), 3)) == once
    later = {key: value for key, value in once.items() if key[0] == 2}
    assert fed(pipeline(kind()), epochs=1, first_epoch=2) == later
    assert pipeline(kind()).data_digest == pipeline(kind()).data_digest


def test_whole_batches_are_shuffled_and_the_rest_stays_last() -> None:
    """A batch is read once; `shuffle=False` of fit, and of the run, keeps the order."""
    orders = [
        [example for epoch, example in fed(pipeline(Noisy())) if epoch == number]
        for number in range(3)
    ]
    for order in orders:
        assert sorted(order) == list(range(COUNT))
        assert order[-2:] == [20, 21]
        assert all(b - a == 1 for a, b in zip(order[::2], order[1::2], strict=True))
        assert all(first % BATCH == 0 for first in order[:-2:BATCH])
    assert len({tuple(order) for order in orders}) > 1
    # By this a run that was fed in another order is found out.
    spec = spec_of(seed=SEED, global_batch=6)
    for number, order in enumerate(orders):
        planned = [ids for _, ids in _planned(spec, pipeline(Noisy()), number)]
        assert np.concatenate(planned).tolist() == order

    in_order = [example for _, example in fed(pipeline(Noisy(), shuffle=False), epochs=1)]
    assert in_order == list(range(COUNT))


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`")  # legacy Keras of SciPy
@pytest.mark.parametrize("seed", [None, 7])
def test_images_that_keras_changes_at_random(seed: int | None) -> None:
    """`ImageDataGenerator` as its users write it, with a seed of its own or without."""
    pictures = np.random.default_rng(0).random((COUNT, 6, 6, 1)).astype(np.float32)

    def flow() -> Any:
        changed = image.ImageDataGenerator(horizontal_flip=True, width_shift_range=2)
        return changed.flow(pictures, np.arange(COUNT), batch_size=BATCH, seed=seed)

    found = fed(pipeline(flow()))

    for epoch in range(3):
        for example, (x, y) in enumerate(by_hand(flow(), epoch)):
            assert found[epoch, example] == (x, y)
    assert fed(pipeline(flow(), 2), readers=2) == found


def test_the_random_numbers_of_the_process_go_on_as_before() -> None:
    """Those of a callback, say."""
    np.random.seed(1)
    random.seed(1)
    expected = np.random.random(), random.random()
    np.random.seed(1)
    random.seed(1)

    read_batches(Reordered(), what="data")

    assert (np.random.random(), random.random()) == expected


class Rarely(Noisy):
    """Draws for each batch whether it changes it: most are alike at two readings."""

    def noise(self, count: int) -> Any:
        return np.zeros([count, 1], np.float32) + (np.random.random() < 0.01)


class Later(Noisy):
    """Draws in its last batch only."""

    def noise(self, count: int) -> Any:
        return np.random.normal(size=[count, 1]) if count < BATCH else np.zeros([count, 1])


class Chosen(Reordered):
    """Has other examples after each epoch, and draws for none."""

    def noise(self, count: int) -> Any:
        return np.zeros([count, 1])

    def on_epoch_end(self) -> None:
        """Two thirds of what it has, one of them twice."""
        self.order = np.random.randint(COUNT * 2 // 3, size=COUNT)


class OnlyReordered(Chosen):
    """Has the same examples in another order."""

    def on_epoch_end(self) -> None:
        Reordered.on_epoch_end(self)


@pytest.mark.parametrize("kind", [Rarely, Later, Chosen])
def test_what_draws_is_known_by_its_drawing(kind: Any) -> None:
    """And not by whether two readings of a batch happen to differ."""
    assert as_source(kind(), what="data").augment is not None


def test_another_order_only_is_read_once() -> None:
    """The run has an order of its own in each epoch; nothing is read again."""
    source = as_source(OnlyReordered(), what="data")

    assert source.augment is None
    assert "on_epoch_end, which changes their order only, is not called" in source.said[0]


def test_one_sequence_may_be_both_splits() -> None:
    """Each turn of it belongs to a split and an epoch, whoever reads next."""
    alone = fed(pipeline(Reordered()))
    both = Reordered()
    training, validation = pipeline(both), dataclasses.replace(pipeline(both), training=False)
    shard = InputShard(index=0, count=1)
    reads = iter(training.dataset(shard))
    found = {}
    for step in range(12):  # an epoch has four
        x, y, _, _, ids = next(reads)
        for row, example in enumerate(ids.numpy()):
            if example >= 0:
                found[step // 4, int(example)] = float(x[row, 0]), int(y[row])
        next(iter(validation.dataset(shard)))

    assert found == alone


def test_an_epoch_of_so_many_updates_and_a_short_source() -> None:
    """Its order is planned over the end of each pass; fewer examples than a batch are fed too."""
    going = dataclasses.replace(pipeline(Noisy()), source=going_on(pipeline(Noisy()).source, 3))
    spec = spec_of(seed=SEED, global_batch=6)
    shard = InputShard(index=0, count=1)
    ids = np.concatenate([b[-1] for b in going.dataset(shard).take(9).as_numpy_iterator()])
    planned = [part for epoch in range(3) for _, part in _planned(spec, going, epoch)]

    np.testing.assert_array_equal(np.concatenate(planned), ids)

    few = dataclasses.replace(pipeline(Noisy()), source=pipeline(Noisy()).source.first(3))
    assert sorted(example for _, example in fed(few, epochs=1)) == [0, 1, 2]


class Traced(Noisy):
    """Draws in a function that TensorFlow traces once, for all batches."""

    drawn = staticmethod(tf.function(lambda: tf.random.normal([])))

    def noise(self, count: int) -> Any:
        return np.zeros([count, 1], np.float32) + float(self.drawn())


class Counts(Noisy):
    """Grows louder with the epochs that it counts."""

    epoch = 0

    def on_epoch_end(self) -> None:
        self.epoch += 1


class OwnGenerator(Noisy):
    """Draws from what nobody can seed."""

    def noise(self, count: int) -> Any:
        """Another one after a restart."""
        return np.random.default_rng().random([count, 1])


class ShufflesOn(Noisy):
    """An epoch depends on the one before."""

    def on_epoch_end(self) -> None:
        """Shuffles the last order."""
        np.random.shuffle(self.order)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OwnGenerator, "OwnGenerator, whose first batch is another one with the same seeds"),
        (ShufflesOn, r"ShufflesOn.order.*begun again.*np.random.permutation\(n\)"),
        (Counts, "Counts.epoch, another one when an epoch is begun again"),
        (Traced, "in a function that is traced"),
    ],
)
def test_what_cannot_be_read_again_is_refused(kind: Any, words: str) -> None:
    """With the advice that helps: `Noisy` and `Reordered` follow it."""
    with pytest.raises(RefusalError, match=words):
        as_source(kind(), what="data")


@pytest.mark.parametrize(
    "change", [lambda x, y: (x[:3], y[:3]), lambda x, y: (np.hstack([x, x]), y)]
)
def test_batches_of_several_sizes_are_refused_when_they_are_read(change: Any) -> None:
    """Examples have numbers, and those are of batches of one size."""

    class Uneven(Noisy):
        def __getitem__(self, index: int) -> Any:
            batch = super().__getitem__(index)
            return change(*batch) if index == 1 else batch

    with pytest.raises(Exception, match=r"must be alike.*in batch 1, for.*Pad all"):
        fed(pipeline(Uneven()))
