"""Keras 3 wraps TensorFlow's variables; tf.distribute and Horovod want the ones within."""

from collections.abc import Sequence
from typing import Any

from keras.src.backend.tensorflow.core import Variable


def raw(variable: Any) -> Any:
    """TensorFlow's variable of one of Keras."""
    return variable._value if isinstance(variable, Variable) else variable  # `value` may cast it


def of_keras(variable: Any) -> Any:
    """The variable of Keras that wraps one of TensorFlow's, if `owned` has returned that."""
    return getattr(variable, _OWNER, variable)


_OWNER = "_ringside_owner"


def owned(variables: Sequence[Any]) -> list[Any]:
    """TensorFlow's variables, of each of which Keras' is known."""
    found = []
    for one in variables:
        value = raw(one)
        if value is not one:
            setattr(value, _OWNER, one)
        found.append(value)
    return found
