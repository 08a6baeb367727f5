"""Evaluation over exactly all examples of a split, the same number under every backend.

Only a loss that couples the examples of a batch depends on the parts of it that replicas get.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import ag_ctx, output_losses, tf, told_as
from ringside_core.specs import LedgerDigest, RefusalError
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.weights import labels
from ringside_core.workloads.workload import Workload
from trainers.gather import NOT_ON_PADDING, gathering
from trainers.ledger import Ledger, digest, feeding, in_parts, only_true
from trainers.own_step import together
from trainers.rehearsal import Rehearsal
from trainers.results import Results, counted_by, losses_of_one_replica
from trainers.whole_batch import has_own_loss, losses_count_padding, metrics_of_layers


def by_parts(step: Callable[[Any], None], parts: int) -> Callable[[Any], None]:
    """A step of an evaluation that takes a batch (x, y, weight, scale, ids) in equal parts."""
    if parts == 1:
        return step

    def step_by_step(data: Any) -> None:
        x, y, weight, scale, ids = data
        for one in in_parts((x, y, weight, ids), -(-ids.shape[0] // parts)):
            step((*one[:3], scale, one[3]))

    return step_by_step


class Evaluation:
    """Loss and metrics of a model over one split, each example counted once.

    Padding has weight 0. States are summed over replicas before results are computed from them, so
    unequal shares of the data do not matter. Names and values are those of `Model.evaluate`; only a
    single number that a layer or an author's function tells of its batch counts by the examples,
    not once for each batch.

    Attributes:
        ledger: the examples of the newest run, None before the first.
        predictions: nest of tensors: what the untrained model makes of some examples.
        coupled: whether a prediction depends on the other examples of its batch.
    """

    ledger: LedgerDigest | None = None

    def __init__(
        self, model: Any, workload: Workload, backend: Backend, pipeline: Pipeline, parts: int = 1
    ) -> None:
        """Try out the metrics; nothing is traced yet.

        Args:
            model: compiled.
            workload: whose loss and metrics are computed.
            backend: on which the model was built.
            pipeline: of the split.
            parts: of a batch, one after the other: as so many replicas would get it.

        Raises:
            RefusalError: metrics that fit no output, or one that is not exact under every backend.
        """
        self._backend, self._model = backend, model
        self._steps = pipeline.shares.steps_per_epoch(backend.num_readers)
        rehearsal = Rehearsal(model, workload, backend, pipeline)
        self.predictions, self.coupled = rehearsal.predictions, rehearsal.coupled
        rehearsal.check_metrics()
        self._of_layers = metrics_of_layers(model)
        self._trimmed = losses_count_padding(model) or bool(self._of_layers)
        # An author's loss of one number for the batch takes no weights. The losses of several
        # outputs are kept in metrics, where a part without examples must count 0.
        several = len(tf.nest.flatten(self.predictions)) > 1
        self._weighs_losses = pipeline.weighted or several or not has_own_loss(workload)
        if self._of_layers:
            Results.of(model)  # so that they count true examples
        # Whether a part of a batch may hold no example.
        self._empty = backend.capabilities.synchronous and backend.num_replicas * parts > 1
        self._together = together(backend) if self._trimmed else NOT_ON_PADDING
        with backend.scope():
            self._losses, self._metrics = rehearsal.losses(), rehearsal.metrics()
            self._loss_sum = tf.keras.metrics.Sum(name="ringside_loss_sum")
            self._count = tf.keras.metrics.Sum(name="ringside_count", dtype="int64")
            self._padded_count = tf.keras.metrics.Sum(name="ringside_padded_count", dtype="int64")
            self._fed = Ledger()
        self._check_names()
        self._run = backend.stepper(by_parts(self._step, parts), pipeline.dataset)

    @property
    def _everything(self) -> list[Any]:
        own = [self._loss_sum, self._count, self._padded_count, self._fed]
        of_outputs = output_losses(self._losses)
        return [*of_outputs, *self._metrics.metrics, *self._of_layers, *own]

    def _check_names(self) -> None:
        names = [told_as(metric) for metric in self._everything]
        if len({"loss", *names}) <= len(names):
            raise RefusalError(
                "Metrics must have names of their own.", received=f"loss, {', '.join(names)}"
            )

    # Autograph need not rewrite this, which took a quarter of a second; Keras has it rewrite what
    # an author has written.
    @tf.autograph.experimental.do_not_convert
    def _step(self, data: Any) -> None:
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED):
            self._evaluate(data)

    def _evaluate(self, data: Any) -> None:
        x, y, weight, _, ids = data
        true = tf.reduce_sum(tf.cast(ids >= 0, tf.int64))
        if self._trimmed:
            x, y, weight, ids = only_true((x, y, weight, ids), true)
        share = tf.cast(true, weight.dtype)
        with feeding(ids), gathering(self._together, share, true):
            with counted_by(share, true if self._empty else None):
                predictions = self._model(x, training=False)
            given = weight if self._weighs_losses else None
            # Else Keras divides by the replicas too, but not what is one number for the batch.
            with losses_of_one_replica():
                mean = self._losses and self._losses(labels(y), predictions, given)
            self._metrics.update_state(labels(y), predictions, weight)
        # Keras divides the loss by the batch, padding included. Undo that, so that the sum can be
        # divided by the number of examples at the end. This works for losses of any structure.
        if mean is None:  # the model adds all its losses itself
            mean = tf.zeros([], weight.dtype)
        batch = tf.shape(weight)[0]
        # Of padding alone a loss may be no number.
        counted = tf.cast(batch, mean.dtype) * tf.cast(true > 0, mean.dtype)
        loss_sum = tf.math.multiply_no_nan(mean, counted)
        # Losses that the model adds itself, such as regularisation, count once for each example.
        # Of one for each example the mean is told.
        added = [tf.cast(tf.reduce_mean(loss), mean.dtype) for loss in self._model.losses]
        if added:
            loss_sum += tf.add_n(added) * tf.cast(true, mean.dtype)
        self._loss_sum.update_state(loss_sum)
        self._count.update_state(true)
        self._padded_count.update_state(batch)
        self._fed.update_state(ids)

    def __call__(self) -> tuple[dict[str, float], int]:
        """Run once over the split.

        Returns:
            `loss`, of a model with several outputs the loss of each, and the metrics, by name; and
            the number of examples counted.
        """
        with self._backend.scope():
            for metric in self._everything:
                metric.reset_state()
        self._run(self._steps)
        results = self._backend.merged_results(self._everything)
        self.ledger = digest(results.pop(self._fed.name))
        count = int(results.pop("ringside_count"))
        padded = int(results.pop("ringside_padded_count"))
        loss_sum = float(results.pop("ringside_loss_sum"))
        values = {name: float(np.squeeze(value)) for name, value in results.items()}
        for metric in output_losses(self._losses):  # means over all that was fed, with padding
            values[told_as(metric)] *= padded / count
        return {"loss": loss_sum / count, **values}, count
