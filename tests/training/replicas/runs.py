"""Trainings of small workloads: serial in this process, or as replicas in others."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
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
    capabilities_of,
)
from ringside_core.workloads.workload import Workload
from tests.contract.cases import SEED, Case
from tests.independent import order
from tests.training.listening import AtEnd
from tests.verify.zoo import GLOBAL_BATCH
from trainers.prepare import prepare
from trainers.train import train

DEADLINE_S = 240.0
Answers = list[dict[str, dict[str, Any]]]
# One start of processes serves all tests: (workload, what is otherwise than in Case.spec) by name.
LINEAR = "tests.contract.linear:linear"
CASES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "plain": (LINEAR, {}),
    "three_at_once": (LINEAR, {"steps_per_execution": 3}),
    "warmed_up": (LINEAR, {"learning_rate_rule": {"rule": "linear", "warmup_epochs": 1}}),
    "no_reduction": (LINEAR, {"ablation": "no_reduction"}),
    "no_input": (LINEAR, {"ablation": "no_input"}),
    **{
        f"{name}-{passes}": (
            f"tests.verify.zoo:{name}",
            {"global_batch": GLOBAL_BATCH, "gradient_accumulation_steps": passes},
        )
        for name, passes in (
            *(("batch_norm", 1), ("batch_norm", 2)),
            *(("sync_batch_norm", 1), ("global_clipnorm", 3)),
        )
    },
}
ALONE: Mapping[str, tuple[str, Mapping[str, object]]] = {"unused": (LINEAR, {"ablation": "unused"})}


def spec_of(**changes: Any) -> RunSpec:
    """A serial run of the size of the zoo."""
    fields = {"global_batch": GLOBAL_BATCH, "save": "record", **changes}
    return Case("serial", 1).spec("tests.verify.zoo:dense", **fields)


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
            driver = prepare(
                record,
                workload,
                backend,
                run_dir=Path(),
                listeners=[AtEnd(lambda training: weights.extend(training.model.get_weights()))],
                virtual_replicas=virtual_replicas,
            )
            train(driver)
    finally:
        tf.keras.backend.set_floatx(before)
    return weights, list(record.epochs)


@cache
def train_launched(case: Case) -> Answers:
    """What each process of a case says of each training; the processes are started once."""
    trainings = CASES if case.replicas > 1 else ALONE
    if not capabilities_of(case.backend).one_model:
        trainings = {"no_reduction": CASES["no_reduction"]}
    workload, changes = next(iter(trainings.values()))
    spec = case.spec(workload, save="record", **changes)
    site = dataclasses.replace(Site.here(), root=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        (run_dir / "cases.json").write_text(json.dumps(trainings))
        execution = execute(make_plan(spec, run_dir=run_dir, site=site), deadline_s=DEADLINE_S)
        assert execution.outcome.completed, execution.last_lines
        return [json.loads(path.read_text()) for path in sorted(run_dir.glob("answer-*.json"))]


def replicas_of(case: Case, name: str) -> list[list[np.ndarray]]:
    """The final weights of every replica after a training."""
    found = [one for answer in train_launched(case) for one in answer[name]["weights"]]
    return [[np.asarray(array) for array in weights] for weights in found]


def batches(num_examples: int, global_batch: int, epoch: int) -> list[tuple[list[int], int]]:
    """Example numbers of each global batch with its padding, and how many of them are true."""
    numbers = order(epoch, seed=SEED, total=num_examples)
    return [
        (
            [numbers[position % num_examples] for position in range(begin, begin + global_batch)],
            min(global_batch, num_examples - begin),
        )
        for begin in range(0, num_examples, global_batch)
    ]
