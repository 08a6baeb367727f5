"""A small made-up comparison with everything that a folder of a comparison holds."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringside.report.write import write_report
from ringside_core.specs import Comparison, Load, MachineCounts, Run, Shared, write_whole
from tests.unit.report.proofs import verified
from tests.unit.stats.factory import (
    STARTED_UNIX_S,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    spec_of,
)

ROUNDS, EPOCHS, STEPS = 4, 4, 30
EXAMPLES = 118  # of an epoch; two of its 30 · 4 slots are padding
Body = dict[str, Any]
RATES = {("serial", 1): 1000.0, ("mirrored", 2): 1500.0, ("horovod", 2): 1800.0}


@functools.cache
def small() -> Comparison:
    """Three certified arms of four rounds."""
    random = np.random.default_rng(5)
    arms = [arm_of(backend, replicas) for backend, replicas in RATES]
    runs: list[Run] = []
    for number in range(ROUNDS):
        for index in random.permutation(len(arms)):
            arm, position = arms[index], len(runs)
            rate = RATES[(arm.backend, arm.replicas)] * random.lognormal(0, 0.02)
            run = _run(arm, rate, number, position, random)
            runs.append(run)
    return verified(comparison_of(arms, runs, name="small", shared=Shared.from_run(runs[0].spec)))


def _run(arm: Any, rate: float, number: int, position: int, random: Any) -> Run:
    spec = spec_of(arm.backend, arm.replicas, epochs=EPOCHS, global_batch=4)
    records = []
    for rank in range(spec.topology.num_processes):
        epochs, end_s = [], 3.0
        for k in range(EPOCHS):
            times = 120 / rate / STEPS * random.lognormal(0, 0.1, STEPS)
            times[0] += 0.5 * (k == 0)
            ends = np.cumsum(times)
            end_s += float(ends[-1]) + 0.25
            accuracy = 0.7 + 0.08 * k
            epochs.append(
                epoch(
                    float(ends[-1]) + 0.001,
                    examples=EXAMPLES,
                    step_end_s=ends.tolist(),
                    end_s=end_s,
                    accuracy=accuracy,
                    beside_s=0.01 * (rank + 1) + position / 1000,
                )
            )
        start = 3.0 + float(epochs[0].step_end_s[0])
        started: dict[str, Any] = {"startup_s": start, "cpu_s": 4.0 + rank + position / 8}
        started["startup_cpu_s"] = 2.5 + rank / 2 + position / 16
        started["peak_memory_bytes"] = 600_000_000 + 1_000_000 * position
        started["shared_memory_bytes"] = 250_000_000 + 2_000_000 * rank
        records.append(record(spec, epochs, rank, **started))
    log_dir = f"runs/{position:03d}/logs"
    counts = MachineCounts(
        cores=(0, 1),
        busy_s=15.5,
        steal_s=0.25,
        own_s=15.0,
        machine_cores=8,
        machine_busy_s=18.0,
        machine_steal_s=0.5,
    )
    load = Load.counted([counts], wall_s=9.5, swapped_bytes=0)
    return run_of(
        arm,
        records,
        number=number,
        position=position,
        wall_s=9.5,
        log_dir=log_dir,
        load=load,
        started_unix_s=STARTED_UNIX_S - 0.5 - position / 16,
    )


def write_folder(folder: Path) -> Path:
    """The folder as `ringside compare` leaves it: records, certificates, and the report."""
    comparison = small()
    for run in comparison.runs:
        for one in run.records:
            place = (folder / run.log_dir).parent / "records" / f"{one.task}.json"
            write_whole(place, one.to_json())
    for index, proof in enumerate(comparison.certificates):
        write_whole(folder / "certificates" / f"{index}.json", proof.to_json())
    write_report(comparison, folder)
    return folder


def change(folder: Path, spoil: Callable[[Body], object]) -> None:
    """Change results.json and nothing else."""
    file = folder / "results.json"
    body = json.loads(file.read_text())
    spoil(body)
    file.write_text(json.dumps(body, indent=1))
