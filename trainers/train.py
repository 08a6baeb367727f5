"""A prepared training is trained by whom its spec names."""

from trainers.driver import Driver
from trainers.fit import fit
from trainers.loop import loop
from trainers.preemption import Preemption

_TRAINERS = {"fit": fit, "loop": loop}


def train(driver: Driver) -> None:
    """Train for the epochs of a prepared training (`trainers.prepare`).

    Raises:
        PreemptedError: a signal has asked to end earlier, see `trainers.preemption`.
    """
    with Preemption.heard([each for each in driver.listeners if isinstance(each, Preemption)]):
        _TRAINERS[driver.training.spec.trained_by](driver)
