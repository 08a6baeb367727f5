"""The linear model of the contract, with an optimizer that has a state to restore."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import EpochRecord, RecordInProgress, RunSpec, Surroundings, Topology
from ringside_core.workloads.workload import Workload
from tests.contract.cases import EPOCHS, GLOBAL_BATCH, NUM_TRAIN, SEED
from tests.contract.linear import linear
from tests.independent import order
from trainers.driver import Listener
from trainers.fit import fit
from trainers.prepare import prepare

STEPS = 4
"""Global batches of an epoch of 20 examples: 6, 6, 6 and 2."""


def momentum(dies_after: int = 0, signalled_after: int = 0, twice: bool = False) -> Workload:
    """Linear regression; the options are for tests/training/broken/train.py."""
    del dies_after, signalled_after, twice
    return dataclasses.replace(
        linear(), optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9)
    )


def spec_of(**changes: Any) -> RunSpec:
    """A serial run of it in float64, two epochs."""
    fields = {
        "workload": "tests.training.momentum:momentum",
        "backend": "serial",
        "options": {},
        "topology": Topology(),
        "global_batch": GLOBAL_BATCH,
        "epochs": EPOCHS,
        "precision": "float64",
        "seed": SEED,
        "ledger": "full",
    }
    return RunSpec(**{**fields, **changes})


class OnceDone(Listener):
    """Acts when so many updates have been done in this run."""

    def __init__(self, updates: int, act: Callable[[], None]) -> None:
        self._updates, self._act = updates, act

    def on_step(self, done: int) -> None:
        if done == self._updates:
            self._act()


class Kept(Listener):
    """Keeps the epochs' records, and what each epoch was fed."""

    def __init__(self, fed: list[np.ndarray]) -> None:
        self.fed = fed
        self.epochs: list[EpochRecord] = []

    def on_fed(self, epoch: int, ids: np.ndarray) -> None:
        self.fed.append(ids)

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        self.epochs.append(record)


def break_off() -> None:
    """As an exception of the user's would."""
    raise InterruptedError("broken off")


def train_serial(
    run_dir: Path,
    *,
    stop_after: int = 0,
    fed: list[np.ndarray] | None = None,
    trained: Callable[[], Workload] = momentum,
    **changes: Any,
) -> tuple[Kept, list[np.ndarray]]:
    """Train in this process; what was kept, and the weights at the end. `fed` survives an error."""
    spec = spec_of(**changes)
    record, kept = RecordInProgress.begun(spec), Kept([] if fed is None else fed)
    floatx = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx(spec.precision)

    stop = [OnceDone(stop_after, break_off)] if stop_after else []
    try:
        with make_backend(spec, Surroundings()) as backend:
            fit(prepare(record, trained(), backend, run_dir=run_dir, listeners=[kept, *stop]))
    except InterruptedError:
        pass
    finally:
        tf.keras.backend.set_floatx(floatx)
    return kept, kept.training.model.get_weights()


def planned(epoch: int, replicas: int) -> np.ndarray:
    """What each replica is to be fed, [steps, replicas, batch]; -1 is padding."""
    numbers = order(epoch, seed=SEED, total=NUM_TRAIN)
    padded = numbers + [-1] * (STEPS * GLOBAL_BATCH - NUM_TRAIN)
    return np.array(padded).reshape(STEPS, replicas, GLOBAL_BATCH // replicas)
