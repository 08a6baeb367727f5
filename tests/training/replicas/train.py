"""Started in place of Ringside's train.py: trains workloads of the zoo, and tells the weights.

`cases.json` lists [workload, gradient accumulation steps]; one start serves them all.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter, end_process, run_launched
from specs import RunSpec, Surroundings


def work(
    spec: RunSpec,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
    facts: dict[str, Any],
) -> None:
    """All trainings, one after the other, under one started backend."""
    reporter.phase("importing")
    from backends.registry import make_backend
    from legacy_keras import tf

    tf.keras.backend.set_floatx(spec.precision)
    cases = json.loads((run_dir / "cases.json").read_text())
    with make_backend(spec, surroundings) as backend:
        facts.update(role=backend.role, is_chief=backend.is_chief)
        if backend.role == "server":
            reporter.phase("serving")
            backend.serve()
            return
        for done, (name, steps) in enumerate(cases):
            reporter.step(done, len(cases))
            weights = train(name, spec.replace(gradient_accumulation_steps=steps), backend, run_dir)
            np.savez(run_dir / f"{name}-{steps}-{surroundings.task_name}.npz", *weights)


def train(name: str, spec: RunSpec, backend: Any, run_dir: Path) -> list[np.ndarray]:
    """The final weights of all replicas of this process, each [replicas, …]."""
    from legacy_keras import tf
    from trainers.fit import fit
    from trainers.training import FitResult
    from verify.zoo import ZOO

    weights: list[np.ndarray] = []

    def keep(training: Any) -> list[Any]:
        def look(_: Any) -> None:
            values = [np.stack(backend.local_values(v)) for v in training.model.weights]
            weights.extend(values)

        return [tf.keras.callbacks.LambdaCallback(on_train_end=look)]

    fit(
        spec,
        ZOO[name](),
        backend,
        run_dir=run_dir / name,
        process_start=time.time(),
        on_step=lambda done, total: None,
        on_epoch=lambda number, record: None,
        result=FitResult(),
        watchers=keep,
    )
    return weights


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
