"""A live round: all its arms are started, and then train in turns, block by block.

A machine changes within seconds, and an arm started half a minute later meets another machine. So
every arm makes a short block, frozen by SIGSTOP but in its turn, and the next pass begins again in
a newly drawn order. docs/decisions/0006-what-is-timed-and-when.md says what is timed.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import psutil

from launch import Plan, execute
from launch.interrupts import Interrupts
from launch.turns import Turns
from ringside.compare.progress import Observer
from ringside.stats.step_times import marked_executions
from ringside_core.readings.cgroups import memory_left_bytes
from ringside_core.readings.cores import usable_cores
from ringside_core.readings.load import LoadWatch, cores_of, own_cpu_s
from ringside_core.specs import Block, Execution, Load, RefusalError

# Long against the switch (some 20 ms), short against what changes on a machine.
LEAST_BLOCK_S = 0.3
LEAST_COUNTED = 10  # executions of a block, beside those at its beginning that do not count
ENOUGH_PASSES = 10
MOST_PASSES = 60
GROWTH = 1.25  # of the turns of a run that does not know yet how many updates it makes
QUIET = 0.9  # of the shortest block so far: so long nobody looks whether a block is over
# A process of TensorFlow with a small model, without what it shares with others: 320 MB were seen.
PROCESS_BYTES = 400 * 2**20
KERNEL_BYTES = 2**23  # beyond the caches of one core: it feels memory as well as clock


@dataclass
class LiveRun:
    """One run of a live round.

    Attributes:
        label: of its arm.
        plan: of the run.
        total: updates in all; 0: not known before its first epoch is over.
        warm: updates made at its start, before any block.
        done: updates that it has made.
        active_s: time of its own turns, the start included.
        update_s: time of an update of its first epoch.
        started: its start is over.
        blocks: its turns so far.
        loads: what else the machine did in them.
        result: of its execution.
    """

    label: str
    plan: Plan
    turns: Turns = field(init=False)
    total: int = 0
    warm: int = 0
    done: int = 0
    active_s: float = 0.0
    update_s: float = 0.0
    started: bool = False
    blocks: list[Block] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    result: "Future[Execution] | None" = None

    def __post_init__(self) -> None:
        self.turns = Turns(self.plan)

    @property
    def processes_here(self) -> int:
        """On this machine; 0 if there are others: what fits there is not known."""
        return 0 if self.plan.remote_hosts else len(self.plan.expects)

    @property
    def alive(self) -> bool:
        """Whether it can have another turn."""
        return not self.turns.over

    def knows_total(self) -> bool:
        """Whether it has told how many updates it makes."""
        self.total = max((one.total_steps for one in self.turns.progress()), default=0)
        return self.total > 0

    def turn(self, until: float, between: Callable[[], None], *, expected_s: float = 0.0) -> float:
        """Give it a turn; returns the seconds that it took."""
        began = time.monotonic()
        self.done = self.turns.run_until(until, between, expected_s=expected_s) or self.total
        seconds = time.monotonic() - began
        self.active_s += seconds
        return seconds

    @property
    def completed(self) -> bool:
        """Whether it is over and has done everything."""
        return self.turns.over and self.execution.outcome.completed

    @property
    def load(self) -> Load | None:
        """What else this machine did in its blocks; None: not known."""
        return Load.over(self.loads) if self.loads else None

    @property
    def execution(self) -> Execution:
        """What became of it, once it is over. Its wall time is that of its own turns."""
        assert self.result is not None
        return self.result.result().replace(wall_s=self.active_s)


def live_round(
    runs: Sequence[LiveRun],
    *,
    seed: str,
    deadline_s: float,
    observer: Observer,
) -> None:
    """Start the runs one after the other, let them train in turns, and wait until all are over.

    A run that dies is over; the others go on.

    Args:
        runs: in the order in which they are started.
        seed: of the order in each pass.
        deadline_s: a run that makes no progress for so long in its turn has hung.
        observer: is told what happens.

    Raises:
        RefusalError: they do not fit into memory.
        KeyboardInterrupt, SystemExit: after every process was ended.
    """
    each = PROCESS_BYTES
    with Interrupts() as interrupts, ThreadPoolExecutor(len(runs)) as pool:
        try:
            for number, run in enumerate(runs):
                left = [one.processes_here for one in runs[number:]]
                refuse_without_memory(left, each, begun=number)
                observer.start(run.label)
                _start(run, pool, interrupts, deadline_s, observer)
                each = max(each, run.turns.memory_bytes() // max(1, run.processes_here))
            _passes(runs, seed, interrupts, observer)
        except BaseException:
            interrupts.stop()  # each execution ends its own processes
            raise


def refuse_without_memory(
    processes: Sequence[int], each: int = PROCESS_BYTES, *, begun: int = 0
) -> None:
    """Refuse arms that do not fit into the memory of this machine at the same time."""
    free, left = psutil.virtual_memory().available, memory_left_bytes()
    available = free if left is None else min(free, left)
    sums = np.cumsum([each * count for count in processes])
    if len(sums) and sums[-1] > available:
        fits = begun + int(np.searchsorted(sums, available, side="right"))
        raise RefusalError(
            "All arms of a live round must fit into memory at the same time.",
            received=f"{begun + len(processes)} arms; a process takes about {each / 2**20:.0f} MiB "
            f"and {available / 2**20:.0f} MiB are free, so {fits} arms fit",
            advice="Name fewer --backends or --replicas, or add --fresh.",
        )


def _start(
    run: LiveRun,
    pool: ThreadPoolExecutor,
    interrupts: Interrupts,
    deadline_s: float,
    observer: Observer,
) -> None:
    """Start a run and let it train alone for an epoch, with all that it traces; then freeze it."""

    def whole() -> Execution:
        try:
            return execute(
                run.plan,
                deadline_s=deadline_s,
                on_progress=lambda one: None if run.started else observer.step(one),
                interrupts=interrupts,
                turns=run.turns,
            )
        finally:
            run.turns.over = True

    run.turns.allow(1)
    run.result = pool.submit(whole)
    run.turn(1, interrupts.raise_noted)
    first, seconds = run.done, 0.0
    while run.alive and not run.knows_total():  # a script's own data may not say their size
        seconds += run.turn(math.ceil(run.done * GROWTH), interrupts.raise_noted)
    epoch = math.ceil(run.total / run.plan.spec.epochs)
    if run.alive and epoch > run.done:
        seconds += run.turn(epoch, interrupts.raise_noted)
    if run.done > first:
        run.update_s = seconds / (run.done - first)
    if run.alive:
        # One more: the end of the epoch with its validation is behind it.
        run.turn(run.done + 1, interrupts.raise_noted)
    run.warm, run.started = run.done, True


def _passes(runs: Sequence[LiveRun], seed: str, interrupts: Interrupts, observer: Observer) -> None:
    """Give each run its blocks. In the last pass each goes on to its end."""
    count = number_of_passes(runs)
    for number in range(count):
        order = [run for run in runs if run.alive]
        random.Random(f"{seed}/{number}").shuffle(order)
        for run in order:
            share = (number + 1) / count
            last = number == count - 1
            until = run.warm + math.ceil((run.total - run.warm) * share)
            _block(run, number, math.inf if last else until, interrupts)
        observer.passes(number + 1, count)


def number_of_passes(runs: Sequence[LiveRun]) -> int:
    """Into how many parts every training is divided after its start, the same for all.

    A block of the fastest run lasts LEAST_BLOCK_S at least, or less where the training is too short
    for ENOUGH_PASSES of that. Each has executions that count.
    """
    live = [run for run in runs if run.alive and run.total > run.warm and run.update_s]
    if not live:
        return 1
    fastest = min(live, key=lambda run: run.update_s * run.total)
    most = (fastest.total - fastest.warm) * fastest.update_s / LEAST_BLOCK_S
    most = max(most, ENOUGH_PASSES)
    for run in live:
        spec = run.plan.spec
        updates = (marked_executions(spec) + LEAST_COUNTED) * spec.steps_per_execution
        most = min(most, (run.total - run.warm) / updates)
    return max(1, min(MOST_PASSES, int(most)))


def _block(run: LiveRun, number: int, until: float, interrupts: Interrupts) -> None:
    """One turn, with what else the machine did meanwhile."""
    before, kernel = run.done, kernel_s()
    expected_s = QUIET * min((one.wall_s for one in run.blocks), default=0.0)
    cores = cores_of(run.plan.spec, usable_cores())
    with LoadWatch(cores, own_s=lambda: own_cpu_s() + run.turns.cpu_s()) as watch:
        seconds = run.turn(until, interrupts.raise_noted, expected_s=expected_s)
    if run.done <= before or not (run.alive or run.completed):
        return
    # What runs on other machines is not known here, and neither is the time of what has ended.
    load = watch.load if run.alive and not run.plan.remote_hosts else None
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


def kernel_s() -> float:
    """Seconds of a fixed computation on one core: how fast the machine is now."""
    began = time.perf_counter()
    np.sqrt(np.arange(KERNEL_BYTES // 8, dtype=np.float64)).sum()
    return time.perf_counter() - began
