"""The one place that says which Keras and which TensorFlow a process runs on.

A process runs legacy Keras or Keras 3 (`ringside_core/specs/keras_version.py`); `tf.keras` is the
one that it runs. What the two call by other names is a method of `KERAS` (`protocol.py`).

Import TensorFlow through here: `from ringside_core.keras import tf`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ringside_core.keras.protocol import Keras
from ringside_core.keras.tensorflow import VERSION as VERSION
from ringside_core.keras.tensorflow import tf as tf
from ringside_core.specs import RefusalError


def _keras() -> Keras:
    if VERSION == 2:
        from ringside_core.keras.legacy import Legacy

        return Legacy()
    try:
        from ringside_core.keras.keras3 import Keras3
    except (ImportError, AttributeError) as error:
        raise RefusalError(
            "Keras 3 must be installed, in a version whose private parts Ringside knows: 3.15.",
            received=error,
            advice="Run `make setup`: the lock names it.",
        ) from error
    return Keras3()


KERAS = _keras()
OWN_STEP = "_ringside_own_step"  # what `has_own_step` said of a model, before Ringside took it


@contextlib.contextmanager
def legacy_named_keras() -> Iterator[None]:
    """Let `import keras` mean legacy Keras, for modules that are imported within.

    Horovod's Keras modules say `from keras import backend`, which would take Keras 3 from beside
    TensorFlow (workaround in horovod#4290).
    """
    import tf_keras

    named = sys.modules.get("keras")
    sys.modules["keras"] = tf_keras
    try:
        yield
    finally:
        del sys.modules["keras"]
        if named is not None:
            sys.modules["keras"] = named


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step, or what Keras' own step calls.

    Of a model that Ringside has taken it is known from before: its methods hide the author's.
    """
    names = ("train_step", "compute_loss", "compute_metrics", "get_metrics_result")
    if OWN_STEP in vars(model):
        return bool(vars(model)[OWN_STEP])
    return any(
        n in vars(model) or getattr(type(model), n) is not getattr(tf.keras.Model, n) for n in names
    )


def python_of(function: Any) -> Any:
    """A function as Python. What a tf.function has traced draws by itself, and returns copies."""
    return getattr(function, "python_function", function)


def is_of_keras(part: Any) -> bool:
    """Whether a class, a function or a method comes with Keras, and is not an author's own."""
    return str(part.__module__).split(".")[0] in ("keras", "tf_keras")


def lowest_bits(model: Any) -> int:
    """Bits of the narrowest floating-point type in which a layer of a model computes."""
    types = {tf.as_dtype(one.compute_dtype) for one in model._flatten_layers() if one.compute_dtype}
    return min((one.size * 8 for one in types if one.is_floating), default=32)


def get_weights(model: Any) -> list[Any]:
    """The values of `KERAS.weights_of`."""
    return [variable.numpy() for variable in KERAS.weights_of(model)]


def set_weights(model: Any, values: Sequence[Any]) -> None:
    """Assign values to `KERAS.weights_of`."""
    for variable, value in zip(KERAS.weights_of(model), values, strict=True):
        variable.assign(np.asarray(value, variable.dtype.as_numpy_dtype))


def optimizers_of(model: Any) -> list[Any]:
    """Every optimizer that the model or a layer of it holds, the compiled one first; each once."""
    held = [getattr(model, "optimizer", None)]
    for part in dict.fromkeys([model, *model._flatten_layers()]):
        held += _flat(list(vars(part).values()))
    found = {id(one): one for one in held if isinstance(one, KERAS.optimizers)}
    inner = {id(getattr(one, "inner_optimizer", None)) for one in found.values()}  # of a loss scale
    return [one for one in found.values() if id(one) not in inner]


def _flat(value: Any) -> list[Any]:
    """What lists, tuples and dicts hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return [value]
    return [held for part in value for held in _flat(part)]


def optimizer_variables(
    model: Any, names: Callable[[Any], list[str]] = KERAS.variable_names
) -> list[tuple[str, Any]]:
    """The variables of all optimizers of a model in order, each with its name.

    Args:
        model: compiled.
        names: of the variables of an optimizer; of several optimizers, with a number before each.
    """
    optimizers = optimizers_of(model)
    heads = [f"{number}/" if len(optimizers) > 1 else "" for number, _ in enumerate(optimizers)]
    return [
        (head + name, variable)
        for head, one in zip(heads, optimizers, strict=True)
        for name, variable in zip(names(one), KERAS.variables_of(one), strict=True)
    ]


def slots_of(model: Any) -> list[Any]:
    """The variables of `optimizer_variables`, without their names."""
    return [variable for _, variable in optimizer_variables(model)]
