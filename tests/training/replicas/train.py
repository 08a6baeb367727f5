"""Started in place of Ringside's train.py: trains workloads of the zoo, and tells the weights.

`cases.json` lists [workload, gradient accumulation steps]; one start serves them all.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RecordInProgress, RunSpec, Surroundings


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """All trainings, one after the other, under one started backend."""
    reporter.phase("importing")
    from trainers.process import started

    cases = json.loads((run_dir / "cases.json").read_text())
    with started(record, surroundings, reporter.phase) as backend:
        if backend is None:
            return
        for done, (name, steps) in enumerate(cases):
            reporter.step(done, len(cases))
            spec = record.spec.replace(gradient_accumulation_steps=steps)
            weights = train(name, spec, backend, run_dir)
            np.savez(run_dir / f"{name}-{steps}-{surroundings.task_name}.npz", *weights)


def train(name: str, spec: RunSpec, backend: Any, run_dir: Path) -> list[np.ndarray]:
    """The final weights of all replicas of this process, each [replicas, …]."""
    from tests.training.listening import AtEnd
    from tests.verify.zoo import ZOO
    from trainers.fit import fit

    weights: list[np.ndarray] = []

    def look(training: Any) -> None:
        weights.extend(np.stack(backend.local_values(v)) for v in training.model.weights)

    record = RecordInProgress.begun(spec)
    fit(record, ZOO[name](), backend, run_dir=run_dir / name, listeners=[AtEnd(look)])
    return weights


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
