"""Which launches count, and what other programs did to them."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ringside.stats.figure import LEAST_LAUNCHES
from ringside_core.specs import Comparison, Run
from ringside_core.text import percent, plural

# A tenth of the processors: below the difference between two quiet runs on a shared machine.
DISTURBED_SHARE = 0.10
# More than one other program on each processor of the runs.
MOST_TAKEN = 0.60


@dataclass(frozen=True)
class Launches:
    """The launches that figures are computed from.

    Attributes:
        first: number of the one in which every arm was timed: 0 is the screening, and 1 the first
            launch of a final for which nothing was to be chosen.
        final: numbers of those of the final that count, rising: every finalist completed in them.
        finalists: labels of the arms whose figures come from these; empty: there is none yet.
        disturbed: why a launch was disturbed: its worst run, and how many more runs were.
        left_out: the disturbed ones that do not count.
    """

    first: int
    final: tuple[int, ...]
    finalists: frozenset[str]
    disturbed: Mapping[int, str]
    left_out: frozenset[int]

    def has(self, run: Run) -> bool:
        """Whether the figures of its arm are computed from this run.

        An arm of the final has those of the final, and no other: the screening has chosen it for
        its figures there. Any other arm has those of the first launch.
        """
        return run.round in self.final if run.arm in self.finalists else run.round == self.first


def disturbance(run: Run) -> str:
    """Why a run was disturbed; empty: it was not, or the load was not recorded.

    The share of other programs is others_cpu_s ÷ (cores · wall_s), that of the hypervisor is
    steal_cpu_s ÷ (cores · wall_s). A run is disturbed if one of them is above DISTURBED_SHARE.
    """
    others, stolen = _shares(run)
    reasons = []
    if others > DISTURBED_SHARE:
        text = f"others used {percent(others)} of its cores"
        if run.load is not None and (of_all := beside(run)) is not None:
            text += f", and {percent(of_all)} of all {run.load.machine_cores}"
        reasons.append(text)
    if stolen > DISTURBED_SHARE:
        reasons.append(f"the host took {percent(stolen)} of its cores away")
    return "; ".join(reasons)


def _shares(run: Run) -> tuple[float, float]:
    """Of other programs and of the hypervisor; 0 if the load was not recorded."""
    if run.load is None:
        return 0.0, 0.0
    available_s = run.load.cores * run.load.wall_s
    return run.load.others_cpu_s / available_s, run.load.steal_cpu_s / available_s


def others_share(comparison: Comparison) -> float | None:
    """Share of the runs' processors that others and the hypervisor took; None: not counted.

    Σ (others_cpu_s + steal_cpu_s) ÷ Σ (cores · wall_s) over all runs.
    """
    loads = [run.load for run in comparison.runs if run.load is not None]
    if not loads:
        return None
    taken = sum(one.others_cpu_s + one.steal_cpu_s for one in loads)
    return taken / sum(one.cores * one.wall_s for one in loads)


def why_untrusted(comparison: Comparison) -> str:
    """Why no interval of a comparison can be trusted; empty: they can be.

    Stacks differ in how well they defend a processor: one that polls keeps it, one that sleeps
    loses it. Above MOST_TAKEN that is measured, not the stacks' speed.
    """
    share = others_share(comparison)
    if share is None or share <= MOST_TAKEN:
        return ""
    return f"other programs took {percent(share)} of the processors: no interval can be trusted"


def beside(run: Run) -> float | None:
    """Share of all processors of the machines that others used, or the hypervisor took away.

    It disturbs no round by itself: whether it slows a run on other cores down depends on memory,
    caches and clock rates that both share. None: not counted, or the run could use all.
    """
    load = run.load
    if load is None or load.machine_cores <= load.cores:
        return None
    taken_s = sum(
        max(0.0, one.machine_busy_s - one.own_s) + one.machine_steal_s for one in load.machines
    )
    return taken_s / (load.machine_cores * load.wall_s)


def fixed_computation_ms(comparison: Comparison) -> dict[int, float]:
    """How long the fixed computation before each block took in a live round, ms: the median.

    What slows it down slowed the arms down too, whether it ran on their processors or not.
    """
    times: dict[int, list[float]] = {}
    for run in comparison.runs:
        for block in run.blocks:
            if block.kernel_s is not None:
                times.setdefault(run.round, []).append(1000 * block.kernel_s)
    return {number: statistics.median(found) for number, found in sorted(times.items())}


def launches_of(comparison: Comparison) -> Launches:
    """Which launches count.

    A disturbed launch whose arms ran one after the other (`--fresh`) is left out while enough
    others are left. A live one is not: what disturbs a pass disturbs all arms of it.
    """
    disturbed = {} if comparison.live else _disturbed(comparison)
    done: dict[int, set[str]] = {}
    for run in comparison.runs:
        if run.round and run.outcome.completed:
            done.setdefault(run.round, set()).add(run.arm)
    finalists = set(comparison.finalists)
    whole = [number for number, arms in sorted(done.items()) if finalists <= arms]
    quiet = [number for number in whole if number not in disturbed]
    left_out = set(disturbed) - {0} if len(quiet) >= LEAST_LAUNCHES else set()
    final = tuple(quiet if left_out else whole)
    first = 0 if any(not run.round and run.outcome.completed for run in comparison.runs) else 1
    return Launches(
        first, final, frozenset(finalists if final else ()), disturbed, frozenset(left_out)
    )


def _disturbed(comparison: Comparison) -> dict[int, str]:
    """Why each disturbed launch was, by number."""
    by_number: dict[int, list[Run]] = {}
    for run in sorted(comparison.runs, key=lambda run: run.position):
        if disturbance(run):
            by_number.setdefault(run.round, []).append(run)
    found = {}
    for number, runs in by_number.items():
        worst, more = max(runs, key=lambda run: sum(_shares(run))), len(runs) - 1
        found[number] = f"{worst.arm}: {disturbance(worst)}"
        found[number] += f", and {plural(more, 'more run')}" if more else ""
    return found
