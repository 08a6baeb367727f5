"""Started in place of Ringside's train.py: every process combines values and writes the results."""

import os
import sys
from pathlib import Path

import numpy as np

from backends.registry import make_backend
from measure.machine import machine_facts
from specs import Outcome, RunRecord, RunSpec, read_surroundings, write_whole

run_dir = Path(sys.argv[sys.argv.index("--run-dir") + 1])
spec = RunSpec.from_json((run_dir / "spec.json").read_text())
surroundings = read_surroundings(os.environ)
task = surroundings.task_name
(run_dir / "progress" / task).write_text("0 0 0 importing\n")

with make_backend(spec, surroundings) as backend:
    if backend.role == "server":
        backend.serve()
    else:
        mine = np.arange(3.0) + backend.rank
        backend.barrier()
        np.savez(
            run_dir / f"answer-{task}.npz",
            rank=backend.rank,
            size=backend.size,
            num_replicas=backend.num_replicas,
            is_chief=backend.is_chief,
            sum=backend.all_reduce(mine, "sum"),
            mean=backend.all_reduce(mine, "mean"),
            max=backend.all_reduce(mine, "max"),
            scalar=backend.all_reduce(np.int64(backend.rank + 1)),
            from_last=backend.broadcast(mine, root=backend.size - 1),
        )
    record = RunRecord(
        spec=spec,
        task=task,
        role=backend.role,
        is_chief=backend.is_chief,
        rank=surroundings.rank,
        machine=machine_facts(),
        started_unix_s=0,
        cores=(0,),
        outcome=Outcome(kind="completed"),
    )
write_whole(run_dir / "records" / f"{task}.json", record.to_json())
os._exit(0)
