"""Mistakes planted in the data set itself, behind everything that Ringside computes."""

from typing import Any

from ringside_core.keras import tf
from ringside_core.workloads.pipeline import Pipeline

TWICE, SKIPPED = 4, 3
"""Numbers of batches of a reader, from 0."""

_honest = Pipeline.dataset


def feed_twice() -> None:
    """In training each reader gets its batch TWICE again, in place of the next one."""

    def dataset(self: Pipeline, *place: Any, **begin: Any) -> Any:
        batches = _honest(self, *place, **begin)
        if not self.training:
            return batches
        repeated = batches.skip(TWICE).take(1)
        whole = batches.take(TWICE + 1).concatenate(repeated)
        return _endless(whole.concatenate(batches.skip(TWICE + 2)))

    Pipeline.dataset = dataset  # type: ignore[method-assign]


def skip_one() -> None:
    """In training each reader never gets its batch SKIPPED."""

    def dataset(self: Pipeline, *place: Any, **begin: Any) -> Any:
        batches = _honest(self, *place, **begin)
        if not self.training:
            return batches
        return _endless(batches.take(SKIPPED).concatenate(batches.skip(SKIPPED + 1)))

    Pipeline.dataset = dataset  # type: ignore[method-assign]


def feed_honestly() -> None:
    """Take the mistake back."""
    Pipeline.dataset = _honest  # type: ignore[method-assign]


def _endless(dataset: Any) -> Any:
    return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
