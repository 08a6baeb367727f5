"""A look again and again, until something is so."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], *, seconds: float = 30.0) -> Any:
    """What it is at last; fails if it is nothing in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)
    return found
