"""What Ringside changes in legacy Keras (tf-keras 2), for all programs of a process.

As shipped, legacy Keras computes something else (docs/upstream.md), or fails:

- A weight for each example weighs all of its loss, which may be a map of pixels, and all its
  elements in counts such as Precision's and MeanIoU's.
- In float64 every layer computes so, and so do learning rates that follow a schedule.
- Under a mirrored strategy gradients of several types are added, those of a type together.
- Vocabularies are tables, which no strategy holds; a built model with one can be compiled.
- Under central storage one replica sets the present rate of a schedule.
- `RandomRotation` fails in float64.
"""

import functools
import inspect
from typing import Any

import numpy as np
from tf_keras.src.engine.base_layer_utils import TrackableWeightHandler
from tf_keras.src.layers.preprocessing import image_preprocessing as _images
from tf_keras.src.metrics.iou_metrics import _IoUBase
from tf_keras.src.optimizers import utils as _optimizers
from tf_keras.src.utils import losses_utils, metrics_utils

from ringside_core.keras.tensorflow import rotations, tf, with_rank


def _wide_in_float64(make: Any) -> Any:
    """In float64 every layer computes so, also one whose author chose another type: proofs do."""

    @functools.wraps(make)
    def made(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        lower = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
        wide = tf.keras.backend.floatx() == "float64" and name in lower
        make(self, "float64" if wide else name, *args, **kwargs)

    return made


_Policy = tf.keras.mixed_precision.Policy
_Policy.__init__ = _wide_in_float64(_Policy.__init__)


def _rate_in_float64(make: Any) -> Any:
    """In float64 schedules compute so too; in float32 a graph's cosine may not be Python's."""

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if tf.keras.backend.floatx() == "float64":
            numbers = {name: value for name, value in vars(self).items() if type(value) is float}
            vars(self).update({name: np.float64(value) for name, value in numbers.items()})

    return made


for _schedule in filter(inspect.isclass, vars(tf.keras.optimizers.schedules).values()):
    setattr(_schedule, "__init__", _rate_in_float64(_schedule.__init__))  # noqa: B010  # mypy
# A vocabulary is a table, which no strategy holds. Keras asks in which scope it was made when a
# built model is compiled.
TrackableWeightHandler._distribute_strategy = property(
    lambda self: tf.distribute.get_strategy(), lambda self, strategy: None
)


def _rotated_in_float64(upstream: Any) -> Any:
    """Keras makes matrices of rotations from sizes in float32, and fails among float64."""

    @functools.wraps(upstream)
    def matrix(angles: Any, height: Any, width: Any, name: str | None = None) -> Any:
        make = rotations if angles.dtype == tf.float64 else functools.partial(upstream, name=name)
        return make(angles, height, width)

    return matrix


def _summed_by_type(upstream: Any) -> Any:
    """Under a mirrored strategy TensorFlow packs all gradients into one tensor, of one type."""

    @functools.wraps(upstream)
    def summed(grads_and_vars: Any) -> list[Any]:
        pairs = list(grads_and_vars)
        types = dict.fromkeys(gradient.dtype for gradient, _ in pairs if gradient is not None)
        if len(types) < 2:
            return list(upstream(pairs))
        alike = (
            [n for n, (g, _) in enumerate(pairs) if g is not None and g.dtype == one]
            for one in types
        )
        for numbers in alike:
            for number, pair in zip(numbers, upstream([pairs[n] for n in numbers]), strict=True):
                pairs[number] = pair
        return pairs

    return summed


_optimizers.all_reduce_sum_gradients = _summed_by_type(_optimizers.all_reduce_sum_gradients)
_images.get_rotation_matrix = _rotated_in_float64(_images.get_rotation_matrix)


def let_replicas_set_rate(optimizer: Any) -> None:
    """Under central storage the present rate of a schedule must say which replica sets it."""
    central = isinstance(
        tf.distribute.get_strategy(), tf.distribute.experimental.CentralStorageStrategy
    )
    if central and hasattr(optimizer, "_current_learning_rate"):
        optimizer._current_learning_rate = tf.Variable(
            optimizer._current_learning_rate.read_value(),
            name="current_learning_rate",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


def _with_rate_for_replicas(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def built(optimizer: Any, learning_rate: Any) -> Any:
        rate = upstream(optimizer, learning_rate)
        with tf.init_scope():
            let_replicas_set_rate(optimizer)
        return rate

    return built


tf.keras.optimizers.Optimizer._build_learning_rate = _with_rate_for_replicas(
    tf.keras.optimizers.Optimizer._build_learning_rate
)


def _weigh_examples(upstream: Any) -> Any:
    """Let a weight for each example weigh all of its loss, which may be a map of pixels.

    Keras gives weights one more axis only. Those of a batch would be laid over columns of the map.
    """

    @functools.wraps(upstream)
    def weighed(losses: Any, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        weights = getattr(getattr(sample_weight, "shape", None), "rank", None)
        values = getattr(getattr(losses, "shape", None), "rank", None)
        if weights == 1 and values is not None and values > 2:
            sample_weight = with_rank(sample_weight, values)
        return upstream(losses, sample_weight, *args, **kwargs)

    return weighed


losses_utils.compute_weighted_loss = _weigh_examples(losses_utils.compute_weighted_loss)


def _of_elements(weight: Any, values: Any) -> Any:
    """The weights of examples as those of all their elements: Keras' counts want each."""
    if weight is None:
        return None
    weight, values = tf.convert_to_tensor(weight), tf.convert_to_tensor(values)
    if weight.dtype.is_bool:  # a mask
        weight = tf.cast(weight, tf.keras.backend.floatx())
    if weight.shape.rank is None or not 0 < weight.shape.rank <= (values.shape.rank or 0):
        return weight
    return with_rank(weight, values.shape.rank) * tf.ones_like(values, weight.dtype)


def _count_pixels(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def update_state(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        classes = y_true if self.sparse_y_true else tf.argmax(y_true, axis=self.axis)
        return upstream(self, y_true, y_pred, _of_elements(sample_weight, classes))

    return update_state


def _count_elements(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def update(variables: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("sample_weight") is not None:  # as Keras does: (n,) beside (n, 1), say
            y_pred, y_true = losses_utils.squeeze_or_expand_dimensions(
                tf.convert_to_tensor(y_pred), tf.convert_to_tensor(y_true)
            )
        # Of one class Keras takes one column of the outputs.
        counted = y_pred if kwargs.get("class_id") is None else y_pred[..., :1]
        kwargs["sample_weight"] = _of_elements(kwargs.get("sample_weight"), counted)
        return upstream(variables, y_true, y_pred, *args, **kwargs)

    return update


_IoUBase.update_state = _count_pixels(_IoUBase.update_state)  # of MeanIoU and its like
metrics_utils.update_confusion_matrix_variables = _count_elements(  # of Precision, AUC and so on
    metrics_utils.update_confusion_matrix_variables
)
