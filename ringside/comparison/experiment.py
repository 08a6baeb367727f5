"""An experiment: a screening of every arm, and a final between the contenders."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch import Plan, execute, make_plan
from ringside.certificates import store
from ringside.certificates.processes import Start
from ringside.comparison import durations
from ringside.comparison.budget import (
    order_of,
    refuse_long_final,
    refuse_too_short,
    screened,
    why_end,
)
from ringside.comparison.contenders import (
    alone_s,
    divided_again,
    nothing_to_choose,
    with_all,
    with_final,
    without_failed,
)
from ringside.comparison.hosts import used_hosts
from ringside.comparison.hosts_load import HostsWatch
from ringside.comparison.live import LiveLaunch, LiveRun, live_launch, pass_seconds
from ringside.comparison.progress import ComparisonProgress
from ringside.stats.division import LEAST_PASSES_EACH
from ringside.stats.rounds import disturbance, launches_of
from ringside.stats.run_figures import startup_s
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
# Changes the processes of an arm, for a benchmark that plants something.
Change = Callable[[Arm, Plan], Plan]
# Runs one arm in its own folder; returns what became of it and what else the machine did.
Executor = Callable[[Arm, RunSpec, Path], tuple[Execution, Load | None]]


def launched(
    deadline_s: float,
    observer: ComparisonProgress,
    placement: Placement = THIS_MACHINE,
    change: Change = lambda _, plan: plan,
) -> Executor:
    """An executor that starts arms by their launchers and watches what else their hosts do."""

    def executed(arm: Arm, spec: RunSpec, run_dir: Path) -> Execution:
        plan = change(arm, make_plan(spec, run_dir=run_dir, placement=placement))
        return execute(plan, deadline_s=deadline_s, on_progress=observer.step)

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
    observer: ComparisonProgress,
    change: Change = lambda _, plan: plan,
) -> Comparison:
    """Make the screening and the final, or what is left of them. Each run is on disk when it ends.

    A launch that an interrupted call left half made is completed first.

    Args:
        comparison: with its arms, and with the runs of an earlier call that was interrupted.
        folder: of the comparison.
        executor: runs an arm alone.
        observer: hears what happens.
        change: changes the processes of an arm in a live launch.

    Raises:
        RefusalError: the budget is too short for the screening; or the code changed meanwhile. A
            run that may have used other code than was certified is not kept.
    """
    began, before_s = time.monotonic(), comparison.spent_s

    def spent_s() -> float:  # includes the time between the runs
        return before_s + time.monotonic() - began

    keep(comparison, folder)
    _refuse_changes(comparison)
    make = _Making(folder, executor, observer, change, spent_s)
    if screened(comparison) and not comparison.finalists:  # it was killed before it had chosen
        comparison = with_final(comparison, start_s=alone_s(comparison, 0))
    while not (why := why_end(comparison, launches_of(comparison))):
        number, due = still_to_run(comparison)
        launch = make.live if comparison.live else make.alone
        comparison = launch(comparison, number, due)
        keep(comparison, folder)
        observer.launch_end(comparison)
    made, division = len(launches_of(comparison).final), comparison.division
    if division is not None and made:
        comparison = comparison.replace(division=division.replace(launches=made))
    comparison = comparison.replace(ended_because=why)
    keep(comparison, folder)
    return comparison


@dataclass(frozen=True)
class _Making:
    """How launches are made; see `run_launches`."""

    folder: Path
    executor: Executor
    observer: ComparisonProgress
    change: Change
    spent_s: Callable[[], float]

    def alone(self, comparison: Comparison, number: int, due: Sequence[Arm]) -> Comparison:
        """Run each arm alone, one after the other; then choose, or replace what failed."""
        began = time.monotonic()
        for place, arm in enumerate(due):
            self.observer.start(arm.label)
            run = run_arm(
                comparison,
                arm,
                number=number,
                position=len(comparison.runs),
                folder=self.folder,
                executor=self.executor,
            )
            comparison = self._with_runs(comparison, [run])
            if number == 0:
                each_s = (time.monotonic() - began) / (place + 1)
                refuse_too_short(comparison.asked, each_s * len(comparison.arms_of(0)))
        took_s = alone_s(comparison, number)
        if number == 0:
            return with_final(comparison, start_s=took_s)
        if comparison.division is not None:
            division = comparison.division.replace(start_s=took_s)
            comparison = comparison.replace(division=division)
        return without_failed(comparison, number)

    def live(self, comparison: Comparison, number: int, due: Sequence[Arm]) -> Comparison:
        """Run arms beside each other, in turns."""
        with live_launch(comparison.deadline_s, self.observer, most=len(comparison.arms)) as launch:
            if number == 0:
                return self._screening(launch, comparison, due)
            return self._final(launch, comparison, due, number)

    def _live_runs(
        self, comparison: Comparison, arms: Sequence[Arm], number: int, *, place: str = "runs"
    ) -> list[LiveRun]:
        """Runs that have not begun; only those whose start is timed have the launcher as typed."""
        placement, runs = comparison.placement, []
        for position, arm in enumerate(arms, len(comparison.runs)):
            spec = comparison.spec_of(arm, number)
            run_dir = _new_run_dir(self.folder, place, position, arm)
            if place == "starts":
                plan = make_plan(spec, run_dir=run_dir, placement=placement)
            else:
                plan = Start(placement).plan(spec, run_dir)
            runs.append(LiveRun(arm.label, self.change(arm, plan)))
        return runs

    def _screening(
        self, launch: LiveLaunch, comparison: Comparison, arms: Sequence[Arm]
    ) -> Comparison:
        """Time the start of each arm alone; then train those that can start, in turns.

        If there is nothing to choose, that is the first launch of the final.
        """
        asked, began = comparison.asked, time.monotonic()
        alone = self._live_runs(comparison, arms, 0, place="starts")
        launch.start_each(alone, lambda seconds: refuse_too_short(asked, seconds))
        kept = _kept_live(alone, 0, 0, self.folder)
        starts = {run.arm: startup_s(run).value for run in kept if run.outcome.completed}
        lost = _kept_live([run for run in alone if run.label not in starts], 0, 0, self.folder)
        unable = [run.arm for run in lost]
        unable += [arm.label for arm in comparison.arms if arm.twin_of in unable]
        number = 1 if nothing_to_choose(comparison, unable) else 0
        drawn = order_of(comparison.arms, number, comparison.seed) if number else arms
        able = [arm for arm in drawn if arm.label not in unable]
        comparison = comparison.replace(spent_s=self.spent_s())
        runs, together = self._live_runs(comparison, able, number), time.monotonic()
        launch.start_together(runs)
        launch.warm(runs)
        start_s, pass_s = time.monotonic() - together, pass_seconds(runs)
        seconds, took_s = 0.0, time.monotonic() - began
        if number:
            refuse_long_final(asked, took_s - start_s, start_s + pass_s * LEAST_PASSES_EACH)
            comparison = with_all(comparison, start_s=start_s, pass_s=pass_s, lost=unable)
            seconds = _phase_s(comparison, self.spent_s())
        else:
            refuse_too_short(asked, took_s + pass_s * LEAST_PASSES_EACH)
        pass_s = launch.train(runs, seconds, f"{comparison.seed}/{number}")
        start_s += launch.end(runs)
        kept = _kept_live(runs, number, len(lost), self.folder)
        kept = [run.replace(alone_start_s=starts.get(run.arm)) for run in kept]
        comparison = self._with_runs(comparison, [*lost, *kept])
        if not number:
            return with_final(comparison, start_s=start_s, pass_s=pass_s)
        comparison = without_failed(comparison, number)
        return divided_again(comparison, start_s=start_s, pass_s=pass_s)

    def _final(
        self, launch: LiveLaunch, comparison: Comparison, arms: Sequence[Arm], number: int
    ) -> Comparison:
        runs, began = self._live_runs(comparison, arms, number), time.monotonic()
        launch.start_together(runs)
        launch.warm(runs)
        start_s = time.monotonic() - began
        seconds = _phase_s(comparison, self.spent_s())
        launch.train(runs, seconds, f"{comparison.seed}/{number}")
        start_s += launch.end(runs)
        # All or none: an arm that a later call ran alone would be no pair of these.
        kept = _kept_live(runs, number, len(comparison.runs), self.folder)
        comparison = self._with_runs(comparison, kept)
        if comparison.division is not None:  # its start is known by now
            division = comparison.division.replace(start_s=start_s)
            comparison = comparison.replace(division=division)
        return without_failed(comparison, number)

    def _with_runs(self, comparison: Comparison, runs: Sequence[Run]) -> Comparison:
        """The comparison with more runs, on disk."""
        _refuse_changes(comparison)  # before they are kept
        for run in runs:
            comparison = comparison.with_run(run)
        comparison = comparison.replace(spent_s=self.spent_s())
        keep(comparison, self.folder)
        for run in runs:
            self.observer.end(run, disturbance(run))
        return comparison


def _phase_s(comparison: Comparison, spent_s: float) -> float:
    """Seconds in which arms that have started train in turns: what starts leave of the budget."""
    division = comparison.division
    assert division is not None
    if comparison.asked.launches is not None:
        return division.phase_s
    left = max(1, division.launches - len(launches_of(comparison).final))
    starts_s = (left - 1) * division.start_s
    return max(0.0, (comparison.asked.budget_s - spent_s - starts_s) / left)


def _kept_live(runs: Sequence[LiveRun], number: int, begun: int, folder: Path) -> list[Run]:
    return [
        _kept(
            run.execution.replace(wall_s=run.active_s),
            run.plan.spec,
            Path(run.plan.run_dir),
            folder,
            arm=run.label,
            round=number,
            position=position,
            load=Load.over(run.loads) if run.loads else None,
            blocks=tuple(run.blocks),
        )
        for position, run in enumerate(runs, begun)
    ]


def _refuse_changes(comparison: Comparison) -> None:
    """Refuse to go on with other code than the code that it began with and that was certified."""
    if why := store.changed_since(comparison.certificates, comparison.code_version):
        raise RefusalError(
            "Nothing may change while launches are made.",
            received=why,
            advice="Start a new comparison.",
        )


def run_arm(
    comparison: Comparison,
    arm: Arm,
    *,
    number: int,
    position: int,
    folder: Path,
    executor: Executor,
    place: str = "runs",
) -> Run:
    """Run an arm once, in its own folder."""
    spec, run_dir = comparison.spec_of(arm, number), _new_run_dir(folder, place, position, arm)
    execution, load = executor(arm, spec, run_dir)
    if execution.outcome.completed:  # a live run takes as long as its phase
        durations.remember(spec, execution.wall_s, comparison.placement)
    known = {"arm": arm.label, "round": number, "position": position, "load": load}
    return _kept(execution, spec, run_dir, folder, **known)


def _kept(execution: Execution, spec: RunSpec, run_dir: Path, folder: Path, **known: Any) -> Run:
    return Run(
        **dict(execution),
        **known,
        spec=spec,
        log_dir=os.fspath((run_dir / "logs").absolute().relative_to(folder.absolute())),
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
