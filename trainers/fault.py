"""A fault that is made on purpose, in the middle of a training, to see what becomes of it."""

import time
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

    Faults other than `rank-asleep`, `rank-raises` and `nan` are made from outside.

    Args:
        request: of the drill.
        folder: where the drill and the tasks tell each other.
        task: this one.
    """

    def __init__(self, request: FaultRequest, folder: Path, task: str) -> None:
        self._request, self._task = request, task
        self._reached, self._struck = folder / f"{REACHED}{task}", folder / STRUCK
        self._over = self._struck.exists()  # in an attempt before this one

    def on_step(self, done: int) -> None:
        """Wait, and make the fault."""
        if self._over or done < self._request.update:
            return
        self._over = True
        write_whole(self._reached, f"{done}\n")
        while not self._struck.exists():
            time.sleep(POLL_S)
        if self._request.task != self._task:
            return
        if self._request.fault == "rank-raises":
            raise PlantedError("raised by the drill")
        if self._request.fault == "rank-asleep":
            time.sleep(FOR_EVER_S)
        if self._request.fault == "nan":
            self._poison()

    def _poison(self) -> None:
        model = self.training.model
        weights = get_weights(model)
        first = next(n for n, one in enumerate(weights) if np.issubdtype(one.dtype, np.floating))
        weights[first] = np.full_like(weights[first], np.nan)
        with self.training.backend.scope():
            set_weights(model, weights)


def drilled(run_dir: Path, task: str, fit: int) -> list[Listener]:
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
    return [Fault(request, folder, task)] if fit == request.fit else []
