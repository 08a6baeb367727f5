"""Proof that replicas stay equal: gradients that are not reduced must not go unnoticed.

Horovod hooks Keras' optimizer; on an optimizer without that hook nothing would be reduced, nothing
would say so, and each rank would train alone (FIELD.md, 16).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.keras import tf

AFTER_STEPS = 2
# Of the change since the start. Replicas that reduce apply the same bytes, so 0 is what is seen;
# replicas that do not differ by about the change itself.
TOLERANCE = 1e-3


class ReplicasDifferError(RuntimeError):
    """Replicas of a synchronous run hold different weights: their gradients were not reduced."""


class NothingTrainedError(RuntimeError):
    """A whole training has moved no weight."""


class SyncProof(tf.keras.callbacks.Callback):
    """After the first steps, and at the end of training, all replicas' weights are compared."""

    def __init__(self, backend: Backend, initial: list[NDArray[Any]]) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it reads no logs, so none need to be copied
        self._backend = backend
        self._initial = initial
        self._steps = 0
        self.deviation: float | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compare once, after AFTER_STEPS calls: updates, or executions of several."""
        self._steps += 1
        if self._steps == AFTER_STEPS:
            check_replicas_equal(self.model, self._backend, self._initial)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compare now if the first epoch was shorter: later it would be within a timed one."""
        if self._steps < AFTER_STEPS:
            self._steps = AFTER_STEPS
            check_replicas_equal(self.model, self._backend, self._initial)

    def on_train_end(self, logs: Any = None) -> None:
        """Compare the final weights; the largest difference stays in `deviation`."""
        self.deviation = check_replicas_equal(self.model, self._backend, self._initial)
        now = [self._backend.local_values(v)[0] for v in self.model.trainable_variables]
        if now and all(np.array_equal(a, b) for a, b in zip(now, self._initial, strict=True)):
            raise NothingTrainedError("no weight has changed since the start of training")


def check_replicas_equal(model: Any, backend: Backend, initial: list[NDArray[Any]]) -> float:
    """Compare the trainable weights of all replicas of all processes.

    Args:
        model: of this process.
        backend: started.
        initial: the weights before the first step, as `trainable_weights` orders them.

    Returns:
        The largest absolute difference between any replica's weights and the first one's.

    Raises:
        ReplicasDifferError: in every process, naming the worst variable.
    """
    deviations, changes = [], []
    for variable, start in zip(model.trainable_variables, initial, strict=True):
        local = [np.asarray(value, np.float64) for value in backend.local_values(variable)]
        reference = np.asarray(backend.broadcast(local[0]))
        # numpy's maximum, not Python's, which would pass over a NaN
        deviations.append(float(np.max([_largest(value - reference) for value in local])))
        changes.append(_largest(reference - start))
    worst = backend.all_reduce(np.array(deviations), "max")
    for variable, deviation, change in zip(model.trainable_variables, worst, changes, strict=True):
        if not deviation <= TOLERANCE * change:  # so that NaN fails too
            raise ReplicasDifferError(
                f"the replicas' weights differ by {deviation:.3g} in {variable.name}, which has "
                f"changed by {change:.3g} since the start: gradients were not reduced"
            )
    return float(np.max(worst, initial=0.0))


def _largest(array: NDArray[Any]) -> float:
    return float(np.max(np.abs(array))) if array.size else 0.0
