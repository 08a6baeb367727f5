"""Which models must be given true examples only, because a weight of 0 does not take padding out.

An author's own training step is one. So is Keras' own if a loss or a metric may look at its whole
batch: an author's own function, which may couple the examples or return one number for all of them;
a loss or a metric that a layer adds from its activations; and a loss that is divided by the valid
elements of a mask. Such a model is trained as if Keras' step were its author's own.

The structure of the model decides, and no experiment: so it is decided alike in all processes, with
every seed and in every precision.
"""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from ringside_core.keras import has_own_step, is_graph_network, is_of_keras, mask_of, tf
from ringside_core.workloads.workload import Workload

_MARK = "_ringside_losses_count_padding"


def losses_count_padding(model: Any) -> bool:
    """Whether a loss that Keras computes may count padding; of a model after `mark_losses`."""
    return _MARK in vars(model)


def takes_true_examples(model: Any) -> bool:
    """Whether its training step is given true examples only; of a model after `mark_losses`."""
    return has_own_step(model) or losses_count_padding(model)


def mark_losses(model: Any, workload: Workload, *, one_pass: bool) -> Any:
    """Note on a model whether its losses may count padding.

    Args:
        model: of the workload, built; it need not be compiled.
        workload: with the losses.
        one_pass: whether a replica runs its batch in one pass. In several, only Keras' own step can
            be run: an author's own loss is then weighed, a layer's metric counts padding, and a
            certificate tells if that is wrong.

    Returns:
        The model.
    """
    vars(model).pop(_MARK, None)  # a script may compile it again, with other losses
    weighable = has_own_loss(workload) or workload.has_own_metric() or _may_measure(model)
    if (weighable and one_pass) or _may_add_losses(model) or may_mask_outputs(model):
        vars(model)[_MARK] = True
    return model


def mark_alike(model: Any, other: Any) -> None:
    """Note on a model what was noted on another one that is built alike."""
    if losses_count_padding(other):
        vars(model)[_MARK] = True


def runs_in_one_pass(spec: Any) -> bool:
    """Whether a replica of this run makes an update from one pass over its part of a batch."""
    return bool(spec.gradient_accumulation_steps == spec.options.passes_per_reduction == 1)


def has_own_loss(workload: Workload) -> bool:
    """Whether a loss is a function, or of a class, of the author's."""
    return not all(map(_is_of_keras, tf.nest.flatten(workload.loss)))


def _is_of_keras(loss: Any) -> bool:
    """Whether a loss is one of those that come with Keras: means over examples that it weighs."""
    if loss is None:
        return True
    if isinstance(loss, str):
        loss = tf.keras.losses.get(loss)  # a name may be registered for an author's own
    parts = [loss if isinstance(loss, FunctionType | type) else type(loss)]
    parts += [loss.fn] if isinstance(getattr(loss, "fn", None), FunctionType) else []
    return all(map(is_of_keras, parts))


def may_mask_outputs(model: Any) -> bool:
    """Whether an output may have a mask."""
    if is_graph_network(model):
        return any(mask_of(output) is not None for output in tf.nest.flatten(model.outputs))
    # A subclassed model does not say where a mask ends.
    return any(
        isinstance(one, tf.keras.layers.Masking) or getattr(one, "mask_zero", False)
        for one in model._flatten_layers()
    )


def _may_add_losses(model: Any) -> bool:
    """Whether a layer adds a loss when it is called; those of weights do not count."""
    layers = model._flatten_layers()
    if any(getattr(layer, "activity_regularizer", None) is not None for layer in layers):
        return True
    return _may_add(model, "add_loss")


def _may_measure(model: Any) -> bool:
    """Whether a layer updates a metric when it is called."""
    return bool(_held_by_layers(model)) or _may_add(model, "add_metric")


def metrics_of_layers(model: Any) -> list[Any]:
    """The metrics that a call of the model updates, which must have been called once.

    The model's own are not among them if its author wrote the step that updates them.
    """
    found = {id(metric) for metric in _held_by_layers(model)}
    return [metric for metric in model.metrics if id(metric) in found]


def _held_by_layers(model: Any) -> list[Any]:
    called = [one for one in model._flatten_layers() if one is not model or not has_own_step(one)]
    return [metric for layer in called for metric in layer._metrics]


def _may_add(model: Any, by: str) -> bool:
    """Whether the class of a layer uses this name: `add_loss`, `add_metric`."""
    return any(by in _names_used_by(kind) for kind in set(map(type, model._flatten_layers())))


def _names_used_by(kind: type) -> set[str]:
    """Names that the methods of a layer's class use, and the functions that they call.

    Keras' base classes, which define `add_loss` and `add_metric`, do not count.
    """
    found: set[str] = set()
    seen: set[int] = set()
    for one in kind.__mro__:
        if one in tf.keras.Model.__mro__:
            break
        for method in vars(one).values():
            _note_names(getattr(method, "__wrapped__", method), found, seen)
    return found


def _note_names(function: Any, found: set[str], seen: set[int]) -> None:
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    found |= names
    if function.__module__.split(".")[0] in ("tensorflow", "keras", "tf_keras"):
        return
    held = dict(inspect.getclosurevars(function).nonlocals)
    held |= {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    for value in held.values():
        _note_names(value, found, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
