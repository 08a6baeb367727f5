"""Evaluation over exactly all examples of a split, the same number under every backend."""

from typing import Any

from backends.base import Backend
from legacy_keras import tf
from workloads.pipeline import Pipeline
from workloads.workload import Workload


class Evaluation:
    """Loss and metrics of a model over one split, each example counted once.

    Padding has weight 0. States are summed over replicas before results are computed from them, so
    unequal shares of the data do not matter.
    """

    def __init__(
        self, model: Any, workload: Workload, backend: Backend, pipeline: Pipeline
    ) -> None:
        self._backend = backend
        self._steps = pipeline.steps_per_epoch(backend.num_readers)
        batch = pipeline.plan.per_replica_batch
        with backend.scope():
            self._metrics = workload.metrics()
            self._loss_sum = tf.keras.metrics.Sum(name="ringside_loss_sum")
            self._count = tf.keras.metrics.Sum(name="ringside_count")

        def step(data: Any) -> None:
            x, y, weight, _, ids = data
            predictions = model(x, training=False)
            # compiled_loss divides by the batch, padding included, and by the replicas; that is
            # undone, and the sum is divided by the number of examples in the end. Losses of any
            # structure are covered this way.
            mean = model.compiled_loss(y, predictions, weight)
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            true = tf.reduce_sum(tf.cast(ids >= 0, weight.dtype))
            # Losses that the model adds itself, regularisation among them, count for each example.
            added = tf.add_n(model.losses) * true if model.losses else 0.0
            self._loss_sum.update_state(mean * batch * replicas + tf.cast(added, mean.dtype))
            self._count.update_state(true)
            for metric in self._metrics:
                metric.update_state(y, predictions, weight)

        self._run = backend.stepper(step, pipeline.dataset)

    def __call__(self) -> tuple[dict[str, float], int]:
        """Run once over the split.

        Returns:
            Metrics by name with `loss` among them, and the number of examples counted.
        """
        everything = [*self._metrics, self._loss_sum, self._count]
        with self._backend.scope():
            for metric in everything:
                metric.reset_state()
        self._run(self._steps)
        results = self._backend.merged_results(everything)
        count = int(results.pop("ringside_count"))
        loss_sum = float(results.pop("ringside_loss_sum"))
        values = {name: float(value) for name, value in results.items()}
        return {"loss": loss_sum / count, **values}, count
