"""Started in place of Ringside's train.py: all programs at all sizes, by one started backend."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter, end_process, run_launched
from ringside_core.specs import RecordInProgress, Surroundings


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Train each program, and write down where it began, where it ended and what it told."""
    reporter.phase("importing")
    from trainers.process import started

    with started(record, surroundings, reporter.phase) as backend:
        if backend is None:
            return
        from ringside_core.keras import get_weights
        from tests.training.programs.models import EPOCHS, PROGRAMS, SIZES
        from trainers.fit import fit
        from trainers.prepare import prepare

        answers: dict[str, Any] = {"seed": record.spec.seed}
        spec = record.spec.replace(epochs=EPOCHS, save="record")
        for name, workload_of in PROGRAMS.items():
            for size in SIZES:
                one = RecordInProgress.begun(spec)
                driver = prepare(one, workload_of(size), backend, run_dir=run_dir)
                model = driver.training.model
                head = f"{name} {size} "
                answers |= {f"{head}initial {i}": w for i, w in enumerate(get_weights(model))}
                fit(driver)
                answers |= {f"{head}final {i}": w for i, w in enumerate(get_weights(model))}
                last = one.epochs[-1]
                answers |= {f"{head}told {key}": value for key, value in last.train.items()}
                answers |= {f"{head}val {key}": value for key, value in last.validation.items()}
        np.savez(run_dir / f"answer-{surroundings.task_name}.npz", **answers)


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
