"""A fault that is made on purpose, in the middle of a training, to see what becomes of it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ringside_core.keras import get_weights, set_weights
from ringside_core.specs import write_whole
from ringside_core.specs.fault_request import FOLDER, REACHED, REQUEST, STRUCK, FaultRequest
from trainers.driver import Listener

POLL_S = 0.01
FOR_EVER_S = 1e6


class PlantedError(RuntimeError):
    """An error that a drill has asked for."""


class Fault(Listener):
    """Waits after an update until a fault may be made; in one task it makes it.

    Args:
        update: after which it waits, once.
        reached: called there with the updates done.
        may_go_on: whether the fault has been made, or may be made.
        makes: the fault of this task: `rank-asleep`, `rank-raises` or `nan`. Any other is made from
            outside; empty: of another task.
    """

    def __init__(
        self,
        update: int,
        *,
        reached: Callable[[int], None],
        may_go_on: Callable[[], bool],
        makes: str,
    ) -> None:
        self._update, self._reached, self._may_go_on = update, reached, may_go_on
        self._makes = makes
        self._over = may_go_on()  # in an attempt before this one

    def on_step(self, done: int) -> None:
        """Wait, and make the fault."""
        if self._over or done < self._update:
            return
        self._over = True
        self._reached(done)
        while not self._may_go_on():
            time.sleep(POLL_S)
        if self._makes == "rank-raises":
            raise PlantedError("raised by the drill")
        if self._makes == "rank-asleep":
            time.sleep(FOR_EVER_S)
        if self._makes == "nan":
            self._poison()

    def _poison(self) -> None:
        model = self.training.model
        weights = get_weights(model)
        first = next(n for n, one in enumerate(weights) if np.issubdtype(one.dtype, np.floating))
        weights[first] = np.full_like(weights[first], np.nan)
        with self.training.backend.scope():
            set_weights(model, weights)


def drilled(run_dir: Path, task: str, fit: int = 1) -> list[Listener]:
    """The listeners of a training that a drill looks at; empty if no drill does.

    Args:
        run_dir: folder of the run.
        task: this one.
        fit: which training of a script it is, from 1.
    """
    folder = run_dir / FOLDER
    if not (folder / REQUEST).exists():
        return []
    text = (folder / REQUEST).read_text(encoding="utf-8")
    request = FaultRequest.from_json(text, origin=REQUEST)
    if fit != request.fit:
        return []
    return [
        Fault(
            request.update,
            reached=partial(_reached, folder / f"{REACHED}{task}"),
            may_go_on=(folder / STRUCK).exists,
            makes=request.fault if request.task == task else "",
        )
    ]


def _reached(file: Path, done: int) -> None:
    write_whole(file, f"{done}\n")
