"""Can a metric's state be summed over replicas? This is tried out before every training."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import raw, tf
from ringside_core.workloads.metrics import tells_of_batch

Batch = tuple[Any, Any, Any]
"""(y, predictions, weight), as a metric takes them."""

_ON_READ, _SUM = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM


def unsummable(
    make_metrics: Callable[[], Any],
    trained: Sequence[Any],
    batches: Sequence[Batch],
    *,
    shared: bool = True,
    trimmed: bool = False,
) -> str | None:
    """Why a metric would not be exact under some backend; None if all are exact.

    Each backend sums the variables of a metric over its replicas, and computes the result from the
    sums. So the variables of metrics that see one batch each must add up to those of one metric
    that sees all examples, in several batches or in one. Examples of weight 0, such as padding,
    must not count. A wrong metric whose state happens to be 0 on these batches is not found.

    Args:
        make_metrics: builds what `Model.compile` makes of the metrics (`compiled_metrics`), anew at
            each call.
        trained: the metrics of the training itself, in the same order.
        batches: of uneven sizes, with uneven weights. Call it outside of any strategy.
        shared: whether several workers may share the variables.
        trimmed: whether they are given true examples only. Then a mean of one number for each batch
            is exact too, as data-parallel training defines it: each replica has a batch.
    """
    try:
        whole = _updated(make_metrics(), batches)
        parts = [_updated(make_metrics(), [batch]) for batch in batches]
        joined = _updated(make_metrics(), [_joined(*batches)])
        padded = _updated(make_metrics(), [_joined(batches[0], _weightless(batches[1]))])
        total = _updated(make_metrics(), batches[:1])  # its state is replaced below
        overwritten = _overwritten(make_metrics(), batches[0]) if shared else {}
    except TypeError as error:
        if "sample_weight" not in str(error):
            raise
        return f"a metric must take (y, predictions, sample_weight): {error}"
    for index, metric in enumerate(whole):
        if trimmed and tells_of_batch(metric):
            continue
        reason = (
            _not_a_number(metric)
            or _not_summed(metric)
            or _not_summed(trained[index])
            or _not_additive(metric, [part[index] for part in parts], total[index])
            or _depends_on_batches(metric, joined[index])
            or _counts_padding(parts[0][index], padded[index])
            or overwritten.get(index)
        )
        if reason:
            return f"{metric.name}: {reason}"
    return None


def _updated(container: Any, batches: Sequence[Batch]) -> list[Any]:
    for y, predictions, weight in batches:
        container.update_state(y, predictions, weight)
    return list(container.metrics)


def _weightless(batch: Batch) -> Batch:
    y, predictions, weight = batch
    return y, predictions, tf.zeros_like(weight)


def _joined(*batches: Batch) -> Any:
    return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *batches)


def _not_a_number(metric: Any) -> str | None:
    result = metric.result()
    if not tf.is_tensor(result) and not isinstance(result, tf.Variable):
        return f"its result must be one number, not a {type(result).__name__}"
    return None if result.shape.rank == 0 else f"its result must be one number, not {result.shape}"


def _not_summed(metric: Any) -> str | None:
    """Whether a strategy would not sum one of its variables when it is read."""
    for variable in map(raw, metric.variables):
        kind = (variable.synchronization, variable.aggregation)
        if kind != (_ON_READ, _SUM):
            return (
                f"its variable {variable.name} is not summed over replicas "
                f"(synchronization {kind[0].name}, aggregation {kind[1].name}): make it with "
                "self.add_weight, and leave both as they are"
            )
    return None


def _not_additive(metric: Any, parts: list[Any], total: Any) -> str | None:
    for variable, summed, *shares in zip(
        metric.variables, total.variables, *(part.variables for part in parts), strict=True
    ):
        values = [np.asarray(share) for share in shares]
        added = np.sum(values, axis=0)
        if not _close(added, np.asarray(variable)):
            return (
                f"its variable {variable.name} cannot be summed over replicas: metrics of single "
                f"batches add up to {_short(added)}, one metric of all holds {_short(variable)}"
            )
        summed.assign(tf.cast(added, summed.dtype))
    if not _close(np.asarray(total.result()), np.asarray(metric.result())):
        return (
            "its result does not follow from its variables alone: from their sums it is "
            f"{_short(total.result())}, of all batches {_short(metric.result())}"
        )
    return None


def _depends_on_batches(split: Any, joined: Any) -> str | None:
    apart, together = np.asarray(split.result()), np.asarray(joined.result())
    if _close(apart, together):
        return None
    return (
        "its result depends on how examples are put into batches: in one batch it is "
        f"{_short(together)}, in several {_short(apart)}"
    )


def _counts_padding(plain: Any, padded: Any) -> str | None:
    before, after = np.asarray(plain.result()), np.asarray(padded.result())
    if _close(before, after):
        return None
    return (
        "it counts examples of sample weight 0, which padding has: its result goes from "
        f"{_short(before)} to {_short(after)}"
    )


def _overwritten(container: Any, batch: Batch) -> dict[int, str]:
    """The reason, by index, for each metric that assigns to a variable instead of adding to it.

    Several workers share the variables of a parameter server. A worker that reads, adds and assigns
    overwrites what another one added meanwhile. Only TensorFlow's own addition is safe.
    """
    _updated(container, [batch])  # what is created at the first update exists now

    @tf.function
    def update(*batch: Any) -> None:  # of Keras' own code autograph would rewrite all
        container.update_state(*batch)

    graph = update.get_concrete_function(*batch).graph
    outside = {inner.ref(): outer for outer, inner in graph.captures}
    written = {
        id(outside[operation.inputs[0].ref()])
        for operation in graph.get_operations()
        if operation.type == "AssignVariableOp" and operation.inputs[0].ref() in outside
    }
    return {
        index: f"its variable {variable.name} is assigned to: use assign_add, since the workers "
        "of a parameter server would overwrite what others have added"
        for index, metric in enumerate(container.metrics)
        for variable in metric.variables
        if id(variable.handle) in written
    }


def _close(value: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Equal but for rounding in the precision of the values."""
    kind = expected.dtype if np.issubdtype(expected.dtype, np.floating) else np.float64
    tolerance = float(np.sqrt(np.finfo(kind).eps))
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return np.allclose(value, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def _short(value: Any) -> str:
    return np.array2string(np.asarray(value), precision=6, threshold=4, edgeitems=2)
