"""What must be known before a number is believed, and what to do about it; worst first."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ringside.report.blocks import Bullets, Section
from ringside.report.ranking import counted_runs, ranked, sizes_of
from ringside.report.sections.headline import against_serial, contenders, loses, named, seen
from ringside.report.sections.noise import false_alarms, interrupted
from ringside.report.sections.resources import Placement, placements
from ringside.stats.figure import LEAST_ROUNDS
from ringside.stats.links import (
    SAME_LINK,
    congestion_controls,
    link_words,
    links_by_pair,
    same_link,
)
from ringside.stats.step_times import warm_up
from ringside.stats.summary import ArmRow, RunRow, Summary
from ringside.stats.verdicts import LEAST_ROUNDS_OF_TWO
from ringside_core.specs import Comparison, MachineFacts
from ringside_core.text import listed, percent, plural

MUCH_CLOCK = 0.02  # of a step; docs/cost.md says what Ringside costs


class Caveat(NamedTuple):
    """A reason to be careful, computed from the records, and what to do about it.

    Attributes:
        section: of the page, that the advice leads to; or empty.
    """

    what: str
    advice: str
    section: str = ""


def caveats(comparison: Comparison, summary: Summary) -> list[Caveat]:
    """One sentence or two for each reason to be careful."""
    placed = placements(summary)
    return [
        *_distribution_loses(summary),
        *_what_was_computed([row for row in summary.arms if not row.arm.twin_of]),
        *_chance(comparison, summary),
        *_one_side_tuned(comparison, summary),
        *_runs(comparison, summary),
        *_resources(placed, comparison.machine),
        *_warm_up(summary),
        *_clock(summary),
        *_asynchronous(summary, placed),
        *_quality(summary),
        *_machines(summary.runs),
        *_links(comparison),
        *_unwatched(comparison),
    ]


def _names(rows: Sequence[ArmRow]) -> str:
    return listed([row.arm.label for row in rows])


def _distribution_loses(summary: Summary) -> Iterator[Caveat]:
    """Where the fastest arm with several replicas is slower than one replica alone."""
    for size in reversed(sizes_of(ranked(summary))):
        best, *_ = contenders(summary, size) or ranked(summary, size)
        if size > 1 and loses(summary, best):
            told = against_serial(summary, best)
            yield Caveat(
                f"Distribution loses with {plural(size, 'replica')}. {named(best)}: "
                f"{told[0].lower()}{told[1:]}",
                "Distribution does not pay here; a larger batch or model may change that.",
            )


def _one_side_tuned(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    """An arm whose settings were searched for, set against one with the settings it came with."""
    tried = {trial.tuned_from for trial in comparison.trials}
    for size in reversed(sizes_of(ranked(summary))):
        pair = contenders(summary, size)
        if pair is None:
            continue
        tuned = [row for row in pair if row.arm.tuned_from or row.arm.label in tried]
        if len(tuned) == 1:
            other = next(row for row in pair if row is not tuned[0])
            yield Caveat(
                f"At {plural(size, 'replica')} settings were searched for {tuned[0].arm.label} and "
                f"not for {other.arm.label}: part of the difference may be the search.",
                "Compare tuned with tuned, or default with default: see Verdicts and Tuning.",
            )


def _what_was_computed(arms: Sequence[ArmRow]) -> Iterator[Caveat]:
    apart = [row for row in arms if not row.comparable]
    if len(apart) < len(arms) and apart:
        yield Caveat(
            f"{_names(apart)}: not comparable. The numbers are shown apart, and are left out of "
            "verdicts and efficiencies.",
            "See the reason below the results; `ringside verify --explain` says where they part.",
        )
    if uneven := [row for row in arms if row.each_example_once == "no"]:
        yield Caveat(
            f"{_names(uneven)}: not every example was fed exactly once in every epoch. The numbers "
            "are of other work and are left out of the verdicts.",
            "Use a pipeline that feeds each example once.",
        )
    if unequal := [row for row in arms if row.replicas_equal == "no"]:
        yield Caveat(
            f"{_names(unequal)}: the replicas end with different weights, though the backend is "
            "synchronous. The difference is below what fails a run, but it should be 0.",
            "Look for a layer or callback that acts on one replica only.",
        )
    unknown = [row for row in arms if row.completed and row.each_example_once == "unknown"]
    if unknown:
        yield Caveat(
            f"{_names(unknown)}: nobody kept count of which examples were fed.",
            "Give the examples ids: use a source of Ringside's.",
        )
    for row in arms:
        if (passes := row.arm.options.passes_per_reduction) > 1:
            yield Caveat(
                f"{row.arm.label}: an update is made of {passes} batches; the other arms make one "
                "of each: not comparable.",
                "Leave backward_passes_per_step at 1, or give it to all arms.",
            )


def _chance(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    if alarmed := false_alarms(summary):
        yield Caveat(
            f"{alarmed} differs from itself: the noise is not what the intervals assume.",
            "Believe no difference of this size; measure again on a quiet machine.",
        )
    if summary.rounds.kept_disturbed:
        rounds = plural(len(summary.rounds.disturbed), "round")
        yield Caveat(
            f"{rounds} disturbed by other programs are used, as too few quiet ones are left.",
            "Stop what else runs, and go on with --resume or a larger --budget.",
        )
    if interrupted(comparison) and comparison.runs:
        yield Caveat(
            "The comparison was interrupted: rounds that were asked for are missing.",
            "Go on with `ringside compare --resume`.",
        )
    for size in sizes_of(ranked(summary)):
        pair = contenders(summary, size)
        if pair is None:
            continue
        verdict = summary.verdict_of(pair[0].arm.label, pair[1].arm.label)
        if verdict.word == "cannot tell" and verdict.smallest_visible is not None:
            yield Caveat(
                f"At {plural(size, 'replica')} {verdict.first} and {verdict.second} cannot be told "
                f"apart. {seen(verdict.smallest_visible)}.",
                "Ask for a smaller --interval-width and a larger --budget.",
            )


def _runs(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    arms, rounds = summary.arms, comparison.rounds
    timed = sum(row.throughput is not None for row in arms)
    # Of two arms alone nobody else shows the drift, see ringside.stats.verdicts.
    least = LEAST_ROUNDS_OF_TWO if timed == 2 else LEAST_ROUNDS
    if rounds < least:
        yield Caveat(
            f"Only {plural(rounds, 'round')}: there is no interval of a ratio, and so no verdict.",
            f"Use at least {least} rounds.",
        )
    for row in arms:
        if row.not_completed:
            kinds = [f"{run.outcome.kind} in round {run.round + 1}" for run in row.not_completed]
            left = plural(counted_runs(summary, row), "completed run")
            yield Caveat(
                f"{row.arm.label}: {len(row.not_completed)} of {plural(row.started, 'run')} did "
                f"not complete ({', '.join(kinds)}); its numbers are from {left} in the rounds "
                "that count."
                if row.completed
                else f"{row.arm.label}: no run completed ({', '.join(kinds)}).",
                "See Failures for the cause.",
                "failures",
            )
    short = [row for row in arms if row.started < rounds]
    if short:
        runs = [f"{row.arm.label} ({row.started})" for row in short]
        yield Caveat(
            f"Not every arm ran in all {rounds} rounds: {listed(runs)}.",
            "Go on with `ringside compare --resume`.",
        )
    if any(
        spread.value is None and "needs at least 2 epochs" in spread.reason
        for row in arms
        for spread in row.spreads.values()
    ):
        yield Caveat("One epoch is all warm-up: there is no throughput.", "Use at least 2 epochs.")


def _resources(placed: Sequence[Placement], machine: MachineFacts) -> Iterator[Caveat]:
    if placed and placed[0].cores_per_replica is None:
        yield Caveat(
            "Nothing was pinned: an arm with one replica may use every core, so scaling efficiency "
            "compares the same cores, not N times as many.",
            "Give --cores-per-replica.",
        )
    if sharing := [one for one in placed if one.shares]:
        arms = [f"{one.arm.arm.label} ({one.shares})" for one in sharing]
        yield Caveat(
            f"Over-subscribed: {listed(arms)}.",
            "Where cores are shared, expect other numbers on a larger machine; measure there.",
        )
    threads = {(one.threads_per_replica, _inter_op_per_replica(one)) for one in placed}
    if len(threads) > 1:
        yield Caveat(
            "TensorFlow has not the same number of threads for each replica in all arms (see "
            "Resources), so they differ in more than in how they distribute.",
            "Give all arms the same threads, or read the difference as one of settings.",
        )
    if machine.gpus:
        yield Caveat(
            "With a GPU a step ends when its launch returns: step times are those of the host.",
            "Compare throughput, which waits for the device.",
        )


def _inter_op_per_replica(one: Placement) -> float | None:
    threads, processes = one.inter_op_threads, one.processes - one.extra
    return None if threads is None else threads * processes / one.arm.arm.replicas


def _warm_up(summary: Summary) -> Iterator[Caveat]:
    """Runs of which nobody knows when they settled, by reason."""
    ranked_runs = [
        one.run
        for one in summary.runs
        if one.used and one.run.outcome.completed and not one.arm.for_breakdown
    ]
    reasons: dict[str, list[str]] = {}
    for run in ranked_runs:
        found = warm_up(run)
        if not found.found and len(run.records[0].epochs) > 1:
            reasons.setdefault(re.sub(r"^\d+", "too few", found.reason), []).append(run.arm)
    for reason, labels in reasons.items():
        yield Caveat(
            f"In {len(labels)} of {plural(len(ranked_runs), 'run')} the end of warm-up was not "
            f"found ({reason}): {listed(list(dict.fromkeys(labels)), limit=3)}. Of "
            "these the first epoch alone is left out.",
            "Train more epochs or more steps.",
        )


def _clock(summary: Summary) -> Iterator[Caveat]:
    dear = []
    for row in summary.arms:
        spread = row.spreads["clock_share"]
        if spread.value is not None and spread.value > MUCH_CLOCK:
            dear.append(f"{row.arm.label} ({percent(spread.value)})")
    if dear:
        yield Caveat(
            f"Ringside's own clock and counting cost more than {percent(MUCH_CLOCK)} of a step: "
            f"{listed(dear)}.",
            "It is in every arm; with longer steps its share falls.",
        )


def _asynchronous(summary: Summary, placed: Sequence[Placement]) -> Iterator[Caveat]:
    rows = [row for row in summary.arms if not row.arm.capabilities.synchronous]
    if rows:
        extra = max((one.extra for one in placed if one.arm in rows), default=0)
        helpers = f" {plural(extra, 'process')} without a replica come on top, and are charged."
        yield Caveat(
            f"{_names(rows)}: asynchronous. A step is one worker's batch, not the global batch, "
            f"and updates are made from older weights.{helpers if extra else ''}",
            "Compare time to accuracy, not only examples/s.",
        )
    for row in rows:
        specs = [one.run.spec for one in summary.runs if one.arm == row.arm]
        count = row.arm.replicas
        if count > 1 and any(spec.learning_rate_rule.rule != "none" for spec in specs):
            yield Caveat(
                f"{row.arm.label}: {count}× as many updates, each from 1/{count} of the batch, at "
                "the rate of the whole batch.",
                "Choose a learning-rate rule of its own for it.",
            )


def _quality(summary: Summary) -> Iterator[Caveat]:
    if summary.quality_target is None:
        if any(row.completed for row in summary.arms):
            yield Caveat(
                "The workload names no target: nothing here says whether the arms train as well.",
                "Give the workload a quality target.",
            )
        return
    missed = []
    for row in summary.arms:
        if row.arm.twin_of:
            continue
        reached = row.spreads["time_to_target_s"]
        of = counted_runs(summary, row)
        count = reached.n
        if count < of:
            missed.append(f"{row.arm.label} ({count} of {plural(of, 'run')})")
    if missed:
        yield Caveat(
            f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was not always "
            f"reached: {listed(missed)}.",
            "Train more epochs before time to accuracy is compared.",
        )


def _machines(runs: Sequence[RunRow]) -> Iterator[Caveat]:
    facts = [record.machine for row in runs for record in row.run.records]
    hosts = sorted({one.host for one in facts})
    if len(hosts) > 1:
        yield Caveat(
            f"Processes ran on {len(hosts)} hosts: {listed(hosts)}.",
            "Their clocks are never compared; read step times as those of the slowest host.",
        )
    # Of one host they are refused, see ringside.stats.comparability.
    for what, found in (
        ("processors", {one.cpu_model for one in facts}),
        ("versions of Python", {one.python for one in facts}),
        ("package versions", {str(sorted(one.packages.items())) for one in facts}),
    ):
        if len(found) > 1:
            yield Caveat(
                f"Hosts differ in their {what}: {listed(sorted(found), limit=3)}.",
                "Use hosts of one kind with one environment.",
            )


def _links(comparison: Comparison) -> Iterator[Caveat]:
    """Links that did not stay as they were, and such as nobody could measure."""
    used = len(comparison.addresses)
    if used < 2:
        return
    if not comparison.links:
        yield Caveat(
            "The links between the hosts could not be measured: nobody knows what a stack could "
            "have reached.",
            "Measure again when something comes through all of them.",
        )
    if any(name.startswith("bbr") for name in congestion_controls(comparison.links)):
        yield Caveat(
            "TCP between the hosts is governed by BBR. Under it stacks that fill both directions "
            "of a link were seen to leave much of it unused that they use under cubic "
            "(docs/network.md): a gap between two stacks may be that.",
            "Compare under cubic as well: sysctl net.ipv4.tcp_congestion_control=cubic on all "
            "hosts.",
        )
    at_end = links_by_pair(comparison.links_at_end)
    changed = []
    for link in comparison.links:
        last = at_end.get((link.sender, link.receiver))
        if last is not None and not same_link(link, last):
            before, after = link_words(link), link_words(last)
            changed.append(f"{link.sender} → {link.receiver} ({before}, then {after})")
    if changed:
        yield Caveat(
            "Between the first and the last run the rate of links changed by more than "
            f"{percent(SAME_LINK)}, or their TCP congestion control changed: "
            f"{listed(changed, limit=3)}.",
            "Compare within rounds only, or measure again on a network that nobody else uses.",
        )


def _unwatched(comparison: Comparison) -> Iterator[Caveat]:
    """Runs of which nobody knows what else their hosts did."""
    blind = [run for run in comparison.runs if run.outcome.completed and run.load is None]
    if comparison.hosts and blind:
        yield Caveat(
            f"In {plural(len(blind), 'run')} nobody could look at what else the hosts did; their "
            "rounds count as if nothing had disturbed them.",
            "Do not read these rounds as undisturbed; look at the hosts' own records.",
        )


def caveats_section(careful: tuple[Caveat, ...]) -> Iterator[Section]:
    """All reasons to be careful; no section if there is none."""
    if careful:
        answer = f"{plural(len(careful), 'reason')} to be careful, each with what to do about it."
        items = tuple((one.what, one.advice) for one in careful)
        links = {one.advice: one.section for one in careful if one.section}
        yield Section(
            "caveats",
            "Know before you decide",
            "Caveats",
            answer,
            (Bullets(items, "caveats", links),),
        )
