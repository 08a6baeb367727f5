"""The stages of a comparison: certify, tune, screen, decide. Each skips what is done already."""

from pathlib import Path

from rich.console import Console

from ringside.certificates.certify_arms import certify_arms
from ringside.certificates.processes import Start
from ringside.certificates.subject import Subject
from ringside.comparison.contenders import nothing_to_choose
from ringside.comparison.durations import expected_s
from ringside.comparison.experiment import keep, launched, run_launches
from ringside.comparison.hosts import links_between
from ringside.comparison.hosts_load import looks
from ringside.comparison.progress import ComparisonProgress
from ringside.comparison.tuning import arms_to_tune, next_best, tune
from ringside.stats.figure import LEAST_LAUNCHES
from ringside_core.specs import Comparison
from ringside_core.text import duration, plural


def go_on(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Certify, tune, screen and make the final, as far as this is still to be done."""
    comparison = _certified(console, comparison, folder)
    if comparison.trials_each and not comparison.runs:
        comparison = _certified(console, _tuned(console, comparison, folder), folder)
        while (other := next_best(comparison)) is not None:
            keep(other, folder)
            _tell_chosen(console, other, before=comparison)
            comparison = _certified(console, other, folder)
    for line in announcement(comparison):
        console.print(line, highlight=False, markup=False)
    done = len(comparison.runs)
    placement = comparison.placement
    with ComparisonProgress(console, done=done) as progress:
        comparison = run_launches(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress, placement),
            observer=progress,
        )
    if comparison.links:
        at_end = links_between(console, placement, comparison.addresses)
        comparison = comparison.replace(links_at_end=at_end)
        keep(comparison, folder)
    return comparison


def announcement(comparison: Comparison) -> list[str]:
    """What will be run, and how long that takes."""
    asked, placement = comparison.asked, comparison.placement
    arms = plural(len(comparison.arms_of(0)), "arm")
    if nothing_to_choose(comparison):
        stages = "each started once, then the final of all of them"
    else:
        final = "no final" if asked.launches == 0 else "then the final between the fastest"
        stages = f"screened once, {final}"
    lines = [f"{arms}, {stages}: {duration(asked.budget_s)}"]
    if comparison.addresses and looks(tuple(comparison.addresses)) is None:
        lines.append("the load of the hosts cannot be watched: what is disturbed is not known")
    if not comparison.live and asked.launches != 0:
        once_s = expected_s((comparison.spec_of(arm) for arm in comparison.arms_of(0)), placement)
        about = "" if once_s is None else f", about {duration(once_s)} for each of all arms once"
        count = asked.launches or LEAST_LAUNCHES
        made = f"{plural(count, 'launch')} {'is' if count == 1 else 'are'} always made"
        lines.append(f"each arm runs alone, to its own end{about}; {made}")
    return lines


def _certified(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Certify each arm that will be ranked and has no certificate yet; a twin needs none."""
    if not comparison.verify:
        return comparison
    there = {certificate.arm.label for certificate in comparison.certificates}
    subjects = [
        Subject(arm, comparison.spec_of(arm))
        for arm in comparison.arms
        if not (arm.twin_of or arm.for_breakdown or arm.label in there)
    ]
    if not subjects:
        return comparison
    start = Start(comparison.placement)
    made = certify_arms(console, subjects, folder, reuse=True, start=start)
    comparison = comparison.replace(certificates=(*comparison.certificates, *made))
    keep(comparison, folder)
    return comparison


def _tuned(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Make the trials; print for each arm which setting was chosen."""
    arms, each = arms_to_tune(comparison), comparison.trials_each
    total = each * len(arms)
    once_s = expected_s((comparison.spec_of(arm) for arm in arms), comparison.placement)
    about = "" if once_s is None else f", about {duration(each * once_s)}"
    console.print(f"{each} trials for each of {plural(len(arms), 'arm')}{about}", highlight=False)
    with ComparisonProgress(
        console, total_runs=total, done=len(comparison.trials), unit="trial"
    ) as progress:
        comparison = tune(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress, comparison.placement),
            observer=progress,
        )
    keep(comparison, folder)
    _tell_chosen(console, comparison)
    return comparison


def _tell_chosen(
    console: Console, comparison: Comparison, before: Comparison | None = None
) -> None:
    """Print which settings were chosen, and which were passed over; only what is new since."""
    for trial in comparison.trials:
        if before is not None and trial in before.trials:
            continue
        text = ""
        if trial.passed_over:
            text = f"passed over: {trial.arm.label}. {trial.passed_over}"
        elif trial.chosen:
            kept = trial.arm.label == trial.tuned_from
            text = "no other setting was faster" if kept else f"tuned: {trial.arm.label}"
        if text:
            console.print(f"{trial.tuned_from:<34} {text}", highlight=False, markup=False)
