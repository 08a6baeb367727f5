"""The screening: every arm once. It gives each its row, and chooses who takes part in the final.

Its numbers choose, and are not used again for those that they chose: so nothing has to be widened
for having been the fastest of several.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside.stats.breakdown_arms import breakdown_arms
from ringside.stats.figure import CONFIDENCE, Figure, too_few
from ringside.stats.final import LEAST_PASSES, Pair, Sample, Samples, middle, turned
from ringside_core.specs import Arm, Comparison

Once = Mapping[str, Sample]  # one launch, by label of the arm

MOST_CONTENDERS = 2  # of a family
# Two runs that were not live may differ by so much by chance: seconds of a shared machine.
ALONE = 0.10
# What passes scatter by at least in the recorded comparisons. A few passes may show much less by
# chance, and then the final would have many starts and hardly any passes.
LEAST_SCATTER = 0.025


def once(samples: Samples, number: int) -> Once:
    """The arms that were timed in a launch."""
    return {label: of_arm[number] for label, of_arm in samples.items() if number in of_arm}


def ratio_once(samples: Once, first: str, second: str) -> Pair:
    """Two arms by the screening alone: a ratio without an interval. The faster one comes first."""
    found = _difference(samples, first, second)
    if found is None:
        return Pair(first, second, Figure(None, "not both were timed in the screening"))
    pair = Pair(first, second, Figure(math.exp(found[0]), too_few(1), n=1))
    return turned(pair) if found[0] < 0 else pair


def contenders(arms: Sequence[Arm], samples: Once) -> list[Arm]:
    """Who may decide the largest size, fastest first: in each family two at most.

    In each family that distributes, that is the fastest arm and the next one if the passes of the
    screening do not tell the two apart. A family that is alone sends its two fastest.

    Args:
        arms: that may be ranked.
        samples: of the screening.
    """
    families = _families(arms, samples)
    found: list[Arm] = []
    for ranked in families.values():
        best, *rest = ranked
        near = [arm for arm in rest if not differ(samples, best.label, arm.label)]
        if len(families) == 1:
            near = rest
        found += [best, *near[: MOST_CONTENDERS - 1]]
    return sorted(found, key=lambda arm: -samples[arm.label].value)


def next_in_line(
    failed: Arm, arms: Sequence[Arm], samples: Once, taken: Collection[str]
) -> Arm | None:
    """The fastest arm of the same family and size that is not in the final yet; None: none is left.

    Args:
        failed: in the final.
        arms: that may be ranked.
        samples: of the screening.
        taken: labels of those that are, or were, in the final.
    """
    same_size = _families(
        [arm for arm in arms if arm.replicas == failed.replicas and arm.label not in taken], samples
    )
    return next(iter(same_size.get(failed.capabilities.family, ())), None)


def finalists(comparison: Comparison, chosen: Sequence[Arm]) -> tuple[str, ...]:
    """Labels of all arms of the final: contenders, serial, its twin, and what breaks them down."""
    if comparison.asked.all_arms:
        return tuple(arm.label for arm in comparison.arms)
    plain = [arm for arm in comparison.arms if not arm.for_breakdown]
    kept = [arm for arm in plain if arm in chosen or arm.capabilities.family == "none"]
    labels = {arm.label for arm in kept} | {arm.label for arm in plain if arm.twin_of}
    if any(arm.for_breakdown for arm in comparison.arms):
        own = [arm for arm in kept if not arm.twin_of]
        labels |= {arm.label for arm in breakdown_arms(own, comparison.shared)}
    return tuple(arm.label for arm in comparison.arms if arm.label in labels)


def all_finalists(comparison: Comparison, able: Sequence[Arm], lost: Collection[str]) -> bool:
    """Whether every arm takes part in the final, however fast it is: nothing is to be chosen.

    Args:
        comparison: before its first launch.
        able: arms that may be ranked.
        lost: labels of those that could not start.
    """
    ready = [arm for arm in able if arm.label not in lost]
    # Far apart, so that none comes in only for being near another one.
    sure = contenders(ready, {arm.label: Sample(2.0**k) for k, arm in enumerate(ready)})
    return {arm.label for arm in comparison.arms} <= {*finalists(comparison, sure), *lost}


def scatter(samples: Once, chosen: Sequence[Arm]) -> float:
    """Standard deviation of the log ratio of two contenders from pass to pass; the noisiest pair.

    Of runs that were not live: from run to run, about.
    """
    found = [ALONE / 2]
    if any(samples[arm.label].blocks for arm in chosen if arm.label in samples):
        found = [LEAST_SCATTER]
    for first, second in itertools.combinations(chosen, 2):
        logs = _logs(samples, first.label, second.label)
        if logs is not None and len(logs) > 1:  # of a few passes the middle half says too little
            found.append(float(logs.std(ddof=1)))
    return max(found)


def differ(samples: Once, first: str, second: str) -> bool:
    """Whether the 95 % interval of a pair's passes in the screening leaves out 1."""
    found = _difference(samples, first, second)
    if found is None:
        return True
    difference, error, passes = found
    if passes == 1:
        return abs(difference) > ALONE
    kept = passes - 2 * max(passes // 4, 1)  # as `middle` leaves them
    quantile = stats.t.isf((1 - CONFIDENCE) / 2, max(1, kept - 1))
    return abs(difference) > float(quantile) * error


def _families(arms: Sequence[Arm], samples: Once) -> dict[str, list[Arm]]:
    """The arms of the largest size that distribute and were timed, fastest first, by family."""
    timed = [
        arm
        for arm in arms
        if arm.label in samples
        and arm.capabilities.family != "none"
        and not (arm.twin_of or arm.for_breakdown)
    ]
    size = max((arm.replicas for arm in timed), default=0)
    found: dict[str, list[Arm]] = {}
    for arm in sorted(timed, key=lambda arm: -samples[arm.label].value):
        if arm.replicas == size:
            found.setdefault(arm.capabilities.family, []).append(arm)
    return found


def _difference(samples: Once, first: str, second: str) -> tuple[float, float, int] | None:
    """log(first ÷ second), its standard error and the passes that it is of; None: no ratio."""
    if (logs := _logs(samples, first, second)) is None:
        return None
    if len(logs) == 1:
        return float(logs[0]), 0.0, 1
    mean, error2 = middle(logs)
    return float(mean), math.sqrt(float(error2)), len(logs)


def _logs(samples: Once, first: str, second: str) -> NDArray[np.float64] | None:
    """log(first ÷ second) of each pass of the launch; of a run that was not live of the run."""
    here, there = samples.get(first), samples.get(second)
    if here is None or there is None:
        return None
    if not (here.blocks or there.blocks):
        return np.array([math.log(here.value / there.value)])
    common = sorted(here.blocks.keys() & there.blocks.keys())
    ratios = [here.blocks[k] / there.blocks[k] for k in common]
    return np.log(ratios) if len(common) >= LEAST_PASSES else None
