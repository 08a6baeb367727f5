"""The examples of a keras.utils.Sequence: read once into memory, or anew in each epoch if it draws.

What a Sequence draws by the global random numbers of NumPy, Python or TensorFlow is a function of
(seed, epoch, batch), as those are seeded before each batch is read. So every process reads the same
batch, and takes its part; a restart reads it again.
"""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.augment import Augment, refusals_as_they_are
from ringside_core.workloads.functions import as_tuple, joined
from ringside_core.workloads.randomness import SeededStream, drawing_from

# NumPy's and Python's random numbers are those of the whole process.
_LOCK = threading.RLock()
# Batches that are held: those whose parts several calls at once may ask for.
_HELD = 4
# Batches that are read twice, to see what draws by a generator of its own.
_AGAIN = 8
# Of Keras' ImageDataGenerator: how many batches it has given, which it adds to a seed of its own.
_GIVEN = "total_batches_seen"
# On a Sequence: its reader, one for all data that it is.
_READER = "_ringside_reader"


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
    reader: _Reader = vars(batches).setdefault(_READER, _Reader(batches))
    try:
        read = _read_if_fixed(reader)
        if read is not None:
            arrays = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *read)
            note = f"{kind} is read once; its batches are taken apart"
            if reader.turns:
                note += "; its on_epoch_end, which changes their order only, is not called"
            return ReadBatches(arrays, None, note)
        _check_seeded(reader, kind)
        first, last = (reader.turned(0, 0, number) for number in (0, len(batches) - 1))
        tf.nest.map_structure(lambda *ends: np.concatenate([end[:1] for end in ends]), first, last)
        sizes = _count(first), _count(last)
    except RefusalError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        raise RefusalError(
            f"The batches of the {what} must be arrays of the same shapes, but for their number of "
            "examples.",
            received=f"{kind}: {type(error).__name__}: {error}",
            advice="Pad all of them to one length.",
        ) from None
    drawn = DrawnBatches(reader, *sizes, arrays=first)
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
        parts = tf.nest.flatten(self.reader.turned(int(seed), int(epoch), batch))
        wanted = self.of_first if batch < len(self.reader.batches) - 1 else self.of_last
        like = tf.nest.flatten(self.arrays)
        forms = [(wanted, *one.shape[1:], one.dtype.kind) for one in like]
        if (found := [(*one.shape, one.dtype.kind) for one in parts]) != forms:
            raise RefusalError(
                "The batches of a Sequence that draws must be alike, but for the number of "
                "examples in the last.",
                received=f"{found} in batch {batch}, for {forms}",
                advice="Pad all of them to one length.",
            )
        return [part[row].astype(one.dtype) for part, one in zip(parts, like, strict=True)]


@dataclass
class _Reader:
    """Reads the batches of a Sequence with all random numbers seeded.

    Attributes:
        batches: the Sequence.
        drew: whether a batch was drawn in part, as far as seeds tell.
    """

    batches: Any
    drew: bool = False
    _turn: tuple[int, int] | None = None
    _held: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    @property
    def of_keras(self) -> bool:
        """Whether it is Keras' ImageDataGenerator, which draws also where it changes nothing."""
        return hasattr(self.batches, _GIVEN)

    @property
    def turns(self) -> bool:
        """Whether its author does something after each epoch."""
        own = getattr(type(self.batches), "on_epoch_end", None)
        return own is not getattr(tf.keras.utils.Sequence, "on_epoch_end", None)

    def turned(self, seed: int, epoch: int, number: int) -> Any:
        """A batch of an epoch, which `on_epoch_end` has begun.

        Args:
            seed: of the split.
            epoch: from 0.
            number: of the batch.
        """
        key = seed, epoch, number
        with _LOCK:
            if key not in self._held:
                if self._turn != (seed, epoch):
                    self.turn(seed, epoch)
                while len(self._held) >= _HELD:
                    del self._held[next(iter(self._held))]
                self._held[key] = self.read(*key)
            return self._held[key]

    def turn(self, seed: int, epoch: int) -> None:
        """Let the Sequence begin an epoch: many shuffle there."""
        with _seeded(seed, epoch):
            if self.turns:
                self.batches.on_epoch_end()
        self._turn = seed, epoch

    def read(self, seed: int, epoch: int, number: int) -> Any:
        """A batch, as the Sequence is now."""
        with _seeded(seed, epoch, number) as drew:
            if self.of_keras:
                setattr(self.batches, _GIVEN, epoch * len(self.batches) + number)
            batch = _batch_of(self.batches[number])
            self.drew |= drew()
        return batch


class _BatchStream(SeededStream):
    """What TensorFlow draws for one batch, in Python."""

    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """See Stream.

        Raises:
            RefusalError: a function is traced, which would draw this batch's numbers for ever.
        """
        if not tf.executing_eagerly():
            raise RefusalError(
                "A keras.utils.Sequence must draw outside of tf.function: what is traced would "
                "draw the same for all batches.",
                received=f"{operation} in a function that is traced",
                advice="Draw in Python, or in a tf.data.Dataset's map(…).",
            )
        return super().answer(operation, given)


@contextmanager
def _seeded(*key: int) -> Iterator[Callable[[], bool]]:
    """Seed what a Sequence may draw from; afterwards it goes on as before.

    Yields:
        What tells whether anything was drawn.
    """
    with _LOCK:
        of_numpy, of_python = np.random.get_state(), random.getstate()
        np.random.seed([one % 2**32 for one in key])  # the author draws from it
        random.seed(str(key))
        stream = _BatchStream([random.getrandbits(63), 0])
        begun = _places()
        try:
            with drawing_from(stream), refusals_as_they_are():
                yield lambda: stream.draws.count > 0 or _places() != begun
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)


def _places() -> tuple[Any, ...]:
    """Where NumPy's and Python's streams of numbers are."""
    _, words, *place = np.random.get_state()
    return (np.asarray(words).tobytes(), *place, random.getstate())


def _read_if_fixed(reader: _Reader) -> list[Any] | None:
    """All batches; None: they are others in another epoch."""
    read = []
    for number in range(len(reader.batches)):
        read.append(reader.read(0, 0, number))
        again = reader.of_keras or number < _AGAIN
        if again and not _equal(read[-1], reader.read(0, 1, number)):
            return None
        if reader.drew and not reader.of_keras:
            return None
    if reader.turns and not reader.of_keras:
        reader.turn(0, 1)
        turned = [reader.read(0, 0, number) for number in range(len(reader.batches))]
        if _rows(read) != _rows(turned):  # it chooses other examples, and not another order only
            return None
    return read


def _rows(batches: list[Any]) -> list[bytes]:
    """The examples of batches, in an order that does not depend on theirs."""
    found = []
    for batch in batches:
        columns = tf.nest.flatten(batch)
        found += [
            b"|".join(np.ascontiguousarray(column[row]).tobytes() for column in columns)
            for row in range(_count(batch))
        ]
    return sorted(hashlib.sha256(one).digest() for one in found)


def _check_seeded(reader: _Reader, kind: str) -> None:
    """Refuse a Sequence that is another one in the same epoch, or in one that was begun again."""
    if not _equal(reader.read(0, 0, 0), reader.read(0, 0, 0)):
        raise RefusalError(
            "What a keras.utils.Sequence draws must follow the seeds of NumPy, Python or "
            "TensorFlow, so that every process reads the same batch.",
            received=f"{kind}, whose first batch is another one with the same seeds",
            advice="Draw by np.random.…, random.… or tf.random.…, not by a generator of its own.",
        )
    reader.turn(0, 1)
    begun = _state(reader.batches)
    reader.turn(0, 2)
    reader.turn(0, 1)
    again = _state(reader.batches)
    if changed := [name for name in begun if begun[name] != again.get(name)]:
        raise RefusalError(
            "on_epoch_end of a keras.utils.Sequence that draws must depend on its random numbers "
            "alone, so that a restart begins the same epoch.",
            received=f"{kind}.{changed[0]}, another one when an epoch is begun again",
            advice="Make the order anew: self.order = np.random.permutation(n), instead of "
            "shuffling the last one; and count no epochs there.",
        )


def _state(batches: Any) -> dict[str, Any]:
    """What a Sequence holds, so that it can be compared."""
    held = vars(batches).items()
    return {name: _told(value) for name, value in held if name not in (_READER, _GIVEN)}


def _told(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return hashlib.sha256(value.tobytes()).digest()
    if isinstance(value, np.ndarray | list | tuple):
        return [_told(one) for one in value]
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items()}
    plain = isinstance(value, int | float | complex | str | bytes | np.generic)
    return value if plain or value is None else id(value)


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _count(batch: Any) -> int:
    """Examples of a batch, the same in all its arrays."""
    lengths = {len(part) for part in tf.nest.flatten(batch)}
    if len(lengths) != 1:
        raise ValueError(f"arrays of {' and '.join(map(str, sorted(lengths)))} examples in a batch")
    return lengths.pop()


def _batch_of(given: Any) -> Any:
    """A batch as a tuple of nests of arrays; what is None at its end is left away."""
    given = as_tuple(given)
    parts = list(given) if isinstance(given, tuple) else [given]  # inputs alone
    while parts and parts[-1] is None:
        parts.pop()
    return tuple(tf.nest.map_structure(np.asarray, part) for part in parts)
