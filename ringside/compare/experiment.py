"""An experiment: choose its arms, begin it, and run every arm in fresh processes, in rounds."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launch import Plan, execute, make_plan
from ringside.compare import durations
from ringside.compare.budget import round_order, spent_s, state_of, why_end
from ringside.compare.hosts import used_hosts
from ringside.compare.hosts_load import HostsWatch
from ringside.compare.live import LiveRun, live_round
from ringside.compare.progress import Observer
from ringside.stats.pairs import LEAST_PASSES
from ringside.stats.rounds import disturbance
from ringside.stats.step_times import counted_blocks
from ringside.verify import store
from ringside_core.readings.cores import usable_cores
from ringside_core.readings.load import LoadWatch, cores_of
from ringside_core.specs import (
    THIS_MACHINE,
    Arm,
    Comparison,
    Execution,
    Load,
    Placement,
    RefusalError,
    Run,
    RunSpec,
    write_whole,
)
from ringside_core.text import file_name

RESULTS = "results.json"
LONGEST_NAME = 80  # characters of a label in the name of a folder
# The processes that run an arm in its own folder.
PlanOf = Callable[[Arm, RunSpec, Path], Plan]
# Runs one arm in its own folder; returns what became of it and what else the machine did.
Executor = Callable[[Arm, RunSpec, Path], tuple[Execution, Load | None]]


def planned(placement: Placement = THIS_MACHINE) -> PlanOf:
    """Arms are started by the launchers of their backends."""
    return lambda arm, spec, run_dir: make_plan(spec, run_dir=run_dir, placement=placement)


def launched(
    deadline_s: float,
    observer: Observer,
    placement: Placement = THIS_MACHINE,
    plan_of: PlanOf | None = None,
) -> Executor:
    """An executor that starts arms by their launchers and watches what else their hosts do."""
    plan_of = plan_of or planned(placement)

    def executed(arm: Arm, spec: RunSpec, run_dir: Path) -> Execution:
        return execute(
            plan_of(arm, spec, run_dir), deadline_s=deadline_s, on_progress=observer.step
        )

    def here(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        with LoadWatch(cores_of(spec, usable_cores())) as watch:
            execution = executed(arm, spec, run_dir)
        return execution, watch.load

    def on_hosts(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        # Only hosts that the run uses: another host of the hostfile may be down.
        watch = HostsWatch(used_hosts([spec], placement).names)
        execution = executed(arm, spec, run_dir)
        return execution, watch.load(execution)

    return on_hosts if placement.names else here


def run_rounds(
    comparison: Comparison,
    *,
    folder: Path,
    executor: Executor,
    observer: Observer,
    plan_of: PlanOf | None = None,
) -> Comparison:
    """Make rounds until `why_end` finds a reason to stop. Each run is on disk when it ends.

    A round that an interrupted call left half made is completed first.

    Args:
        comparison: with its arms, and with the runs of an earlier call that was interrupted.
        folder: of the comparison.
        executor: runs an arm alone.
        observer: is told what happens.
        plan_of: the processes of an arm in a live round; None: as its launcher starts it.

    Raises:
        RefusalError: the code changed while rounds were made. A run that may have used other code
            than was certified is not kept.
    """
    began, before_s = time.monotonic(), spent_s(comparison)
    keep(comparison, folder)
    _refuse_changes(comparison)
    if comparison.runs and len(still_to_run(comparison)[1]) == len(comparison.arms):
        comparison = _after_round(comparison, before_s, folder, observer)  # it may be the last
    while not comparison.ended_because:
        number, due = still_to_run(comparison)
        if comparison.live:
            plans = plan_of or planned(comparison.placement)
            comparison = _live_round(comparison, number, due, folder, plans, observer)
        else:
            comparison = _fresh_round(comparison, number, due, folder, executor, observer)
        clock_s = before_s + time.monotonic() - began  # includes the time between the runs
        comparison = _after_round(comparison, clock_s, folder, observer)
    return comparison


def _fresh_round(
    comparison: Comparison,
    number: int,
    due: Sequence[Arm],
    folder: Path,
    executor: Executor,
    observer: Observer,
) -> Comparison:
    """Run each arm alone, one after the other."""
    for arm in due:
        observer.start(arm.label)
        run = run_arm(
            arm,
            comparison.spec_of(arm, number),
            number=number,
            position=len(comparison.runs),
            folder=folder,
            executor=executor,
            placement=comparison.placement,
        )
        comparison = _with_runs(comparison, [run], folder, observer)
    return comparison


def _live_round(
    comparison: Comparison,
    number: int,
    due: Sequence[Arm],
    folder: Path,
    plan_of: PlanOf,
    observer: Observer,
) -> Comparison:
    """Run all arms beside each other, in turns."""
    begun = len(comparison.runs)
    live = []
    for position, arm in enumerate(due, begun):
        run_dir = _new_run_dir(folder, "runs", position, arm)
        plan = plan_of(arm, comparison.spec_of(arm, number), run_dir)
        live.append(LiveRun(arm.label, plan))
    live_round(
        live,
        seed=f"{comparison.seed}/{number}",
        deadline_s=comparison.deadline_s,
        observer=observer,
    )
    runs = [
        _kept(
            one.execution,
            one.plan.spec,
            Path(one.plan.run_dir),
            folder,
            comparison.placement,
            arm=one.label,
            round=number,
            position=position,
            load=one.load,
            blocks=tuple(one.blocks),
        )
        for position, one in enumerate(live, begun)
    ]
    # All or none: an arm that a later call ran alone would be no pair of these.
    return _with_runs(comparison, runs, folder, observer)


def _with_runs(
    comparison: Comparison, runs: Sequence[Run], folder: Path, observer: Observer
) -> Comparison:
    """The comparison with more runs, on disk."""
    _refuse_changes(comparison)  # before they are kept
    for run in runs:
        comparison = comparison.with_run(run)
    keep(comparison, folder)
    for run in runs:
        observer.end(run, disturbance(run))
    return comparison


def _after_round(
    comparison: Comparison, clock_s: float, folder: Path, observer: Observer
) -> Comparison:
    """Decide after a whole round whether it was the last one, and why."""
    state = state_of(comparison, spent_s=max(clock_s, spent_s(comparison)))
    why = why_end(comparison.asked, state) or too_short(comparison)
    comparison = comparison.replace(ended_because=why)
    keep(comparison, folder)
    observer.round_end(comparison, state)
    return comparison


def too_short(comparison: Comparison) -> str:
    """Why more live rounds would show nothing; empty: they may."""
    if not comparison.live:
        return ""
    counted = [len(counted_blocks(run)) for run in comparison.runs if run.outcome.completed]
    if max(counted, default=LEAST_PASSES) >= LEAST_PASSES:
        return ""
    return (
        f"The trainings are too short: no arm has {LEAST_PASSES} blocks that count. Ask for more "
        "--epochs, or add --fresh."
    )


def _refuse_changes(comparison: Comparison) -> None:
    """Refuse to go on with other code than the code that it began with and that was certified."""
    if why := store.changed_since(comparison.certificates, comparison.code_version):
        raise RefusalError(
            "Nothing may change while rounds are made.",
            received=why,
            advice="Start a new comparison.",
        )


def run_arm(
    arm: Arm,
    spec: RunSpec,
    *,
    number: int,
    position: int,
    folder: Path,
    executor: Executor,
    placement: Placement,
    place: str = "runs",
) -> Run:
    """Run an arm once, in its own folder."""
    run_dir = _new_run_dir(folder, place, position, arm)
    execution, load = executor(arm, spec, run_dir)
    known = {"arm": arm.label, "round": number, "position": position}
    return _kept(execution, spec, run_dir, folder, placement, load=load, **known)


def _kept(
    execution: Execution,
    spec: RunSpec,
    run_dir: Path,
    folder: Path,
    placement: Placement,
    *,
    load: Load | None,
    **known: Any,
) -> Run:
    """A run that is over, with its duration remembered."""
    if execution.outcome.completed:
        durations.remember(spec, execution.wall_s, placement)
    return Run(
        **dict(execution),
        **known,
        spec=spec,
        log_dir=os.fspath((run_dir / "logs").absolute().relative_to(folder.absolute())),
        load=load,
    )


def _new_run_dir(folder: Path, place: str, position: int, arm: Arm) -> Path:
    """The folder of a run; what an interrupted run left there is not in the results."""
    run_dir = folder / place / f"{position:03d}-{file_name(arm.label, longest=LONGEST_NAME)}"
    if run_dir.exists():
        shutil.rmtree(run_dir)
    return run_dir


def keep(comparison: Comparison, folder: Path) -> None:
    """Write everything seen so far to disk, completely or not at all."""
    write_whole(folder / RESULTS, comparison.to_json())


def still_to_run(comparison: Comparison) -> tuple[int, list[Arm]]:
    """The round to make or to complete, and the arms that it still needs, in order."""
    last = max((run.round for run in comparison.runs), default=0)
    for number in (last, last + 1):
        done = {run.arm for run in comparison.runs if run.round == number}
        order = round_order(comparison.arms, number, comparison.seed)
        due = [arm for arm in order if arm.label not in done]
        if due:
            break
    return number, due
