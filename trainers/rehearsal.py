"""A model and its metrics tried out on a few examples, before anything is trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import (
    VERSION,
    added_losses,
    build_losses,
    build_metrics,
    compiled_losses,
    compiled_metrics,
    lowest_bits,
    name_alike,
    new_losses,
    new_metrics,
    tf,
    with_rank,
)
from ringside_core.specs import InputShard, RefusalError
from ringside_core.users_errors import names_a_type, of_users
from ringside_core.workloads.metrics import let_count_once, tells_of_batch
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.weights import labels
from ringside_core.workloads.workload import Workload
from trainers.ledger import current_ids
from trainers.summable import unsummable
from trainers.whole_batch import losses_count_padding, may_mask_outputs

# Uneven, so that a mean of means differs from the mean. From 0.25 to 3, so that a metric that
# ignores them is noticed.
_WEIGHTS = (1.0, 0.5, 2.0, 1.0, 0.25, 3.0, 1.0, 1.5, 0.5, 1.0, 2.0, 0.75)
_CUTS = ((0, 6), (6, 11), (11, 12))


class Rehearsal:
    """The first examples of a split, and what the untrained model predicts for them.

    It runs once in each process, outside of the replicas, and draws no random numbers. What is kept
    is made within the backend's scope, so that its strategy knows it; the rest is made outside.

    Attributes:
        predictions: nest of tensors, of a dozen examples.
        coupled: whether the first of them are others if the batch is filled up with themselves.
    """

    def __init__(
        self, model: Any, workload: Workload, backend: Backend, pipeline: Pipeline
    ) -> None:
        self._model, self._workload, self._backend = model, workload, backend
        self._x, self._y, weight = first_examples(pipeline, len(_WEIGHTS))
        factors = tf.constant(_WEIGHTS, weight.dtype)
        self._weight = weight * with_rank(factors, weight.shape.rank)
        with backend.scope():  # a layer may make variables when it is called
            with about_sizes(model.name):
                self.predictions = model(self._x, training=False)
                filled = model(_filled_up(self._x), training=False)
            self.coupled = _differ(filled, self.predictions, _rounding(model))
            if losses_count_padding(model):
                _check_no_sums(model, self._x)

    @property
    def _labels(self) -> Any:
        return labels(self._y)

    def losses(self) -> Any:
        """What `Model.compile` makes of the workload's losses, as a copy of its own."""
        given = (self._workload.loss, self._workload.loss_weights, self._output_names)
        return _refusing("losses", new_losses, *given, self._labels, self.predictions)

    def metrics(self) -> Any:
        """What `Model.compile` makes of the workload's metrics, as a copy of its own.

        The names are those of training, because Keras numbers metrics that have no name.
        """
        given = (self._workload.metrics(), self._output_names)
        metrics = _refusing("metrics", new_metrics, *given, self._labels, self.predictions)
        name_alike(metrics, compiled_metrics(self._model))
        return self._counting(metrics)

    def _counting(self, metrics: Any) -> Any:
        """The same metrics; without the examples' weights, if their author wants them so."""
        if not self._workload.counts_once:
            return metrics
        if may_mask_outputs(self._model):
            raise RefusalError(
                "Metrics of a masked output are weighted, where examples have weights.",
                received="compile(metrics=…) beside sample_weight or class_weight",
                advice="Write compile(weighted_metrics=…).",
            )
        for one in metrics.metrics:
            let_count_once(one, current_ids)
        return metrics

    @property
    def _output_names(self) -> Any:
        return getattr(self._model, "output_names", None)

    def check_metrics(self) -> None:
        """Refuse metrics that do not fit the outputs, or are not exact under every backend.

        This also makes the metrics of the training. Call it outside of any scope.

        Raises:
            RefusalError: with the metric's name and the reason.
        """
        self._workload.check_metrics(len(tf.nest.flatten(self.predictions)))
        trained, losses = compiled_metrics(self._model), compiled_losses(self._model)
        # Keras builds them in the first step, on a replica. Strings and functions become metrics
        # only now. Outside of the scope they would get variables that no strategy sums.
        with self._backend.scope():
            _refusing("losses", build_losses, losses, self._labels, self.predictions)
            _refusing("metrics", build_metrics, trained, self._labels, self.predictions)
        self._counting(trained)
        batches = [_cut((self._y, self.predictions, self._weight), *cut) for cut in _CUTS]
        # Many of Keras 3's own metrics assign, and could not be used anywhere.
        shared = VERSION == 2 or not self._backend.capabilities.synchronous
        trimmed = losses_count_padding(self._model)
        reason = unsummable(self.metrics, trained.metrics, batches, shared=shared, trimmed=trimmed)
        of_batch = [one.name for one in trained.metrics if tells_of_batch(one)]
        if of_batch and self._workload.is_weighted():
            raise RefusalError(
                "A metric must tell each example, where examples have weights.",
                received=f"{of_batch[0]}, which returns one number for a batch",
                advice="Return a value for each example, as tf.reduce_mean(…, axis=-1).",
            )
        if reason is not None:
            raise RefusalError(
                "A metric must be exact under every backend: its state summed over replicas, "
                "padding left out.",
                received=reason,
            )


def _rounding(model: Any) -> float:
    """A share of the largest prediction; by so much rounding alone changes none."""
    # GPUs multiply with fewer bits than they store.
    exact = lowest_bits(model) >= 32 and not tf.config.list_physical_devices("GPU")
    return 1e-4 if exact else 1e-2


def _filled_up(x: Any) -> Any:
    """The first half of a batch, twice."""
    half = len(_WEIGHTS) // 2
    return tf.nest.map_structure(lambda tensor: tf.concat([tensor[:half]] * 2, 0), x)


def _differ(some: Any, predictions: Any, rounding: float) -> bool:
    """Whether predictions of the first half of a batch differ by more than rounding."""
    for pair in zip(tf.nest.flatten(some), tf.nest.flatten(predictions), strict=True):
        if any(one.shape.rank == 0 for one in pair):
            continue
        found, expected = (np.asarray(one)[: len(_WEIGHTS) // 2] for one in pair)
        if found.dtype.kind != "f" or found.shape != expected.shape or not found.size:
            continue
        largest = float(np.max(np.abs(expected.astype(np.float64))))
        if np.max(np.abs(found.astype(np.float64) - expected)) > rounding * largest:
            return True
    return False


def _check_no_sums(model: Any, x: Any) -> None:
    """Refuse a loss that a layer adds and that grows with the batch.

    Each replica would add another one from its part. Only a pure sum is recognised.
    """
    *parts, whole = (_added(model, _cut(x, *cut)) for cut in (*_CUTS, (0, len(_WEIGHTS))))
    for name, value in whole.items():
        own = [part.get(name, 0.0) for part in parts]
        mean = float(np.average(own, weights=[stop - start for start, stop in _CUTS]))
        if _near(sum(own), value) and not _near(mean, value):
            raise RefusalError(
                "A loss that a layer adds must be a mean over the batch, not a sum.",
                received=f"{value:.6g} from {name} for a batch, which is the sum over its parts",
                advice="Use tf.reduce_mean over the examples in add_loss.",
            )


def _added(model: Any, x: Any) -> dict[str, float]:
    """What each layer adds to the loss of these examples, without what is added for weights."""
    model(x, training=False)
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    losses = {layer.name: own for layer in layers if (own := added_losses(layer))}
    return {name: sum(map(_of_batch, own)) for name, own in losses.items()}


def _of_batch(loss: Any) -> float:
    """A loss as it is told: of one for each example the mean (trainers/sums.py).

    Keras 3 adds them up itself.
    """
    return float(tf.reduce_mean(loss) if VERSION == 2 else tf.reduce_sum(loss))


def _near(one: float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=1e-3, atol=0.0))  # a layer may compute in float32


@contextmanager
def about_sizes(
    what: str, rule: str = "A model must run on any number of examples: replicas get parts."
) -> Iterator[None]:
    """Say what the size of a batch has to do with an error of the author's.

    Args:
        what: of his runs in this block.
        rule: what it must do.

    Raises:
        RefusalError: it ends with an error.
    """
    try:
        yield
    except (RefusalError, NotImplementedError):
        raise
    except Exception as error:
        if names_a_type(str(error)):
            raise
        raise RefusalError(
            rule,
            received=f"{what}, which ends with {of_users(error)}",
            advice="If that is about a size, take it from the batch, as tf.shape(x)[0], and not "
            "from a constant.",
        ) from error


def first_examples(pipeline: Pipeline, count: int) -> tuple[Any, Any, Any]:
    """(x, y, weight) of the first examples of a split in one batch; few are repeated."""
    parts, found = [], 0
    for x, y, weight, _, ids in pipeline.dataset(InputShard(index=0, count=1)):
        true = tf.where(ids >= 0)[:, 0]
        parts.append(_gathered((x, y, weight), true))
        found += len(true)
        if found >= count:
            break
    whole = tf.nest.map_structure(lambda *pieces: tf.concat(pieces, axis=0), *parts)
    x, y, weight = _gathered(whole, [place % found for place in range(count)])
    return x, y, weight


def _gathered(nest: Any, places: Any) -> Any:
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, places), nest)


def _cut(nest: Any, start: int, stop: int) -> Any:
    return tf.nest.map_structure(lambda tensor: tensor[start:stop], nest)


def _refusing(what: str, build: Any, *arguments: Any) -> Any:
    """Turn Keras' error about the structure into a refusal."""
    try:
        return build(*arguments)
    except (ValueError, TypeError) as error:
        raise RefusalError(
            f"The {what} must fit the model's outputs.", received=str(error).rstrip(".")
        ) from None
