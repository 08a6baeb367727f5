"""Who takes part in the final, and who takes the place of a contender that fails."""

from collections.abc import Sequence

from ringside.stats.division import LEAST_PASSES_EACH, divided
from ringside.stats.final import Samples
from ringside.stats.rounds import launches_of
from ringside.stats.screening import contenders, finalists, next_in_line, scatter
from ringside.stats.summary import samples_of, summarize
from ringside_core.specs import Arm, Comparison


def with_final(comparison: Comparison, *, start_s: float, pass_s: float = 0.0) -> Comparison:
    """The comparison with its finalists, and its time divided.

    Args:
        comparison: behind the screening.
        start_s: seconds in which all arms start.
        pass_s: seconds of a pass of all arms; 0: each arm ran alone.
    """
    asked = comparison.asked
    samples = samples_of(comparison)
    chosen = contenders(_able(comparison), _rates(samples), samples)
    lost = {run.arm for run in comparison.runs if not run.outcome.completed}
    kept = tuple(label for label in finalists(comparison, chosen) if label not in lost)
    if asked.launches == 0 or not _two(comparison, kept):
        return comparison.replace(finalists=(), division=None)
    share = len(kept) / len(comparison.arms_of(0))
    counted = [len(samples[label][0].blocks) for label in kept if 0 in samples[label]]
    division = divided(
        asked,
        screening_s=comparison.spent_s,
        left_s=max(0.0, asked.budget_s - comparison.spent_s),
        start_s=start_s * share,
        pass_s=pass_s * share,
        scatter=scatter(samples, chosen),
        arms=len(kept),
        live=comparison.live,
        warm_passes=LEAST_PASSES_EACH - min(counted, default=0) if comparison.live else 0,
    )
    return comparison.replace(finalists=kept, division=division)


def alone_s(comparison: Comparison, number: int) -> float:
    """Seconds of a launch whose arms ran one after the other."""
    return sum(run.wall_s for run in comparison.runs if run.round == number)


def with_more(comparison: Comparison) -> Comparison:
    """A comparison with more launches, for the time that it has now."""
    division, asked = comparison.division, comparison.asked
    if division is None:
        return comparison
    more = divided(
        asked,
        screening_s=division.screening_s,
        left_s=max(0.0, asked.budget_s - comparison.spent_s),
        start_s=division.start_s,
        pass_s=division.pass_s,
        scatter=division.scatter,
        arms=len(comparison.finalists),
        live=comparison.live,
        made=len(launches_of(comparison).final),
        made_passes=max(1.0, division.phase_s / (division.pass_s or 1.0) - division.warm_passes),
        warm_passes=division.warm_passes,
    )
    return comparison.replace(division=more)


def without_failed(comparison: Comparison, number: int) -> Comparison:
    """Arms that failed in a launch of the final leave it; the next of their family come in.

    So do certified arms that cannot be ranked since: their rows or losses have departed.
    """
    arms = {arm.label: arm for arm in comparison.arms}
    completed = {
        run.arm for run in comparison.runs if run.round == number and run.outcome.completed
    }
    rows = summarize(comparison).arms
    certified = [row for row in rows if row.certificate is not None and row.certificate.passed]
    departed = {row.arm.label for row in certified if not row.comparable}
    good = completed - departed
    lost = [arms[label] for label in comparison.finalists if label not in good]
    if not lost:
        return comparison
    able, rates = _able(comparison), _rates(samples_of(comparison))
    for arm in lost:
        taken = {run.arm for run in comparison.runs if run.round} | set(comparison.finalists)
        plays = arm.capabilities.family != "none" and not (arm.twin_of or arm.for_breakdown)
        other = next_in_line(arm, able, rates, taken) if plays else None
        left = [label for label in comparison.finalists if label != arm.label]
        what = "cannot be compared since" if arm.label in completed else "failed in"
        note = f"{arm.label} {what} launch {number} of the final"
        if other is not None:
            left.append(other.label)
            note += f"; {other.label} takes its place"
        order = [label for label in arms if label in left]
        comparison = comparison.replace(
            finalists=tuple(order), notes=(*comparison.notes, f"{note}.")
        )
    if not _two(comparison, comparison.finalists):
        return comparison.replace(division=None)
    return comparison


def _able(comparison: Comparison) -> list[Arm]:
    """The arms that may be ranked; without certificates, all."""
    rows = summarize(comparison).arms
    return [row.arm for row in rows if row.comparable or not comparison.verify]


def _rates(samples: Samples) -> dict[str, float]:
    """Throughputs of the screening, by label."""
    return {label: of_arm[0].value for label, of_arm in samples.items() if 0 in of_arm}


def _two(comparison: Comparison, labels: Sequence[str]) -> bool:
    """Whether two different arms are among these, one of which distributes, or all were asked."""
    arms = [arm for arm in comparison.arms if arm.label in labels]
    plain = [arm for arm in arms if not (arm.twin_of or arm.for_breakdown)]
    if comparison.asked.all_arms:
        return len(arms) > 1
    return len(plain) > 1 and any(arm.capabilities.family != "none" for arm in plain)
