"""What happens within one training step, beside what Keras does.

Clipping (clipnorm, global_clipnorm, clipvalue) acts on the gradient of the global batch under every
backend, with new and with legacy optimizers. Under a strategy `apply_gradients` sums over the
replicas first, and then clips. Horovod's DistributedOptimizer reduces before that, in
`compute_gradients`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ringside_core.keras import (
    VERSION,
    compiled_losses,
    compiled_metrics,
    output_losses,
    tf,
    trainable_of,
)
from ringside_core.specs import RunSpec
from ringside_core.workloads.weights import labels
from trainers.accumulation import Passes
from trainers.gather import NOT_ON_PADDING, gathering
from trainers.ledger import feed, feeding, in_parts, only_true, take_tag
from trainers.lookups import Lookups, Step
from trainers.loop import apply_gradients, written_out
from trainers.own_step import OwnStep
from trainers.totals import OVER_EXAMPLES, Totals

_CARRIED = "ringside_carried"


def instrument(
    model: Any,
    totals: Totals,
    spec: RunSpec,
    lookups: Lookups,
    virtual_replicas: int = 1,
    *,
    own: OwnStep | None = None,
    wrap_tape: Callable[[Any, Any], Any] | None = None,
) -> Step:
    """Let the training step take (x, y, weight, scale, id), and add up what the record needs.

    Every arm updates metrics in the step and reads them once an epoch (`Backend.merged_results`).
    Keras would read them after each step. Under MultiWorkerMirroredStrategy that is an all-reduce
    for each of their variables, within the timed step of that arm alone.

    Args:
        model: compiled.
        totals: of the model.
        spec: of the run; it says how many passes an update takes.
        lookups: of the model.
        virtual_replicas: each replica computes as this many would. For verification only: a serial
            run then gets the numbers of a model whose layers look at their whole batch.
        own: the step of the model's author; None: it is Keras' own.
        wrap_tape: of the backend, for a step that is written out; None: it is Keras' own.

    Returns:
        One pass of the step, for `Lookups.find`.

    Raises:
        RefusalError: the model or the optimizer cannot run a batch in several passes.
    """
    step, one_pass = (
        _keras_step(model, totals, spec, lookups, virtual_replicas, wrap_tape)
        if own is None
        else _own_step(own, totals)
    )

    def instrumented_step(data: Any) -> Any:
        step(*take_tag(data, totals))
        # A loop over steps must have something to carry from one to the next; Keras 3 has one for
        # a single step too.
        carries = spec.steps_per_execution > 1 or VERSION == 3
        return {_CARRIED: tf.constant(0)} if carries else {}

    model.train_step = instrumented_step
    # Otherwise Keras would sum the carried value over the replicas: under
    # MultiWorkerMirroredStrategy one more collective in each step.
    model.distribute_reduction_method = "first"
    return one_pass


def _keras_step(
    model: Any,
    totals: Totals,
    spec: RunSpec,
    lookups: Lookups,
    virtual_replicas: int,
    wrap_tape: Callable[[Any, Any], Any] | None,
) -> tuple[Step, Step]:
    """Keras' own step: padding has weight 0, and true examples are scaled to an exact mean."""
    train_step, apply = model.train_step, partial(_minimize, model)
    if VERSION == 3:  # its own step returns metrics, and `minimize` is gone
        wrap_tape = wrap_tape or (lambda tape, optimizer: tape)
    if wrap_tape is not None:
        train_step = partial(written_out, model, wrap_tape)
        apply = partial(apply_gradients, model, wrap_tape)
    compute_loss = model.compute_loss
    compute_metrics, results = model.compute_metrics, model.get_metrics_result
    batch = threading.local()  # a strategy traces each replica in a thread of its own
    passes = Passes(model, spec, virtual_replicas, lookups)

    weighed = _OutputLosses(model, batch)

    @contextmanager
    def inside(weight: Any, scale: Any, ids: Any) -> Iterator[None]:
        weighed.begin()
        batch.scale, batch.inside = scale, True
        # What comes after the step is of other examples.
        with feeding(ids), gathering(NOT_ON_PADDING):
            begin_pass(weight, ids)
            yield
        batch.inside = False

    def step(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> None:
        with inside(weight, scale, ids):
            if passes.number == 1:
                train_step((x, labels(y), weight * scale))
            else:
                passes.update((x, y, weight, ids), scale, begin_pass, apply)

    def one_pass(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> None:
        with inside(weight, scale, ids):
            _, gradients = passes.one_pass(x, labels(y), weight * scale)
            lookups.note(gradients, trainable_of(model))

    def begin_pass(weight: Any, ids: Any) -> None:
        batch.weight = weight
        feed(ids)

    def loss_with_sum(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **more: Any
    ) -> Any:
        loss = compute_loss(x, y, y_pred, sample_weight, **more)
        if not getattr(batch, "inside", False):  # a callback evaluates the model
            return loss
        replicas = tf.distribute.get_strategy().num_replicas_in_sync  # Keras divided by them
        size = passes.size * replicas
        totals.loss_sum.update_state(loss * size / tf.cast(batch.scale, loss.dtype))
        return loss

    def update_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not getattr(batch, "inside", False):
            return compute_metrics(x, y, y_pred, sample_weight)
        compiled_metrics(model).update_state(y, y_pred, batch.weight)
        return {}

    model.compute_loss = loss_with_sum
    model.compute_metrics = update_metrics
    model.get_metrics_result = lambda: {} if getattr(batch, "inside", False) else results()
    return step, one_pass


class _OutputLosses:
    """Lets Keras' own means of the losses of single outputs be over true examples.

    Keras counts a batch by its size. That of a short batch, which is scaled by global batch ÷ true
    examples, is divided by the same.
    """

    def __init__(self, model: Any, batch: Any) -> None:
        self._model, self._batch, self._begun = model, batch, False

    def begin(self) -> None:
        """When the first step is traced; metrics that Keras makes later stay means of batches."""
        if self._begun:
            return
        self._begun = True
        for metric in output_losses(compiled_losses(self._model)):
            metric.update_state = partial(self._update, metric.update_state)
            vars(metric)[OVER_EXAMPLES] = True

    def _update(self, update: Callable[..., Any], value: Any, sample_weight: Any) -> Any:
        if getattr(self._batch, "inside", False):
            scale = self._batch.scale
            sample_weight = tf.cast(sample_weight, scale.dtype) / scale
        return update(value, sample_weight=sample_weight)


def _minimize(model: Any, loss: Any, tape: Any) -> None:
    """As Keras' own step ends. Horovod's optimizer reduces in `minimize` only."""
    model.optimizer.minimize(loss, model.trainable_variables, tape=tape)


def _own_step(own: OwnStep, totals: Totals) -> tuple[Step, Step]:
    """The step of the model's author, on true examples only."""

    def on(x: Any, y: Any, weight: Any, true: Any, scale: Any, ids: Any) -> Any:
        with feeding(ids):
            return tf.reduce_mean(own(x, labels(y), weight, true, scale))

    def one_pass(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> None:
        on(x, y, weight, tf.shape(ids, tf.int64)[0], scale, ids)

    def part(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> None:
        true = tf.reduce_sum(tf.cast(ids >= 0, tf.int64))
        if own.cuts:
            x, y, weight, ids = only_true((x, y, weight, ids), true)
        loss = on(x, y, weight, true, scale, ids)
        totals.loss_sum.update_state(tf.math.multiply_no_nan(loss, tf.cast(true, loss.dtype)))

    virtual = own.virtual
    if virtual is None:
        return part, one_pass

    def step(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> None:
        parts = in_parts((x, y, weight, ids), own.replica_batch)
        virtual.run([partial(part, x, y, w, scale, own_ids) for x, y, w, own_ids in parts])

    return step, one_pass
