"""The reference's training once more by plain Keras, to see what would be wrong in all arms alike.

Keras' own `train_on_batch` and `evaluate` get the true examples of each batch, in the order in
which the reference was fed. So nothing of Ringside's computes here: no pipeline, no padding, no
scale, no accumulation, no totals and no changed training step. ringside/verify/checks.py judges.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.verify.elements import own_augmented, own_batch, own_elements, own_weight
from ringside.verify.example_random import tie_to_examples
from ringside.verify.recorder import KEPT_ELEMENTS
from ringside.verify.trace import Trace
from ringside_core.keras import (
    VERSION,
    build_optimizer,
    clear_session,
    get_weights,
    has_own_step,
    has_own_test_step,
    is_of_keras,
    metrics_of,
    optimizer_variables,
    set_weights,
    slot_names,
    tf,
    told_as,
    trainable_of,
    updates_made,
    variables_of,
    weights_of,
)
from ringside_core.specs import RunSpec
from ringside_core.workloads.augment import draw_seed
from ringside_core.workloads.metrics import is_own
from ringside_core.workloads.pipeline import PAD_ID
from ringside_core.workloads.source import ArraySource, Source
from ringside_core.workloads.weights import labels, packed
from ringside_core.workloads.workload import Workload
from trainers.whole_batch import (
    mark_losses,
    metrics_of_layers,
    runs_in_one_pass,
    takes_true_examples,
)

FILLED = (
    "short batches filled up as in the reference, because the model looks at its whole batch; "
    "training metrics left out"
)
PASSES = "evaluation only, because batch normalisation sees other examples in each pass"
OWN_TEST_STEP = "evaluation left out, because the model has its own test_step"
OWN_STEP = "losses and metrics in training left out, because the model has its own train_step"


def plain_keras(spec: RunSpec, workload: Workload, reference: Trace) -> Trace:
    """Train as the reference did; evaluate with its initial and its final weights.

    Args:
        spec: of the reference, in float64.
        workload: as the reference trained it: cut, and filtered.
        reference: what was seen of it, with a full ledger.

    Returns:
        The trace, under the reference's names. Its meta says in `limits` what was done otherwise,
        and lists in `without` the groups of the trace that it does not have.
    """
    return _Plain(spec, workload, reference).trace()


class _Plain:
    """A model that plain Keras trains on given examples."""

    def __init__(self, spec: RunSpec, workload: Workload, reference: Trace) -> None:
        self._workload, self._reference, self._batch = workload, reference, spec.global_batch
        self._examples = partial(_examples, workload, spec.seed)
        self._train = self._examples(workload.train, training=True)
        self._held_out = self._examples(workload.validation, training=False)
        self._augmented = workload.train.augment is not None
        self._goes_on = workload.train.steps_per_epoch is not None
        self._in_order = not isinstance(workload.train, ArraySource)
        self._model = model = _compiled(spec, workload, len(reference.fed[0]))
        self._ids: Any = None
        tie_to_examples(model, lambda: self._ids, lambda: updates_made(model))
        size = sum(int(np.prod(weight.shape)) for weight in weights_of(model))
        self._stride = max(1, -(-size // KEPT_ELEMENTS))
        norms, self._own_step = _normalises(model), has_own_step(model)
        self._own_test_step = has_own_test_step(model)
        self._fills = norms and not takes_true_examples(model)
        self._trains = not norms or spec.gradient_accumulation_steps == 1

    def trace(self) -> Trace:
        """Evaluate, train, and evaluate."""
        ref, trace = self._reference, Trace()
        asks = bool(ref.before) and not self._own_test_step
        trace.before = self._evaluated(ref.before) if asks else {}
        if self._trains:
            self._train_all(trace)
            trace.final = dict(zip(ref.final, get_weights(self._model), strict=False))
        set_weights(self._model, list(ref.final.values()))
        asked = {**ref.evaluation, **ref.predictions}
        ends = self._evaluated(asked) if asked and not self._own_test_step else {}
        trace.predictions = {name: ends[name] for name in ends if name in ref.predictions}
        trace.evaluation = {name: ends[name][None] for name in ends if name not in ref.predictions}
        found = {
            OWN_STEP: self._trains and self._own_step,
            FILLED: self._trains and self._fills,
            PASSES: not self._trains,
            OWN_TEST_STEP: self._own_test_step,
        }
        without = {
            OWN_STEP: ("loss", "metrics"),
            FILLED: ("metrics",),
            PASSES: _OF_TRAINING,
            OWN_TEST_STEP: ("before", "evaluation", "predictions"),
        }
        limits = [limit for limit in found if found[limit]]
        trace.meta["limits"] = limits
        trace.meta["without"] = sorted({group for limit in limits for group in without[limit]})
        return trace

    # Training

    def _train_all(self, trace: Trace) -> None:
        """Every batch that the reference was fed, in order."""
        model, ref = self._model, self._reference
        weights = [self._sampled(weights_of(model))]
        initial = {
            name: tf.identity(variable) for name, variable in optimizer_variables(model, slot_names)
        }
        slots: list[list[NDArray[Any]]] = []
        losses: list[float] = []
        metrics: list[dict[str, float]] = []
        for epoch, fed in enumerate(ref.fed):
            if self._augmented and not self._goes_on:
                source = self._workload.train
                self._train = self._examples(source, training=True, epochs=epoch)
            model.reset_metrics()
            total, count, epoch_loss = 0.0, 0, 0.0
            order = fed[fed >= 0]
            for step, ids in enumerate(fed):
                told, rows = self._update(ids[ids >= 0], order, step, epoch)
                # Keras tells the mean over all examples of the epoch so far; of single numbers that
                # layers add alone, over all batches.
                of_rows = any(loss.shape.rank for loss in model.losses)
                size = rows if self._workload.loss or VERSION == 3 or of_rows else 1
                before, total, count = total, told.get("loss", 0.0) * (count + size), count + size
                losses.append((total - before) / size)
                epoch_loss += losses[-1] * int((ids >= 0).sum()) / len(order)
                weights.append(self._sampled(weights_of(model)))
                now = optimizer_variables(model, slot_names)
                if not slots:
                    # An author's own optimizer makes what it remembers, zero, in its first update.
                    first = [initial.get(name, tf.zeros_like(v)) for name, v in now]
                    slots.append(self._sampled(first))
                slots.append(self._sampled(v for _, v in now))
            metrics.append({**told, "loss": epoch_loss})
        trace.loss = np.array(losses)
        trace.weights = _columns(ref.weights, weights)
        trace.slots = _columns(ref.slots, slots)
        trace.metrics = {
            name: np.array([epoch[name] for epoch in metrics])
            for name in ref.metrics
            if name in metrics[0]
        }

    def _update(self, true: Any, order: Any, step: int, epoch: int) -> tuple[dict[str, float], int]:
        """One update by the true examples; what Keras tells of the epoch so far, and the rows."""
        ids, scale = true, None
        if self._fills and len(true) < self._batch:
            # docs/decisions/0002-one-way-for-data.md: from the beginning, and of weight 0.
            missing = np.arange(self._batch - len(true))
            positions = missing + step * self._batch + len(true)
            first = missing if self._in_order else order[positions % len(order)]
            ids = np.concatenate([true, first % len(order)])
            scale = np.where(np.arange(self._batch) < len(true), self._batch / len(true), 0.0)
        rows = self._train, ids
        if self._augmented and self._goes_on:  # a batch may be of two passes
            source, steps = self._workload.train, len(self._reference.fed[0])
            places = (epoch * steps + step) * self._batch + np.arange(len(ids))
            passes = places // source.num_examples
            rows = (
                self._examples(source, training=True, ids=ids, epochs=passes),
                np.arange(len(ids)),
            )
        x, y, weight = _rows(*rows)
        if scale is not None:
            weight = np.ones(len(ids)) if weight is None else np.asarray(weight)
            weight = tf.constant(weight * scale.reshape([-1] + [1] * (weight.ndim - 1)))
        # Padding draws as example -1, and batch normalisation sees what it draws.
        drawing = np.where(np.arange(len(ids)) < len(true), ids, PAD_ID)
        self._ids = tf.constant(drawing, tf.int64)
        if self._own_step:  # `train_on_batch` makes a tuple of a batch without labels
            of_arrays = self._workload.train.of_arrays
            batch = packed(x, labels(y), weight, of_arrays=of_arrays)
            self._model.make_train_function()
            self._model.train_function(iter([batch]))
            return {}, len(ids)
        told: dict[str, float]
        if VERSION == 2:
            told = self._model.train_on_batch(
                x, labels(y), weight, reset_metrics=False, return_dict=True
            )
        else:  # its `train_on_batch` always resets them
            self._model.make_train_function()
            batch = packed(x, labels(y), weight, of_arrays=True)
            told = {n: float(v) for n, v in self._model.train_function(iter([batch])).items()}
        return told, len(ids)

    def _sampled(self, variables: Any) -> list[NDArray[Any]]:
        return [variable.numpy().reshape(-1)[:: self._stride].copy() for variable in variables]

    # Evaluation

    def _evaluated(self, names: Any) -> dict[str, NDArray[Any]]:
        """What Keras makes of the held-out examples: by name, and outputs by number."""
        x, y, weight = self._held_out
        self._ids = None
        values = self._model.evaluate(
            x, labels(y), sample_weight=weight, batch_size=self._batch, verbose=0, return_dict=True
        )
        values |= self._means_over_examples()
        outputs = tf.nest.flatten(self._model.predict(x, batch_size=self._batch, verbose=0))
        found = {name: np.array(value) for name, value in values.items() if name in names}
        return found | {f"output {i}": np.asarray(array) for i, array in enumerate(outputs)}

    def _means_over_examples(self) -> dict[str, float]:
        """What layers add of the held-out examples: Keras tells the mean over batches of those."""
        layers = metrics_of_layers(self._model)
        names = [one.name for one in layers if type(one) is tf.keras.metrics.Mean]
        if not self._workload.loss:
            names.append("loss")
        if self._held_out[2] is None:
            # An author's function may return one number for a batch.
            names += [told_as(m) for m in metrics_of(self._model) if _is_function(m)]
        if not names:
            return {}
        size = len(tf.nest.flatten(self._held_out)[0])
        parts = [np.arange(i, min(i + self._batch, size)) for i in range(0, size, self._batch)]
        told = []
        for ids in parts:
            x, y, weight = _rows(self._held_out, ids)
            told.append(self._model.test_on_batch(x, labels(y), weight, return_dict=True))
        sizes = [*map(len, parts)]
        return {n: float(np.average([one[n] for one in told], weights=sizes)) for n in names}


_OF_TRAINING = ("final", "loss", "metrics", "slots", "weights")


def _normalises(model: Any) -> bool:
    """Whether padding would change what it makes of the other examples (inspection.py)."""
    norm = tf.keras.layers.BatchNormalization
    return any(isinstance(layer, norm) for layer in model._flatten_layers())


def _compiled(spec: RunSpec, workload: Workload, steps_per_epoch: int) -> Any:
    clear_session()
    tf.keras.utils.set_random_seed(spec.seed)
    model = mark_losses(workload.build_model(), workload, one_pass=runs_in_one_pass(spec))
    if workload.optimizer is None:  # its author compiled it
        model.run_eagerly = True
        return model
    optimizer = workload.optimizer_of(model)
    rule = spec.learning_rate_rule
    if rule.rule != "none":
        assert workload.reference_batch is not None
        power = {"linear": 1.0, "sqrt": 0.5}[rule.rule]
        base = float(optimizer.learning_rate.numpy())
        rate = base * (spec.global_batch / workload.reference_batch) ** power
        if rule.warmup_epochs:
            length = rule.warmup_epochs * steps_per_epoch
            rate = tf.keras.optimizers.schedules.PolynomialDecay(base, length, rate, power=1.0)
        optimizer.learning_rate = rate
    model.compile(
        optimizer=optimizer,
        loss=workload.loss,
        loss_weights=workload.loss_weights,
        **{"metrics" if workload.counts_once else "weighted_metrics": _as_written(workload)},
        run_eagerly=True,  # to trace a step takes longer than to run it
    )
    # A step of the author's own builds it in an order of its own.
    if not (has_own_step(model) and _begins_with_zeros(workload.optimizer(), model)):
        build_optimizer(model.optimizer, trainable_of(model))  # to see its state before
    return model


def _begins_with_zeros(optimizer: Any, model: Any) -> bool:
    """Whether all that an optimizer remembers of weights is zero before its first update."""
    build_optimizer(optimizer, trainable_of(model))
    return not any(np.any(one.numpy()) for one in variables_of(optimizer) if one.shape.rank)


def _is_function(metric: Any) -> bool:
    """Whether a metric is made of an author's function."""
    function = getattr(metric, "_fn", None)
    return function is not None and not is_of_keras(function)


def _as_written(workload: Workload) -> Any:
    """Metrics as their author gave them: Ringside lets each example be told what is of a batch."""
    return tf.nest.map_structure(
        lambda metric: metric.__wrapped__ if is_own(metric) else metric, workload.metrics()
    )


def _examples(
    workload: Workload,
    seed: int,
    source: Source,
    *,
    training: bool,
    ids: Any = None,
    epochs: Any = 0,
) -> Any:
    """(x, y, weight) of these examples of a split, or of all; weight None: they have none."""
    ids = np.arange(source.num_examples) if ids is None else ids
    element = own_elements(source, ids)
    seed = draw_seed(seed, training=training)
    element = own_augmented(source.augment, seed, np.zeros_like(ids) + epochs, ids, element)
    batch = own_batch(workload.preprocess, element, of_arrays=source.of_arrays)
    class_weight = workload.class_weight if training else None
    weighted = len(batch) > 2 or class_weight is not None
    weight = own_weight(len(ids), batch, class_weight) if weighted else None
    return batch[0], batch[1], None if weight is None else tf.constant(weight)


def _rows(examples: Any, ids: NDArray[Any]) -> Any:
    """These examples; Keras leaves the type of tensors alone."""
    return tf.nest.map_structure(
        lambda column: None if column is None else tf.constant(column.numpy()[ids]), examples
    )


def _columns(names: Any, rows: list[list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Rows of arrays, one list for each update, as [updates, …] by name, in order."""
    columns: Iterator[Any] = zip(*rows, strict=True)
    return dict(zip(names, map(np.stack, columns), strict=False))
