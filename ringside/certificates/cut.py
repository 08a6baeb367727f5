"""A fit on few of its author's batches, so that its updates can be compared one by one."""

from functools import cached_property
from typing import Any

import numpy as np

from ringside_core.keras import tf
from trainers.fit_call import FitCall
from trainers.reading import rows_of_arrays

_VALIDATION_BATCHES = 2


def cut(call: FitCall, *, whole: int, tail: int, epochs: int) -> FitCall:
    """The same training on the first batches of its data.

    Args:
        call: of `ringside.fit`.
        whole: batches that stay as they are, at most.
        tail: rows of the batch after them, at most; 0: there is none. Of data that never have a
            short batch it has none either.
        epochs: passes over them.
    """
    call = _validated_apart(call)
    x = call.arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        found = _of_dataset(call, whole, tail)
    elif isinstance(x, tf.keras.utils.Sequence):
        found = call.given(x=_Cut(x, whole, tail))
    elif (rows := rows_of_arrays(call.arguments)) is not None:
        batch = call.global_batch or 1
        short = min(tail, batch) if rows % batch else bool(tail) * batch
        found = _first_rows(call, min(rows, whole * batch + short))
    else:
        found = call.given(steps_per_epoch=min(whole, call.steps_per_epoch or whole))
    first = found.first_epoch
    return _fewer_to_validate(found).given(
        epochs=first + epochs, callbacks=None, validation_freq=None, verbose=0
    )


def _of_dataset(call: FitCall, whole: int, tail: int) -> FitCall:
    x, steps = call.arguments["x"], call.steps_per_epoch
    if call.arguments.get("steps_per_epoch") is not None:  # the data go on
        return call.given(steps_per_epoch=min(whole + bool(tail), steps or whole))
    specs = tf.nest.flatten(x.element_spec)
    by_rows = all(isinstance(s, tf.TensorSpec) and s.shape.rank is not None for s in specs) and any(
        s.shape.rank and s.shape[0] is None for s in specs
    )
    if not (tail and by_rows):
        return call.given(x=x.take(whole))

    def rows(k: Any, batch: Any) -> Any:
        most = tf.where(k < whole, tf.int32.max, tail)
        return tf.nest.map_structure(
            lambda t: t[:most] if t.shape.rank and t.shape[0] is None else t, batch
        )

    return call.given(x=x.take(whole + 1).enumerate().map(rows))


class _Cut(tf.keras.utils.Sequence):
    """The first batches of a Sequence."""

    def __init__(self, whole: Any, batches: int, tail: int) -> None:
        super().__init__()
        self._all, self._batches, self._tail = whole, batches, tail

    def __len__(self) -> int:
        return min(len(self._all), self._batches + bool(self._tail))

    @cached_property
    def _has_short_batches(self) -> bool:
        """As arrays: Keras' own Sequences end with what is left."""
        first, last = (self._all[k] for k in (0, len(self._all) - 1))
        pairs = zip(tf.nest.flatten(first), tf.nest.flatten(last), strict=False)
        return any(len(few) < len(many) for many, few in pairs if np.ndim(many))

    def __getitem__(self, number: int) -> Any:
        batch = self._all[number]
        if number < self._batches or not self._has_short_batches:
            return batch
        return tf.nest.map_structure(lambda array: array[: self._tail], batch)

    def on_epoch_end(self) -> None:
        """The author's."""
        self._all.on_epoch_end()


def _first_rows(call: FitCall, rows: int) -> FitCall:
    kept = tf.nest.map_structure(lambda array: array[:rows], call.by_rows)
    return call.given(**kept)


def _validated_apart(call: FitCall) -> FitCall:
    """With validation data where a part of arrays was to be split off."""
    split = call.arguments.get("validation_split")
    rows = rows_of_arrays(call.arguments)
    if not split or rows is None:
        return call
    given = tuple(call.by_rows.values())
    held_out = tf.nest.map_structure(lambda array: array[rows:], given)
    return _first_rows(call, rows).given(validation_split=None, validation_data=held_out)


def _fewer_to_validate(call: FitCall) -> FitCall:
    data, steps = call.arguments.get("validation_data"), call.arguments.get("validation_steps")
    if data is None:
        return call
    if isinstance(data, tf.data.Dataset):
        return call.given(validation_data=data.take(_VALIDATION_BATCHES))
    if isinstance(data, tuple) and rows_of_arrays({"x": data}) is not None:
        batch = call.arguments.get("validation_batch_size") or call.global_batch or 1
        rows = _VALIDATION_BATCHES * batch + 1
        return call.given(
            validation_data=tf.nest.map_structure(lambda array: array[:rows], data),
            validation_steps=None,
        )
    return call.given(validation_steps=min(steps or _VALIDATION_BATCHES, _VALIDATION_BATCHES))
