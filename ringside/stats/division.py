"""How the budget behind the screening is divided: how many launches, and how long each is timed.

After Kalibera and Jones (2013, ISMM, "Rigorous benchmarking in reasonable time"): by what a launch
and a pass cost, and what they scatter. They make the variance least; here the interval is made
narrowest, because of few launches Student's t is what makes it wide.
"""

import numpy as np
from scipy import stats

from ringside.stats.figure import CONFIDENCE, LEAST_LAUNCHES
from ringside.stats.final import Array
from ringside.stats.step_times import counted_blocks
from ringside_core.specs import Asked, Comparison, Division
from ringside_core.text import duration, listed, percent, plural

# What a new process does to a ratio. In the recorded comparisons nothing above 0.7 % was left to be
# seen; one launch, which the screening is, cannot show it.
LAUNCH_SCATTER = 0.007
LEAST_PASSES_EACH = 8  # of a launch, whatever the budget says; half may be warm-up
SLACK = 1.05  # a launch may take so many times as long as planned and still be made


def half_width(launches: Array, passes: Array, scatter: float, arms: int) -> Array:
    """What the half-width of a pair's 95 % interval will be, about; of logarithms.

    t · √((scatter of launches² + scatter of passes² ÷ passes) ÷ launches), as in `final.fit`.

    Args:
        launches: of the final, two at least, any shape.
        passes: of each launch, the same shape; of unequal launches the harmonic mean.
        scatter: of a pair's log ratio from pass to pass.
        arms: of the final; they share degrees of freedom.

    Example:
        >>> half_width(np.array([3.0]), np.array([24.0]), scatter=0.035, arms=3).round(3)
        array([0.016])
    """
    variance = (LAUNCH_SCATTER**2 + scatter**2 / passes) / launches
    freedom = (max(2, arms) - 1) * (launches - 1)
    found: Array = stats.t.isf((1 - CONFIDENCE) / 2, freedom) * np.sqrt(variance)
    return found


def divided(
    asked: Asked, *, screening_s: float, left_s: float, start_s: float, pass_s: float,
    scatter: float, arms: int, live: bool = True, made: int = 0, made_passes: float = 1.0,
    warm_passes: int = 0,
) -> Division:  # fmt: skip
    """How the time that is left is divided.

    Args:
        asked: how much was to be measured.
        screening_s: that the screening took.
        left_s: seconds for the final.
        start_s: seconds that a launch takes beside its passes.
        pass_s: seconds of a pass.
        scatter: see `half_width`.
        arms: see there.
        live: phases can be of any length; else a launch takes `start_s`.
        made: launches of the final that there are already; others are added to them.
        made_passes: of each of those.
        warm_passes: of each launch, that will be warm-up.
    """
    each_s = start_s + (LEAST_PASSES_EACH * pass_s if live else 0.0)
    least = max(1, LEAST_LAUNCHES - made)
    most = max(least, int(left_s / max(SLACK * each_s, 1e-3)))
    more = asked.launches or most
    if live and asked.launches is None:
        able = np.arange(least, most + 1 if pass_s else least + 1).astype(np.float64)
        passes = (left_s / able - start_s) / max(pass_s, 1e-3)
        passes = np.maximum(1.0, passes - warm_passes)
        mean = (made + able) / (made / made_passes + able / passes)
        more = int(able[half_width(made + able, mean, scatter, arms).argmin()])
    phase_s = max(0.0, left_s / more - start_s) if live else 0.0
    return Division(
        screening_s=screening_s,
        launches=made + more,
        phase_s=phase_s,
        start_s=start_s,
        pass_s=pass_s,
        scatter=scatter,
        warm_passes=warm_passes,
    )


def width_after(comparison: Comparison, launches: int) -> float | None:
    """About how far the interval will reach to each side behind so many launches of the final.

    Returns:
        A part of the ratio, such as 0.02; None: fewer than two launches, or nothing is known yet.
    """
    division, arms = comparison.division, len(comparison.finalists)
    if division is None or launches < 2 or not (division.pass_s and division.phase_s):
        return None
    passes = max(LEAST_PASSES_EACH, division.phase_s / division.pass_s) - division.warm_passes
    count, each = np.array([launches, max(1.0, passes)]).reshape(2, 1)
    return float(np.expm1(half_width(count, each, division.scatter, arms)[0]))


def division_lines(comparison: Comparison) -> tuple[str, ...]:
    """How the time was divided, one sentence for each stage; empty: it is not yet."""
    division, asked = comparison.division, comparison.asked
    if division is None:
        return ()
    first = f"Screening: {duration(division.screening_s)}"
    if asked.launches is None:
        share = percent(division.screening_s / asked.budget_s)
        first += f", {share} of {duration(asked.budget_s)}"
    names = listed(comparison.finalists, limit=len(comparison.finalists))
    second = f"Final: {plural(division.launches, 'launch')} of {names}"
    if division.pass_s and division.phase_s:
        passes = max(LEAST_PASSES_EACH, round(division.phase_s / division.pass_s))
        warm = f", of which {division.warm_passes} warm up" if division.warm_passes else ""
        second += (
            f", each {duration(division.phase_s)} of {plural(passes, 'pass')}{warm}. A start takes "
            f"about {duration(division.start_s)}. Passes scatter by {percent(division.scatter)}"
        )
        if (width := width_after(comparison, division.launches)) is not None:
            second += f", so the interval will reach about {percent(width)} to each side"
    return f"{first}.", f"{second}."


def measured_share(comparison: Comparison) -> float | None:
    """Part of the time behind the certificates that were steps which count; None: not live.

    Σ over runs of the seconds of their counted blocks ÷ the time from the start of the screening.
    """
    if not (comparison.live and comparison.spent_s):
        return None
    blocks = (
        one.seconds
        for run in comparison.runs
        if run.outcome.completed
        for one in counted_blocks(run).values()
    )
    return sum(blocks) / comparison.spent_s
