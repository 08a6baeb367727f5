"""The budget: what was asked for, when a screening is too long for it, and when the final ends."""

import math
import random
import re

from ringside.stats.division import LEAST_PASSES_EACH
from ringside.stats.figure import LEAST_LAUNCHES
from ringside.stats.rounds import Launches
from ringside_core.specs import Arm, Asked, Comparison, RefusalError
from ringside_core.text import duration, plural

MOST_SCREENING = 0.5  # of the budget
ROUND_S = 10.0  # to which the least budget is rounded up
MOST_OVER = 1.25  # times the budget, that three short launches may take
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def order_of(arms: tuple[Arm, ...], number: int, seed: int) -> tuple[Arm, ...]:
    """The arms in the order of a launch: a function of the seed and its number alone.

    It is drawn for each launch, so that an arm does not always follow the same one.
    """
    shuffled = list(arms)
    random.Random(f"{seed}/{number}").shuffle(shuffled)
    return tuple(shuffled)


def parse_duration(text: str) -> float:
    """`90s`, `10m`, `1h`, `1h30m` → seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    whole = "".join(number + unit for number, unit in parts)
    seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if whole != text.strip() or not 0 < seconds < math.inf:
        raise RefusalError(
            "--budget must be a time with its unit: s, m or h.",
            received=repr(text),
            advice="Examples: --budget 90s, --budget 10m, --budget 1h",
        )
    return seconds


def refuse_too_short(asked: Asked, screening_s: float) -> None:
    """Refuse a budget that a screening of this length would eat.

    Raises:
        RefusalError: with the least budget that would do.
    """
    what = "the screening, in which every arm is started once"
    _refuse_less_than(screening_s / MOST_SCREENING, asked, what)


def refuse_long_final(asked: Asked, screening_s: float, launch_s: float) -> None:
    """Refuse a budget that the least final would exceed by far.

    Args:
        asked: how much was to be measured.
        screening_s: that the screening took.
        launch_s: what each launch of the final takes at least.

    Raises:
        RefusalError: with the least budget that would do.
    """
    least_s = (screening_s + LEAST_LAUNCHES * launch_s) / MOST_OVER
    _refuse_less_than(least_s, asked, f"{LEAST_LAUNCHES} launches of all arms")


def _refuse_less_than(least_s: float, asked: Asked, what: str) -> None:
    if least_s > asked.budget_s and asked.launches is None:
        rounded_s = ROUND_S * math.ceil(least_s / ROUND_S)
        raise RefusalError(
            f"The budget is too short for {what}.",
            received=f"--budget {asked.budget_s:.0f}s",
            advice=f"The least that would do: --budget {rounded_s:.0f}s. Or name fewer --backends.",
        )


def screened(comparison: Comparison) -> bool:
    """Whether the screening is over: every arm has run, or could not start."""
    done = {run.arm for run in comparison.runs}
    return {arm.label for arm in comparison.arms_of(0)} <= done


def why_end(comparison: Comparison, launches: Launches) -> str:
    """Why no other launch is made, in one sentence; empty: another one is made."""
    asked, division = comparison.asked, comparison.division
    if not screened(comparison):
        return ""
    if division is None:
        return "No final was asked for." if asked.launches == 0 else "No two contenders are there."
    made, planned = len(launches.final), division.launches
    if made >= planned:
        return f"All {plural(planned, 'launch')} of the final were made."
    disturbed = len(launches.left_out)
    if made + disturbed >= 2 * planned:
        return f"{plural(disturbed, 'launch')} of {made + disturbed} were disturbed and left out."
    each_s = division.start_s + LEAST_PASSES_EACH * division.pass_s
    over = asked.launches is None and comparison.spent_s + each_s > asked.budget_s
    if made >= LEAST_LAUNCHES and over:
        return f"Another launch would not fit into the budget of {duration(asked.budget_s)}."
    return ""


def time_left_s(comparison: Comparison, launches: Launches) -> float:
    """About how long the final will go on."""
    if comparison.division is None:
        return 0.0
    left = max(0, comparison.division.launches - len(launches.final))
    return left * (comparison.division.start_s + comparison.division.phase_s)
