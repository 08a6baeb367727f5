"""Your own training step, written as a function with a tape: a model that runs it."""

import inspect
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any

from ringside_core.keras import KERAS, python_of, tf
from ringside_core.specs import RefusalError
from ringside_core.text import plural

_LAYER = tf.keras.layers.Layer
_HOLDERS = (tf.Module, _LAYER)  # layers of Keras 3 are no modules
_KEPT = (*_HOLDERS, tf.Variable, tf.keras.metrics.Metric)
_DEEPEST = 8


class Step:
    """A function that makes one training step: `@ringside.step` above it.

    It is called as before. Given to `ringside.fit` instead of a model, it is run on batches of
    the data, distributed like a model's `train_step`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Look at nothing yet: what the function uses may be made below it.

        Args:
            function: x, or x and y, of a batch → its loss, or losses by name.
        """
        self._function = python_of(function)
        self._called = function
        self._model: Any = None
        update_wrapper(self, self._function)

    def __call__(self, *batch: Any, **arguments: Any) -> Any:
        """Call the function."""
        return self._called(*batch, **arguments)

    def model(self) -> Any:
        """The model that runs it, made in the current scope; the same one each time.

        Raises:
            RefusalError: the function uses no optimizer.
        """
        if self._model is None:
            self._model = StepFunction(self._function, list(_used_by(self._function)))
        return self._model


step = Step  # stands above a function: @ringside.step


class StepFunction(tf.keras.Model):
    """Holds what a step function uses, and runs it."""

    def __init__(self, function: Callable[..., Any], used: Sequence[Any]) -> None:
        super().__init__(name=getattr(function, "__name__", "step"))
        optimizers = [one for one in used if isinstance(one, KERAS.optimizers)]
        if not optimizers:
            raise RefusalError(
                "A step function must use an optimizer of tf.keras, by its name in the script.",
                received=self.name,
                advice="Write optimizer.apply_gradients(…) in it, with a variable of the script.",
            )
        self._function, self._optimizers = function, optimizers
        self._own_metrics = [one for one in used if isinstance(one, tf.keras.metrics.Metric)]
        built = (one for one in used if isinstance(one, _HOLDERS) and getattr(one, "built", True))
        of_parts = {id(v) for one in built for v in one.variables}
        self._parts = [
            one
            for one in used
            if not isinstance(one, (*KERAS.optimizers, tf.keras.metrics.Metric))
            and id(one) not in of_parts
        ]
        tf.keras.Model.compile(self, optimizer=optimizers[0])

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Its losses are in the function."""
        raise NotImplementedError

    @property
    def metrics(self) -> list[Any]:
        """Those that the function updates: they are reset at the beginning of an epoch."""
        return self._own_metrics

    def train_step(self, data: Any) -> Any:
        """Run it on a batch."""
        self.check_takes(data)
        batch = data if isinstance(data, tuple) else (data,)
        takes = inspect.signature(self._function).parameters
        whole = len(takes) == 1 < len(batch)  # it takes the batch apart itself
        return _named(self._function(data) if whole else self._function(*batch), self.name)

    def check_takes(self, data: Any) -> None:
        """Refuse a function that takes more than a batch, or less.

        Raises:
            RefusalError: see above.
        """
        takes = inspect.signature(self._function)
        parts = len(data) if isinstance(data, tuple) else 1
        try:
            takes.bind(*range(1 if len(takes.parameters) == 1 else parts))
        except TypeError:
            raise RefusalError(
                "A step function takes the parts of a batch, and nothing else.",
                received=f"{self.name}{takes}, and data of {plural(parts, 'part')}",
                advice="Leave the others away, or give them defaults. What programs of Horovod do "
                "at the first batch, Ringside does itself.",
            ) from None


def _named(losses: Any, name: str) -> dict[str, Any]:
    """What a step returns, by name."""
    if isinstance(losses, dict):
        return losses
    if losses is None:
        raise RefusalError(
            "A step function must return its loss, or losses by name.",
            received=f"nothing from {name}",
            advice="Write return loss, or return {'loss': loss}.",
        )
    if isinstance(losses, tuple | list):
        return {f"loss_{number}": one for number, one in enumerate(losses, start=1)}
    return {"loss": losses}


def _used_by(function: Any, seen: set[int] | None = None, depth: int = 0) -> Iterator[Any]:
    """Models, layers, variables, metrics and optimizers that a function uses, each once."""
    # They are found by the names that it and the functions that it calls use, in arguments that are
    # fixed, and in the object of a method; also in lists, tuples and dicts.
    seen = set() if seen is None else seen
    for value in _values_of(function):
        for one in tf.nest.flatten(value) if isinstance(value, list | tuple | dict) else [value]:
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, (*_KEPT, *KERAS.optimizers)):
                yield one
            elif depth < _DEEPEST and _is_users(one):
                yield from _used_by(one, seen, depth + 1)


def _values_of(function: Any) -> list[Any]:
    """What a function refers to by name; of an object, what it holds."""
    function = python_of(function)
    if isinstance(function, partial):
        return [function.func, *function.args, *function.keywords.values()]
    if inspect.ismethod(function):
        return [function.__self__, function.__func__]
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return [*found.globals.values(), *found.nonlocals.values(), *defaults]
    return list(vars(function).values()) if hasattr(function, "__dict__") else []


def _is_users(value: Any) -> bool:
    """Whether it is a function, or an object of a class, that is not installed."""
    value = python_of(value)
    if isinstance(value, partial) or inspect.ismethod(value):
        return True
    code = value if inspect.isfunction(value) else type(value)
    try:
        file = inspect.getfile(code)
    except (TypeError, OSError):
        return False
    installed = (sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
    return not any(Path(file).resolve().is_relative_to(Path(one).resolve()) for one in installed)
