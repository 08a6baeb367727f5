"""Which rounds of a comparison count: not those in which others used the machine."""

from collections.abc import Mapping
from dataclasses import dataclass

from specs import Comparison, Run

# A tenth of the processors: less than the difference between two quiet runs on a shared machine.
DISTURBED_SHARE = 0.10


@dataclass(frozen=True)
class RoundsUsed:
    """The rounds from which everything is computed.

    Attributes:
        used: their 0-based numbers, rising.
        disturbed: of those in which a run was disturbed, the first such run and why.
        kept_disturbed: whether disturbed ones are among the used, as there were too few others.
    """

    used: tuple[int, ...]
    disturbed: Mapping[int, str]
    kept_disturbed: bool


def disturbance(run: Run) -> str:
    """Why a run was disturbed; empty: it was not, or nobody looked.

    Others' share of its processors is others_cpu_s ÷ (cores · wall_s), and the hypervisor's
    steal_cpu_s ÷ (cores · wall_s); each alone must be above DISTURBED_SHARE.
    """
    if run.load is None:
        return ""
    available_s = run.load.cores * run.load.wall_s
    reasons = []
    if (share := run.load.others_cpu_s / available_s) > DISTURBED_SHARE:
        reasons.append(f"others used {share:.0%} of its cores".replace("%", " %"))
    if (share := run.load.steal_cpu_s / available_s) > DISTURBED_SHARE:
        reasons.append(f"the host took {share:.0%} of its cores away".replace("%", " %"))
    return "; ".join(reasons)


def rounds_used(comparison: Comparison) -> RoundsUsed:
    """Leave out disturbed rounds while at least `asked.least` undisturbed ones remain."""
    disturbed: dict[int, str] = {}
    for run in sorted(comparison.runs, key=lambda run: run.position):
        if (why := disturbance(run)) and run.round not in disturbed:
            disturbed[run.round] = f"{run.arm}: {why}"
    begun = sorted({run.round for run in comparison.runs})
    quiet = tuple(number for number in begun if number not in disturbed)
    if not disturbed or len(quiet) >= comparison.asked.least:
        return RoundsUsed(quiet, disturbed, kept_disturbed=False)
    return RoundsUsed(tuple(begun), disturbed, kept_disturbed=True)
