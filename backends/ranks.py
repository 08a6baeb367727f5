"""Ranks: each process has a TensorFlow of its own, which does not know the others."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, statistics


class Ranks(Backend):
    """What is combined over the ranks is combined by `_all_reduce`, outside of the step."""

    def average_statistics(self, model: Any) -> None:
        """The mean over the ranks."""
        for variable in statistics(model):
            variable.assign(self.all_reduce(variable.numpy(), "mean"))

    def summed(self, variable: Any) -> NDArray[Any]:
        """The sum over the ranks: to TensorFlow their variables are not connected."""
        return self.all_reduce(super().summed(variable))

    def hold_sums(self, variables: list[Any]) -> Callable[[], None]:
        """The sums over the ranks."""
        own = [variable.numpy() for variable in variables]
        sums = [self.all_reduce(value) for value in own]
        for variable, total in zip(variables, sums, strict=True):
            variable.assign(total)

        def hold_own() -> None:
            for variable, value, total in zip(variables, own, sums, strict=True):
                if np.array_equal(variable.numpy(), total):  # else a callback has written it
                    variable.assign(value)

        return hold_own
