"""A training that takes turns with others: it waits after each turn until it may go on."""

import math
import time
from collections.abc import Callable
from typing import Any

from trainers.driver import Listener

POLL_S = 0.0005


def end_training(model: Any, validates: list[int] | None) -> None:
    """End a training behind the update that it has made.

    Args:
        model: that is trained.
        validates: epochs behind which it is validated; none is, once it ends.
    """
    model.stop_training = True
    if validates is not None:
        validates.clear()  # Keras looks into this list


class WaitForTurn(Listener):
    """Waits within a training after each of its turns. It must be the last of the listeners.

    Args:
        allowed: returns the updates after which to wait; infinity: never again; below 0: the
            training ends.
        waits: called with the updates done when the training waits.
        validates: see `end_training`.
    """

    def __init__(
        self,
        allowed: Callable[[], float],
        waits: Callable[[int], None],
        validates: list[int] | None = None,
    ) -> None:
        self._allowed, self._waits, self._validates = allowed, waits, validates
        self._until = allowed()

    def on_step(self, done: int) -> None:
        """Wait if the turn is over. Every process of the run waits after the same update."""
        if done < self._until:
            return
        if done >= (self.training.updates or math.inf):
            self._until = math.inf  # the training is over: nothing waits any more
            return
        with self.clock.paused():
            self._waits(done)
            while 0 <= (until := self._allowed()) <= done:
                time.sleep(POLL_S)
            self._until = until
        if until < 0:
            self._until = math.inf
            end_training(self.training.model, self._validates)
