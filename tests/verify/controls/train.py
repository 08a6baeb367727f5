"""Started in place of Ringside's train.py: trains without a mistake, then with each, and tells.

One answer for each training and process: the weights of all local replicas after each update, the
evaluation and the ledger of each epoch, and the guard of `fit` that ended it, if one did.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter, end_process, run_launched
from ringside.verify.mistakes import MISTAKES, obstacle, shows_after_restart, workload_of
from ringside_core.specs import EpochRecord, RecordInProgress, RunSpec, Surroundings

# Trainings without a mistake, and the workload of each.
CLEAN = {
    "clean": "ringside.verify.controls:control_workload",
    "clean_proxy": "ringside.verify.controls:control_workload",
    "clean_batch_norm": "ringside.verify.controls:control_workload_with_batch_norm",
    "clean_restarted": "ringside.verify.controls:control_workload",
}
GUARDS = ("ReplicasDifferError", "LedgerError")


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """All trainings, one after the other, under one started backend."""
    reporter.phase("importing")
    from trainers.process import started

    names = [*CLEAN, *(m.name for m in MISTAKES if obstacle(m.name, record.spec) is None)]
    with started(record, surroundings, reporter.phase) as backend:
        if backend is None:
            return
        for done, name in enumerate(names):
            reporter.step(done, len(names))
            answer = train(name, record.spec, backend, run_dir / name)
            np.savez(run_dir / f"{name}-{surroundings.task_name}.npz", **answer)


def train(name: str, spec: RunSpec, backend: Any, folder: Path) -> dict[str, Any]:
    """One training, from the restart where there is one."""
    from ringside.verify.control_data import BackendProxy
    from ringside.verify.controls import make_mistake
    from ringside_core.workloads.registry import load_workload
    from trainers.fit import fit

    asynchronous = not backend.capabilities.synchronous
    own = "tests.verify.by_hand:counting" if asynchronous else CLEAN.get(name) or workload_of(name)
    workload = load_workload(own, options={}, data_dir=None)
    if name == "clean_proxy":
        backend = BackendProxy(backend)
    elif name not in CLEAN:
        workload, backend = make_mistake(name, spec, workload, backend)
    seen = Seen(backend)
    epochs: list[EpochRecord] = []

    def once(spec: RunSpec) -> None:
        record = RecordInProgress.begun(spec)
        try:
            fit(record, workload, backend, run_dir=folder, listeners=[seen.listener()])
        finally:
            epochs.extend(record.epochs)

    guard = ""
    try:
        if name == "clean_restarted" or shows_after_restart(name):
            once(spec.replace(epochs=1, save="all"))
            spec = spec.replace(resume_from=str(folder / "checkpoint.npz"))
        once(spec)
    except RuntimeError as error:
        if type(error).__name__ not in GUARDS:
            raise
        guard = type(error).__name__
    return {
        "guard": guard,
        "evaluation": np.array([list(epoch.validation.values()) for epoch in epochs]),
        "validation_examples": np.array([epoch.validation_examples for epoch in epochs]),
        "id_sums": np.array([epoch.ledger.id_sum for epoch in epochs if epoch.ledger]),
        "counts": np.array([epoch.ledger.count for epoch in epochs if epoch.ledger]),
        **seen.weights(),
    }


class Seen:
    """The weights of all local replicas before the first and after each update."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._rows: list[list[np.ndarray]] = []

    def listener(self) -> Any:
        """It looks on; a restart begins anew."""
        from trainers.driver import Listener

        seen = self

        class Looking(Listener):
            def on_start(self) -> None:
                seen._rows.clear()
                self.on_step(0)

            def on_step(self, done: int) -> None:
                seen._look(self.training.model)

        return Looking()

    def _look(self, model: Any) -> None:
        self._backend.barrier()
        self._rows.append([np.stack(self._backend.local_values(v)) for v in model.weights])

    def weights(self) -> dict[str, np.ndarray]:
        """weight_00, …: [updates + 1, local replicas, …]."""
        columns = zip(*self._rows, strict=True)
        return {f"weight_{i:02d}": np.stack(column) for i, column in enumerate(columns)}


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
