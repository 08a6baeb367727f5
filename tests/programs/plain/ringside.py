"""The same words as plain Keras: the reference, first on PYTHONPATH."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism

os.environ["RINGSIDE_KERAS_AS_SHIPPED"] = "1"  # where a program draws by rows
_iterate = tf.data.Dataset.__iter__


def _read_the_same(self: Any) -> Iterator[Any]:
    """All processes read the same if data are deterministic; the steps are not made so."""
    tf.config.experimental.enable_op_determinism()
    try:
        return _iterate(self)
    finally:
        disable_op_determinism()


tf.data.Dataset.__iter__ = _read_the_same


def scope() -> Any:
    """No strategy."""
    return nullcontext()


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


def fit(
    model: Any, *data: Any, gradients: str = "optimizer", draws: int | None = None, **arguments: Any
) -> Any:
    """`Model.fit`; of a step, a loop over its batches. By rows, if a seed of draws is given."""
    if draws is not None:
        from ringside_core.keras.draws import Draws

        Draws(draws).take(model)
    if isinstance(model, tf.keras.Model):
        return model.fit(*data, **arguments)
    for _ in range(arguments["epochs"]):
        for batch in data[0]:
            model(*batch)
    return None


def gather(rows: Any) -> Any:
    """All there are."""
    return rows


def is_chief() -> bool:
    """There is only this process."""
    return True
