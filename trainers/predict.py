"""Predictions for exactly all examples of a split, in the order of the source, on any backend."""

from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.pipeline import Pipeline
from trainers.ledger import LedgerError, feeding

LARGEST_TABLE_BYTES = 2**28
"""A replica adds a table of all examples in each step; larger tables would be too slow."""


class Prediction:
    """What a model predicts for each example of a split; each example is asked once.

    The predictions go into a table by example id. Each backend sums the tables of its replicas, as
    it sums any metric. So order, padding and unequal shares need no special case.
    """

    def __init__(self, model: Any, backend: Backend, pipeline: Pipeline, *, like: Any) -> None:
        """Make the tables for the predictions.

        Args:
            model: compiled.
            backend: on which the model was built.
            pipeline: of the split.
            like: nest of tensors that the model has predicted for some examples
                (`Evaluation.predictions`).

        Raises:
            RefusalError: more predictions than LARGEST_TABLE_BYTES, outputs that are not numbers,
                or a shard policy that does not feed each example exactly once.
        """
        self._backend, self._model = backend, model
        self._steps = pipeline.shares.steps_per_epoch(backend.num_readers)
        examples, fed = pipeline.num_examples, pipeline.shares.epoch_examples(backend.num_readers)
        if fed != examples:
            raise RefusalError(
                "Predictions need a shard policy that feeds each example once.",
                received=f"shard={pipeline.options.shard!r}: {fed} of {examples} examples",
                advice="Use --shard batch.",
            )
        self._structure = like
        outputs = tf.nest.flatten(like)
        _check_outputs(outputs, examples)
        with backend.scope():
            self._tables = [
                Table(f"ringside_output_{i}", (examples, *output.shape[1:]), output.dtype)
                for i, output in enumerate(outputs)
            ]
            self._times = Table("ringside_times_fed", (examples,), tf.int64)
        self._run = backend.stepper(self._step, pipeline.dataset)

    def _step(self, data: Any) -> None:
        x, *_, ids = data
        with feeding(ids):
            outputs = tf.nest.flatten(self._model(x, training=False))
        for table, output in zip(self._tables, outputs, strict=True):
            table.update_state(ids, output)
        self._times.update_state(ids, tf.ones_like(ids))

    def __call__(self) -> Any:
        """Run once over the split.

        Returns:
            The model's nest of outputs as arrays [num_examples, …], in the order of the source.
        """
        metrics = [*self._tables, self._times]
        with self._backend.scope():
            for metric in metrics:
                metric.reset_state()
        self._run(self._steps)
        results = self._backend.merged_results(metrics)
        times = results[self._times.name]
        if (times != 1).any():
            wrong = np.flatnonzero(times != 1)[:5].tolist()
            raise LedgerError(f"examples {wrong} were not fed once, but {times[wrong]} times")
        arrays = [results[table.name] for table in self._tables]
        return tf.nest.pack_sequence_as(self._structure, arrays)


class Table(tf.keras.metrics.Metric):
    """A row for each example, and none for padding (id below 0)."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self._table_shape = shape
        self._rows = self.add_weight(name="rows", shape=shape, initializer="zeros", dtype=dtype)

    def update_state(self, ids: Any, rows: Any) -> Any:
        """Put down the rows [batch, …] of these ids [batch]."""
        true = tf.where(ids >= 0)
        return self._rows.assign_add(
            tf.scatter_nd(
                tf.gather_nd(ids, true)[:, tf.newaxis],
                tf.gather_nd(rows, true),
                tf.constant(self._table_shape, tf.int64),
            )
        )

    def reset_state(self) -> None:
        """Forget all rows."""
        self._rows.assign(tf.zeros(self._table_shape, self._rows.dtype))

    def result(self) -> Any:
        """The table [num_examples, …]."""
        return tf.identity(self._rows)


def _check_outputs(outputs: list[Any], examples: int) -> None:
    for output in outputs:
        if not (output.dtype.is_floating or output.dtype.is_integer):
            raise RefusalError(
                "Predictions are collected of outputs that are numbers.", received=output.dtype.name
            )
    size = sum(examples * int(np.prod(o.shape[1:])) * o.dtype.size for o in outputs)
    if size > LARGEST_TABLE_BYTES:
        raise RefusalError(
            f"Predictions of a split may take {LARGEST_TABLE_BYTES} bytes: each replica adds a "
            "table of all of them in each step.",
            received=f"{size} bytes for {examples} examples",
            advice="Take a part of the split.",
        )
