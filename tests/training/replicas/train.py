"""Started in place of Ringside's train.py: one start serves several trainings.

`cases.json` maps a name to a workload, and to what of the spec is changed for it.
"""

import json
import sys
from pathlib import Path
from typing import Any

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
        answers = {}
        for done, (name, (workload, changes)) in enumerate(cases.items()):
            reporter.step(done, len(cases))
            own = record.spec.replace(workload=workload, **changes)
            answers[name] = train(own, backend, run_dir / name)
    (run_dir / f"answer-{surroundings.task_name}.json").write_text(json.dumps(answers))


def train(spec: RunSpec, backend: Any, run_dir: Path) -> dict[str, Any]:
    """What `fit` told, and the final weights of each replica of this process."""
    from ringside_core.workloads.registry import load_workload
    from tests.training.listening import AtEnd
    from trainers.driver import Progress
    from trainers.fit import fit
    from trainers.prepare import prepare

    record = RecordInProgress.begun(spec)
    weights: list[Any] = []
    used: dict[str, Any] = {}

    def look(training: Any) -> None:
        used["strategy"] = type(training.model.distribute_strategy).__name__
        used["reduces"] = hasattr(training.model.optimizer, "_allreduce_grads")
        values = [backend.local_values(v) for v in training.model.weights]
        weights.extend([[w.tolist() for w in of_one] for of_one in zip(*values, strict=True)])

    told: list[tuple[int, int]] = []
    driver = prepare(
        record,
        load_workload(spec.workload, options={}, data_dir=None),
        backend,
        run_dir=run_dir,
        listeners=[Progress(lambda done, total: told.append((done, total))), AtEnd(look)],
    )
    fit(driver)
    return {
        **used,
        "weights": weights,
        "final_digest": record.final_digest,
        "deviation": record.replica_deviation,
        "epochs": [json.loads(epoch.model_dump_json()) for epoch in record.epochs],
        "told": told,
    }


if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
