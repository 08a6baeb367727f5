"""No strategy at all: the reference to which every other backend is compared."""

from backends.base import Backend


class Serial(Backend):
    """One replica in one process, TensorFlow's default strategy."""

    def _start(self) -> None:
        """Nothing to take."""
