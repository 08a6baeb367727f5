"""Tests that `make test` leaves to `make test-all`: those whose fault a quicker test shows."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def nightly(*values: Any) -> Any:
    """Parameters of a test that is nightly."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def daily(values: Iterable[Any], when: Callable[[Any], bool]) -> list[Any]:
    """All values in their order; those of which `when` is false are nightly.

    A value that is a tuple holds one value for each parameter of the test.
    """
    return [
        value if when(value) else nightly(*(value if isinstance(value, tuple) else (value,)))
        for value in values
    ]
