"""Watches a training: everything that an update changes is read after each update."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.verify.trace import Trace
from ringside_core.keras import tf, variable_names, variables_of
from trainers.training import Training

# Elements of all variables together that are kept of every update: 20 updates of 500,000 float64
# are 80 MB. Of larger models a fixed sample is kept, and everything after the last update.
KEPT_ELEMENTS = 500_000


class Recorder(tf.keras.callbacks.Callback):
    """Fills a trace while `fit` runs. Every process must have one: reading may be a collective."""

    def __init__(self, training: Training, trace: Trace) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it reads no logs
        self._training, self._backend, self._trace = training, training.backend, trace
        self._rows: dict[str, list[NDArray[Any]]] = {}
        self._slot_rows: dict[str, list[NDArray[Any]]] = {}
        self._losses: list[float] = []
        self._gaps: list[float] = []
        self._seen = (0.0, 0)
        total = sum(int(np.prod(w.shape)) for w in training.model.weights)
        self._stride = max(1, -(-total // KEPT_ELEMENTS))

    def on_train_begin(self, logs: Any = None) -> None:
        """Note the initial weights."""
        for name, (value, _) in self._weights():
            self._rows[name] = [self._sampled(value)]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The totals begin at zero."""
        self._seen = (0.0, 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note everything that this update has changed."""
        self._backend.barrier()  # a dispatched update is not a finished one
        gap = 0.0
        for name, (value, difference) in self._weights():
            self._rows[name].append(self._sampled(value))
            gap = max(gap, difference)
        for name, (value, difference) in self._slots():
            self._slot_rows.setdefault(name, []).append(self._sampled(value))
            gap = max(gap, difference)
        self._gaps.append(gap)
        self._losses.append(self._loss())

    def finish(self) -> None:
        """Put into the trace what was noted, and the whole of the final values."""
        trace = self._trace
        trace.weights = {name: np.stack(rows) for name, rows in self._rows.items()}
        trace.slots = {name: np.stack(rows) for name, rows in self._slot_rows.items()}
        trace.loss, trace.replica_gap = np.array(self._losses), np.array(self._gaps)
        trace.final = {name: value for name, (value, _) in self._weights()}

    def _weights(self) -> Iterable[tuple[str, tuple[NDArray[Any], float]]]:
        model = self._training.model
        trainable = {id(variable) for variable in model.trainable_variables}
        for index, variable in enumerate(model.weights):
            read = self._one_value if id(variable) in trainable else self._mean_value
            yield f"{index:03d} {variable.name.removesuffix(':0')}", read(variable)

    def _slots(self) -> Iterable[tuple[str, tuple[NDArray[Any], float]]]:
        optimizer = self._training.model.optimizer
        pairs = zip(variable_names(optimizer), variables_of(optimizer), strict=True)
        for index, (name, variable) in enumerate(pairs):
            yield f"{index:03d} {name}", self._one_value(variable)

    def _one_value(self, variable: Any) -> tuple[NDArray[Any], float]:
        """What all replicas should hold alike: the first one's, and how far others are from it."""
        first, *others = (np.asarray(value) for value in self._backend.local_values(variable))
        return first, max((_difference(first, other) for other in others), default=0.0)

    def _mean_value(self, variable: Any) -> tuple[NDArray[Any], float]:
        """What each replica keeps for itself, as moving statistics: their mean."""
        local = [np.asarray(value) for value in self._backend.local_values(variable)]
        if local[0].dtype.kind != "f":
            return local[0], 0.0
        return self._backend.all_reduce(np.mean(local, axis=0), "mean"), 0.0

    def _loss(self) -> float:
        """Mean loss of the examples of the last update, over all replicas."""
        totals = self._training.totals
        loss_sum = float(self._backend.summed_state(totals.loss_sum)[0])
        count = int(self._backend.summed_state(totals.ledger)[0][0])
        loss_before, count_before = self._seen
        self._seen = (loss_sum, count)
        return (loss_sum - loss_before) / max(1, count - count_before)

    def _sampled(self, value: NDArray[Any]) -> NDArray[Any]:
        return value.reshape(-1)[:: self._stride].copy()


def _difference(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Largest absolute difference; infinite where either is not a number."""
    if not one.size:
        return 0.0
    largest = float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))))
    return largest if np.isfinite(largest) else float("inf")
