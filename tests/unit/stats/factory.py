"""Made-up records: input for tests of what is computed from them, never a measurement."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringside_core.specs import (
    Arm,
    Block,
    Communication,
    Comparison,
    EpochRecord,
    LedgerDigest,
    Link,
    Load,
    MachineFacts,
    Outcome,
    Run,
    RunRecord,
    RunSpec,
    Shared,
    StackTimings,
    Topology,
    backend_options,
    capabilities_of,
)

MACHINE = MachineFacts(
    host="bench-1",
    cpu_model="Example CPU 9000",
    cores=2,
    memory_bytes=16 * 2**30,
    kernel="Linux 6.1.0",
    python="3.11.9",
    packages={"tensorflow": "2.21.0", "tf-keras": "2.21.0", "horovod": "0.28.1"},
)
COMPLETED = Outcome(kind="completed")
TAKEN = Load(wall_s=10, cores=2, others_cpu_s=17, steal_cpu_s=0)  # 85 % by other programs
FAILED = Outcome(kind="failed", error_class="OSError", reason="no route to host")
TARGET = ("accuracy", 0.9)
STARTED_UNIX_S = 1_700_000_000.0  # of every process, and of the command
BOOT = "boot-1"


def spec_of(backend: str, replicas: int = 1, **changes: Any) -> RunSpec:
    """A spec of 100 examples' worth of digits; without `hosts`, all replicas on one."""
    hosts = changes.pop("hosts", 1)
    many = capabilities_of(backend).process_model != "single"
    fields: dict[str, Any] = {
        "workload": "digits",
        "backend": backend,
        "options": {},
        "topology": Topology(hosts=hosts, processes_per_host=replicas // hosts)
        if many
        else Topology(replicas_per_process=replicas),
        "global_batch": 32,
        "epochs": 3,
        "resources": {"cores_per_replica": 1, "intra_op_threads": 1, "inter_op_threads": 1},
    }
    return RunSpec(**{**fields, **changes})


def weak(comparison: Comparison) -> Comparison:
    """The same comparison, made under weak scaling."""
    return comparison.replace(shared=Shared.from_run(comparison.runs[0].spec, "weak"))


@functools.cache
def each_once(count: int) -> LedgerDigest:
    """The ledger of ids 0…count-1, by splitmix64 on Python's own integers."""
    total = 0
    for number in range(count):
        z = (number + 0x9E3779B97F4A7C15) % 2**64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        total += z ^ (z >> 31)
    return LedgerDigest(rows=count, hash=f"{total % 2**64:016x}")


def epoch(
    train_s: float,
    *,
    examples: int = 100,
    step_end_s: Sequence[float] | None = None,
    end_s: float = 10.0,
    accuracy: float = 0.5,
    **changes: Any,
) -> EpochRecord:
    """One epoch; without step times, two steps of equal length."""
    ends = tuple(step_end_s or (train_s / 2, train_s))
    fields: dict[str, Any] = {
        "steps": len(ends),
        "examples": examples,
        "train_s": train_s,
        "step_end_s": ends,
        "end_since_process_start_s": end_s,
        "train": {"loss": 1.0},
        "validation": {"loss": 1.0, "accuracy": accuracy},
        "ledger": each_once(examples),
        "beside_s": 0.0,
    }
    return EpochRecord(**{**fields, **changes})


def record(
    spec: RunSpec, epochs: Sequence[EpochRecord], rank: int = 0, **changes: Any
) -> RunRecord:
    """What one process of a run saw."""
    fields: dict[str, Any] = {
        "spec": spec,
        "task": f"rank-{rank}",
        "role": "replica",
        "is_chief": rank == 0,
        "rank": rank,
        "machine": MACHINE,
        "started_unix_s": STARTED_UNIX_S,
        "cores": (rank % MACHINE.cores,),
        "outcome": COMPLETED,
        "quality_target": TARGET,
        "startup_s": 5.0,
        "epochs": tuple(epochs),
        "peak_memory_bytes": 2**30,
        "cpu_s": 8.0,
        "initial_digest": "aa",
        "final_digest": "bb",
        "replica_deviation": 0.0,
        "boot_id": BOOT,
        "shared_memory_bytes": 2**28,
        "startup_cpu_s": 3.0,
    }
    return RunRecord(**{**fields, **changes})


def arm_of(backend: str, replicas: int = 1, **options: Any) -> Arm:
    """An arm labelled as the comparison labels it."""
    group = ":".join([backend, *(f"{name}={value}" for name, value in options.items())])
    alone = capabilities_of(backend).always_one_replica
    return Arm(
        label=group if alone else f"{group} ×{replicas}",
        group=group,
        backend=backend,
        options=backend_options(backend, options),
        replicas=replicas,
    )


def run_of(
    arm: Arm, records: Sequence[RunRecord], *, number: int = 0, position: int = 0, **changes: Any
) -> Run:
    """One execution of an arm in round `number`."""
    fields: dict[str, Any] = {
        "arm": arm.label,
        "round": number,
        "position": position,
        "spec": records[0].spec if records else spec_of(arm.backend, arm.replicas),
        "outcome": COMPLETED,
        "wall_s": 20.0,
        "records": tuple(records),
        "log_dir": f"runs/{position:03}",
        "started_unix_s": STARTED_UNIX_S,
        "boot_id": BOOT,
    }
    return Run(**{**fields, **changes})


def simple_run(
    backend: str, replicas: int, train_s: float, *, number: int = 0, position: int = 0
) -> Run:
    """A completed run of three epochs, in which every process took `train_s` for each."""
    spec = spec_of(backend, replicas)
    records = [
        record(spec, [epoch(9.0), epoch(train_s), epoch(train_s)], rank)
        for rank in range(spec.topology.num_processes)
    ]
    return run_of(arm_of(backend, replicas), records, number=number, position=position)


def comparison_of(arms: Sequence[Arm], runs: Sequence[Run], **changes: Any) -> Comparison:
    """A comparison of these; runs that were given no positions have those of their order.

    Runs of one round are a screening. Runs of several are a final in which every arm takes part.
    """
    if any(run.round for run in runs) and "finalists" not in changes:
        runs = [run.replace(round=run.round + 1) for run in runs]
        changes["finalists"] = tuple(arm.label for arm in arms)
    if len({run.position for run in runs}) < len(runs):
        runs = [run.replace(position=position) for position, run in enumerate(runs)]
    fields: dict[str, Any] = {
        "name": "made-up",
        "created_unix_s": 1_700_000_000.0,
        "command": "ringside compare",
        "machine": MACHINE,
        "seed": 1,
        "rounds": max((run.round + 1 for run in runs), default=0),
        "arms": tuple(arms),
        "runs": tuple(runs),
        "shared": Shared.from_run(runs[0].spec if runs else spec_of("serial")),
    }
    return Comparison(**{**fields, **changes})


def communication_of(stacks: Sequence[StackTimings], **changes: Any) -> Communication:
    """All-reduces of two ranks."""
    fields: dict[str, Any] = {
        "created_unix_s": 1_700_000_000.0,
        "command": "ringside allreduce",
        "machine": MACHINE,
        "code_version": "c0de" * 16,
        "num_ranks": 2,
        "stacks": tuple(stacks),
    }
    return Communication(**{**fields, **changes})


def link(sender: str, receiver: str, mbit_s: float) -> Link:
    """One that carried so much for a second."""
    return Link(sender=sender, receiver=receiver, bytes=round(mbit_s * 125_000), seconds=1.0)


def live_run() -> Run:
    """Two ranks, three epochs of 30 updates; the blocks cross the ends of epochs.

    Update k of rank 0 takes k ms. Of rank 1 it takes half of that, 100 ms at update 48, and half as
    long again in the third epoch.
    """
    spec = spec_of("horovod", 2)

    def epochs(seconds: list[float]) -> list[EpochRecord]:
        found = []
        for first in (0, 30, 60):
            ends = np.cumsum(seconds[first : first + 30])
            found.append(epoch(float(ends[-1]), step_end_s=tuple(ends.tolist()), examples=90))
        return found

    slow = [k / 1000 for k in range(1, 91)]
    fast = [k / 2000 if k <= 60 else 1.5 * k / 1000 for k in range(1, 91)]
    fast[47] = 0.1
    blocks = (
        Block(number=0, begun_after=20, ended_after=40, wall_s=1.0),
        Block(number=1, begun_after=40, ended_after=50, wall_s=1.0),
        Block(number=2, begun_after=50, ended_after=90, wall_s=1.0),
    )
    return run_of(
        arm_of("horovod", 2),
        [record(spec, epochs(slow), 0), record(spec, epochs(fast), 1)],
        spec=spec,
        blocks=blocks,
    )
