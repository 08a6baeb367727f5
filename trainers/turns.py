"""A training that takes turns with others: it waits after each turn until it may go on."""

import math
import time
from collections.abc import Callable

from trainers.driver import Listener

POLL_S = 0.0005


class WaitForTurn(Listener):
    """Waits within a training after each of its turns. It must be the last of the listeners.

    Args:
        allowed: returns the updates after which to wait; infinity: never again.
        waits: called with the updates done when the training waits.
    """

    def __init__(self, allowed: Callable[[], float], waits: Callable[[int], None]) -> None:
        self._allowed, self._waits = allowed, waits
        self._until = allowed()

    def on_step(self, done: int) -> None:
        """Wait if the turn is over. Every process of the run waits after the same update."""
        if done < self._until:
            return
        if done >= (self.training.updates or math.inf):
            self._until = math.inf  # the training is over: nobody waits any more
            return
        with self.clock.paused():
            self._waits(done)
            while (until := self._allowed()) <= done:
                time.sleep(POLL_S)
            self._until = until
