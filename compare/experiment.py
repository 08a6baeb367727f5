"""Run every arm in fresh processes, in interleaved rounds whose order is drawn and recorded."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from compare.arms import arm_spec
from launch import Progress, execute, make_plan
from measure.machine import machine_facts
from specs import (
    Arm,
    Certificate,
    Comparison,
    DetectionMatrix,
    NotRun,
    Run,
    RunSpec,
    write_whole,
)


def draw_order(arms: tuple[Arm, ...], rounds: int, seed: int) -> list[tuple[int, Arm]]:
    """(round, arm) in the order of execution: each round holds every arm once, in its own order.

    Interleaving spreads a slow spell of the machine over all arms; drawing the order keeps an arm
    from always following the same one.
    """
    generator = random.Random(seed)
    order: list[tuple[int, Arm]] = []
    for number in range(rounds):
        shuffled = list(arms)
        generator.shuffle(shuffled)
        order += [(number, arm) for arm in shuffled]
    return order


def run_experiment(
    base: RunSpec,
    arms: tuple[Arm, ...],
    not_run: tuple[NotRun, ...],
    *,
    folder: Path,
    name: str,
    command: str,
    rounds: int,
    seed: int,
    deadline_s: float,
    certificates: tuple[Certificate, ...],
    detection: DetectionMatrix | None,
    on_start: Callable[[int, int, Arm], None],
    on_progress: Callable[[Progress], None],
    on_end: Callable[[Run], None],
) -> Comparison:
    """Run all rounds; what has been seen is on disk after each run.

    Args:
        base: what every arm trains; backend, topology and threads are the arm's.
        arms: that can run, from preflight.
        not_run: that cannot.
        folder: of the comparison.
        name: of the comparison, for the report.
        command: that was typed, for the report.
        rounds: passes over all arms.
        seed: of the order.
        deadline_s: a run without progress for so long ends as hung.
        certificates: of the arms that were verified.
        detection: what the gate did with deliberate mistakes; None: it was not asked.
        on_start: called with (position, number of runs, arm).
        on_progress: called when a process of the running arm gets on.
        on_end: called with the finished run.
    """
    comparison = Comparison(
        name=name,
        created_unix_s=time.time(),
        command=command,
        machine=machine_facts(),
        seed=seed,
        rounds=rounds,
        arms=arms,
        not_run=not_run,
        certificates=certificates,
        detection=detection,
    )
    order = draw_order(arms, rounds, seed)
    for position, (number, arm) in enumerate(order):
        on_start(position, len(order), arm)
        spec = arm_spec(base, arm)
        run_dir = folder / "runs" / f"{position:03d}-{_file_name(arm.label)}"
        execution = execute(
            make_plan(spec, run_dir=run_dir), deadline_s=deadline_s, on_progress=on_progress
        )
        run = Run(
            arm=arm.label,
            round=number,
            position=position,
            spec=spec,
            outcome=execution.outcome,
            wall_s=execution.wall_s,
            records=execution.records,
            last_lines=execution.last_lines,
            log_dir=os.fspath((run_dir / "logs").relative_to(folder)),
        )
        comparison = comparison.replace(runs=(*comparison.runs, run))
        write_whole(folder / "results.json", comparison.to_json())
        on_end(run)
    return comparison


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label.replace(" ×", "-x"))
