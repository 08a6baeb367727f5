"""Who takes part in the final, and who takes the place of a contender that fails."""

from collections.abc import Sequence

from ringside.stats.division import divided
from ringside.stats.rounds import launches_of
from ringside.stats.screening import contenders, finalists, next_in_line, scatter
from ringside.stats.summary import samples_of, summarize
from ringside_core.specs import Arm, Comparison

AT_ONCE = 1.1  # runs that start at once need so many times less: all of them compute


def with_final(comparison: Comparison, *, start_s: float, pass_s: float) -> Comparison:
    """The comparison with its finalists, and its time divided.

    Args:
        comparison: behind the screening.
        start_s: seconds that the screening took beside its passes.
        pass_s: seconds of a pass of all arms.
    """
    asked = comparison.asked
    able = _able(comparison)
    samples = samples_of(comparison)
    chosen = contenders(able, _rates(comparison), samples)
    kept = finalists(comparison, chosen)
    if asked.launches == 0 or not _two(comparison, kept):
        return comparison.replace(finalists=(), division=None)
    twins = {arm.label for arm in comparison.arms if arm.twin_of}
    found = _with_finalists(comparison, kept, start_s, pass_s, scatter(samples, chosen))
    assert found.division is not None
    if comparison.live and found.division.phase_s < found.division.start_s and not asked.all_arms:
        # The noise floor would cost what the contenders need.
        kept = tuple(label for label in kept if label not in twins)
        return _with_finalists(comparison, kept, start_s, pass_s, found.division.scatter)
    return found


def _with_finalists(
    comparison: Comparison, kept: tuple[str, ...], start_s: float, pass_s: float, scattered: float
) -> Comparison:
    asked = comparison.asked
    share = len(kept) / len(comparison.arms_of(0))
    division = divided(
        asked,
        screening_s=comparison.spent_s,
        left_s=max(0.0, asked.budget_s - comparison.spent_s),
        start_s=start_s * share / (AT_ONCE if comparison.live else 1.0),
        pass_s=pass_s * share,
        scatter=scattered,
        live=comparison.live,
    )
    return comparison.replace(finalists=kept, division=division)


def with_more(comparison: Comparison) -> Comparison:
    """A comparison that ended, with more launches for the time that it has now."""
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
        live=comparison.live,
        made=len(launches_of(comparison).final),
    )
    return comparison.replace(division=more)


def without_failed(comparison: Comparison, number: int) -> Comparison:
    """Arms that failed in a launch of the final leave it; the next of their family come in."""
    arms = {arm.label: arm for arm in comparison.arms}
    lost = [
        arms[run.arm]
        for run in comparison.runs
        if run.round == number and not run.outcome.completed and run.arm in comparison.finalists
    ]
    for arm in lost:
        taken = {run.arm for run in comparison.runs if run.round} | set(comparison.finalists)
        plays = arm.capabilities.family != "none" and not (arm.twin_of or arm.for_breakdown)
        other = next_in_line(arm, _able(comparison), _rates(comparison), taken) if plays else None
        left = [label for label in comparison.finalists if label != arm.label]
        note = f"{arm.label} failed in launch {number} of the final"
        if other is not None:
            left.append(other.label)
            note += f"; {other.label} takes its place"
        order = [label for label in arms if label in left]
        comparison = comparison.replace(
            finalists=tuple(order), notes=(*comparison.notes, f"{note}.")
        )
    if lost and not _two(comparison, comparison.finalists):
        return comparison.replace(division=None)
    return comparison


def _able(comparison: Comparison) -> list[Arm]:
    """The arms that may be ranked; without certificates, all."""
    rows = summarize(comparison).arms
    return [row.arm for row in rows if row.comparable or not comparison.verify]


def _rates(comparison: Comparison) -> dict[str, float]:
    """Examples/s of the screening, by label."""
    samples = samples_of(comparison)
    return {label: of_arm[0].value for label, of_arm in samples.items() if 0 in of_arm}


def _two(comparison: Comparison, labels: Sequence[str]) -> bool:
    """Whether two different arms are among these, one of which distributes."""
    arms = [arm for arm in comparison.arms if arm.label in labels]
    plain = [arm for arm in arms if not (arm.twin_of or arm.for_breakdown)]
    return len(plain) > 1 and any(arm.capabilities.family != "none" for arm in plain)
