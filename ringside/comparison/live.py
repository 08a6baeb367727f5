"""A live launch: all its arms are started, and then train in turns, block by block.

A machine changes within seconds, and an arm started half a minute later meets another machine. So
every arm makes a short block, frozen by SIGSTOP but in its turn, and the next pass begins again in
a newly drawn order, until the phase is over. How many epochs an author asks for does not matter:
the data begin again. docs/decisions/0006-what-is-timed-and-when.md says what is timed.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import psutil

from launch import Plan, execute
from launch.interrupts import Interrupts
from launch.turns import END, MOST_EPOCHS, Turns
from ringside.comparison.progress import ComparisonProgress
from ringside.stats.division import LEAST_PASSES_EACH
from ringside.stats.step_times import marked_executions
from ringside_core.readings.cgroups import memory_left_bytes
from ringside_core.readings.cores import usable_cores
from ringside_core.readings.load import LoadWatch, cores_of, own_cpu_s
from ringside_core.specs import Block, Execution, Load, RefusalError

# Of what counts of a block: long against the switch (some 20 ms), short against what changes on a
# machine.
BLOCK_S = 0.6
MOST_BLOCK_S = 0.9  # on average over the arms
LEAST_COUNTED = 4  # executions of a block, beside those at its beginning that do not count
MOST_PASSES = 40  # of a phase; a longer phase has longer blocks
LAST = 2  # blocks that say, with the present one, how long an update takes
WARM_S = 1.0  # that the fastest run trains before the first block
LEAST_WARM = 5  # updates
FIRST_S, FIRST_UPDATES = 0.3, 8  # of the turns that show how long an update takes, at most
QUIET = 0.9  # of the time of the fastest block so far: before it, no look whether it is over
# A process of TensorFlow with a small model, without what it shares with others: 320 MB were seen.
PROCESS_BYTES = 400 * 2**20
START_POLL_S = 0.05
KERNEL_BYTES = 2**23  # beyond the caches of one core: it feels memory as well as clock


@dataclass
class LiveRun:
    """One run of a live launch.

    Attributes:
        label: of its arm.
        plan: of the run.
        done: updates that it has made.
        active_s: time of its own turns, the start included.
        update_s: time of an update: in its warm-up, then in its blocks.
        started: its start is over.
        blocks: its turns, without the warm-up.
        loads: what else the machine did in them.
        result: of its execution.
    """

    label: str
    plan: Plan
    turns: Turns = field(init=False)
    done: int = 0
    active_s: float = 0.0
    update_s: float = 0.0
    started: bool = False
    blocks: list[Block] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    result: "Future[Execution] | None" = None

    def __post_init__(self) -> None:
        self.turns = Turns(self.plan, without_end=True)

    @property
    def processes_here(self) -> int:
        """On this machine; 0 if there are others: what fits there is not known."""
        return 0 if self.plan.remote_hosts else len(self.plan.expects)

    @property
    def alive(self) -> bool:
        """Whether it can have another turn."""
        return not self.turns.over

    def turn(self, until: float, between: Callable[[], None], *, expected_s: float = 0.0) -> float:
        """Give it a turn; returns the seconds that it took."""
        began = time.monotonic()
        self.done = self.turns.run_until(until, between, expected_s=expected_s) or self.done
        seconds = time.monotonic() - began
        self.active_s += seconds
        return seconds

    @property
    def execution(self) -> Execution:
        """What became of it, once it is over."""
        assert self.result is not None
        return self.result.result()


@contextmanager
def live_launch(
    deadline_s: float, observer: ComparisonProgress, *, most: int
) -> Generator["LiveLaunch", None, None]:
    """Nothing runs yet; at the exit no process is left.

    Args:
        deadline_s: a run that makes no progress for so long in its turn has hung.
        observer: hears what happens.
        most: runs that will be started.

    Raises:
        KeyboardInterrupt, SystemExit: after every process was ended.
    """
    with Interrupts() as interrupts, ThreadPoolExecutor(most) as pool:
        try:
            yield LiveLaunch(deadline_s, observer, interrupts, pool)
        except BaseException:
            interrupts.stop()  # each execution ends its own processes
            raise


@dataclass(frozen=True)
class LiveLaunch:
    """Starts runs, lets them train in turns, and ends them. A run that dies is over; others go on.

    See `live_launch`.
    """

    deadline_s: float
    observer: ComparisonProgress
    interrupts: Interrupts
    pool: ThreadPoolExecutor

    def start_each(self, runs: Sequence[LiveRun], check: Callable[[float], None]) -> None:
        """Start each alone, and end it behind its first update: its start is timed.

        Args:
            runs: in the order in which they are started.
            check: called after each with the seconds that all will take; may raise.

        Raises:
            RefusalError: they would not fit into memory together, or what the check says.
        """
        began, each = time.monotonic(), PROCESS_BYTES
        for number, run in enumerate(runs, start=1):
            self.observer.start(run.label)
            self._begin(run)
            run.turn(1, self.interrupts.raise_noted)
            run.started = True
            if run.processes_here:
                each = max(each, run.turns.memory_bytes() // run.processes_here)
            self.end([run])
            refuse_without_memory([one.processes_here for one in runs], each)
            check((time.monotonic() - began) * len(runs) / number)

    def start_together(self, runs: Sequence[LiveRun]) -> None:
        """Start all at once: all of them compute, which needs less time.

        Raises:
            RefusalError: they do not fit into memory.
        """
        refuse_without_memory([one.processes_here for one in runs])
        self.observer.start("all arms")
        began = time.monotonic()
        for run in runs:
            self._begin(run)
        starting = list(runs)
        while starting:
            time.sleep(START_POLL_S)
            self.interrupts.raise_noted()
            for run in starting.copy():
                if run.turns.over or run.turns.waits(1):
                    starting.remove(run)
                    run.active_s = time.monotonic() - began
                    run.started = True
                    if run.alive:
                        run.turns.freeze()
                        run.done = max(task.step for task in run.turns.progress())

    def _begin(self, run: LiveRun) -> None:
        def whole() -> Execution:
            try:
                return execute(
                    run.plan,
                    deadline_s=self.deadline_s,
                    on_progress=lambda one: None if run.started else self.observer.step(one),
                    interrupts=self.interrupts,
                    turns=run.turns,
                )
            finally:
                run.turns.over = True

        run.turns.allow(1)
        run.result = self.pool.submit(whole)

    def warm(self, runs: Sequence[LiveRun]) -> None:
        """Let each new run train alone for a while, and all of them to the same update."""
        between = self.interrupts.raise_noted
        for run in (one for one in runs if not one.update_s):
            first, seconds = run.done, 0.0
            while run.alive and (
                run.done == first or (seconds < FIRST_S and run.done < FIRST_UPDATES)
            ):
                seconds += run.turn(2 * run.done + 1, between)
            if run.done > first:
                run.update_s = seconds / (run.done - first)
        live = [run for run in runs if run.alive]
        if not live:
            return
        most = 2 * most_updates(live)
        warm = min(WARM_S / min(run.update_s for run in live), most)
        warm = max(LEAST_WARM, math.ceil(warm))
        totals = [one.total_steps for run in live for one in run.turns.progress()]
        epoch = round(max(totals, default=0) / MOST_EPOCHS)  # the longest; 0: not known
        if epoch <= min(2 * warm, most):
            warm = max(warm, epoch + 1)  # its end, with a validation that is traced, is behind it
        warm = max(warm, *(run.done for run in live)) if len(live) > 1 else max(warm, live[0].done)
        for run in live:
            before = run.done
            if before < warm:
                seconds = run.turn(warm, between)
                if run.done - before >= LEAST_WARM:
                    run.update_s = seconds / (run.done - before)

    def train(self, runs: Sequence[LiveRun], seconds: float, seed: str) -> float:
        """Give each run its blocks until the phase is over; returns mean seconds of a pass.

        Args:
            runs: that are warm.
            seconds: of all of them together; the least number of passes is made in any case.
            seed: of the order in each pass.
        """
        begun, number = time.monotonic(), 0
        pass_s = pass_seconds(runs)
        behind = max((run.done for run in runs), default=0)
        while any(run.alive for run in runs):
            elapsed = time.monotonic() - begun
            if number:
                pass_s = elapsed / number
            if number >= LEAST_PASSES_EACH and elapsed + pass_s / 2 > seconds:
                break
            order = [run for run in runs if run.alive]
            # Blocks are as long as was asked for by what the last ones took, not the warm-up.
            longer = max(1.0, seconds / (MOST_PASSES * (pass_seconds(runs) or 1.0)))
            behind += math.ceil(updates_of_a_block(order) * longer)
            random.Random(f"{seed}/{number}").shuffle(order)
            for run in order:
                _block(run, number, behind, self.interrupts)
            number += 1
            planned = round(seconds / pass_s) if pass_s else 0
            self.observer.passes(number, max(LEAST_PASSES_EACH, planned))
        return (time.monotonic() - begun) / max(1, number)

    def end(self, runs: Sequence[LiveRun]) -> float:
        """End trainings at once, behind the update that each has reached; seconds that it took."""
        began = time.monotonic()
        ending = [run for run in runs if run.alive]
        for run in ending:
            run.turns.allow(END)
            run.turns.thaw()
        while any(run.alive for run in ending):
            time.sleep(START_POLL_S)
            self.interrupts.raise_noted()
        seconds = time.monotonic() - began
        for run in ending:
            run.active_s += seconds
        return seconds


def pass_seconds(runs: Sequence[LiveRun]) -> float:
    """About how long a pass takes."""
    live = [run for run in runs if run.alive]
    return updates_of_a_block(live) * sum(run.update_s for run in live)


def refuse_without_memory(processes: Sequence[int], each: int = PROCESS_BYTES) -> None:
    """Refuse arms that do not fit into the memory of this machine at the same time."""
    free, left = psutil.virtual_memory().available, memory_left_bytes()
    available = free if left is None else min(free, left)
    sums = np.cumsum([each * count for count in processes])
    if len(sums) and sums[-1] > available:
        fits = int(np.searchsorted(sums, available, side="right"))
        raise RefusalError(
            "All arms of a live launch must fit into memory at the same time.",
            received=f"{len(processes)} arms; a process takes about {each / 2**20:.0f} MiB "
            f"and {available / 2**20:.0f} MiB are free, so {fits} arms fit",
            advice="Name fewer --backends or --replicas, or add --fresh.",
        )


def updates_of_a_block(runs: Sequence[LiveRun]) -> int:
    """Updates of a block, the same for all; of each run LEAST_COUNTED executions count at least.

    Of the fastest BLOCK_S count, unless others are so slow that a pass would take too long.

    Args:
        runs: that know how long an update takes.
    """
    least = wanted = 1
    for run in runs:
        steps = run.plan.spec.steps_per_execution
        execution_s = run.update_s * steps
        marked = marked_executions(run.plan.spec, execution_s)
        counted = max(LEAST_COUNTED, math.ceil(BLOCK_S / max(execution_s, 1e-6)))
        if execution_s == min(one.update_s * one.plan.spec.steps_per_execution for one in runs):
            wanted = max(wanted, (marked + counted) * steps)
        least = max(least, (marked + LEAST_COUNTED) * steps)
    return max(least, min(wanted, math.ceil(most_updates(runs))))


def most_updates(runs: Sequence[LiveRun]) -> float:
    """Of a pass: blocks take MOST_BLOCK_S on average, though one arm may be far slower."""
    return MOST_BLOCK_S * len(runs) / max(sum(run.update_s for run in runs), 1e-6)


def _block(run: LiveRun, number: int, until: float, interrupts: Interrupts) -> None:
    """One turn, with what else the machine did meanwhile."""
    before, kernel = run.done, kernel_s()
    each = [one.wall_s / (one.ended_after - one.begun_after) for one in run.blocks]
    expected_s = QUIET * (until - before) * min(each, default=0.0)
    cores = cores_of(run.plan.spec, usable_cores())
    with LoadWatch(cores, own_s=lambda: own_cpu_s() + run.turns.cpu_s()) as watch:
        seconds = run.turn(until, interrupts.raise_noted, expected_s=expected_s)
    if run.done <= before or not run.alive:
        return  # data that ended, or a run that died
    load = None if run.plan.remote_hosts else watch.load
    if load is not None:
        run.loads.append(load)
    run.blocks.append(
        Block(
            number=number,
            begun_after=before,
            ended_after=run.done,
            wall_s=seconds,
            others_cpu_s=None if load is None else load.others_cpu_s,
            kernel_s=kernel,
        )
    )
    run.update_s = statistics.median([*each[-LAST:], seconds / (run.done - before)])


def kernel_s() -> float:
    """Seconds of a fixed computation on one core: how fast the machine is now."""
    began = time.perf_counter()
    np.sqrt(np.arange(KERNEL_BYTES // 8, dtype=np.float64)).sum()
    return time.perf_counter() - began
