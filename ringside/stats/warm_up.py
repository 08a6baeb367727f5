"""Warm-up, found in the step times of a run and not guessed."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside.stats.step_times import by_epoch, check_records_agree, slowest_s, steps_of_times
from ringside_core.specs import Run

BATCH = 5  # times in a batch, the 5 of MSER-5
LEAST_BATCHES = 10  # fewer have no halves that could be compared
SIGNIFICANCE = 0.01
ROUNDING = 1e-12
NO_NOISE = 1e-9  # between logarithms of times
SHORTEST_S = 1e-6  # of an asynchronous run two steps may end at once, and 0 has no logarithm


@dataclass(frozen=True)
class WarmUp:
    """What is recorded and left out of the figures at the start of a run.

    Attributes:
        steps: after which the step times settled, a multiple of the batch; 0 if not found.
        epochs: that are left out: the one in which these steps ended and those before, and in any
            case the first, which holds tracing and compilation.
        found: whether the rule could be applied and the run settled.
        reason: why not.
    """

    steps: int
    epochs: int
    found: bool
    reason: str = ""


def warm_up(run: Run) -> WarmUp:
    """How much of a run is warm-up. Epochs are counted whole: throughput is between barriers.

    By `settled_after`, over the times of all steps of the run, each that of the slowest process.

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


@functools.lru_cache(maxsize=1024)  # every figure of a run asks; a report has hundreds of runs
def _warm_up(same: _Same) -> WarmUp:
    run = same.run
    if not run.outcome.completed:
        return WarmUp(0, 1, found=False, reason=f"the run {run.outcome.kind}")
    check_records_agree(run)
    epochs = [[epoch for _, epoch in records] for records in by_epoch(run)]
    if len(epochs) < 2:
        return WarmUp(0, 1, found=False, reason="needs at least 2 epochs")
    times = np.concatenate([slowest_s(records) for records in epochs])
    if len(times) < BATCH * LEAST_BATCHES:
        why_not = f"{len(times)} step times: {BATCH * LEAST_BATCHES} are needed to find warm-up"
        return WarmUp(0, 1, found=False, reason=why_not)
    settled = settled_after(times, first_epoch=len(epochs[0][0].step_end_s))
    if settled is None:
        why_not = "the step times still change in the second half of the run"
        return WarmUp(0, 1, found=False, reason=why_not)
    steps = int(np.concatenate([steps_of_times(one[0]) for one in epochs])[:settled].sum())
    ends = np.cumsum([len(records[0].step_end_s) for records in epochs])
    left_out = max(1, int(np.searchsorted(ends, settled)) + 1 if settled else 1)
    if left_out >= len(epochs):
        return WarmUp(steps, 1, found=False, reason="less than one epoch is left after warm-up")
    return WarmUp(steps, left_out, found=True)


def settled_after(times: NDArray[np.float64], *, first_epoch: int) -> int | None:
    """How many times at the start are warm-up; None: they do not settle in the first half.

    MSER-5 (White 1997, Simulation 69:323-334; White, Cobb, Spratt 2000, Winter Simulation
    Conference): of the means z of k batches of five, leave out the first d so that
    Σ_{j>d} (z_j − mean)² ÷ (k − d)² is least; if that d lies in the second half, there is no
    steady part. Two changes for step times, which have rare long ones: z is the logarithm of the
    *median* of five; and what lies after the first epoch, left out anyway, must differ from the
    rest beyond chance (Student's t, 1 %), as the minimum alone also moves with noise.

    Args:
        times: of all steps, in order.
        first_epoch: how many of them belong to the first epoch.
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
    """Whether batches begin…end differ from all later ones beyond chance; one alone cannot."""
    if end - begin < 2:
        return False
    before, after = z[begin:end], z[end:]
    if max(np.ptp(before), np.ptp(after)) < NO_NOISE:  # t is not defined
        return bool(abs(before.mean() - after.mean()) > NO_NOISE)
    return bool(stats.ttest_ind(before, after).pvalue < SIGNIFICANCE)
