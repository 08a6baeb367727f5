"""Run every arm in fresh processes, in interleaved rounds whose order is drawn and recorded."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from launch import (
    Placement,
    Progress,
    execute,
    make_plan,
)
from launch.execute import Execution
from launch.placement import THIS_MACHINE
from ringside.compare import durations
from ringside.compare.arms import arm_spec
from ringside.compare.budget import State, why_end
from ringside.compare.hosts import placement_of, used_hosts
from ringside.compare.hosts_load import HostsWatch
from ringside.compare.order import round_order
from ringside.stats.rounds import disturbance, rounds_used
from ringside.stats.summary import summarize
from ringside.verify import store
from ringside_core.readings.load import LoadWatch, cores_of
from ringside_core.specs import (
    Arm,
    Comparison,
    Load,
    RefusalError,
    Run,
    RunSpec,
    write_whole,
)
from ringside_core.specs.run_spec import MAX_SEED
from ringside_core.text import file_name

RESULTS = "results.json"
LONGEST_NAME = 80  # characters of a label in the name of a folder
# Runs one arm in a folder of its own; says what became of it and what else the machine did.
Executor = Callable[[Arm, RunSpec, Path], tuple[Execution, Load | None]]


class Observer:
    """Is told what happens; this one does nothing with it."""

    def start(self, label: str) -> None:
        """A run begins."""

    def step(self, progress: Progress) -> None:
        """A process of the running arm got on."""

    def end(self, run: Run, disturbed: str) -> None:
        """A run is over; `disturbed` says what disturbed it, or nothing."""

    def round_end(self, comparison: Comparison, state: State) -> None:
        """A whole round is made."""


def launched(
    deadline_s: float, observer: Observer, placement: Placement = THIS_MACHINE
) -> Executor:
    """Runs arms by their launchers where they belong, and watches what else is done there."""

    def executed(spec: RunSpec, run_dir: Path) -> Execution:
        return execute(
            make_plan(spec, run_dir=run_dir, placement=placement),
            deadline_s=deadline_s,
            on_progress=observer.step,
        )

    def here(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        with LoadWatch(cores_of(spec, sorted(os.sched_getaffinity(0)))) as watch:
            execution = executed(spec, run_dir)
        return execution, watch.load

    def on_hosts(arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        # Another host of the hostfile may be off.
        watch = HostsWatch(used_hosts([spec], placement).names)
        execution = executed(spec, run_dir)
        return execution, watch.load(execution)

    return on_hosts if placement.names else here


def run_rounds(
    comparison: Comparison, *, folder: Path, executor: Executor, observer: Observer
) -> Comparison:
    """Make rounds until they show enough; what has been seen is on disk after each run.

    A round of which some runs are there already is completed.

    Args:
        comparison: with its arms, and with the runs of an earlier call that was interrupted.
        folder: of the comparison.
        executor: runs an arm.
        observer: is told.

    Raises:
        RefusalError: code changed while rounds were made; no run that may be of another code than
            was certified is kept.
    """
    began, before_s = time.monotonic(), spent_s(comparison)
    keep(comparison, folder)
    _refuse_changes(comparison)
    if comparison.runs and len(still_to_run(comparison)[1]) == len(comparison.arms):
        comparison = _after_round(comparison, before_s, folder, observer)  # perhaps the last one
    while not comparison.ended_because:
        number, due = still_to_run(comparison)
        for arm in due:
            observer.start(arm.label)
            run = run_arm(
                arm,
                spec_of_round(comparison, arm, number),
                number=number,
                position=len(comparison.runs),
                folder=folder,
                executor=executor,
                placement=placement_of(comparison),
            )
            _refuse_changes(comparison)  # before it is kept
            comparison = comparison.replace(
                runs=(*comparison.runs, run), rounds=max(comparison.rounds, number + 1)
            )
            keep(comparison, folder)
            observer.end(run, disturbance(run))
        clock_s = before_s + time.monotonic() - began  # what lies between the runs, too
        comparison = _after_round(comparison, clock_s, folder, observer)
    return comparison


def _after_round(
    comparison: Comparison, clock_s: float, folder: Path, observer: Observer
) -> Comparison:
    """The comparison with why it ends, if it does now that no round is half made."""
    state = state_of(comparison, spent_s=max(clock_s, spent_s(comparison)))
    comparison = comparison.replace(ended_because=why_end(comparison.asked, state))
    keep(comparison, folder)
    observer.round_end(comparison, state)
    return comparison


def _refuse_changes(comparison: Comparison) -> None:
    """Refuse to go on with other code than that with which it began and that was certified."""
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
    """One execution of an arm, in a folder of its own.

    Args:
        arm: to run.
        spec: of the run.
        number: of its round.
        position: of the run among all.
        folder: of the comparison.
        executor: runs it.
        placement: where.
        place: folder for the runs, in that of the comparison.
    """
    run_dir = folder / place / f"{position:03d}-{file_name(arm.label, longest=LONGEST_NAME)}"
    if run_dir.exists():  # of a run that was interrupted: it is not in the results
        shutil.rmtree(run_dir)
    execution, load = executor(arm, spec, run_dir)
    if execution.outcome.completed:
        durations.remember(spec, execution.wall_s, placement)
    return Run(
        arm=arm.label,
        round=number,
        position=position,
        spec=spec,
        outcome=execution.outcome,
        wall_s=execution.wall_s,
        records=execution.records,
        last_lines=execution.last_lines,
        log_dir=os.fspath((run_dir / "logs").relative_to(folder)),
        load=load,
    )


def keep(comparison: Comparison, folder: Path) -> None:
    """Write down everything that was seen so far, whole or not at all."""
    write_whole(folder / RESULTS, comparison.to_json())


def spec_of_round(comparison: Comparison, arm: Arm, number: int) -> RunSpec:
    """The run of an arm in a round: every round has a seed of its own, the same for all arms."""
    seed = (base_of(comparison).seed + number) % (MAX_SEED + 1)
    return spec_of(comparison, arm).replace(seed=seed)


def spec_of(comparison: Comparison, arm: Arm) -> RunSpec:
    """The run of an arm, with the seed of the first round."""
    return arm_spec(base_of(comparison), arm, comparison.scaling, placement_of(comparison))


def base_of(comparison: Comparison) -> RunSpec:
    """What every arm trains."""
    assert comparison.base is not None  # only files of before version 3 have none: never run again
    return comparison.base


def still_to_run(comparison: Comparison) -> tuple[int, list[Arm]]:
    """The number of the round to make or to complete, and the arms that it still needs in order."""
    last = max((run.round for run in comparison.runs), default=0)
    for number in (last, last + 1):
        done = {run.arm for run in comparison.runs if run.round == number}
        order = round_order(comparison.arms, number, comparison.seed)
        due = [arm for arm in order if arm.label not in done]
        if due:
            break
    return number, due


def spent_s(comparison: Comparison) -> float:
    """Time that the runs took, from the start of the first process of each to its last's end."""
    return sum(run.wall_s for run in comparison.runs)


def state_of(comparison: Comparison, *, spent_s: float) -> State:
    """How far a comparison is, after a whole round."""
    made = comparison.rounds
    per_run_s = spent_s / max(1, len(comparison.runs))
    return State(
        made=made,
        undisturbed=made - len(rounds_used(comparison).disturbed),
        widest=summarize(comparison).widest_of_interest(),
        spent_s=spent_s,
        round_s=per_run_s * len(comparison.arms),
    )
