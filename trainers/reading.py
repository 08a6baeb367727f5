"""How a training reads its author's data: the same in every process, and from where it goes on.

An iterator that is made while TensorFlow's operations are deterministic reads the same in every
process, if the global seeds are the same. The steps are not made deterministic: that would change
the gradient of softmax cross-entropy, and be slow on a GPU.

Changed here: `tf.data.Dataset.__iter__`, which both Keras call, and where Keras 3 begins an epoch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Private, TensorFlow 2.21: to turn determinism off again is not public.
from tensorflow.python.framework.config import disable_op_determinism

from ringside_core.keras import VERSION, tf
from ringside_core.specs import RefusalError
from trainers.shard import is_sharded

_iterate = tf.data.Dataset.__iter__


@dataclass
class Place:
    """From where a training goes on in its data, as its checkpoints say it.

    Attributes:
        before: iterators that were made before the one that it goes on with, in their order, which
            decides what a shuffle draws: t of the training, v of an evaluation.
        after: those that were made after it.
        batches: that it has read of that iterator.
        of_epoch: that an epoch has had; 0: not known.
    """

    before: str = ""
    after: str = ""
    batches: int = 0
    of_epoch: int = 0


@dataclass
class Reading:
    """How far a training has read its data.

    Attributes:
        again: each epoch makes another iterator of the data; else it goes on with the same.
        place: from which it goes on; None: it begins.
        held_out: the author's data set for evaluations; None: there is none.
        updates: of the epoch that were made before.
        held: the first batch is fed again and again.
        as_written: it is read without the determinism of operations.
        made: the iterators so far, as in Place.
        read: batches that the newest one of the training has given.
        of_epoch: as in Place.
    """

    again: bool
    place: Place | None = None
    held_out: Any = None
    updates: int = 0
    held: bool = False
    as_written: bool = False
    made: str = ""
    read: int = 0
    _begun: bool = False
    _first: Any = None
    of_epoch: int = 0

    def iterator(self, data: Any) -> Any:
        """An iterator of the training data, from where the training goes on."""
        place, left_out = self.place, 0
        if place is not None:
            if self.again and VERSION == 2 and not self._begun:
                self._begun = True
                return iter(())  # legacy Keras makes one more before the first epoch's
            self._make(place.before, data)
            left_out = place.batches
        self.made, self.read = f"{self.made}t", left_out
        if self.held:
            data = self._first_again(data)
        newest = _iterate(data.skip(left_out) if left_out else data)
        if place is not None:
            self._make(place.after, data)
            self.place = None
        return newest

    def _first_again(self, data: Any) -> Any:
        """The first batch again and again, as many as the data have."""
        if not self.of_epoch:
            raise RefusalError(
                "A run without input needs data whose number of batches is known.",
                received="data of unknown cardinality",
                advice="Add .apply(tf.data.experimental.assert_cardinality(n)).",
            )
        if self._first is None:  # in each epoch it would be read again, which may cost much
            self._first = data.take(1).cache()
        return self._first.repeat(self.of_epoch if self.again else None)

    def leave_out(self, data: Any) -> None:
        """Of a training that was over: what it draws from a shuffle that others use is drawn."""
        if self.place is not None:
            self._make(self.place.before + "t" * (not self.again) + self.place.after, data)

    def _make(self, iterators: str, data: Any) -> None:
        for kind in iterators:
            of = data if kind == "t" else self.held_out
            if isinstance(of, tf.data.Dataset):
                _iterate(of)
        self.made += iterators

    def where(self, *, epoch_is_over: bool) -> Place:
        """From where a training can go on."""
        if epoch_is_over and self.again:
            return Place(self.made, of_epoch=self.of_epoch)
        before, _, after = self.made.rpartition("t")
        return Place(before, after, self.read, self.of_epoch)


_training: list[tuple[Reading, list[Any]]] = []
# The newest iterator of a training is kept until the next one is made, and the last one for good.
# To free it, TensorFlow waits for the present period of its autotuner (`Model::OptimizeLoop`). That
# doubles from 10 ms to a minute while it lives, and `fit` would return so much later.
# Those of parameter servers' workers likewise: a worker would not hear that the training is over.
newest: list[Any] = []


@contextmanager
def reading(place: Reading, strategy: Any) -> Iterator[None]:
    """Within this block Keras' `fit` reads from this place.

    Args:
        place: of the training.
        strategy: of its model. The first data set that Keras gives it is the training's; callbacks
            and validations may read others.
    """
    known: list[Any] = []
    upstream = strategy.experimental_distribute_dataset

    def noted(data: Any, options: Any = None) -> Any:
        found = upstream(data, options)
        if not known:
            known.append(found)
        return found

    strategy.experimental_distribute_dataset = noted
    _training.append((place, known))
    try:
        yield
    finally:
        _training.pop()
        strategy.experimental_distribute_dataset = upstream


def _place_of(data: Any) -> Reading | None:
    """Of the training's data set; None: it is another."""
    place, known = _training[-1] if _training else (None, [])
    return place if known and data is known[0] else None


def _iterated(data: Any) -> Any:
    if not tf.executing_eagerly():
        return _iterate(data)
    place = _place_of(data)
    if place is None and is_sharded(data):
        raise RefusalError(
            "Data that ringside.shard has divided are for ringside.fit to train on.",
            received="an evaluation, a prediction or a loop over them",
            advice="Leave ringside.shard out there.",
        )
    if place is None or not place.as_written:
        tf.config.experimental.enable_op_determinism()
    try:
        if place is not None:
            newest[:] = [place.iterator(data)]
            return newest[0]
        if _training:
            _training[-1][0].made += "v"
        return _iterate(data)
    finally:
        disable_op_determinism()


def _let_keras3_begin_within_an_epoch() -> None:
    """Keras 3 has no way for it. Private: Keras 3.15."""
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    upstream = TFEpochIterator._enumerate_iterator

    def enumerated(epoch: Any) -> Iterator[tuple[int, int, Any]]:
        reading = _place_of(epoch._distributed_dataset)
        if reading is None or "t" in reading.made or reading.place is None:
            yield from upstream(epoch)
            return
        batches, updates = reading.place.batches, reading.updates
        given, left = epoch.steps_per_epoch, epoch.num_batches
        if left is not None:
            epoch._current_iterator = iter(epoch._distributed_dataset)
            epoch._steps_seen = batches
            epoch.steps_per_epoch = left - updates
        try:
            for first, last, iterator in upstream(epoch):
                if left is None:  # what it has seen when the data end is what later epochs get
                    epoch._steps_seen += updates
                yield first + updates, last + updates, iterator
        finally:
            epoch.steps_per_epoch = given

    TFEpochIterator._enumerate_iterator = enumerated


def rows_of_arrays(arguments: dict[str, Any]) -> int | None:
    """Rows of arrays that are trained on; None: the data are no arrays."""
    flat = tf.nest.flatten(arguments.get("x"))
    if not flat or not all(hasattr(part, "shape") and len(part.shape) for part in flat):
        return None
    rows = int(flat[0].shape[0])
    split = arguments.get("validation_split") or 0.0
    return int(rows * (1.0 - split)) if split else rows  # as Keras divides them


def read_the_same() -> None:
    """From now on data are read the same in every process, and from where a training goes on."""
    if tf.data.Dataset.__iter__ is _iterated:
        return
    tf.data.Dataset.__iter__ = _iterated
    if VERSION == 3:
        _let_keras3_begin_within_an_epoch()
