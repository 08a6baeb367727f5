"""An experiment: a screening, in which every arm runs once, and a final between the contenders."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch import LauncherName, Plan, execute, make_plan
from launch.launchers import Launcher
from launch.launchers.ranks import Ranks, starts_ranks
from ringside.compare import durations
from ringside.compare.budget import order_of, refuse_too_short, screened, why_end
from ringside.compare.contenders import with_final, without_failed
from ringside.compare.hosts import used_hosts
from ringside.compare.hosts_load import HostsWatch
from ringside.compare.live import LiveRun, Phase, live_launch
from ringside.compare.progress import Observer
from ringside.stats.rounds import disturbance, launches_of
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
SCREENING_PASSES = 5
LEAST_FINAL_PASSES = 8  # of a launch, whatever the budget says; half may be warm-up
LONGEST_NAME = 80  # characters of a label in the name of a folder
# The processes that run an arm in its own folder.
PlanOf = Callable[[Arm, RunSpec, Path], Plan]
# Runs one arm in its own folder; returns what became of it and what else the machine did.
Executor = Callable[[Arm, RunSpec, Path], tuple[Execution, Load | None]]


def planned(placement: Placement = THIS_MACHINE, *, quickly: bool = False) -> PlanOf:
    """Arms are started by the launchers of their backends.

    Args:
        placement: their hosts.
        quickly: Horovod's ranks without horovodrun, on this machine.
    """

    def plan(arm: Arm, spec: RunSpec, run_dir: Path) -> Plan:
        del arm
        direct = quickly and placement == THIS_MACHINE and starts_ranks(spec)
        launcher: LauncherName | Launcher = Ranks() if direct else "auto"
        return make_plan(spec, run_dir=run_dir, placement=placement, launcher=launcher)

    return plan


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


def run_launches(
    comparison: Comparison,
    *,
    folder: Path,
    executor: Executor,
    observer: Observer,
    plan_of: PlanOf | None = None,
) -> Comparison:
    """Make the screening and the final, or what is left of them. Each run is on disk when it ends.

    A launch that an interrupted call left half made is completed first.

    Args:
        comparison: with its arms, and with the runs of an earlier call that was interrupted.
        folder: of the comparison.
        executor: runs an arm alone.
        observer: is told what happens.
        plan_of: the processes of an arm in a live launch; None: as its launcher starts it, and in
            the final without it where Ringside can.

    Raises:
        RefusalError: the budget is too short for the screening; or the code changed meanwhile. A
            run that may have used other code than was certified is not kept.
    """
    began, before_s = time.monotonic(), comparison.spent_s
    keep(comparison, folder)
    _refuse_changes(comparison)
    make = _Making(folder, executor, observer, plan_of)
    if screened(comparison) and not comparison.finalists:  # it was killed before it had chosen
        spent_s = sum(run.wall_s for run in comparison.runs)
        comparison = comparison.replace(spent_s=max(before_s, spent_s))
        comparison = with_final(comparison, start_s=spent_s, pass_s=spent_s / 10)
    while not (why := why_end(comparison, launches_of(comparison))):
        number, due = still_to_run(comparison)
        launch = make.live if comparison.live else make.alone
        comparison, seen = launch(comparison, number, due)
        spent_s = before_s + time.monotonic() - began  # includes the time between the runs
        comparison = comparison.replace(spent_s=spent_s)
        comparison = _after_launch(comparison, number, seen)
        keep(comparison, folder)
        observer.launch_end(comparison)
    comparison = comparison.replace(ended_because=why)
    keep(comparison, folder)
    return comparison


@dataclass(frozen=True)
class _Seen:
    """What a launch took: seconds beside its passes, and of a pass."""

    start_s: float
    pass_s: float


@dataclass(frozen=True)
class _Making:
    """How launches are made; see `run_launches`."""

    folder: Path
    executor: Executor
    observer: Observer
    plan_of: PlanOf | None

    def alone(
        self, comparison: Comparison, number: int, due: Sequence[Arm]
    ) -> tuple[Comparison, _Seen]:
        """Run each arm alone, one after the other."""
        began = time.monotonic()
        for place, arm in enumerate(due):
            self.observer.start(arm.label)
            run = run_arm(
                arm,
                comparison.spec_of(arm, number),
                number=number,
                position=len(comparison.runs),
                folder=self.folder,
                executor=self.executor,
                placement=comparison.placement,
            )
            comparison = _with_runs(comparison, [run], self.folder, self.observer)
            if number == 0:
                each_s = (time.monotonic() - began) / (place + 1)
                refuse_too_short(comparison.asked, each_s * len(comparison.arms_of(0)))
        return comparison, _Seen(time.monotonic() - began, 0.0)

    def live(
        self, comparison: Comparison, number: int, due: Sequence[Arm]
    ) -> tuple[Comparison, _Seen]:
        """Run all arms beside each other, in turns."""
        begun = len(comparison.runs)
        plans = self.plan_of or planned(comparison.placement, quickly=number > 0)
        live = []
        for position, arm in enumerate(due, begun):
            run_dir = _new_run_dir(self.folder, "runs", position, arm)
            live.append(LiveRun(arm.label, plans(arm, comparison.spec_of(arm, number), run_dir)))
        start_s, pass_s = live_launch(
            live,
            _phase_of(comparison, number),
            seed=f"{comparison.seed}/{number}",
            deadline_s=comparison.deadline_s,
            observer=self.observer,
        )
        runs = [
            _kept(
                one.execution,
                one.plan.spec,
                Path(one.plan.run_dir),
                self.folder,
                arm=one.label,
                round=number,
                position=position,
                load=one.load,
                blocks=tuple(one.blocks),
            )
            for position, one in enumerate(live, begun)
        ]
        # All or none: an arm that a later call ran alone would be no pair of these.
        comparison = _with_runs(comparison, runs, self.folder, self.observer)
        return comparison, _Seen(start_s, pass_s)


def _phase_of(comparison: Comparison, number: int) -> Phase:
    """How long the arms of a launch train in turns."""
    division = comparison.division
    if number == 0 or division is None:
        asked = comparison.asked
        return Phase(
            0.0, SCREENING_PASSES, alone=True,
            check=lambda started, seconds: refuse_too_short(asked, seconds),
        )  # fmt: skip
    left = division.launches - len(launches_of(comparison).final)
    phase_s = (comparison.asked.budget_s - comparison.spent_s) / max(1, left) - division.start_s
    # The starts take what they take; the phases take up the slack, or what is missing.
    longest = phase_s if comparison.asked.launches is None else division.phase_s
    return Phase(max(0.0, longest), LEAST_FINAL_PASSES, alone=False)


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


def _after_launch(comparison: Comparison, number: int, seen: _Seen) -> Comparison:
    """Choose the contenders behind the screening; replace those that failed in the final."""
    if number == 0:
        return with_final(comparison, start_s=seen.start_s, pass_s=seen.pass_s)
    division = comparison.division
    if division is not None and comparison.live:  # its start is known by now
        comparison = comparison.replace(division=division.replace(start_s=seen.start_s))
    return without_failed(comparison, number)


def _refuse_changes(comparison: Comparison) -> None:
    """Refuse to go on with other code than the code that it began with and that was certified."""
    if why := store.changed_since(comparison.certificates, comparison.code_version):
        raise RefusalError(
            "Nothing may change while launches are made.",
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
    if execution.outcome.completed:  # a live run takes as long as its phase
        durations.remember(spec, execution.wall_s, placement)
    known = {"arm": arm.label, "round": number, "position": position}
    return _kept(execution, spec, run_dir, folder, load=load, **known)


def _kept(
    execution: Execution,
    spec: RunSpec,
    run_dir: Path,
    folder: Path,
    *,
    load: Load | None,
    **known: Any,
) -> Run:
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
    """The launch to make or to complete, and the arms that it still needs, in order."""
    last = max((run.round for run in comparison.runs), default=0)
    for number in (last, last + 1):
        done = {run.arm for run in comparison.runs if run.round == number}
        order = order_of(comparison.arms_of(number), number, comparison.seed)
        due = [arm for arm in order if arm.label not in done]
        if due and not (done and comparison.live):
            break
    return number, due
