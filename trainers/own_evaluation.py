"""Evaluation as the model allows it: Keras' own, by the author's own test_step, or none."""

from typing import Any

from backends.base import Backend
from ringside_core.keras import has_own_step, metrics_of, python_of, tf, told_as
from ringside_core.specs import LedgerDigest
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.weights import labels, packed
from ringside_core.workloads.workload import Workload
from trainers.evaluate import Evaluation, by_parts
from trainers.gather import gathering
from trainers.ledger import Ledger, digest, feeding, only_true
from trainers.own_step import together
from trainers.own_trial import Returned, Trial
from trainers.results import Results, by_name, counted_by, number


def evaluation(
    model: Any,
    workload: Workload,
    backend: Backend,
    pipeline: Pipeline,
    trial: Trial | None,
    parts: int = 1,
) -> "AnyEvaluation":
    """The evaluation of a model over a split.

    Args:
        model: compiled.
        workload: of the model.
        backend: on which the model was built.
        pipeline: of the split.
        trial: of the author's own steps; None: both are Keras'.
        parts: see Evaluation.

    Raises:
        RefusalError: see Evaluation.
    """
    told = None if trial is None else trial.tested or trial.trained
    if told is not None and told.gathers:  # the parts make one whole
        parts = 1
    if trial is not None and trial.tested is not None:
        return OwnEvaluation(model, backend, pipeline, trial.tested, parts)
    own = has_own_step(model)
    if workload.optimizer is None or (own and workload.loss is None):
        return NoEvaluation()  # nothing says which losses and metrics an output has
    return Evaluation(model, workload, backend, pipeline, parts)


class NoEvaluation:
    """Of a model that has neither a test_step nor losses that Keras knows."""

    ledger: LedgerDigest | None = None
    predictions: Any = None

    def __call__(self) -> tuple[dict[str, float], int]:
        """No value, of no example."""
        return {}, 0


class OwnEvaluation:
    """What the author's own test_step makes of a split, each example counted once.

    Its step is given true examples only. Means of single numbers are over examples; those of plain
    Keras are over batches, the last of which may be short.

    Attributes:
        ledger: the examples of the newest run, None before the first.
        predictions: None: what the step does with its outputs is its own affair.
    """

    ledger: LedgerDigest | None = None
    predictions: Any = None

    def __init__(
        self,
        model: Any,
        backend: Backend,
        pipeline: Pipeline,
        returned: Returned,
        parts: int = 1,
    ) -> None:
        """Nothing is traced yet.

        Args:
            model: compiled.
            backend: on which the model was built.
            pipeline: of the split.
            returned: what the step returns.
            parts: see Evaluation.
        """
        self._model, self._backend, self._returned = model, backend, returned
        self._weighted, self._of_arrays = pipeline.weighted, pipeline.of_arrays
        self._steps = pipeline.shares.steps_per_epoch(backend.num_readers)
        self._results = Results.of(model)
        self._author = python_of(model.test_step)
        self._together = together(backend)
        self._cuts = bool(pipeline.shares.last_batch) or pipeline.options.shard != "batch"
        # Whether a part may hold no example.
        self._empty = backend.capabilities.synchronous and backend.num_replicas * parts > 1
        with backend.scope():
            self._means = [tf.keras.metrics.Mean(name=name) for name in returned.raw]
            self._count = tf.keras.metrics.Sum(name="ringside_count", dtype="int64")
            self._fed = Ledger()
        self._run = backend.stepper(by_parts(self._step, parts), pipeline.dataset)

    def _step(self, data: Any) -> None:
        x, y, weight, _, ids = data
        true = tf.reduce_sum(tf.cast(ids >= 0, tf.int64))
        self._count.update_state(true)
        self._fed.update_state(ids)
        if self._cuts:  # else the batch has a size that the step may know
            x, y, weight, ids = only_true((x, y, weight, ids), true)
        share = tf.cast(true, weight.dtype)
        weight = weight if self._weighted else None
        batch = packed(x, labels(y), weight, of_arrays=self._of_arrays)
        self._results.forget()
        whole = gathering(self._together, share, true)
        with feeding(ids), counted_by(share, true if self._empty else None), whole:
            told = by_name(self._author(batch))
        for mean in self._means:
            mean.update_state(number(told[mean.name], share), sample_weight=share)

    def __call__(self) -> tuple[dict[str, float], int]:
        """Run once over the split.

        Returns:
            What the step returns, by name, and `loss`, if it returns one; and the number of
            examples counted.
        """
        own = [*self._means, self._count, self._fed]
        with self._backend.scope():
            for metric in (*self._model.metrics, *own):
                metric.reset_state()
        self._run(self._steps)
        held = set(self._returned.of_metrics.values())
        metrics = [metric for metric in metrics_of(self._model) if told_as(metric) in held]
        results = self._backend.merged_results([*metrics, *own])
        self.ledger = digest(results.pop(self._fed.name))
        count = int(results.pop(self._count.name))
        of_metrics = self._returned.of_metrics
        values = {n: float(results[of_metrics.get(n, n)]) for n in self._returned.names}
        loss = self._returned.loss
        return values if loss is None else {"loss": values[loss], **values}, count


AnyEvaluation = Evaluation | OwnEvaluation | NoEvaluation
