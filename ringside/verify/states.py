"""States of the reference before each update, and how another training takes them over.

From the same state two updates differ by the rounding of one update, however long the training is.
So float32, which is what people run, can be held to a narrow tolerance over its whole length.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringside_core.keras import build_optimizer, trainable_of, variables_of, weights_of
from ringside_core.workloads.workload import Workload
from trainers import checkpoint
from trainers.driver import Listener

# States of larger models are kept for fewer updates: one for each update, and the last one.
KEPT_BYTES = 200_000_000
# Two epochs, each with a whole batch and a short one.
FEWEST_UPDATES = 4


def state_file(folder: Path, update: int) -> Path:
    """The checkpoint of the state after an update, counted from 1; 0: before the first."""
    return folder / f"after-{update:04d}.npz"


class KeepStates(Listener):
    """Writes the state before the first update and after each, for `FromStates`.

    The reference has one process, which writes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_start(self) -> None:
        """The state before the first update."""
        self.on_step(0)

    def on_step(self, done: int) -> None:
        """The state after an update."""
        arrays = checkpoint.snapshot(self.training.model)
        checkpoint.write(state_file(self._folder, done), arrays, checkpoint.Position(0))


class FromStates(Listener):
    """Lets each update begin from the reference's state, loaded as a restart loads a checkpoint.

    Let it be told after the listener that notes what an update has changed. It loads the state
    after the last update too, so that each evaluation is of the reference's weights.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_start(self) -> None:
        """Only a run in float64 cannot begin as the reference in float32 begins."""
        if self._in_float64:
            self.on_step(0)

    def on_step(self, done: int) -> None:
        """Load the state after this update, which is that before the next one."""
        model, backend = self.training.model, self.training.backend
        path = state_file(self._folder, done)
        if self._in_float64:
            # The reference's own updates in float64, in its process. No arm may load another type.
            arrays, _ = checkpoint.read(path)
            checkpoint.put(checkpoint.values_in(arrays), model, backend)
        else:
            checkpoint.restore(path, model, backend)

    @property
    def _in_float64(self) -> bool:
        return self.training.spec.precision == "float64"


class Moved(Listener):
    """Moves each trained weight to a neighbouring number, up or down, as rounding might have done.

    Others stay: a counter that is moved may be another number. Let it be told after `FromStates`.
    For a serial run.
    """

    def __init__(self, *, each_update: bool) -> None:
        """Move them at the start.

        Args:
            each_update: also before each later update.
        """
        self._each_update, self._chance = each_update, np.random.default_rng(0)

    def on_start(self) -> None:
        """Before the first update."""
        move_to_neighbours(trainable_of(self.training.model), self._chance)

    def on_step(self, done: int) -> None:
        """Before the next update."""
        if self._each_update:
            self.on_start()


def move_to_neighbours(variables: Sequence[Any], chance: np.random.Generator) -> None:
    """Move each element to a neighbouring number, up or down, as rounding might have done."""
    for variable in variables:
        values = variable.numpy()
        up = chance.random(values.shape) < 0.5
        variable.assign(np.nextafter(values, np.where(up, np.inf, -np.inf).astype(values.dtype)))


def updates_to_keep(workload: Workload, steps: int) -> int:
    """Of how many of these updates the states are kept: the same in every process."""
    model = workload.build_model()
    variables: list[Any] = weights_of(model)
    slots = 2  # of each weight, as Adam has, unless the optimizer can be asked
    if workload.optimizer is not None:
        optimizer, slots = workload.optimizer(), 0
        build_optimizer(optimizer, trainable_of(model))
        variables += variables_of(optimizer)
    # In the bytes of float32: the same updates are made in float64, and must be as many.
    size = (1 + slots) * sum(v.shape.num_elements() * min(4, v.dtype.size) for v in variables)
    return min(steps, max(FEWEST_UPDATES, KEPT_BYTES // max(1, size) - 1))
