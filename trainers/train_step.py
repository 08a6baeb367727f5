"""What happens within one training step, beside what Keras does."""

import threading
from typing import Any

from legacy_keras import tf
from specs import RunSpec
from trainers.ledger import Ledger


class Totals:
    """What is added up within the training step, as metrics, so that each backend sums it.

    Attributes:
        ledger: ids of the examples.
        loss_sum: sum over examples of the loss at the time of their step.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.loss_sum = tf.keras.metrics.Sum(name="ringside_loss_sum")

    def reset(self) -> None:
        """Begin a new epoch."""
        self.ledger.reset_state()
        self.loss_sum.reset_state()


def instrument(model: Any, totals: Totals, spec: RunSpec) -> None:
    """Let the training step take (x, y, weight, scale, id), and add up what the record needs.

    Metrics are updated in the step, but read once an epoch (`Backend.merged_results`) in every arm.
    Keras reads them after each step, which under MultiWorkerMirroredStrategy is an all-reduce for
    each of their variables, within the timed step of that arm alone (FIELD.md, 3).
    """
    train_step, compute_loss = model.train_step, model.compute_loss
    batch = threading.local()  # a strategy traces each replica in a thread of its own

    def instrumented_step(data: Any) -> Any:
        x, y, batch.weight, batch.scale, ids = data
        totals.ledger.update_state(ids)
        train_step((x, y, batch.weight * batch.scale))
        return {}

    def loss_with_sum(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        loss = compute_loss(x, y, y_pred, sample_weight)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync  # Keras divided by them
        size = tf.cast(tf.shape(batch.weight)[0], loss.dtype)
        totals.loss_sum.update_state(loss * replicas * size / tf.cast(batch.scale, loss.dtype))
        return loss

    def update_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        del x, sample_weight
        model.compiled_metrics.update_state(y, y_pred, batch.weight)
        return {}

    model.train_step = instrumented_step
    model.compute_loss = loss_with_sum
    model.compute_metrics = update_metrics
    model.get_metrics_result = dict
