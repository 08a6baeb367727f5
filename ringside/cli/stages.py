"""What a comparison does one after the other; each stage leaves out what is there already."""

import time
from collections.abc import Collection
from pathlib import Path

from rich.console import Console

from launch import Placement, Site
from launch.remote.host_checks import HostFacts, machine_of
from ringside.cli.arms import Chosen, able_here, ready_hosts
from ringside.cli.progress import ComparisonProgress
from ringside.cli.verification import certify_arms
from ringside.collectives.link import measure_links
from ringside.collectives.place import hosts_of_ranks
from ringside.collectives.store import find_communication
from ringside.compare.arms import twin
from ringside.compare.circumstances import circumstances
from ringside.compare.durations import expected_s
from ringside.compare.experiment import keep, launched, run_rounds, spec_of
from ringside.compare.hosts import fullest, placement_of, refuse_fewer_cores, refuse_other_links
from ringside.compare.hosts_load import looks
from ringside.compare.tuning import arms_to_tune, tune
from ringside.stats.breakdown import breakdown_arms
from ringside.verify import store
from ringside.verify.certify import Subject
from ringside.verify.processes import Start
from ringside_core.specs import (
    Communication,
    Comparison,
    Link,
    RefusalError,
    Rounds,
)
from ringside_core.text import duration, percent, plural

LINK_S = 1.0  # for each of them, before the first run and after the last


def begin(
    console: Console,
    chosen: Chosen,
    *,
    facts: dict[str, HostFacts],
    folder: Path,
    command: str,
    asked: Rounds,
    order_seed: int,
    deadline_s: float,
    verify: bool,
    why: bool,
    trials_each: int,
) -> Comparison:
    """A comparison with the arms that can run here, on disk, before anything has run."""
    base, placement = chosen.base, chosen.placement
    subjects, unable = able_here(console, chosen)
    able = tuple(subject.arm for subject in subjects)
    able += twin(able)
    if why:
        able += breakdown_arms(able, base, chosen.scaling)
    addresses = {name: one.address for name, one in facts.items()}
    links = _links(console, placement, addresses)
    comparison = Comparison(
        name=folder.name,
        created_unix_s=time.time(),
        command=command,
        machine=machine_of(placement),
        seed=order_seed,
        rounds=0,
        arms=able,
        not_run=unable,
        detection=store.find_matrix(placement),
        base=base,
        scaling=chosen.scaling,
        asked=asked,
        communication=_communication(chosen, facts, links),
        verify=verify,
        trials_each=trials_each,
        deadline_s=deadline_s,
        code_version=store.code_version(),
        circumstances=circumstances(base),
        hosts=placement.hosts or (),
        interface=placement.interface,
        servers_on=placement.servers_on,
        oversubscribe=placement.oversubscribe,
        addresses=addresses,
        links=links,
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
    placement = placement_of(comparison)
    with ComparisonProgress(console, total_runs=total, done=done) as progress:
        comparison = run_rounds(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress, placement),
            observer=progress,
        )
    if comparison.links:
        at_end = _links(console, placement, comparison.addresses)
        comparison = comparison.replace(links_at_end=at_end)
        keep(comparison, folder)
    return comparison


def _communication(
    chosen: Chosen, facts: dict[str, HostFacts], links: tuple[Link, ...]
) -> Communication | None:
    """All-reduces between as many ranks as the largest arms have, on the same hosts."""
    used = tuple(host for host in chosen.placement.hosts or () if host.name in facts)
    most = max(arm.replicas for arm in chosen.arms)
    return find_communication(
        hosts_of_ranks(chosen.placement.replace(hosts=used), most) if used else (),
        links,
        addresses={name: one.address for name, one in facts.items()},
        cores={name: one.cores for name, one in facts.items()},
    )


def _links(console: Console, placement: Placement, used: Collection[str]) -> tuple[Link, ...]:
    """What the links between the hosts that are used carry just now; none, if one carries nothing.

    That is told and not refused: what runs make of such a link is their outcome.
    """
    hosts = tuple(host for host in placement.hosts or () if host.name in used)
    if len(hosts) < 2:
        return ()
    with console.status("measuring the links…"):
        try:
            return measure_links(
                placement.replace(hosts=hosts), Site.here(), seconds=LINK_S, tools=("tcp",)
            )
        except RefusalError as error:
            console.print(f"[yellow]links not measured[/] {error}", highlight=False)
            return ()


def look_again(console: Console, comparison: Comparison, folder: Path) -> None:
    """Ask every host of an interrupted comparison whether it is still ready.

    Raises:
        RefusalError: some are not, or a host has another address, fewer cores, or a link that
            carries something else now.
    """
    placement = placement_of(comparison)
    if not placement.names:
        return
    specs = [spec_of(comparison, arm) for arm in comparison.arms]
    found = ready_hosts(specs, placement, folder)
    for name, facts in found.items():
        if facts.address != (was := comparison.addresses.get(name, "")):
            raise RefusalError(
                "A comparison goes on with the hosts with which it began.",
                received=f"{name} is {facts.address}, and it was {was or 'not used'}",
                advice="Start a new comparison.",
            )
    cores = {name: facts.cores for name, facts in found.items()}
    refuse_fewer_cores(comparison, fullest(specs, placement), cores)
    if comparison.links:
        now = _links(console, placement, comparison.addresses)
        refuse_other_links(comparison.links, now)


def announcement(comparison: Comparison) -> list[str]:
    """What will be run, and about how long that takes."""
    asked, arms = comparison.asked, comparison.arms
    if asked.precision is None:
        rounds = plural(asked.least, "round")
        if asked.most > asked.least:
            rounds += f", up to {asked.most} if disturbed"
    else:
        rounds = (
            f"at least {plural(asked.least, 'round')}, until every interval of interest is at "
            f"most {percent(asked.precision)} wide"
        )
    if asked.budget_s is not None:
        rounds += f" or {duration(asked.budget_s)} are over"
    lines = [f"{plural(len(arms), 'arm')} × {rounds}"]
    if comparison.addresses and looks(tuple(comparison.addresses)) is None:
        lines.append("nobody can look at what else the hosts do: no round is known to be quiet")
    placement = placement_of(comparison)
    round_s = expected_s((spec_of(comparison, arm) for arm in arms), placement)
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
        Subject(arm, spec_of(comparison, arm))
        for arm in comparison.arms
        if not (arm.twin_of or arm.for_breakdown or arm.label in there)
    ]
    if not subjects:
        return comparison
    start = Start(placement_of(comparison))
    made = certify_arms(console, subjects, folder, reuse=True, start=start)
    comparison = comparison.replace(certificates=(*comparison.certificates, *made))
    keep(comparison, folder)
    return comparison


def _tuned(console: Console, comparison: Comparison, folder: Path) -> Comparison:
    """Make the trials; say for each arm what was chosen."""
    arms, each = arms_to_tune(comparison), comparison.trials_each
    total = each * len(arms)
    once_s = expected_s((spec_of(comparison, arm) for arm in arms), placement_of(comparison))
    about = "" if once_s is None else f", about {duration(each * once_s)}"
    console.print(f"{each} trials for each of {plural(len(arms), 'arm')}{about}", highlight=False)
    with ComparisonProgress(
        console, total_runs=total, done=len(comparison.trials), unit="trial"
    ) as progress:
        comparison = tune(
            comparison,
            folder=folder,
            executor=launched(comparison.deadline_s, progress, placement_of(comparison)),
            observer=progress,
        )
    keep(comparison, folder)
    for trial in comparison.trials:
        if trial.chosen:
            kept = trial.arm.label == trial.tuned_from
            told = "nothing was faster than as it is" if kept else f"tuned: {trial.arm.label}"
            console.print(f"{trial.tuned_from:<34} {told}", highlight=False, markup=False)
    return comparison
