"""A user's functions, called as tf.data calls them."""

from collections.abc import Callable, Sequence
from typing import Any

from ringside_core.keras import ag_ctx, autograph, python_of


def rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function with autograph, also within code of Ringside's that goes without."""
    enabled = ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED)
    made: Callable[..., Any] = autograph.tf_convert(python_of(function), enabled)
    return made


def called(function: Callable[..., Any], element: Any) -> Any:
    """tf.data's rule: a tuple is spread over the arguments."""
    return function(*element) if isinstance(element, tuple) else function(element)


def joined(arguments: tuple[Any, ...]) -> Any:
    """What tf.data spread over the arguments, as one element again."""
    return arguments[0] if len(arguments) == 1 else arguments


def as_tuple(element: Any) -> Any:
    """An element whose lists, at any depth, are tuples: tf.data makes one tensor of a list."""
    if isinstance(element, dict):
        return {name: as_tuple(part) for name, part in element.items()}
    if isinstance(element, list) or type(element) is tuple:
        return tuple(as_tuple(part) for part in element)
    return element


def one_after_another(*functions: Callable[..., Any] | None) -> Callable[..., Any]:
    """Functions element → element as one; None is left out."""
    kept = tuple(python_of(one) for one in functions if one is not None)
    return lambda *element: _through(kept, joined(element))


def _through(functions: Sequence[Callable[..., Any]], element: Any) -> Any:
    for function in functions:
        element = as_tuple(called(function, element))
    return element
