"""A command of `ringside` starts processes itself: nobody else's launcher counts."""

from ringside_core.specs import Surroundings


def alone() -> Surroundings:
    """The surroundings of a person at a terminal."""
    return Surroundings()
