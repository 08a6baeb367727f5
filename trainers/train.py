"""A prepared training is trained by whom its spec names."""

from trainers.driver import Driver
from trainers.fit import fit
from trainers.loop import loop

_TRAINERS = {"fit": fit, "loop": loop}


def train(driver: Driver) -> None:
    """Train for the epochs of a prepared training (`trainers.prepare`)."""
    _TRAINERS[driver.training.spec.trained_by](driver)
