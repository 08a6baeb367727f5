"""A listener that looks at a training when it is over."""

from collections.abc import Callable
from typing import Any

from trainers.driver import Listener, Training


class AtEnd(Listener):
    """Calls a function with the training when its last epoch is over."""

    def __init__(self, look: Callable[[Training], Any]) -> None:
        self._look = look

    def on_end(self) -> None:
        self._look(self.training)
