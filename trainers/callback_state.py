"""What callbacks have learned in a training, in its checkpoints: patience, best values, weights.

Of each callback those attributes are kept that have changed since its `on_train_begin`, if they
hold numbers, texts, NumPy arrays, or lists, tuples and dicts of these. An array that is changed in
its place counts as unchanged.
"""

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import optimizers_of

TEXT, ARRAY = "callbacks", "callback_"
_MOST_VALUES = 100_000  # of a list: more would take longer than the rest of a checkpoint
_NUMERIC = "biufc"
_SET_BY_KERAS = ("model", "_model", "params", "validation_data")


class _NotPlainError(TypeError):
    """A value that no checkpoint holds."""


@dataclass(frozen=True)
class CallbackState:
    """What the callbacks of a training have learned.

    Attributes:
        text: JSON: `kinds`, the classes of the callbacks; `changed`, for each one its attributes by
            name; `rates`, for each optimizer its learning rate, if that has changed; `left_out`,
            attributes of an author's own callbacks that have changed, and that no checkpoint holds.
        arrays: those that the text names by their numbers.
    """

    text: str
    arrays: tuple[NDArray[Any], ...] = ()

    @property
    def left_out(self) -> list[str]:
        """What they have learned besides, as `class.attribute`."""
        return list(json.loads(self.text)["left_out"])

    def fits(self, callbacks: Sequence[Any], model: Any) -> bool:
        """Whether it is of such callbacks, and of a model with as many optimizers."""
        told = json.loads(self.text)
        same = told["kinds"] == _kinds(callbacks)
        return same and len(told["rates"]) == len(optimizers_of(model))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As they are in a checkpoint."""
        numbered = {f"{ARRAY}{number:04d}": one for number, one in enumerate(self.arrays)}
        return {TEXT: np.array(self.text), **numbered}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "CallbackState | None":
        """Read them; None: the checkpoint holds none.

        Raises:
            ValueError, LookupError, TypeError: it is damaged.
        """
        if TEXT not in arrays:
            return None
        found = cls(
            str(arrays[TEXT]),
            tuple(arrays[name] for name in sorted(arrays) if name.startswith(ARRAY)),
        )
        told = json.loads(found.text)
        for _, changed in zip(told["kinds"], told["changed"], strict=True):
            if not isinstance(changed, dict):
                raise TypeError("attributes without names")
            for value in changed.values():
                _decoded(value, found.arrays)
        for rate in told["rates"]:
            float(0.0 if rate is None else rate)
        ", ".join(told["left_out"])
        return found


class Learned:
    """Follows what callbacks learn.

    Args:
        callbacks: of a training that begins, after their `on_train_begin`.
        model: that is trained.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any) -> None:
        self._callbacks, self._model = tuple(callbacks), model
        self._before = [dict(_attributes(one)) for one in callbacks]
        self._texts = [{name: _text(value) for name, value in one.items()} for one in self._before]
        self._rates = _rates(model)

    def state(self) -> CallbackState:
        """What they have learned so far."""
        arrays: list[NDArray[Any]] = []
        changed = [
            {name: _encoded(value, arrays) for name, value in self._changed(number)}
            for number in range(len(self._callbacks))
        ]
        rates = [
            None if now == before else now
            for now, before in zip(_rates(self._model), self._rates, strict=True)
        ]
        told = {
            "kinds": _kinds(self._callbacks),
            "changed": changed,
            "rates": rates,
            "left_out": sorted(set(self._left_out())),
        }
        return CallbackState(json.dumps(told), tuple(arrays))

    def restore(self, state: CallbackState) -> None:
        """Let them go on from a state that fits them."""
        told = json.loads(state.text)
        for callback, changed in zip(self._callbacks, told["changed"], strict=True):
            for name, value in changed.items():
                setattr(callback, name, _decoded(value, state.arrays))
        for optimizer, rate in zip(optimizers_of(self._model), told["rates"], strict=True):
            if rate is not None:
                optimizer.learning_rate.assign(rate)

    def _left_out(self) -> Iterator[str]:
        for callback, before in zip(self._callbacks, self._before, strict=True):
            kind = type(callback)
            if _is_of_keras(kind):
                continue  # an open file, say: it knows what to do
            for name, value in _attributes(callback).items():
                if _text(value) is None and value is not before.get(name):
                    yield f"{kind.__name__}.{name}"

    def _changed(self, number: int) -> list[tuple[str, Any]]:
        before, texts = self._before[number], self._texts[number]
        found = []
        for name, value in _attributes(self._callbacks[number]).items():
            text = _text(value)
            if text is not None and (text != texts.get(name) or _moved(value, before.get(name))):
                found.append((name, value))
        return found


def _kinds(callbacks: Sequence[Any]) -> list[str]:
    return [type(one).__name__ for one in callbacks]


def _attributes(callback: Any) -> dict[str, Any]:
    """Those that may be learned: not what Keras sets, nor the arguments of Keras' own classes.

    Of these Keras 3 turns the sign of `min_delta` when it first compares, once in each process.
    """
    fixed = set(_SET_BY_KERAS)
    for kind in filter(_is_of_keras, type(callback).__mro__):
        fixed.update(inspect.signature(kind).parameters)
    return {name: value for name, value in vars(callback).items() if name not in fixed}


def _is_of_keras(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("keras", "tf_keras")


def _moved(value: Any, before: Any) -> bool:
    """Whether it holds other arrays than before."""
    ids = [list(map(id, _arrays_of(one))) for one in (value, before)]
    return ids[0] != ids[1]


def _arrays_of(value: Any) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = []
    _encoded(value, arrays)
    return arrays


def _text(value: Any) -> str | None:
    """A text that differs if the value does, but for arrays; None: it is not kept."""
    try:
        return json.dumps(_encoded(value, []))
    except _NotPlainError:
        return None


def _encoded(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """As JSON: a list says of which kind it is; an array goes into the list of arrays."""
    if isinstance(value, np.generic) and value.dtype.kind in _NUMERIC:
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is np.ndarray and value.dtype.kind in _NUMERIC:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if type(value) in (list, tuple) and len(value) <= _MOST_VALUES:
        return {type(value).__name__: [_encoded(one, arrays) for one in value]}
    if type(value) is dict and len(value) <= _MOST_VALUES:
        pairs = [[_encoded(k, arrays), _encoded(v, arrays)] for k, v in value.items()]
        return {"dict": pairs}
    raise _NotPlainError(type(value).__name__)


def _decoded(value: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "array":
        return np.array(arrays[held])
    if kind == "dict":
        return {_decoded(k, arrays): _decoded(v, arrays) for k, v in held}
    return {"list": list, "tuple": tuple}[kind](_decoded(one, arrays) for one in held)


def _rates(model: Any) -> list[float | None]:
    """The learning rate of each optimizer; None: it follows a schedule."""
    rates = [one.learning_rate for one in optimizers_of(model)]
    return [float(rate.numpy()) if hasattr(rate, "assign") else None for rate in rates]
