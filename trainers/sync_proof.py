"""Proof that replicas stay equal: gradients that are not reduced must not go unnoticed.

Where an optimizer applies gradients in a way that no hook sees, nothing would be reduced, nothing
would say so, and each rank would train alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.keras import KERAS, optimizers_of
from ringside_core.specs import EpochRecord, RecordInProgress, RefusalError
from trainers.driver import DivergedError, Listener

AFTER_STEPS = 2
# Relative to the change since the start. Replicas that reduce apply the same bytes, so they differ
# by 0. Replicas that do not reduce differ by about the change itself.
TOLERANCE = 1e-3


class ReplicasDifferError(RuntimeError):
    """The replicas of a synchronous run hold different weights: gradients were not reduced."""


class NothingTrainedError(RefusalError):
    """The training has not changed any weight: no error of a program, and nothing to compare."""

    def __init__(self, model: Any) -> None:
        """Of a model whose training is over."""
        rates = [one.learning_rate for one in optimizers_of(model)]
        # A legacy optimizer shows its schedule.
        numbers = [float(rate.numpy()) for rate in rates if hasattr(rate, "numpy")]
        still = numbers and not any(numbers)
        super().__init__(
            "A training must change a weight.",
            received="a learning rate of 0"
            if still
            else "the same weights as before the first step",
            advice="Give the optimizer a larger one."
            if still
            else "Look whether the loss depends on the weights: all gradients may be 0.",
        )


class SyncProof(Listener):
    """Compares the weights of all replicas after the first steps and at the end of training."""

    def __init__(self, record: RecordInProgress, *, must_train: bool = True) -> None:
        """Write the final difference into this record.

        Args:
            record: of this process.
            must_train: whether a weight must be another at the end; a part of a training may be
                too short for an update.
        """
        self._record, self._must_train = record, must_train
        self._steps = 0

    def on_start(self) -> None:
        """Keep the initial weights."""
        self._initial = [np.asarray(value, np.float64) for value in self._weights()]

    def on_step(self, done: int) -> None:
        """Compare once, after AFTER_STEPS executions."""
        self._steps += 1
        if self._steps == AFTER_STEPS:
            self._compare()

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Compare now if the first epoch was shorter; later it would be in timed steps."""
        if self._steps < AFTER_STEPS:
            self._steps = AFTER_STEPS
            self._compare()

    def on_end(self) -> None:
        """Compare the final weights."""
        self._record.replica_deviation = self._compare()
        pairs = list(zip(self._weights(), self._initial, strict=True))
        goes_on = self.training.spec.resume_from is not None  # it may have changed them before
        wanted = self._must_train and pairs and not goes_on
        if wanted and all(np.array_equal(now, before) for now, before in pairs):
            raise NothingTrainedError(self.training.model)

    def _compare(self) -> float:
        return check_replicas_equal(self.training.model, self.training.backend, self._initial)

    def _weights(self) -> list[NDArray[Any]]:
        """The trainable weights of the first replica of this process."""
        local_values = self.training.backend.local_values
        return [local_values(v)[0] for v in KERAS.trainable_of(self.training.model)]


def check_replicas_equal(model: Any, backend: Backend, initial: list[NDArray[Any]]) -> float:
    """Compare the trainable weights of all replicas of all processes.

    Args:
        model: of this process.
        backend: started.
        initial: the weights before the first step, as `trainable_weights` orders them.

    Returns:
        The largest absolute difference between any replica's weights and the first one's.

    Raises:
        DivergedError: in every process, if a weight of any replica is no number.
        ReplicasDifferError: in every process, naming the worst variable.
    """
    deviations, changes, numbers = [], [], True
    for variable, start in zip(KERAS.trainable_of(model), initial, strict=True):
        local = [np.asarray(value, np.float64) for value in backend.local_values(variable)]
        reference = np.asarray(backend.broadcast(local[0]))
        # numpy's maximum, not Python's, which would pass over a NaN
        with np.errstate(invalid="ignore"):  # infinity less infinity
            deviations.append(float(np.max([_largest(value - reference) for value in local])))
            changes.append(_largest(reference - start))
        numbers = numbers and all(np.isfinite(value).all() for value in local)
    # A number of its own: a library's maximum may pass over a NaN.
    *worst, diverged = backend.all_reduce(np.array([*deviations, float(not numbers)]), "max")
    if diverged:
        raise DivergedError("weights are no longer numbers")
    for variable, deviation, change in zip(KERAS.trainable_of(model), worst, changes, strict=True):
        if not deviation <= TOLERANCE * change:  # so that NaN fails too
            raise ReplicasDifferError(
                f"the replicas' weights differ by {deviation:.3g} in {variable.name}, which has "
                f"changed by {change:.3g} since the start: gradients were not reduced"
            )
    return float(np.max(worst, initial=0.0))


def _largest(array: NDArray[Any]) -> float:
    return float(np.max(np.abs(array))) if array.size else 0.0
