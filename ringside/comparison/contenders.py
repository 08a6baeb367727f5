"""Who takes part in the final, and who takes the place of a contender that fails."""

from collections.abc import Collection, Sequence
from typing import Any

from ringside.stats.division import LEAST_PASSES_EACH, divided
from ringside.stats.rounds import launches_of
from ringside.stats.screening import (
    LEAST_SCATTER,
    Once,
    all_finalists,
    contenders,
    finalists,
    next_in_line,
    once,
    scatter,
)
from ringside.stats.summary import samples_of, summarize
from ringside_core.specs import Arm, Comparison


def nothing_to_choose(comparison: Comparison, lost: Collection[str] = ()) -> bool:
    """Whether all arms take part in the final, however fast they are.

    Then a launch of the screening would only cost time: live, the final begins with all of them.

    Args:
        comparison: before its first launch.
        lost: labels of arms that could not start.
    """
    left = [arm.label for arm in comparison.arms if arm.label not in lost]
    wanted = comparison.live and comparison.asked.launches != 0 and _two(comparison, left)
    return wanted and all_finalists(comparison, _able(comparison), lost)


def with_all(
    comparison: Comparison, *, start_s: float, pass_s: float, lost: Collection[str]
) -> Comparison:
    """The comparison before a final of all arms that could start; its costs alone divide its time.

    Args:
        comparison: of which `nothing_to_choose` holds.
        start_s: seconds in which all arms start.
        pass_s: seconds of a pass of all arms.
        lost: labels of arms that could not start.
    """
    kept = tuple(arm.label for arm in comparison.arms if arm.label not in lost)
    return _planned(
        comparison,
        kept,
        start_s=start_s,
        pass_s=pass_s,
        scatter=LEAST_SCATTER,
        warm_passes=LEAST_PASSES_EACH // 2,
    )


def divided_again(comparison: Comparison, *, start_s: float, pass_s: float) -> Comparison:
    """The comparison after the first launch of a final of all arms, by what that has shown.

    Args:
        comparison: without the arms that failed in it.
        start_s: seconds that the launch took beside its passes, with all arms.
        pass_s: seconds of a pass, likewise.
    """
    division, samples = comparison.division, once(samples_of(comparison), 1)
    if division is None:
        return comparison
    share = len(comparison.finalists) / sum(run.round == 1 for run in comparison.runs)
    division = division.replace(
        start_s=start_s * share,
        pass_s=pass_s * share,
        scatter=scatter(samples, contenders(_able(comparison), samples)),
        warm_passes=_warm_passes(comparison, 1, samples),
    )
    comparison = comparison.replace(division=division)
    return comparison if comparison.asked.launches else with_more(comparison)


def with_final(comparison: Comparison, *, start_s: float, pass_s: float = 0.0) -> Comparison:
    """The comparison with its finalists, and its time divided.

    Args:
        comparison: behind the screening.
        start_s: seconds in which all arms start.
        pass_s: seconds of a pass of all arms; 0: each arm ran alone.
    """
    samples = once(samples_of(comparison), 0)
    chosen = contenders(_able(comparison), samples)
    lost = {run.arm for run in comparison.runs if not run.outcome.completed}
    kept = tuple(label for label in finalists(comparison, chosen) if label not in lost)
    if comparison.asked.launches == 0 or not _two(comparison, kept):
        return comparison.replace(finalists=(), division=None)
    share = len(kept) / len(comparison.arms_of(0))
    return _planned(
        comparison,
        kept,
        start_s=start_s * share,
        pass_s=pass_s * share,
        scatter=scatter(samples, chosen),
        warm_passes=_warm_passes(comparison, 0, samples),
    )


def _planned(comparison: Comparison, kept: tuple[str, ...], **costs: Any) -> Comparison:
    """The comparison with these finalists, and the rest of its budget divided by these costs."""
    asked, spent_s = comparison.asked, comparison.spent_s
    division = divided(
        asked,
        left_s=max(0.0, asked.budget_s - spent_s),
        arms=len(kept),
        live=comparison.live,
        **{"screening_s": spent_s, **costs},
    )
    return comparison.replace(finalists=kept, division=division)


def _warm_passes(comparison: Comparison, number: int, samples: Once) -> int:
    """Passes of a launch that do not count in one of its arms."""
    runs = (run for run in comparison.runs if run.round == number and run.arm in samples)
    return max((len(run.blocks) - len(samples[run.arm].blocks) for run in runs), default=0)


def alone_s(comparison: Comparison, number: int) -> float:
    """Seconds of a launch whose arms ran one after the other."""
    return sum(run.wall_s for run in comparison.runs if run.round == number)


def with_more(comparison: Comparison) -> Comparison:
    """A comparison with more launches, for the time that it has now."""
    division = comparison.division
    if division is None:
        return comparison
    return _planned(
        comparison,
        comparison.finalists,
        screening_s=division.screening_s,
        start_s=division.start_s,
        pass_s=division.pass_s,
        scatter=division.scatter,
        made=len(launches_of(comparison).final),
        made_passes=max(1.0, division.phase_s / (division.pass_s or 1.0) - division.warm_passes),
        warm_passes=division.warm_passes,
    )


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
    able = _able(comparison)
    screened = once(samples_of(comparison), launches_of(comparison).first)
    for arm in lost:
        taken = {run.arm for run in comparison.runs if run.round} | set(comparison.finalists)
        plays = arm.capabilities.family != "none" and not (arm.twin_of or arm.for_breakdown)
        other = next_in_line(arm, able, screened, taken) if plays else None
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


def _two(comparison: Comparison, labels: Sequence[str]) -> bool:
    """Whether two different arms are among these, one of which distributes, or all were asked."""
    arms = [arm for arm in comparison.arms if arm.label in labels]
    plain = [arm for arm in arms if not (arm.twin_of or arm.for_breakdown)]
    if comparison.asked.all_arms:
        return len(arms) > 1
    return len(plain) > 1 and any(arm.capabilities.family != "none" for arm in plain)
