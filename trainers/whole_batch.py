"""Which models must be given true examples only, because a weight of 0 does not take padding out.

An author's own training step is one. So is Keras' own if a loss looks at its whole batch: one that
couples the examples, one that a layer adds from its activations, or one that is divided by the
valid elements of a mask. Such a model is trained as if Keras' step were its author's own.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.source import first_batches
from ringside_core.workloads.weights import labels
from ringside_core.workloads.workload import Workload

_MARK = "_ringside_looks_at_its_batch"
# Uneven parts of a batch of twelve: a mean of their means differs from the mean.
EXAMPLES, CUTS = 12, ((0, 6), (6, 11), (11, 12))


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step."""
    return type(model).train_step is not tf.keras.Model.train_step


def looks_at_its_batch(model: Any) -> bool:
    """Whether a loss that Keras computes does; of a marked model (`mark`)."""
    return _MARK in vars(model)


def takes_true_examples(model: Any) -> bool:
    """Whether its training step is given true examples only; of a marked model (`mark`)."""
    return has_own_step(model) or looks_at_its_batch(model)


def mark(model: Any, workload: Workload) -> Any:
    """Find out whether a loss of the model looks at its batch, and note it on the model.

    Args:
        model: of the workload, built; it need not be compiled.
        workload: with the losses.

    Returns:
        The model.

    Raises:
        RefusalError: a loss is a sum over its batch.
    """
    # What an author's own step does with its losses is its own affair, but for their evaluation.
    if (workload.loss is not None or not has_own_step(model)) and _looks(model, workload):
        vars(model)[_MARK] = True
    return model


def mark_alike(model: Any, other: Any) -> None:
    """Note on a model what was found of another one that is built alike."""
    if looks_at_its_batch(other):
        vars(model)[_MARK] = True


def _looks(model: Any, workload: Workload) -> bool:
    masked = any(
        getattr(output, "_keras_mask", None) is not None
        for output in tf.nest.flatten(getattr(model, "outputs", None))
    )
    if masked:
        return True
    subclassed = not (model._is_graph_network or isinstance(model, tf.keras.Sequential))
    own_loss = any(not _of_keras(loss) for loss in tf.nest.flatten(workload.loss))
    if not (own_loss or _may_add_losses(model) or (subclassed and _may_mask(model))):
        return False  # nearly all models: nothing is computed
    x, y = _examples(workload)
    whole, outputs = _added(model, x), model(x, training=False)
    if any(getattr(o, "_keras_mask", None) is not None for o in tf.nest.flatten(outputs)):
        return True
    cuts = _cuts(x)
    parts = [_added(model, _cut(x, *cut)) for cut in cuts]
    if not all(_close(part, whole) for part in parts):
        _check_no_sum(parts, cuts, whole, what=f"what {model.name} adds")
        return True  # padding would count in it
    return own_loss and _counts_padding(workload, model, y, outputs)


def _counts_padding(workload: Workload, model: Any, y: Any, outputs: Any) -> bool:
    """Whether the workload's losses couple the examples, or see those of weight 0.

    Keras weighs what a loss returns. So a loss that returns one number for its batch sees all.
    """
    compiled, names = tf.keras.Sequential(), getattr(model, "output_names", None)
    compiled.compile()
    kind = type(compiled.compiled_loss)

    def loss(y: Any, made: Any, weight: Any = None) -> float:
        losses = kind(workload.loss, workload.loss_weights, output_names=names)
        return float(losses(labels(y), made, weight))

    cuts = _cuts(outputs)
    parts, whole = [loss(_cut(y, *cut), _cut(outputs, *cut)) for cut in cuts], loss(y, outputs)
    _check_no_sum(parts, cuts, whole, what="of the workload")
    count, true = cuts[-1][1], cuts[0][1]
    weight = tf.cast(tf.range(count) < true, tf.keras.backend.floatx())
    weighted = loss(y, outputs, weight) * count / true
    return not (_close(_mean(parts, cuts), whole) and _close(weighted, parts[0]))


def _mean(parts: Sequence[float], cuts: Sequence[tuple[int, int]]) -> float:
    return float(np.average(parts, weights=[stop - start for start, stop in cuts]))


def _check_no_sum(
    parts: Sequence[float], cuts: Sequence[tuple[int, int]], whole: float, *, what: str
) -> None:
    """Refuse a loss that grows with the batch: each replica's would be of its own batch."""
    if _close(sum(parts), whole) and not _close(_mean(parts, cuts), whole):
        raise RefusalError(
            "A loss must be a mean over the batch, not a sum.",
            received=f"{what}: {whole:.6g} for a batch, {sum(parts):.6g} as the sum over its parts",
            advice="Use tf.reduce_mean over the examples.",
        )


def _added(model: Any, x: Any) -> float:
    """What layers add to the loss of these examples, without what is added for weights."""
    model(x, training=False)
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    return sum(float(tf.reduce_sum(loss)) for layer in layers for loss in layer._eager_losses)


def _examples(workload: Workload) -> tuple[Any, Any]:
    """(x, y) of the first examples."""
    first = next(iter(first_batches(workload.train, workload.preprocess, EXAMPLES)))
    parts = first if isinstance(first, tuple) else (first,)
    return parts[0], parts[1] if len(parts) > 1 else None


def _cuts(nest: Any) -> Sequence[tuple[int, int]]:
    """Parts of these examples; a small data set has fewer."""
    count = int(tf.shape(tf.nest.flatten(nest)[0])[0])
    return [(start, min(stop, count)) for start, stop in CUTS if start < count]


def _cut(nest: Any, start: int, stop: int) -> Any:
    return tf.nest.map_structure(lambda t: None if t is None else t[start:stop], nest)


def _close(one: float, other: float) -> bool:
    tolerance = float(np.sqrt(np.finfo(tf.keras.backend.floatx()).eps))
    return bool(np.isclose(one, other, rtol=tolerance, atol=0.0))


def _of_keras(loss: Any) -> bool:
    """Whether a loss is Keras' own: all of those are means over the examples."""
    if loss is None or isinstance(loss, str):
        return True
    named = loss if isinstance(loss, FunctionType | type) else type(loss)
    module = named.__module__
    if isinstance(loss, tf.keras.losses.Loss) and hasattr(loss, "fn"):
        module = getattr(loss.fn, "__module__", module)
    return module.startswith(("keras.", "tf_keras."))


def _may_add_losses(model: Any) -> bool:
    for layer in {id(one): one for one in model._flatten_layers()}.values():
        if getattr(layer, "activity_regularizer", None) is not None:
            return True
        if "add_loss" in _names_used_by(type(layer)):
            return True
    return False


def _may_mask(model: Any) -> bool:
    return any(
        isinstance(one, tf.keras.layers.Masking) or getattr(one, "mask_zero", False)
        for one in model._flatten_layers()
    )


def _names_used_by(kind: type) -> set[str]:
    """Names that the methods of a layer's class use, but for those of Keras' base classes."""
    found: set[str] = set()
    for one in kind.__mro__:
        if one in tf.keras.Model.__mro__:
            break
        for method in vars(one).values():
            with suppress(ValueError):
                function = getattr(method, "__wrapped__", method)
                if isinstance(function, FunctionType):
                    found.update(*(code.co_names for code in _codes(function.__code__)))
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
