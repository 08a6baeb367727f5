"""Started in place of Ringside's train.py: one start serves several trainings of one workload.

`cases.json` maps a name to what of the spec is changed for it.
"""

import json
import sys
from pathlib import Path
from typing import Any

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
        answers = {}
        for done, (name, changes) in enumerate(cases.items()):
            reporter.step(done, len(cases))
            answers[name] = train(spec.replace(**changes), backend, run_dir / name)
    (run_dir / f"answer-{surroundings.task_name}.json").write_text(json.dumps(answers))


def train(spec: RunSpec, backend: Any, run_dir: Path) -> dict[str, Any]:
    """What `fit` told, and the final weights of each replica of this process."""
    from ringside_core.keras import tf
    from tests.contract.linear import linear
    from trainers.fit import fit
    from trainers.training import FitResult

    result, weights = FitResult(), []
    used: dict[str, Any] = {}

    def keep(training: Any) -> list[Any]:
        used["strategy"] = type(training.model.distribute_strategy).__name__
        used["reduces"] = hasattr(training.model.optimizer, "_allreduce_grads")

        def look(_: Any) -> None:
            values = [backend.local_values(v) for v in training.model.trainable_variables]
            weights.extend([[w.tolist() for w in of_one] for of_one in zip(*values, strict=True)])

        return [tf.keras.callbacks.LambdaCallback(on_train_end=look)]

    told: list[tuple[int, int]] = []
    fit(
        spec,
        linear(),
        backend,
        run_dir=run_dir,
        result=result,
        watchers=keep,
        on_step=lambda done, total: told.append((done, total)),
    )
    return {
        **used,
        "weights": weights,
        "final_digest": result.final_digest,
        "deviation": result.replica_deviation,
        "epochs": [json.loads(epoch.model_dump_json()) for epoch in result.epochs],
        "told": told,
    }


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
