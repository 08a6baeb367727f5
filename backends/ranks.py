"""Ranks: each process has a TensorFlow of its own, which does not know the others."""

from collections.abc import Callable
from typing import Any

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

    def with_summed(self, variables: list[Any], read: Callable[[], Any]) -> Any:
        """The variables hold the ranks' sums only meanwhile."""
        own = [variable.numpy() for variable in variables]
        for variable, value in zip(variables, own, strict=True):
            variable.assign(self.all_reduce(value))
        try:
            return read()
        finally:
            for variable, value in zip(variables, own, strict=True):
                variable.assign(value)
