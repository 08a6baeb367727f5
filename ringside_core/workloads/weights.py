"""The weight of an example: the user's sample weights and class weights."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from ringside_core.keras import has_own_step, tf, with_rank
from ringside_core.specs import RefusalError
from ringside_core.workloads.source import ArraySource, Source


def check_class_weight(
    class_weight: Mapping[int, float], train: Source, *, preprocessed: bool
) -> None:
    """Refuse class weights that `Model.fit` would refuse, and labels without a weight if visible.

    Args:
        class_weight: class → factor.
        train: the training data.
        preprocessed: `preprocess` makes the labels later; then the pipeline checks each batch.
    """
    given: Any = class_weight  # the user's own, of whatever type
    if not isinstance(given, Mapping) or not all(
        isinstance(number, Integral) and isinstance(factor, Real)
        for number, factor in given.items()
    ):
        raise RefusalError(
            "class_weight must be a dict from class to factor, both numbers.",
            received=repr(given),
        )
    if sorted(class_weight) != list(range(len(class_weight))):
        raise RefusalError(
            "class_weight must name the classes 0, 1, 2, … without a gap.",
            received=sorted(class_weight),
        )
    if not np.isfinite(list(class_weight.values())).all():
        raise RefusalError("A class weight must be finite.", received=dict(class_weight))
    arrays = train.arrays if isinstance(train, ArraySource) and not preprocessed else None
    if isinstance(arrays, tuple | list) and len(arrays) > 1:
        classes = np.asarray(_classes(arrays[1]))
        unknown = np.unique(classes[(classes < 0) | (classes >= len(class_weight))])
        if unknown.size:
            raise RefusalError(
                "class_weight must name every class of the training data.",
                received=f"labels of class {', '.join(map(str, unknown[:5]))}, "
                f"weights of {len(class_weight)} classes",
            )


def unpacked(element: Any, weight: Any, class_weight: Mapping[int, float] | None) -> Any:
    """x, (x, y) or (x, y, sample_weight), and Ringside's weight [batch] → (x, y, weight).

    Without labels, y is an empty tuple: a data set can hold that.

    Raises:
        RefusalError: an element or sample weight of another form.
    """
    parts = element if isinstance(element, tuple) else (element,)
    if not 1 <= len(parts) <= 3:
        raise RefusalError(
            "An element must be x, (x, y) or (x, y, sample_weight) when it reaches the model.",
            received=str(tf.nest.map_structure(lambda t: t.shape, element)),
            advice="Put what belongs together into a tuple, as in (x, (y, z)): in a `map` of the "
            "data, or in the workload's `preprocess`.",
        )
    x, y, *sample_weight = (*parts, ()) if len(parts) == 1 else parts
    if sample_weight:
        weight = _times(weight, sample_weight[0])
    if class_weight is not None:
        weight = _weighed_by_class(weight, y, class_weight)
    return x, y, weight


def as_fed(nest: Any, *, of_arrays: bool) -> Any:
    """Numbers in the type in which they reach the model.

    Keras gives arrays the type in which it computes, and leaves those of a data set as they are. In
    float64 all are given it: an author's own step may mix data and outputs of its model.

    Args:
        nest: of tensors.
        of_arrays: whether the author gave arrays.
    """
    floatx = tf.keras.backend.floatx()
    if not of_arrays and floatx != "float64":
        return nest
    return tf.nest.map_structure(lambda t: tf.cast(t, floatx) if t.dtype.is_floating else t, nest)


def takes_inputs(model: Any, form: Any) -> bool:
    """Whether the third part of an element is an input of the author's own step, and no weight.

    Keras hands such a step an element as it is. A loss that Keras weighs says that the third part
    may be weights.

    Args:
        model: compiled.
        form: of a batch of a data set, as its `element_spec`.
    """
    own = isinstance(model, tf.keras.Model) and has_own_step(model)
    return own and not getattr(model, "loss", None) and _are_inputs(form)


def inputs_together(*parts: Any) -> Any:
    """A batch of three inputs that are alike as x; another one, of validation, as it is."""
    return (parts,) if _are_inputs(parts) else parts


def _are_inputs(form: Any) -> bool:
    """Whether three parts are alike, such as anchor, positive and negative.

    A weight has fewer dimensions than an input.
    """
    if not isinstance(form, tuple) or len(form) != 3 or any(map(tf.nest.is_nested, form)):
        return False
    alike = {(tuple(part.shape[1:]), part.dtype) for part in form}
    return form[2].shape.rank > 1 and len(alike) == 1


def labels(y: Any) -> Any:
    """Labels as Keras takes them: None if there are none."""
    return None if isinstance(y, tuple) and not y else y


def packed(x: Any, y: Any, weight: Any, *, of_arrays: bool) -> Any:
    """A batch as Keras gives it to `train_step`: without what there is not.

    Args:
        x: of the batch.
        y: labels; None: there are none.
        weight: of the examples; None: there are none.
        of_arrays: whether the data are arrays. Keras puts a nest without labels into a tuple then,
            and hands an element of a data set on as it is.
    """
    if weight is not None:
        return x, y, weight
    if y is not None:
        return x, y
    return (x,) if of_arrays and tf.nest.is_nested(x) else x


def _times(weight: Any, factor: Any) -> Any:
    """weight [batch, …] × the user's factor [batch, …], of each example or of its elements.

    Raises:
        RefusalError: there is one factor for each output; a weight must hold for all outputs.
    """
    if tf.nest.is_nested(factor):
        raise RefusalError(
            "An element must have one sample weight, for all outputs.",
            received=str(tf.nest.map_structure(lambda t: t.shape, factor)),
            advice="Weigh outputs against each other by the workload's loss_weights.",
        )
    factor = tf.cast(factor, weight.dtype)
    rank = max(weight.shape.rank, factor.shape.rank)
    return with_rank(weight, rank) * with_rank(factor, rank)


def _weighed_by_class(weight: Any, y: Any, class_weight: Mapping[int, float]) -> Any:
    """The weights of a batch times those of the classes of its labels, as `Model.fit` does it.

    Raises:
        RefusalError: labels of several outputs.
    """
    classes = _classes(y)
    factors = tf.constant([class_weight[c] for c in range(len(class_weight))], weight.dtype)
    with tf.control_dependencies(
        [
            tf.debugging.Assert(
                tf.reduce_all((classes >= 0) & (classes < len(class_weight))),
                [f"class_weight names {len(class_weight)} classes; labels are of", classes],
            )
        ]
    ):
        return _times(weight, tf.gather(factors, classes))


def _classes(y: Any) -> Any:
    """Labels as class numbers, int64: integers, or one-hot in the last dimension."""
    if tf.nest.is_nested(y):
        raise RefusalError(
            "class_weight needs labels of a single output.",
            received=f"labels of {len(tf.nest.flatten(y))} outputs",
            advice="Use sample weights.",
        )
    y = tf.convert_to_tensor(y)
    if y.shape.rank > 1 and y.shape[-1] > 1:
        return tf.argmax(y, axis=-1)
    if y.shape.rank > 1:
        y = tf.squeeze(y, axis=-1)
    return tf.cast(y if y.dtype.is_integer else tf.round(y), tf.int64)
