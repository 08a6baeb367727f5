"""Started in place of Ringside's train.py: trains workloads of the zoo, and tells the weights.

`cases.json` lists [workload, gradient accumulation steps]; one start serves them all.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RunSpec, Surroundings


def work(
    spec: RunSpec,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
    facts: dict[str, Any],
) -> None:
    """All trainings, one after the other, under one started backend."""
    reporter.phase("importing")
    from trainers.process import started

    cases = json.loads((run_dir / "cases.json").read_text())
    with started(spec, surroundings, reporter.phase, facts) as backend:
        if backend is None:
            return
        for done, (name, steps) in enumerate(cases):
            reporter.step(done, len(cases))
            weights = train(name, spec.replace(gradient_accumulation_steps=steps), backend, run_dir)
            np.savez(run_dir / f"{name}-{steps}-{surroundings.task_name}.npz", *weights)


def train(name: str, spec: RunSpec, backend: Any, run_dir: Path) -> list[np.ndarray]:
    """The final weights of all replicas of this process, each [replicas, …]."""
    from ringside_core.keras import tf
    from tests.verify.zoo import ZOO
    from trainers.fit import fit
    from trainers.training import FitResult

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
        result=FitResult(),
        watchers=keep,
    )
    return weights


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
