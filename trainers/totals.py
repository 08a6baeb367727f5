"""What an epoch adds up: read at its end, and kept in checkpoints within it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import KERAS, tf
from ringside_core.specs import LedgerDigest, RefusalError
from trainers.step import Steps


@dataclass(frozen=True)
class BegunEpoch:
    """How far an epoch was when a checkpoint was written, and what it had added up by then.

    Attributes:
        batches: global batches done.
        feed: what must not change when the epoch goes on, as JSON.
        totals: states of the model's metrics over all replicas, and what `RowLedger.state` returns.
    """

    batches: int
    feed: str
    totals: tuple[NDArray[Any], ...]

    @property
    def rows(self) -> int:
        """Rows that were trained."""
        return int(self.totals[-1][0])


class Totals:
    """What an epoch adds up: the rows that are trained, and the states of the model's metrics."""

    def __init__(self, model: Any, steps: Steps) -> None:
        """Add up nothing yet.

        Args:
            model: that is trained.
            steps: of this process.
        """
        self._model, self._backend = model, steps.backend
        self._steps, self.ledger = steps, steps.ledger
        self.begun: BegunEpoch | None = None
        self._before: list[Any] = []
        self._of_workers: int | None = None
        self.staleness: tuple[int, ...] = ()

    def begin(self, begun: BegunEpoch | None) -> None:
        """Count from zero, or from where a resumed epoch was."""
        self.begun = begun
        self._before = [] if begun is None else list(begun.totals[:-1])
        self.ledger.begin(*(() if begun is None else map(int, begun.totals[-1])))

    def note_workers(self, rows: int, staleness: tuple[int, ...]) -> None:
        """Note how many rows workers have trained, and how stale their updates were."""
        self._of_workers, self.staleness = rows, staleness

    def check(self, epoch: int, *, before: int) -> None:
        """Refuse processes that have read other batches; see RowLedger."""
        if self._of_workers is None:
            self.ledger.check_same_batches(epoch, before=before)

    def read(self) -> LedgerDigest:
        """The rows of the epoch."""
        if self._of_workers is not None:
            return LedgerDigest(rows=self._of_workers, hash="")
        rows, hashed = self.ledger.read()
        unknown = self._model.jit_compile or not self._steps.hashed
        known = "" if unknown else f"{hashed:016x}"
        return LedgerDigest(rows=rows, hash=known)

    def put_before(self) -> None:
        """Add what metrics held before the restart, once they have variables."""
        if not self._before:
            return
        states, self._before = self._before, []
        variables = self._variables()
        if [tuple(v.shape) for v in variables] != [value.shape for value in states]:
            raise RefusalError(
                "An epoch must be resumed with the metrics that it began with.",
                received=f"{len(states)} states before the restart, {len(variables)} after it",
            )
        if not self._backend.is_chief:  # states are summed over replicas
            return
        with self._backend.scope():
            for variable, value in zip(variables, states, strict=True):
                here = tf.distribute.get_strategy()
                first = here.experimental_local_results(KERAS.raw(variable))[0]
                first.assign_add(np.asarray(value, first.dtype.as_numpy_dtype))

    def so_far(self, updates: int, feed: str) -> BegunEpoch:
        """What a checkpoint keeps of this epoch. Every process must ask; nothing is changed."""
        states = [self._backend.summed(variable) for variable in self._variables()]
        rows, hashed, factor = self.ledger.state()
        ledger = np.array([rows, np.uint64(hashed).astype(np.int64), factor], np.int64)
        return BegunEpoch(updates, feed, (*states, ledger))

    def _variables(self) -> list[Any]:
        return [v for metric in self._model.metrics for v in metric.variables]
