"""The end of an epoch: validation, and the epoch's record."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import EpochRecord
from trainers.checkpoint import write_arrays
from trainers.clock import Clock
from trainers.epoch_totals import BegunEpoch, EpochTotals
from trainers.ledger import LedgerError, digest, fed_ids
from trainers.training import FitResult, Training


class DivergedError(FloatingPointError):
    """A loss or a metric is no longer a number."""


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
        run_dir: Path,
        totals: EpochTotals,
        begun: BegunEpoch | None,
    ) -> None:
        super().__init__()
        self._clock, self._training, self._result = clock, training, result
        self._backend, self._run_dir = training.backend, run_dir
        self._totals, self._begun = totals, begun
        self._examples = training.train.epoch_examples(training.backend.num_readers)
        self._validation_examples = training.validation.epoch_examples(training.backend.num_readers)
        self._process_start, self._on_epoch = process_start, on_epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count from zero, in the first epoch of a resumed run from where it was."""
        self._totals.begin(self._begun)
        self._begun = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Validate and record."""
        totals, begun = self._training.totals, self._totals.begun
        here = self._totals.local_ledgers()
        merged = self._totals.results()
        if totals.fed is not None:
            self._keep_list(epoch, fed_ids(merged.pop(totals.fed.name)))
        fed = digest(merged.pop(totals.ledger.name))
        before = 0 if begun is None else begun.examples
        loss = float(merged.pop(totals.loss_sum.name)) / max(1, fed.count)
        train = {"loss": loss, **{name: float(value) for name, value in merged.items()}}
        expected = self._examples
        planned = self._training.spec.ablation != "no_input"
        if planned and self._backend.capabilities.synchronous and fed.count != expected:
            raise LedgerError(
                f"epoch {epoch + 1} was fed {fed.count} examples, its plan holds {expected}"
            )
        beside_s = self._clock.before_s + time.perf_counter() - self._clock.stopped_at
        self._backend.average_statistics(self.model)
        validation, counted = self._training.evaluate()
        if counted != self._validation_examples:
            raise LedgerError(
                f"the validation of epoch {epoch + 1} was fed {counted} examples, its plan holds "
                f"{self._validation_examples}"
            )
        ended = {**train, **{f"val_{name}": value for name, value in validation.items()}}
        if not np.isfinite(list(ended.values())).all():
            raise DivergedError(f"epoch {epoch + 1} ended with {ended}")
        if logs is not None:
            logs.clear()
            logs.update(ended)  # for TensorBoard, which stands behind
        record = EpochRecord(
            steps=self._clock.steps,
            examples=fed.count - before,
            resumed_examples=before,
            train_s=self._clock.train_s,
            beside_s=beside_s,
            step_end_s=self._clock.step_end_s,
            end_since_process_start_s=time.time() - self._process_start,
            train=train,
            validation=validation,
            validation_examples=counted,
            # Of one batch fed again and again a ledger says nothing.
            ledger=fed if planned else None,
            ledger_here=here if planned else (),
            validation_ledger=self._training.evaluate.ledger,
            steps_per_time=self._training.spec.steps_per_execution,
            sent_bytes=self._clock.sent_bytes,
        )
        self._result.first_step_done = self._clock.first_step_done
        self._result.epochs.append(record)
        self._on_epoch(epoch, record)

    def _keep_list(self, epoch: int, ids: NDArray[Any]) -> None:
        self._result.fed.append(ids)
        if self._backend.is_chief:
            write_arrays(self._run_dir / "ledger" / f"epoch-{epoch + 1:04d}.npz", {"fed": ids})
