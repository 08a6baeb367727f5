"""What a comparison does one after the other; each stage leaves out what is there already."""

import time
from pathlib import Path

from rich.console import Console

from cli.arms import able_here
from cli.progress import ComparisonProgress
from cli.verification import certify_arms
from collectives.store import find_communication
from compare.arms import Scaling, arm_spec, twin
from compare.budget import counted, duration, percent
from compare.circumstances import circumstances
from compare.durations import expected_s
from compare.experiment import base_of, keep, launched, run_rounds
from compare.tuning import arms_to_tune, tune
from compare.why import arms_that_explain
from measure.machine import machine_facts
from specs import Arm, Comparison, Rounds, RunSpec
from verify import store
from verify.certify import Subject


def begin(
    console: Console,
    base: RunSpec,
    arms: tuple[Arm, ...],
    *,
    folder: Path,
    command: str,
    asked: Rounds,
    scaling: Scaling,
    order_seed: int,
    deadline_s: float,
    verify: bool,
    why: bool,
    trials_each: int,
) -> Comparison:
    """A comparison with the arms that can run here, on disk, before anything has run."""
    subjects, unable = able_here(console, base, arms, scaling)
    able = tuple(subject.arm for subject in subjects)
    able += twin(able)
    if why:
        able += arms_that_explain(able, base, scaling)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=command,
        machine=machine_facts(),
        seed=order_seed,
        rounds=0,
        arms=able,
        not_run=unable,
        detection=store.find_matrix(),
        base=base,
        scaling=scaling,
        asked=asked,
        communication=find_communication(),
        verify=verify,
        trials_each=trials_each,
        deadline_s=deadline_s,
        code_version=store.code_version(),
        circumstances=circumstances(base),
    )
    keep(comparison, folder)
    return comparison


def go_on(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Certify, tune, and make rounds, as far as that is still to be done."""
    comparison = _certified(console, comparison, folder)
    if comparison.trials_each and not comparison.runs:
        comparison = _certified(console, _tuned(console, comparison, folder), folder)
    for line in announcement(comparison):
        console.print(line, highlight=False, markup=False)
    total = None
    if comparison.asked.precision is None:
        total = len(comparison.arms) * max(comparison.asked.least, comparison.rounds)
    done = len(comparison.runs)
    with ComparisonProgress(console, total_runs=total, done=done) as progress:
        return run_rounds(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress),
            observer=progress,
        )


def announcement(comparison: Comparison) -> list[str]:
    """What will be run, and about how long that takes."""
    asked, arms = comparison.asked, comparison.arms
    if asked.precision is None:
        rounds = counted(asked.least, "round")
        if asked.most > asked.least:
            rounds += f", up to {asked.most} if disturbed"
    else:
        rounds = (
            f"at least {counted(asked.least, 'round')}, until every interval of interest is at "
            f"most {percent(asked.precision)} wide"
        )
    if asked.budget_s is not None:
        rounds += f" or {duration(asked.budget_s)} are over"
    lines = [f"{counted(len(arms), 'arm')} × {rounds}"]
    base = base_of(comparison)
    round_s = expected_s(arm_spec(base, arm, comparison.scaling) for arm in arms)
    if round_s is None:
        return [*lines, "how long a round takes, the first one will say"]
    least = duration(round_s * asked.least)
    told = f"about {duration(round_s)} for a round, as earlier runs took; {least} for {asked.least}"
    if asked.budget_s is not None and round_s * asked.least > asked.budget_s:
        told += ", which is more than the budget: they are made all the same"
    return [*lines, told]


def _certified(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Certify what is to be ranked and has no certificate yet; a twin needs none of its own."""
    if not comparison.verify:
        return comparison
    there = {certificate.arm.label for certificate in comparison.certificates}
    subjects = [
        Subject(arm, arm_spec(base_of(comparison), arm, comparison.scaling))
        for arm in comparison.arms
        if not (arm.twin_of or arm.explains or arm.label in there)
    ]
    if not subjects:
        return comparison
    made = certify_arms(console, subjects, folder, reuse=True)
    comparison = comparison.replace(certificates=(*comparison.certificates, *made))
    keep(comparison, folder)
    return comparison


def _tuned(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Make the trials; say for each arm what was chosen."""
    arms, each, base = arms_to_tune(comparison), comparison.trials_each, base_of(comparison)
    total = each * len(arms)
    once_s = expected_s(arm_spec(base, arm, comparison.scaling) for arm in arms)
    about = "" if once_s is None else f", about {duration(each * once_s)}"
    console.print(f"{each} trials for each of {counted(len(arms), 'arm')}{about}", highlight=False)
    with ComparisonProgress(
        console, total_runs=total, done=len(comparison.trials), unit="trial"
    ) as progress:
        comparison = tune(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress),
            observer=progress,
        )
    keep(comparison, folder)
    for trial in comparison.trials:
        if trial.chosen:
            kept = trial.arm.label == trial.tuned_from
            told = "nothing was faster than as it is" if kept else f"tuned: {trial.arm.label}"
            console.print(f"{trial.tuned_from:<34} {told}", highlight=False, markup=False)
    return comparison
