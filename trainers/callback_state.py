"""Callbacks of an author: which of them a process calls, and what they have learned in a training.

What they have learned (patience, best values, weights) is in its checkpoints. Of each callback
those attributes are kept that have changed since its `on_train_begin`, if they hold numbers, texts,
NumPy arrays, or lists, tuples, sets, deques and dicts of these.
"""

import hashlib
import json
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import is_of_keras, optimizers_of, tf

TEXT, ARRAY = "callbacks", "callback_"
_MOST_VALUES = 100_000  # of a list: more would take longer than the rest of a checkpoint
_NUMERIC = "biufc"
_SET_BY_KERAS = ("model", "_model", "params", "validation_data")
_SERIES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "deque": deque}
_callbacks = tf.keras.callbacks
# Of Keras' own. Others have what belongs to one process, such as an open file or a profiler.
_LEARNING = (_callbacks.EarlyStopping, _callbacks.ReduceLROnPlateau, _callbacks.ModelCheckpoint)
# Keras 3 turns its sign when it first compares, once in each process.
_OF_A_PROCESS = ("min_delta",)
# Every process takes part where a strategy reads variables by a collective; there Keras lets all
# but the chief write into folders that it removes.
_WRITE_TOGETHER = (_callbacks.ModelCheckpoint, _callbacks.TensorBoard)
_WRITE_ALONE = (_callbacks.CSVLogger, _callbacks.RemoteMonitor)
_DONE_ANYWAY = (_callbacks.ProgbarLogger, _callbacks.TerminateOnNaN)


class _NotPlainError(TypeError):
    """A value that no checkpoint holds."""


@dataclass(frozen=True)
class CallbackState:
    """What the callbacks of a training have learned.

    Attributes:
        text: JSON: `kinds`, the classes of the callbacks; `changed`, for each one its attributes by
            name; `rates`, for each optimizer its learning rate, if that has changed; `stops`, that
            one of them wants to stop at the end of the epoch; `left_out`, attributes of an author's
            own callbacks that no checkpoint holds.
        arrays: those that the text names by their numbers.
    """

    text: str
    arrays: tuple[NDArray[Any], ...] = ()

    @property
    def stops(self) -> bool:
        """Whether a callback wants to stop at the end of the epoch."""
        return bool(json.loads(self.text)["stops"])

    @property
    def left_out(self) -> list[str]:
        """What they may have learned besides, as `class.attribute`."""
        return list(json.loads(self.text)["left_out"])

    def fits(self, callbacks: Sequence[Any], model: Any) -> bool:
        """Whether it is of such callbacks, and of a model with as many optimizers."""
        fields = json.loads(self.text)
        same = fields["kinds"] == _kinds(callbacks)
        return same and len(fields["rates"]) == len(optimizers_of(model))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As they are in a checkpoint."""
        numbered = {f"{ARRAY}{number}": one for number, one in enumerate(self.arrays)}
        return {TEXT: np.array(self.text), **numbered}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "CallbackState | None":
        """Read them; None: the checkpoint holds none.

        Raises:
            ValueError, LookupError, TypeError: it is damaged.
        """
        if TEXT not in arrays:
            return None
        count = sum(name.startswith(ARRAY) for name in arrays)
        found = cls(str(arrays[TEXT]), tuple(arrays[f"{ARRAY}{n}"] for n in range(count)))
        fields = json.loads(found.text)
        for _, changed in zip(fields["kinds"], fields["changed"], strict=True):
            if not isinstance(changed, dict):
                raise TypeError("attributes without names")
            for value in changed.values():
                _decoded(value, found.arrays)
        for rate in fields["rates"]:
            float(0.0 if rate is None else rate)
        ", ".join([*fields["left_out"], str(fields["stops"])])
        return found


class Learned:
    """Follows what callbacks learn.

    Args:
        callbacks: of a training, before their `on_train_begin`.
        model: that is trained.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any) -> None:
        self._callbacks, self._model = tuple(callbacks), model
        self._rates = _rates(model)
        self._before: list[dict[str, str]] = []

    def begin(self) -> None:
        """Their `on_train_begin` is over: what changes from now on is learned."""
        self._before = [
            {name: _digest(*kept) for name, kept in _plain(one).items()} for one in self._callbacks
        ]

    def state(self, *, stops: bool) -> CallbackState:
        """What they have learned so far.

        Args:
            stops: see CallbackState.
        """
        arrays: list[NDArray[Any]] = []
        changed, left_out = [], set[str]()
        for one, before in zip(self._callbacks, self._before, strict=True):
            plain = _plain(one)
            names = [n for n, kept in plain.items() if _digest(*kept) != before.get(n)]
            changed.append({name: _encoded(vars(one)[name], arrays) for name in names})
            left_out.update(_left_out(one, plain.keys()))
        rates = [
            None if now == before else now
            for now, before in zip(_rates(self._model), self._rates, strict=True)
        ]
        fields = {
            "kinds": _kinds(self._callbacks),
            "changed": changed,
            "rates": rates,
            "stops": stops,
            "left_out": sorted(left_out),
        }
        return CallbackState(json.dumps(fields), tuple(arrays))

    def restore(self, state: CallbackState) -> None:
        """Let them go on from a state that fits them."""
        fields = json.loads(state.text)
        for callback, changed in zip(self._callbacks, fields["changed"], strict=True):
            for name, value in changed.items():
                setattr(callback, name, _decoded(value, state.arrays))
        for optimizer, rate in zip(optimizers_of(self._model), fields["rates"], strict=True):
            if rate is not None:
                optimizer.learning_rate.assign(rate)


def _kinds(callbacks: Sequence[Any]) -> list[str]:
    return [type(one).__name__ for one in callbacks]


def _attributes(callback: Any) -> dict[str, Any]:
    """Those that may be learned."""
    learning = isinstance(callback, _LEARNING)
    others = [one for one in type(callback).__mro__ if is_of_keras(one)]
    if not learning and others[0] is not _callbacks.Callback:
        return {}
    fixed = (*_SET_BY_KERAS, *(_OF_A_PROCESS if learning else ()))
    return {name: value for name, value in vars(callback).items() if name not in fixed}


def _plain(callback: Any) -> dict[str, tuple[str, list[NDArray[Any]]]]:
    """The attributes that a checkpoint can hold: by name, as JSON and its arrays."""
    found = {}
    for name, value in _attributes(callback).items():
        arrays: list[NDArray[Any]] = []
        try:
            found[name] = (json.dumps(_encoded(value, arrays)), arrays)
        except _NotPlainError:
            continue
    return found


def _left_out(callback: Any, plain: Collection[str]) -> list[str]:
    """The attributes of an author's own callback that are not plain, but for functions and data."""
    kind = type(callback)
    if is_of_keras(kind):
        return []
    own = set(vars(callback)) - set(_SET_BY_KERAS) - set(plain)
    named = _attributes(callback) or dict.fromkeys(own)
    return [
        f"{kind.__name__}.{name}"
        for name in sorted(own & named.keys())
        if not callable(vars(callback)[name])
        and not isinstance(vars(callback)[name], tf.data.Dataset)
    ]


def _digest(text: str, arrays: Sequence[NDArray[Any]]) -> str:
    sums = [hashlib.blake2b(np.ascontiguousarray(one).tobytes()).hexdigest() for one in arrays]
    forms = [f"{one.dtype.str}{one.shape}" for one in arrays]
    return json.dumps([text, forms, sums])


def _encoded(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """As JSON: an object says of which kind a value is; an array goes into the list of arrays."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMERIC:
        arrays.append(np.asarray(value))
        kind = "number" if isinstance(value, np.generic) else "array"
        return {kind: len(arrays) - 1}
    kind = type(value).__name__
    if _SERIES.get(kind) is type(value) and len(value) <= _MOST_VALUES:
        held = [_encoded(one, arrays) for one in value]
        return {kind: [value.maxlen, held] if kind == "deque" else held}
    if type(value) is dict and len(value) <= _MOST_VALUES:
        pairs = [[_encoded(k, arrays), _encoded(v, arrays)] for k, v in value.items()]
        return {kind: pairs}
    raise _NotPlainError(kind)


def _decoded(value: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind in ("array", "number"):
        found = arrays[held]
        return np.array(found) if kind == "array" else found[()]
    if kind == "dict":
        return {_decoded(k, arrays): _decoded(v, arrays) for k, v in held}
    if kind == "deque":
        most, held = held
        return deque((_decoded(one, arrays) for one in held), most)
    return _SERIES[kind](_decoded(one, arrays) for one in held)


def _rates(model: Any) -> list[float | None]:
    """The learning rate of each optimizer; None: it follows a schedule."""
    rates = [one.learning_rate for one in optimizers_of(model)]
    return [float(rate.numpy()) if hasattr(rate, "assign") else None for rate in rates]


def learned_by(
    given: Sequence[Any], state: CallbackState | None, model: Any, *, stopped: bool
) -> tuple[CallbackState | None, tuple[str, ...]]:
    """From what callbacks go on at a restart (None: from nothing), and warnings of what does not.

    Args:
        given: the callbacks.
        state: of a checkpoint; None: it has none.
        model: that is trained.
        stopped: they have stopped that training, which is trained on now.
    """
    if not given:
        return None, ()
    if stopped or state is None or not state.fits(given, model):
        names = sorted({type(callback).__name__ for callback in given})
        said = "the checkpoint does not hold what these callbacks have learned"
        if stopped:
            said = "callbacks had stopped this training"
        return None, (f"{', '.join(names)} began again from nothing at the restart: {said}.",)
    if not state.left_out:
        return state, ()
    said = "a checkpoint holds numbers, texts and NumPy arrays of a callback, and lists of them"
    return state, (f"{', '.join(state.left_out)} began again from nothing at the restart: {said}.",)


def of_this_process(given: Sequence[Any], model: Any, backend: Any) -> list[Any]:
    """Those that this process calls: a file is written once.

    Args:
        given: Keras callbacks.
        model: that is trained.
        backend: started.
    """
    together = model.distribute_strategy.extended._in_multi_worker_mode()

    def here(one: Any) -> bool:
        if isinstance(one, _WRITE_ALONE) or (isinstance(one, _WRITE_TOGETHER) and not together):
            return bool(backend.is_chief)
        return True

    return [one for one in given if type(one) not in _DONE_ANYWAY and here(one)]
