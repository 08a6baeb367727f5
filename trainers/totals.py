"""What an epoch adds up: read at its end, and kept in checkpoints within it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.keras import loss_metrics, metrics_of, raw, tf
from ringside_core.specs import LedgerDigest, RefusalError
from trainers.ledger import FedTable, Ledger, digest
from trainers.own_step import OwnStep

# Noted on a metric of Keras' losses that is a mean over examples.
OVER_EXAMPLES = "_ringside_over_examples"


@dataclass(frozen=True)
class BegunEpoch:
    """How far an epoch was when a checkpoint was written, and what it had added up by then.

    Attributes:
        batches: global batches done.
        feed: what must not change when the epoch goes on, as JSON (`trainers.resume.feed`).
        totals: states of the training metrics, the ledger and the loss sum, over all replicas.
        fed: the full list so far, [steps, replicas, batch]; None if it is not kept.
    """

    batches: int
    feed: str
    totals: tuple[NDArray[Any], ...]
    fed: NDArray[Any] | None

    @property
    def examples(self) -> int:
        """Examples of weight above 0 that were fed."""
        return digest(self.totals[-2]).count

    @property
    def ordered(self) -> bool:
        """Whether its ledger knows the order of its batches: asynchronous workers have none."""
        return bool(self.totals[-2][3])


def updates_per_batch(backend: Backend) -> int:
    """Updates from one global batch; an asynchronous run makes one for each reader."""
    return 1 if backend.capabilities.synchronous else backend.num_readers


class Totals:
    """What the training step and the metrics of the model add up over one epoch.

    All of it is held in metrics, so that each backend sums it over its replicas. What a resumed
    epoch had added up before the restart is added only when the epoch is over, because some metrics
    have no variables before their first step.

    Attributes:
        ledger: ids of the examples.
        loss_sum: sum over examples of the loss at the time of their step.
        batches: of the epoch that were fed. Each replica counts them for itself: central storage
            adds up what all replicas add to a metric.
        fed: the full list of fed ids; None if it is not kept.
        begun: what came before the restart; None except in a resumed epoch.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        *,
        fed: FedTable | None = None,
        examples: int | None = None,
        own: OwnStep | None = None,
    ) -> None:
        """Make the metrics, in the backend's scope.

        Args:
            model: compiled.
            backend: on which the model was built.
            fed: made in the backend's scope; None: keep no full list.
            examples: of the training split, for the ledger.
            own: the training step of the model's author; None: it is Keras' own.
        """
        self._model, self._backend, self.fed = model, backend, fed
        self._means = [] if own is None else own.means
        self._returned = None if own is None else own.returned
        self.begun: BegunEpoch | None = None
        with backend.scope():
            self.ledger = Ledger(examples)
            self.loss_sum = tf.keras.metrics.Sum(name="ringside_loss_sum")
            self.batches = tf.Variable(
                0,
                trainable=False,
                dtype=tf.int64,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def begin(self, begun: BegunEpoch | None) -> None:
        """Count from zero, or from where a resumed epoch was.

        Raises:
            RefusalError: it began with other metrics.
        """
        self.begun = begun
        if begun is not None and all(metric.variables for metric in self._metrics()):
            self._before()  # some metrics have their variables only after the first step
        with self._backend.scope():
            for metric in self._own():
                metric.reset_state()
            self.batches.assign(0 if begun is None else begun.batches)

    def local_ledgers(self) -> tuple[LedgerDigest, ...]:
        """What each replica of this process was fed, since the restart."""
        (variable,) = self.ledger.variables
        return tuple(map(digest, self._backend.local_values(variable)))

    def so_far(self, updates: int, feed: str) -> BegunEpoch:
        """What a checkpoint keeps of this epoch. Every process must ask; nothing is changed.

        Args:
            updates: of the epoch that have been made.
            feed: see `trainers.resume.feed`.
        """
        states = [
            value for metric in self._metrics() for value in self._backend.summed_state(metric)
        ]
        table = self.fed
        fed = None if table is None else self._backend.summed_state(table)[0]
        if self.begun is not None:
            states = [now + before for now, before in zip(states, self._before(), strict=True)]
            fed = None if fed is None else fed + self._table_before(fed)
        if not self.ordered:
            states[-2] = np.where(np.arange(4) == 3, 0, states[-2])
        batches = updates // updates_per_batch(self._backend)
        return BegunEpoch(batches, feed, tuple(states), fed)

    @property
    def ordered(self) -> bool:
        """Whether the ledger knows the order of all batches of this epoch."""
        begun_in_order = self.begun is None or self.begun.ordered
        return self._backend.capabilities.synchronous and begun_in_order

    def results(self) -> dict[str, NDArray[Any]]:
        """Result of each metric by name, over the whole epoch. This overwrites the states."""
        metrics, table = self._metrics(), self.fed
        if self.begun is not None:
            put_in(
                self._backend, [v for metric in metrics for v in metric.variables], self._before()
            )
        merged = self._backend.merged_results(metrics if table is None else [*metrics, table])
        if table is not None and self.begun is not None:
            merged[table.name] = merged[table.name] + self._table_before(merged[table.name])
        return merged

    def told(self, merged: dict[str, NDArray[Any]], loss: float) -> dict[str, float]:
        """The loss and the metrics of the epoch, as they are recorded.

        Args:
            merged: result of each metric of the model by name.
            loss: mean over the examples, at the time of their steps. If the author's own step
                tells it by a metric of the model, it is what that says; if it tells none, there is
                none.
        """
        values = {name: float(value) for name, value in merged.items()}
        returned = self._returned
        if returned is not None:
            # Several names may be of one metric; what it does not return is none of its numbers.
            metric_of = {name: returned.of_metrics.get(name, name) for name in returned.names}
            values = {name: values[of] for name, of in metric_of.items() if of in values}
            if returned.loss is None:
                return values
            if returned.loss not in returned.raw:
                loss = values.get(returned.loss, loss)
        return {**values, "loss": loss} if "loss" in values else {"loss": loss, **values}

    def _metrics(self) -> list[Any]:
        # Keras' own means of losses are over batches, padding included, but for those of single
        # outputs that the step has changed. We record means over examples.
        losses = loss_metrics(self._model)
        means = {id(metric) for metric in losses if OVER_EXAMPLES not in vars(metric)}
        metrics = [metric for metric in metrics_of(self._model) if id(metric) not in means]
        return [*metrics, *self._means, self.ledger, self.loss_sum]

    def _own(self) -> list[Any]:
        own = [*self._means, self.ledger, self.loss_sum]
        return own if self.fed is None else [*own, self.fed]

    def _before(self) -> tuple[NDArray[Any], ...]:
        assert self.begun is not None
        shapes = [tuple(v.shape) for metric in self._metrics() for v in metric.variables]
        found = [array.shape for array in self.begun.totals]
        if shapes != found:
            raise RefusalError(
                "An epoch must be resumed with the metrics that it began with.",
                received=f"states {found} before the restart, {shapes} after it",
            )
        return self.begun.totals

    def _table_before(self, table: NDArray[Any]) -> NDArray[Any]:
        """The full list before the restart, in the shape that the replicas of now need."""
        assert self.begun is not None
        assert self.begun.fed is not None
        return self.begun.fed.reshape(table.shape)


def put_in(backend: Backend, variables: list[Any], values: Sequence[NDArray[Any]]) -> None:
    """Add values to the state of one replica only, because states are summed over replicas.

    Args:
        backend: on whose replicas the variables are.
        variables: of metrics.
        values: in the same order.
    """
    if not backend.is_chief:
        return
    with backend.scope():
        for variable, value in zip(variables, values, strict=True):
            here = tf.distribute.get_strategy()
            first = here.experimental_local_results(raw(variable))[0]
            first.assign_add(np.asarray(value, first.dtype.as_numpy_dtype))
