"""The end of an epoch: validation, and the epoch's record."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from legacy_keras import tf
from specs import EpochRecord
from trainers.clock import Clock
from trainers.ledger import digest
from trainers.training import FitResult, Training


class DivergedError(FloatingPointError):
    """A loss or a metric is no longer a number."""


class LedgerError(RuntimeError):
    """An epoch was not fed the examples that the plan holds."""


class EpochEnd(tf.keras.callbacks.Callback):
    """Validates and writes the epoch's record; stands behind the clock, which stops first."""

    def __init__(
        self,
        *,
        clock: Clock,
        training: Training,
        process_start: float,
        on_epoch: Callable[[int, EpochRecord], None],
        result: FitResult,
    ) -> None:
        super().__init__()
        self._clock, self._training, self._result = clock, training, result
        self._backend, self._totals = training.backend, training.totals
        self._examples = training.train.epoch_examples(training.backend.num_readers)
        self._process_start, self._on_epoch = process_start, on_epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count from zero."""
        with self._backend.scope():
            self._totals.reset()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Validate and record."""
        totals = self._totals
        # Keras' own `loss` is a mean of batches; the one recorded is that of examples.
        metrics = [metric for metric in self.model.metrics if metric.name != "loss"]
        merged = self._backend.merged_results([*metrics, totals.ledger, totals.loss_sum])
        fed = digest(merged.pop(totals.ledger.name))
        loss = float(merged.pop(totals.loss_sum.name)) / max(1, fed.count)
        train = {"loss": loss, **{name: float(value) for name, value in merged.items()}}
        expected = self._examples
        if self._backend.capabilities.synchronous and fed.count != expected:
            raise LedgerError(
                f"epoch {epoch + 1} was fed {fed.count} examples, its plan holds {expected}"
            )
        self._backend.average_statistics(self.model)
        validation, counted = self._training.evaluate()
        ended = {**train, **{f"val_{name}": value for name, value in validation.items()}}
        if not np.isfinite(list(ended.values())).all():
            raise DivergedError(f"epoch {epoch + 1} ended with {ended}")
        if logs is not None:
            logs.update(ended)  # for TensorBoard, which stands behind
        record = EpochRecord(
            steps=len(self._clock.step_end_s),
            examples=fed.count,
            train_s=self._clock.train_s,
            step_end_s=self._clock.step_end_s,
            end_since_process_start_s=time.time() - self._process_start,
            train=train,
            validation=validation,
            validation_examples=counted,
            ledger=fed,
        )
        self._result.first_step_done = self._clock.first_step_done
        self._result.epochs.append(record)
        self._on_epoch(epoch, record)
