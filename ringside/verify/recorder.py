"""Listeners of a training that write what they see into a trace."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.verify.trace import Trace
from ringside_core.keras import (
    get_weights,
    lowest_bits,
    optimizer_variables,
    slot_names,
    slots_of,
    tf,
    trainable_of,
    weights_of,
)
from ringside_core.specs import EpochRecord, RecordInProgress
from trainers.driver import Listener
from trainers.predict import Prediction

# How many elements, over all variables, are kept after each update: 20 updates of 500,000 float64
# are 80 MB. Of larger models only a fixed sample is kept, and everything after the last update.
KEPT_ELEMENTS = 500_000


class Watch(Listener):
    """Keeps what a training was fed, and what its record holds."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._fed: list[NDArray[Any]] = []

    def on_fed(self, epoch: int, ids: NDArray[Any]) -> None:
        """Note which examples an epoch was fed."""
        self._fed.append(ids)

    def finish(self, record: RecordInProgress) -> None:
        """Write what was seen into the trace, also if the training failed."""
        trace, epochs = self._trace, record.epochs
        for group, attribute in (("metrics", "train"), ("evaluation", "validation")):
            rows = [getattr(epoch, attribute) for epoch in epochs]
            names = rows[0] if rows else {}
            setattr(trace, group, {name: np.array([row[name] for row in rows]) for name in names})
        if self._fed:
            trace.fed = np.stack(self._fed)
        trace.meta.update(
            final_digest=record.final_digest,
            train_examples=record.train_examples,
            goes_on=record.goes_on,
            updates=[epoch.steps for epoch in epochs],
            ledgers=[epoch.ledger.model_dump() if epoch.ledger else None for epoch in epochs],
            validation_ledgers=[
                epoch.validation_ledger.model_dump() if epoch.validation_ledger else None
                for epoch in epochs
            ],
            validation_examples=[epoch.validation_examples for epoch in epochs],
        )


class Ends(Watch):
    """Keeps also the loss before the first update."""

    def on_start(self) -> None:
        """Note the loss of the validation split, if there is one."""
        self._trace.meta["initial_loss"] = self.training.evaluate()[0].get("loss")


class Last(Watch):
    """Keeps also everything that the last update left.

    Every process must have one: reading may be a collective. Nothing is read before the end, so the
    training never waits for it.
    """

    def on_end(self) -> None:
        """Note weights and slots, and how far the replicas of this process are apart."""
        trace, gaps = self._trace, [0.0]
        for name, (value, gap) in self._weights():
            trace.final[name] = value
            gaps.append(gap)
        for name, (value, gap) in self._slots():
            trace.slots[name] = self._sampled(value)[np.newaxis]
            gaps.append(gap)
        trace.replica_gap = np.array([max(gaps)])

    def _weights(self) -> Iterable[tuple[str, tuple[NDArray[Any], float]]]:
        trainable = {id(variable) for variable in trainable_of(self.training.model)}
        for name, variable in self._named():
            read = self._one_value if id(variable) in trainable else self._mean_value
            yield name, read(variable)

    def _named(self) -> Iterable[tuple[str, Any]]:
        """The weights of the model by the names of their arrays."""
        for index, variable in enumerate(weights_of(self.training.model)):
            yield f"{index:03d} {variable.name.removesuffix(':0')}", variable

    def _slots(self) -> Iterable[tuple[str, tuple[NDArray[Any], float]]]:
        pairs = optimizer_variables(self.training.model, slot_names)
        for index, (name, variable) in enumerate(pairs):
            yield f"{index:03d} {name}", self._one_value(variable)

    def _one_value(self, variable: Any) -> tuple[NDArray[Any], float]:
        """A value that all replicas should share: the first one's, and how far others are off."""
        first, *others = (
            np.asarray(value) for value in self.training.backend.local_values(variable)
        )
        return first, max((difference(first, other) for other in others), default=0.0)

    def _mean_value(self, variable: Any) -> tuple[NDArray[Any], float]:
        """A value that each replica keeps for itself, such as moving statistics: the mean."""
        local = [np.asarray(value) for value in self.training.backend.local_values(variable)]
        if local[0].dtype.kind != "f":
            return local[0], 0.0
        return self.training.backend.all_reduce(np.mean(local, axis=0), "mean"), 0.0

    def _sampled(self, value: NDArray[Any]) -> NDArray[Any]:
        return value.reshape(-1)[:: self._stride].copy()

    @cached_property
    def _stride(self) -> int:
        total = sum(int(np.prod(w.shape)) for w in weights_of(self.training.model))
        return max(1, -(-total // KEPT_ELEMENTS))


class Recorder(Last):
    """Keeps also everything that each update changes."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._rows: dict[str, list[NDArray[Any]]] = {}
        self._slot_rows: dict[str, list[NDArray[Any]]] = {}
        self._losses: list[float] = []
        self._gaps: list[float] = []
        self._seen = (0.0, 0)
        self._started = False
        self._predict: Prediction | None = None

    def on_start(self) -> None:
        """Note the initial state, and what the model makes of the validation split with it."""
        training, self._started = self.training, True
        like = training.evaluate.predictions
        if like is not None:
            self._predict = Prediction(
                training.model, training.backend, training.validation, like=like
            )
        values, _ = training.evaluate()
        self._trace.before = {name: np.array(value) for name, value in values.items()}
        if not training.first_epoch:
            self._trace.before.update(self._predictions())
        for name, (value, _) in self._weights():
            self._rows[name] = [self._sampled(value)]
        for name, (value, _) in self._slots():
            self._slot_rows[name] = [self._sampled(value)]

    def on_epoch_begin(self, epoch: int) -> None:
        """The totals begin at zero."""
        self._seen = (0.0, 0)

    def on_step(self, done: int) -> None:
        """Note everything that this update has changed."""
        self.training.backend.barrier()  # a dispatched update is not a finished one
        gap = 0.0
        for name, (value, difference) in self._weights():
            self._rows[name].append(self._sampled(value))
            gap = max(gap, difference)
        for name, (value, difference) in self._slots():
            self._slot_rows[name].append(self._sampled(value))
            gap = max(gap, difference)
        self._gaps.append(gap)
        self._losses.append(self._loss())

    def on_end(self) -> None:
        """Note the predictions of the trained model."""
        self._trace.predictions = self._predictions()

    def finish(self, record: RecordInProgress) -> None:
        """Write what was seen, and all final values, into the trace."""
        if self._started:
            trace = self._trace
            trace.weights = {name: np.stack(rows) for name, rows in self._rows.items()}
            trace.slots = {name: np.stack(rows) for name, rows in self._slot_rows.items()}
            trace.loss, trace.replica_gap = np.array(self._losses), np.array(self._gaps)
            trace.final = {name: value for name, (value, _) in self._weights()}
            trace.meta["every"] = self._stride
            trace.meta["bits"] = lowest_bits(self.training.model)
            trained = {id(one) for one in trainable_of(self.training.model)}
            trace.meta["trained"] = {name: id(one) in trained for name, one in self._named()}
        super().finish(record)

    def _predictions(self) -> dict[str, NDArray[Any]]:
        if self._predict is None:
            return {}
        outputs = tf.nest.flatten(self._predict())
        return {f"output {i}": storable(array) for i, array in enumerate(outputs)}

    def _loss(self) -> float:
        """Mean loss of the examples of the last update, over all replicas."""
        totals = self.training.totals
        loss_sum = float(self.training.backend.summed_state(totals.loss_sum)[0])
        count = int(self.training.backend.summed_state(totals.ledger)[0][0])
        loss_before, count_before = self._seen
        self._seen = (loss_sum, count)
        return (loss_sum - loss_before) / max(1, count - count_before)


def storable(array: Any) -> NDArray[Any]:
    """An array that a file can hold: NumPy has no bfloat16, whose numbers are in float32 too."""
    found = np.asarray(array)
    return found if found.dtype.kind in "biufc" else found.astype(np.float32)


class Digests(Listener):
    """Notes digests of what a model and its optimizer hold, after each epoch and at the end.

    What is noted before and after the listeners that save must be the same.
    """

    def __init__(self, noted: list[str], checkpoint: Path | None = None) -> None:
        """Begin with nothing.

        Args:
            noted: gets the digests.
            checkpoint: the file that the chief has written after an epoch; its digest is noted too.
        """
        self._noted, self._checkpoint = noted, checkpoint

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Note what the model holds, then what the checkpoint does."""
        self._note()
        if self._checkpoint is not None and self.training.backend.is_chief:
            with np.load(self._checkpoint) as stored:
                kinds = ("weight_", "optimizer_")
                names = [name for kind in kinds for name in sorted(stored) if name.startswith(kind)]
                self._noted.append(_digest_of([stored[name] for name in names]))

    def on_end(self) -> None:
        """Note what the model holds."""
        self._note()

    def _note(self) -> None:
        model = self.training.model
        state = [variable.numpy() for variable in slots_of(model)]
        self._noted.append(_digest_of([*get_weights(model), *state]))


def _digest_of(arrays: Sequence[NDArray[Any]]) -> str:
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def difference(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Largest absolute difference; infinite if either has an element that is no number."""
    if not one.size:
        return 0.0
    largest = float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))))
    return largest if np.isfinite(largest) else float("inf")
