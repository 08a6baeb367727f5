"""The examples of a keras.utils.Sequence: read once into memory, or anew in each epoch if it draws.

What a Sequence draws by the global random numbers of NumPy, Python or TensorFlow is a function of
(seed, epoch, batch), as those are seeded before each batch is read. So every process reads the same
batch, and takes its part; a restart reads it again.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.augment import Augment
from ringside_core.workloads.functions import as_tuple, joined
from ringside_core.workloads.randomness import SeededStream, drawing_from

# NumPy's and Python's random numbers are those of the whole process.
_LOCK = threading.RLock()
# Batches that are held: those whose parts several calls at once may ask for.
_HELD = 4


@dataclass(frozen=True)
class ReadBatches:
    """What a Sequence gives.

    Attributes:
        arrays: nest of arrays [num_examples, …]; of a Sequence that draws, numbers of examples.
        augment: what reads the examples anew in each epoch; None: it does not draw.
        note: how it is read, in one sentence.
    together: examples that stay together when the order is drawn.
    """

    arrays: Any
    augment: Augment | None
    note: str
    together: int = 1


def read_batches(batches: Any, *, what: str) -> ReadBatches:
    """The examples of a keras.utils.Sequence.

    Args:
        batches: the Sequence.
        what: name of the data, for messages.

    Raises:
        RefusalError: the batches do not fit together, or draw from what cannot be seeded.
    """
    kind = type(batches).__name__
    reader = _Reader(batches)
    try:
        first = reader.read(0, 0, 0)
        if _equal(first, reader.read(0, 1, 0)):
            read = [first, *(_batch_of(batches[number]) for number in range(1, len(batches)))]
            arrays = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *read)
            return ReadBatches(arrays, None, f"{kind} is read once; its batches are taken apart")
        last = reader.read(0, 0, len(batches) - 1)
        tf.nest.map_structure(lambda *ends: np.concatenate([end[:1] for end in ends]), first, last)
    except (IndexError, TypeError, ValueError) as error:
        raise RefusalError(
            f"The batches of the {what} must be arrays of the same shapes, but for their number of "
            "examples.",
            received=f"{kind}: {type(error).__name__}: {error}",
            advice="Pad all of them to one length.",
        ) from None
    _check_seeded(reader, kind)
    drawn = DrawnBatches(
        reader, of_first=_count(first), of_last=_count(last), arrays=reader.turned(0, 0)
    )
    return ReadBatches(
        np.arange(drawn.num_examples),
        Augment(of_one=lambda *element: joined(element), partners=drawn),
        f"{kind} draws random numbers, so each process reads each batch anew in each epoch, with "
        "NumPy's, Python's and TensorFlow's seeds set by seed, epoch and batch",
        together=drawn.of_first,
    )


@dataclass(frozen=True)
class DrawnBatches:
    """What makes an example of a Sequence that draws; its batch is read for that.

    Attributes:
        reader: of the Sequence.
        of_first: examples in each batch but the last.
        of_last: examples in the last batch.
        arrays: its first batch, by which processes see that they read the same.
    """

    reader: "_Reader"
    of_first: int
    of_last: int
    arrays: Any

    @property
    def num_examples(self) -> int:
        """In an epoch."""
        return self.of_first * (len(self.reader.batches) - 1) + self.of_last

    def __call__(self, seed: int, epoch: Any, number: Any, element: Any) -> Any:
        """An example in an epoch.

        Args:
            seed: see `draw_seed`.
            epoch: from 0.
            number: of the example, in the order of the Sequence.
            element: not used: the Sequence alone knows it.
        """
        del element
        form = tf.nest.map_structure(lambda one: one[0], self.arrays)
        made = tf.numpy_function(
            self._row, [seed, epoch, number], [one.dtype for one in tf.nest.flatten(form)]
        )
        shaped = [
            tf.ensure_shape(one, np.shape(like))
            for one, like in zip(made, tf.nest.flatten(form), strict=True)
        ]
        return tf.nest.pack_sequence_as(form, shaped)

    def _row(self, seed: Any, epoch: Any, number: Any) -> list[NDArray[Any]]:
        batch, row = divmod(int(number), self.of_first)
        wanted = self.of_first if batch < len(self.reader.batches) - 1 else self.of_last
        parts = tf.nest.flatten(self.reader.turned(int(seed), int(epoch), batch))
        if (found := len(parts[0])) != wanted:
            raise RefusalError(
                "A Sequence that draws must give batches of one size, but for the last.",
                received=f"{found} examples in batch {batch}, for {wanted}",
            )
        return [part[row] for part in parts]


@dataclass
class _Reader:
    """Reads the batches of a Sequence with all random numbers seeded."""

    batches: Any
    _turn: tuple[int, int] | None = None
    _held: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    def turned(self, seed: int, epoch: int, number: int = 0) -> Any:
        """A batch of an epoch, which `on_epoch_end` has begun.

        Args:
            seed: of the split.
            epoch: from 0.
            number: of the batch.
        """
        key = seed, epoch, number
        with _LOCK:
            if key not in self._held:
                self.turn(seed, epoch)
                while len(self._held) >= _HELD:
                    del self._held[next(iter(self._held))]
                self._held[key] = self.read(*key)
            return self._held[key]

    def turn(self, seed: int, epoch: int) -> None:
        """Let the Sequence begin an epoch, if it is in another one: many shuffle there."""
        if self._turn != (seed, epoch) and hasattr(self.batches, "on_epoch_end"):
            with _seeded(seed, epoch):
                self.batches.on_epoch_end()
        self._turn = seed, epoch

    def read(self, seed: int, epoch: int, number: int) -> Any:
        """A batch, as the Sequence is now."""
        with _seeded(seed, epoch, number):
            if hasattr(self.batches, "total_batches_seen"):
                # Keras' ImageDataGenerator adds it to a seed of its own.
                self.batches.total_batches_seen = epoch * len(self.batches) + number
            return _batch_of(self.batches[number])


@contextmanager
def _seeded(*key: int) -> Iterator[None]:
    """Seed what a Sequence may draw from; afterwards it goes on as before."""
    with _LOCK:
        of_numpy, of_python = np.random.get_state(), random.getstate()
        np.random.seed([one % 2**32 for one in key])  # the author draws from it
        random.seed(str(key))
        try:
            with drawing_from(SeededStream([random.getrandbits(63), 0])):
                yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)


def _check_seeded(reader: _Reader, kind: str) -> None:
    """Refuse a Sequence that is another one in the same epoch, or in one that was begun again."""
    same = _equal(reader.read(0, 0, 0), reader.read(0, 0, 0))
    reader.turn(0, 1)
    begun = reader.read(0, 1, 0)
    reader.turn(0, 2)
    reader.turn(0, 1)
    if not same:
        raise RefusalError(
            "What a keras.utils.Sequence draws must follow the seeds of NumPy, Python or "
            "TensorFlow, so that every process reads the same batch.",
            received=f"{kind}, whose first batch is another one with the same seeds",
            advice="Draw by np.random.…, random.… or tf.random.…, not by a generator of its own.",
        )
    if not _equal(begun, reader.read(0, 1, 0)):
        raise RefusalError(
            "on_epoch_end of a keras.utils.Sequence that draws must depend on its random numbers "
            "alone, so that a restart begins the same epoch.",
            received=f"{kind}, whose first batch is another one when an epoch is begun again",
            advice="Make the order anew: self.order = np.random.permutation(n), instead of "
            "shuffling the last one.",
        )


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _count(batch: Any) -> int:
    return len(tf.nest.flatten(batch)[0])


def _batch_of(given: Any) -> Any:
    """A batch as a tuple of nests of arrays; what is None at its end is left away."""
    given = as_tuple(given)
    parts = list(given) if isinstance(given, tuple) else [given]  # inputs alone
    while parts and parts[-1] is None:
        parts.pop()
    return tuple(tf.nest.map_structure(np.asarray, part) for part in parts)
