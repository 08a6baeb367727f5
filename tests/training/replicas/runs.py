"""Trainings of small workloads: serial in this process, or as replicas in fresh ones."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from backends import make_backend
from launch import Site, execute, make_plan
from ringside_core.keras import tf
from ringside_core.specs import (
    EpochRecord,
    RecordInProgress,
    RunSpec,
    Surroundings,
    Topology,
    capabilities_of,
)
from ringside_core.workloads.workload import Workload
from tests.training.listening import AtEnd
from tests.verify.zoo import GLOBAL_BATCH
from trainers.fit import fit

EPOCHS, SEED = 2, 5
DEADLINE_S = 240.0
# One start of processes serves all tests: (workload of the zoo, gradient accumulation steps).
CASES = (("batch_norm", 1), ("batch_norm", 2), ("sync_batch_norm", 1), ("global_clipnorm", 3))
ARMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "mirrored": ("mirrored", {}),
    "multi_worker_mirrored": ("multi_worker_mirrored", {}),
    "horovod": ("horovod", {"controller": "gloo"}),
}
REPLICAS = 2


def spec_of(backend: str = "serial", **changes: Any) -> RunSpec:
    """A run in float64, so that differences are not rounding."""
    fields: dict[str, Any] = {
        "workload": "tests.verify.zoo:dense",
        "backend": backend,
        "options": {},
        "topology": Topology(),
        "global_batch": GLOBAL_BATCH,
        "epochs": EPOCHS,
        "precision": "float64",
        "seed": SEED,
        "save": "record",
        **changes,
    }
    return RunSpec(**fields)


def train_serial(
    workload: Workload, *, virtual_replicas: int = 1, **changes: Any
) -> tuple[list[np.ndarray], list[EpochRecord]]:
    """Train in this process; the final weights and the records."""
    record = RecordInProgress.begun(spec_of(**changes))
    weights: list[np.ndarray] = []
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx("float64")
    try:
        with make_backend(record.spec, Surroundings()) as backend:
            fit(
                record,
                workload,
                backend,
                run_dir=Path(),
                listeners=[AtEnd(lambda training: weights.extend(training.model.get_weights()))],
                virtual_replicas=virtual_replicas,
            )
    finally:
        tf.keras.backend.set_floatx(before)
    return weights, list(record.epochs)


@cache
def train_launched(arm: str) -> Mapping[tuple[str, int], Sequence[Sequence[np.ndarray]]]:
    """Train all cases in fresh processes: for each, the final weights of every replica."""
    backend, options = ARMS[arm]
    single = capabilities_of(backend).process_model == "single"
    name = "replicas_per_process" if single else "processes_per_host"
    spec = spec_of(backend, options=options, topology=Topology(**{name: REPLICAS}))
    site = dataclasses.replace(Site.here(), root=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        (run_dir / "cases.json").write_text(json.dumps(CASES))
        execution = execute(make_plan(spec, run_dir=run_dir, site=site), deadline_s=DEADLINE_S)
        assert execution.outcome.completed, execution.last_lines
        return {
            (name, steps): _every_replica(sorted(run_dir.glob(f"{name}-{steps}-*.npz")))
            for name, steps in CASES
        }


def _every_replica(answers: Sequence[Path]) -> list[list[np.ndarray]]:
    found = []
    for path in answers:
        with np.load(path) as arrays:
            found += [list(one) for one in zip(*arrays.values(), strict=True)]
    return found


def batches(num_examples: int, global_batch: int, epoch: int) -> list[tuple[list[int], int]]:
    """Example numbers of each global batch with its padding, and how many of them are true."""
    order = [
        int(
            tf.random.experimental.index_shuffle(
                np.int64(position), seed=[SEED, epoch], max_index=np.int64(num_examples - 1)
            )
        )
        for position in range(num_examples)
    ]
    return [
        (
            [order[position % num_examples] for position in range(begin, begin + global_batch)],
            min(global_batch, num_examples - begin),
        )
        for begin in range(0, num_examples, global_batch)
    ]
