"""Iterators of distributed data sets, which are slow to free."""

from typing import Any


def keeping_iterators(batches: Any) -> Any:
    """A distributed dataset whose newest iterator lives until the next is made, or for ever.

    TensorFlow 2.18 runs an autotuner for the per-device datasets that the strategy adds, whose
    options nobody can set. Freeing their iterator waits for the autotuner's present period, which
    doubles from 10 ms to a minute while the iterator lives (`Model::OptimizeLoop`): `fit` would
    stand still for so long before it returns. The process ends with `os._exit`: nothing is freed.
    """
    key = id(batches)

    class Keeping(type(batches)):  # type: ignore[misc]
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            _NEWEST_ITERATOR[key] = (self, iterator)  # itself too, so that no other has its id
            return iterator

    batches.__class__ = Keeping
    return batches


_NEWEST_ITERATOR: dict[int, tuple[Any, Any]] = {}
