"""What a step tells its metrics, counted by this replica's part of a batch."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from ringside_core.keras import (
    compiled_metrics,
    let_averages_be_of_one_replica,
    let_losses_be_of_one_replica,
    loss_metrics,
    metrics_of,
    tf,
)
from ringside_core.specs import RefusalError
from ringside_core.workloads.metrics import tells_of_batch

_here = threading.local()  # a strategy traces each replica in a thread of its own


def share_here() -> Any:
    """How much this thread's part of a batch counts (`counted_by`)."""
    return _here.share


def share_of_sums() -> Any:
    """By what a sum is divided within a training step on a part of a batch; None: it stays."""
    return _here.share if getattr(_here, "sums", False) else None


@contextmanager
def counted_by(
    share: Any, true: Any, examples: Any = None, *, sums: bool = False
) -> Iterator[None]:
    """Within this block of a thread, an author's step runs on this replica's part of a batch.

    Args:
        share: how much this part counts, in gradients and in metrics of single numbers; None: as
            in plain Keras.
        true: number of true examples: of a part without any, metrics count nothing. None: each has
            some.
        examples: true examples of the batch of which this is a part; None: of this part.
        sums: whether the step's losses are sums over its part (trainers/sums.py).
    """
    before = vars(_here).copy()
    _here.share, _here.true, _here.examples, _here.sums = share, true, examples, sums
    try:
        with losses_of_one_replica():
            yield
    finally:
        vars(_here).clear()
        vars(_here).update(before)


@contextmanager
def losses_of_one_replica() -> Iterator[None]:
    """Within this block of a thread, Keras' losses are means over this replica's own examples.

    Under a strategy Keras would divide them by the number of replicas, or refuse them.
    """
    before = getattr(_here, "alone", False)
    _here.alone = True
    try:
        yield
    finally:
        _here.alone = before


_script = threading.Event()  # set: this process runs a script


def begin_script() -> None:
    """From now on, losses that an author calls himself are of one replica everywhere."""
    _script.set()


let_losses_be_of_one_replica(lambda: getattr(_here, "alone", False), _script.is_set)
let_averages_be_of_one_replica(
    lambda: getattr(_here, "alone", False), lambda: getattr(_here, "examples", None)
)


def by_name(told: Any) -> Any:
    """What a step returns, as one dict: Keras 3 gives its compiled metrics as a dict within."""
    if not isinstance(told, dict):
        return told
    found: dict[str, Any] = {}
    for name, value in told.items():
        found |= by_name(value) if isinstance(value, dict) else {name: value}
    return found


class Results:
    """Tells from which metric of a model a number came, and what that was told last.

    A metric that is told a single number for a batch counts it by the replica's share. One that is
    told examples counts them, unless the replica has none and was given one of another
    (`counted_by`).
    """

    @classmethod
    def of(cls, model: Any) -> Self:
        """The one of this model; it watches all metrics that the model has now."""
        found: Self = vars(model).setdefault("_ringside_results", None) or cls()
        vars(model)["_ringside_results"] = found
        # A second fit compiles the losses anew.
        found._of_keras |= {id(one) for one in loss_metrics(model)}
        held = [*metrics_of(model), *(one for one in vars(model).values() if _is_metric(one))]
        # Keras 3 holds the compiled ones in one metric of its own, and gives them no weights.
        compiled = compiled_metrics(model)
        for metric in (one for one in held if one is not compiled):
            found._watch(metric)
        return found

    def __init__(self) -> None:
        self._seen = threading.local()  # a strategy traces each replica in a thread of its own
        self._watched: dict[int, Any] = {}
        self._of_keras: set[int] = set()

    def _watch(self, metric: Any) -> None:
        if id(metric) not in self._watched:
            self._watched[id(metric)] = metric
            metric.result = partial(self._result, metric, metric.result)
            metric.update_state = partial(self._update, metric, metric.update_state)

    def forget(self) -> None:
        """Begin a step: what this thread's last one told is of another graph, perhaps."""
        vars(self._seen).clear()

    def metric_of(self, value: Any) -> Any:
        """The metric whose result this very object is, or None."""
        return self._noted("results").get(id(value), (None,))[0]

    def of_batch(self, value: Any) -> Any:
        """What the mean of this result was told in this step; None: that is no plain mean."""
        return self._noted("told").get(id(self.metric_of(value)))

    def _noted(self, what: str) -> dict[int, Any]:
        found: dict[int, Any] = vars(self._seen).setdefault(what, {})
        return found

    def _result(self, metric: Any, result: Callable[[], Any]) -> Any:
        value = result()
        # The value too, so that its id is not used again.
        self._noted("results")[id(value)] = (metric, value)
        return value

    def _update(self, metric: Any, update: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not getattr(_here, "alone", False):
            return update(*args, **kwargs)
        signature = inspect.signature(type(metric).update_state)
        given = signature.bind(metric, *args, **kwargs)
        told, weight = given.args[1] if len(given.args) > 1 else None, given.arguments.get(_WEIGHT)
        if type(metric) is tf.keras.metrics.Mean:
            values = tf.convert_to_tensor(told)
            # Parts of a batch have other sums of weights: their means do not make the whole's.
            # Keras gives its own the number of examples.
            weighted = weight is not None and id(metric) not in self._of_keras
            self._noted("told")[id(metric)] = None if weighted else tf.reduce_mean(values)
        counts = _counts(metric, told, weight)
        if counts is None:
            return update(*args, **kwargs)
        if type(metric) in (tf.keras.metrics.Mean, tf.keras.metrics.Sum):
            given.arguments["values"] = number(told, tf.reduce_max(counts))
        if _WEIGHT not in signature.parameters:
            raise RefusalError(
                "A metric must take (…, sample_weight): a replica without examples counts 0.",
                received=f"{metric.name} ({type(metric).__name__})",
                advice="Add the argument to its update_state.",
            )
        given.arguments[_WEIGHT] = counts
        return update(*given.args[1:], **given.kwargs)


_WEIGHT = "sample_weight"


def number(value: Any, weight: Any) -> Any:
    """What a part of weight 0 tells may be no number, and must not count."""
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_floating:  # the sum of no losses, say
        value = tf.cast(value, tf.keras.backend.floatx())
    return tf.math.multiply_no_nan(value, tf.cast(weight > 0, value.dtype))


def _counts(metric: Any, told: Any, weight: Any) -> Any:
    """The weight with which this replica's part counts in a metric; None: as it is given."""
    share, true = getattr(_here, "share", None), getattr(_here, "true", None)
    single = isinstance(metric, tf.keras.metrics.Mean | tf.keras.metrics.Sum)
    if single and weight is None and tf.convert_to_tensor(told).shape.rank == 0:
        return share
    first = tf.nest.flatten(told)[0]
    if weight is None and tells_of_batch(metric):  # a batch counts once, as in plain Keras
        examples = tf.shape(first)[0]
        once = tf.ones([], metric.dtype) if share is None else tf.cast(share, metric.dtype)
        return tf.fill([examples], once / tf.cast(tf.maximum(examples, 1), metric.dtype))
    if true is None:
        return None
    there = tf.cast(true > 0, tf.keras.backend.floatx())
    if weight is not None:
        return tf.cast(weight, there.dtype) * there
    return tf.fill([tf.shape(first)[0]], there)


def _is_metric(value: Any) -> bool:
    return isinstance(value, tf.keras.metrics.Metric)
