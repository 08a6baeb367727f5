"""The time of every step of a run, as its processes recorded it, and which steps count.

Steps of the warm-up do not count. The warm-up is found from the step times, not guessed.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside_core.specs import EpochRecord, RefusalError, Run, RunRecord, RunSpec

BATCH = 5  # times in a batch, the 5 of MSER-5
LEAST_BATCHES = 10  # fewer cannot be divided into two halves that are compared
SIGNIFICANCE = 0.01
ROUNDING = 1e-12
NO_NOISE = 1e-9  # between logarithms of times
SHORTEST_S = 1e-6  # two steps of an asynchronous run may end together; 0 has no logarithm
# Executions at the beginning of a block that do not count: so many of them as take COLD_S, but
# three at least, because of two the input was prefetched, and six at most.
COLD_S = 0.1
LEAST_MARKED, MOST_MARKED = 3, 6
NEEDS_TWO_EPOCHS = "needs at least 2 epochs"


def timed_records(run: Run) -> tuple[RunRecord, ...]:
    """The records whose clocks count: those of the replicas or the coordinator, not of servers."""
    return tuple(record for record in run.records if record.role != "server")


def chief_of(run: Run) -> RunRecord | None:
    """The record of the process that may write, if it left one."""
    return next((record for record in run.records if record.is_chief), None)


def expected_processes(spec: RunSpec) -> tuple[int, int]:
    """How many processes a run has: those whose clocks count, and all of them."""
    replicas = spec.topology.num_processes
    if spec.capabilities.process_model == "coordinator":
        return 1, 1 + replicas + spec.options.num_servers
    return replicas, replicas


def missing(records: Sequence[RunRecord], expected: int) -> str:
    """Why the run has no figure: some process left no record; empty: all did."""
    if len(records) == expected:
        return ""
    return f"{len(records)} of {expected} processes left a record"


def by_epoch(run: Run) -> list[list[EpochRecord]]:
    """The epochs of all processes whose clocks count, [epoch][process]."""
    each = [record.epochs for record in timed_records(run)]
    longest = max(map(len, each), default=0)
    return [[epochs[k] for epochs in each if k < len(epochs)] for k in range(longest)]


def durations_s(epoch: EpochRecord) -> NDArray[np.float64]:
    """Seconds for each step of one epoch in one process, from the barrier before it on, [times]."""
    between = np.diff(np.asarray(epoch.step_end_s, np.float64), prepend=0.0)
    return between / steps_of_times(epoch)


def steps_of_times(epoch: EpochRecord) -> NDArray[np.int64]:
    """How many steps each entry of step_end_s stands for, [times]; the last may be fewer."""
    steps = np.full(len(epoch.step_end_s), epoch.steps_per_time, np.int64)
    steps[-1] = epoch.steps - epoch.steps_per_time * (len(steps) - 1)
    return steps


def slowest_s(epochs: Sequence[EpochRecord]) -> NDArray[np.float64]:
    """Seconds for each step of one epoch, max over the processes, [times]."""
    longest: NDArray[np.float64] = np.max([durations_s(epoch) for epoch in epochs], axis=0)
    return longest


def check_records_agree(run: Run) -> None:
    """Refuse a run whose processes recorded different facts about the same epochs.

    Raises:
        RefusalError: naming run, epoch, processes and field.
    """
    records = timed_records(run)
    for number in range(len(by_epoch(run))):
        where = f"run {run.arm!r} of {run.stage}, epoch {number + 1}"
        for what in ("examples", "steps", "steps_per_time"):
            seen = {
                record.task: getattr(record.epochs[number], what)
                for record in records
                if number < len(record.epochs)
            }
            lines = [f"{task} {value}" for task, value in seen.items()]
            lines += [f"{record.task} none" for record in records if record.task not in seen]
            if len(set(seen.values())) > 1 or len(seen) < len(records):
                raise RefusalError(
                    f"All processes of a run must record the same {what} of each epoch.",
                    received=f"{where}: " + ", ".join(lines),
                )


# Which steps count


def why_untimed(run: Run) -> str:
    """Why a run has no step times that count; empty: it has some."""
    records = timed_records(run)
    why_not = missing(records, expected_processes(run.spec)[0])
    if not (why_not or run.blocks) and len(records[0].epochs) < 2:
        why_not = NEEDS_TWO_EPOCHS
    return why_not


def counted_epochs(run: Run) -> list[list[EpochRecord]]:
    """The epochs after the warm-up, each with the record of every timed process; see `warm_up`."""
    return by_epoch(run)[warm_up(run).epochs :]


def step_times_ms(run: Run) -> list[float]:
    """Time of every step of the counted epochs, ms: since the end of the step before.

    Of a synchronous run the max over processes; of an asynchronous one, between two completions
    that the coordinator learned of. An execution of several steps is divided by their number.
    """
    if why_untimed(run):
        return []
    if run.blocks:
        line = timeline(run)
        times = (line.seconds.max(axis=0) / line.steps)[line.block >= 0]
    else:
        times = np.concatenate([slowest_s(records) for records in counted_epochs(run)])
    return [1000 * float(second) for second in times]


# Blocks of a live run


@dataclass(frozen=True)
class Timeline:
    """Every execution of a live run, in order; arrays are [executions]."""

    seconds: NDArray[np.float64]  # of each process, [processes, executions]
    steps: NDArray[np.int64]
    examples: NDArray[np.float64]  # as a share of their epoch
    epoch: NDArray[np.int64]
    block: NDArray[np.int64]  # the pass of the block in which it counts; -1: it does not count


def counted_executions(run: Run, record: RunRecord) -> NDArray[np.bool_]:
    """Which entries of step_end_s count, over all epochs of one process, [executions]."""
    times = [len(epoch.step_end_s) for epoch in record.epochs]
    if run.blocks and run.outcome.completed:
        return (timeline(run).block >= 0)[: sum(times)]
    return np.arange(sum(times)) >= sum(times[: warm_up(run).epochs])


def marked_executions(spec: RunSpec, execution_s: float) -> int:
    """Executions at the beginning of a block that do not count.

    Caches are cold after the freeze, and the pipelines had filled their buffers before it. In an
    asynchronous run an execution is one worker's, and each worker has buffers of its own.

    Args:
        spec: of the run.
        execution_s: seconds of an execution, typically.
    """
    cold = math.ceil(COLD_S / max(execution_s, SHORTEST_S))
    marked = min(max(cold, LEAST_MARKED), MOST_MARKED)
    return marked if spec.capabilities.synchronous else marked * spec.topology.num_replicas


def timeline(run: Run) -> Timeline:
    """The executions of a live run; blocks behind the warm-up count, but not how each begins."""
    return _timeline(_Same(run))


@functools.lru_cache(maxsize=64)  # each process of a run asks, for its figures and its samples
def _timeline(same: "_Same") -> Timeline:
    run = same.run
    epochs = by_epoch(run)
    steps = np.concatenate([steps_of_times(records[0]) for records in epochs])
    done, warm = np.cumsum(steps), warm_up(run).steps
    block = np.full(len(steps), -1, np.int64)
    seconds = np.concatenate(
        [[durations_s(epoch) * steps_of_times(epoch) for epoch in of_all] for of_all in epochs],
        axis=1,
    )
    marked = marked_executions(run.spec, float(np.median(seconds.max(axis=0))))
    for one in run.blocks:
        within = np.flatnonzero((done > one.begun_after) & (done <= one.ended_after))
        if one.begun_after >= warm:
            block[within[marked:]] = one.number
    return Timeline(
        seconds=seconds,
        steps=steps,
        examples=np.concatenate(
            [steps_of_times(one[0]) * one[0].examples / one[0].steps for one in epochs]
        ),
        epoch=np.repeat(np.arange(len(epochs)), [len(one[0].step_end_s) for one in epochs]),
        block=block,
    )


@dataclass(frozen=True)
class Counted:
    """What counts of one block.

    Attributes:
        seconds: of all processes together (`together_s`), added up over the epochs that the block
            touches. The sum of the slowest executions would be longer than the block.
    """

    steps: int
    examples: float
    seconds: float


def counted_blocks(run: Run) -> dict[int, Counted]:
    """What counts of a live run, by the number of the pass; empty: nothing."""
    if not run.blocks or why_untimed(run):
        return {}
    line = timeline(run)
    found = {}
    for number in np.unique(line.block[line.block >= 0]):
        within = line.block == number
        parts = [within & (line.epoch == epoch) for epoch in np.unique(line.epoch[within])]
        found[int(number)] = Counted(
            steps=int(line.steps[within].sum()),
            examples=float(line.examples[within].sum()),
            seconds=sum(together_s(run, line.seconds[:, part].sum(axis=1)) for part in parts),
        )
    return found


def together_s(run: Run, seconds: Sequence[float] | NDArray[np.float64]) -> float:
    """How long processes took that began together, from what each took by its own clock.

    Replicas of one model wait for each other: the slowest one tells. Independent ones do not: the
    harmonic mean makes examples ÷ time the sum of their rates.
    """
    if run.spec.capabilities.one_model:
        return float(np.max(seconds))
    return float(stats.hmean(seconds))


# Warm-up


@dataclass(frozen=True)
class WarmUp:
    """The start of a run that is recorded and left out of the figures.

    Attributes:
        steps: after which the step times settled; with a `reason` the run is not known to settle.
        epochs: how many are left out: the first, which contains tracing. Of a live run no other
            one, since its blocks begin behind `steps`; and not its only one.
    """

    steps: int
    epochs: int
    reason: str = ""


def warm_up(run: Run) -> WarmUp:
    """How much of a run is warm-up, by `settled_after`: whole epochs, as barriers lie between them.

    Raises:
        RefusalError: the processes of the run disagree on what was trained.
    """
    return _warm_up(_Same(run))


@dataclass(frozen=True, eq=False)
class _Same:
    """A run by its identity: it is frozen, and hashing all its times costs more than the search."""

    run: Run

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.run is other.run

    def __hash__(self) -> int:
        return id(self.run)


@functools.lru_cache(maxsize=1024)  # every figure of each of hundreds of runs asks for it
def _warm_up(same: _Same) -> WarmUp:
    run = same.run
    if not run.outcome.completed:
        return WarmUp(0, 1, f"the run {run.outcome.kind}")
    check_records_agree(run)
    epochs = by_epoch(run)
    if len(epochs) < 2 and not run.blocks:
        return WarmUp(0, 1, NEEDS_TWO_EPOCHS)
    times = np.concatenate([slowest_s(records) for records in epochs])
    done = np.cumsum(np.concatenate([steps_of_times(one[0]) for one in epochs]))
    # What comes before the first block, or else the first epoch, is left out in any case.
    first = epochs[0][0].steps
    least, only = (run.blocks[0].begun_after, min(1, len(epochs) - 1)) if run.blocks else (0, 1)
    before = int(np.searchsorted(done, least or first, side="right"))
    if len(times) < BATCH * LEAST_BATCHES:
        needed = BATCH * LEAST_BATCHES
        why_not = f"{len(times)} step times: {needed} are needed to find warm-up"
        return WarmUp(least, only, "" if run.blocks else why_not)
    settled = settled_after(times, first_epoch=before)
    if settled is None:
        return WarmUp(least, only, "the step times still change in the second half of the run")
    steps = max(least, int(done[settled - 1]) if settled else 0)
    if run.blocks:
        return WarmUp(steps, only)
    ends = np.cumsum([len(records[0].step_end_s) for records in epochs])
    left_out = max(1, int(np.searchsorted(ends, settled)) + 1 if settled else 1)
    if left_out >= len(epochs):
        return WarmUp(steps, 1, "less than one epoch is left after warm-up")
    return WarmUp(steps, left_out)


def settled_after(times: NDArray[np.float64], *, first_epoch: int) -> int | None:
    """How many times at the start are warm-up; None: they do not settle in the first half.

    MSER-5 (White 1997, Simulation 69:323-334; White, Cobb, Spratt 2000, Winter Simulation
    Conference): take the means z of k batches of five, and leave out the first d batches so that
    Σ_{j>d} (z_j − mean)² ÷ (k − d)² is least. If that d lies in the second half, there is no
    steady part. Two changes are made because step times have rare long outliers: z is the logarithm
    of the *median* of five; and warm-up beyond the first epoch (which is left out anyway) must
    differ from the rest beyond chance (Student's t, 1 %), as noise alone moves the minimum.

    Args:
        times: of all steps, in order, [times].
        first_epoch: how many of them belong to the first epoch, or come before the first block.
    """
    k = len(times) // BATCH
    medians = np.median(np.asarray(times[: k * BATCH]).reshape(k, BATCH), axis=1)
    z = np.log(np.maximum(medians, SHORTEST_S))
    z -= z.mean()  # sums of squares keep their digits
    errors = _marginal_standard_errors(z)
    traced = -(-first_epoch // BATCH)
    first_half, anywhere = int(np.argmin(errors[: k // 2 + 1])), int(np.argmin(errors))
    if anywhere > k // 2 and _differs(z, max(first_half, traced), anywhere):
        return None
    if first_half > traced and not _differs(z, traced, first_half):
        return first_epoch
    return first_half * BATCH if first_half > traced else min(first_half * BATCH, first_epoch)


def _marginal_standard_errors(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ_{j>d} (z_j − mean)² ÷ (k − d)² for every d that leaves at least five batches, [d]."""
    left = np.arange(len(z), BATCH - 1, -1)
    sums = np.cumsum(z[::-1])[left - 1]
    squares = np.cumsum(z[::-1] ** 2)[left - 1]
    errors: NDArray[np.float64] = (squares - sums**2 / left) / left**2
    errors[errors < ROUNDING * errors.max()] = 0.0  # equal times: the first d is the least
    return errors


def _differs(z: NDArray[np.float64], begin: int, end: int) -> bool:
    """Whether batches begin…end differ from all later ones beyond chance; never for one batch."""
    if end - begin < 2:
        return False
    before, after = z[begin:end], z[end:]
    if max(np.ptp(before), np.ptp(after)) < NO_NOISE:  # t is not defined
        return bool(abs(before.mean() - after.mean()) > NO_NOISE)
    return bool(stats.ttest_ind(before, after).pvalue < SIGNIFICANCE)
