"""What new and legacy optimizers of tf.keras do each in a way of its own."""

from collections.abc import Sequence
from typing import Any


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the optimizer's variables for these of a model; a legacy one has no `build`."""
    make = getattr(optimizer, "build", None) or optimizer._create_all_weights
    make(variables)


def variables_of(optimizer: Any) -> list[Any]:
    """All variables in order: an attribute of some optimizers, a method of others."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def variable_names(optimizer: Any) -> list[str]:
    """Names of all variables, such as `m/dense/kernel`, the same in every family.

    Where `fit` makes them they are named after the optimizer too, whose name Horovod changes.
    """
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    own = f"{getattr(scaled, 'name', None) or scaled._name}/"
    return [v.name.removesuffix(":0").removeprefix(own) for v in variables_of(optimizer)]
