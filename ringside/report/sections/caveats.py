"""What a reader must know before he believes a number, and what to do; the worst comes first."""

import re
from collections.abc import Iterator, Sequence

from ringside.report.blocks import Bullets, Caveat, Section
from ringside.report.earlier import CONTRADICTION
from ringside.report.ranking import ranked, sizes_of
from ringside.report.sections.headline import (
    MORE_TIME,
    against_serial,
    contenders,
    loses,
    named,
)
from ringside.report.sections.machine import others_beside, paused, threads_of_a_core
from ringside.report.sections.noise import false_alarm
from ringside.report.sections.resources import ArmResources, arm_resources
from ringside.stats.final import CHANCE
from ringside.stats.links import (
    SAME_LINK,
    congestion_controls,
    link_words,
    links_by_pair,
    same_link,
)
from ringside.stats.rounds import DISTURBED_SHARE, others_share
from ringside.stats.step_times import chief_of, warm_up
from ringside.stats.summary import ArmRow, RunRow, Summary
from ringside_core.specs import Comparison, MachineFacts
from ringside_core.text import listed, number, percent, plural

MUCH_BEYOND = 3.0  # times, see `inflation`
MUCH_INPUT = 0.5  # of what the data yield alone
MUCH_CLOCK = 0.02  # of a step; docs/cost.md says what Ringside costs


def caveats(comparison: Comparison, summary: Summary) -> list[Caveat]:
    """All reasons to be careful, each in one or two sentences."""
    placed = arm_resources(summary)
    return [
        *_distribution_loses(summary),
        *_what_was_computed([row for row in summary.arms if not row.arm.twin_of]),
        *_chance(comparison, summary),
        *_one_side_tuned(comparison, summary),
        *_runs(comparison, summary),
        *_resources(placed, comparison.machine),
        *_warm_up(summary),
        *_clock(summary),
        *_epochs_in_another_order(summary),
        *_input(summary),
        *_launchers_left_out(summary),
        *_asynchronous(summary, placed),
        *_quality(summary),
        *_machines(summary.runs),
        *_links(comparison),
        *_unwatched(comparison),
        *others_beside(comparison),
        *threads_of_a_core(comparison),
        *paused(comparison),
    ]


def _names(rows: Sequence[ArmRow]) -> str:
    return listed([row.arm.label for row in rows])


def _distribution_loses(summary: Summary) -> Iterator[Caveat]:
    """Whether the fastest arm of the largest size is slower than the run without distribution."""
    for size in sizes_of(ranked(summary))[-1:]:
        best, *_ = contenders(summary) or ranked(summary, size)
        if size > 1 and loses(summary, best):
            text = against_serial(summary, best)
            yield Caveat(
                f"Distribution loses with {plural(size, 'replica')}. {named(best)}: "
                f"{text[0].lower()}{text[1:]}",
                "Distribution does not pay here; a larger batch or model may change that.",
            )


def _input(summary: Summary) -> Iterator[Caveat]:
    """Arms much of whose step may be waiting for data."""
    parts = [(row, summary.of_input(row) or 0.0) for row in summary.arms if not row.arm.twin_of]
    parts.sort(key=lambda of_arm: -of_arm[1])
    much = [f"{row.arm.label} {percent(part)}" for row, part in parts if part >= MUCH_INPUT]
    if much:
        yield Caveat(
            f"One process reads {number(summary.input_examples_s or 0.0)} examples/s of these data "
            f"while nothing else runs. Of that the arms train: {listed(much)}.",
            "A step may wait for its data: ask `ringside input` whether it does.",
        )


def _one_side_tuned(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    """Whether one of the two contenders is tuned and the other had no such chance."""
    group_of = {arm.label: arm.group for arm in comparison.arms}
    kept = {
        group_of[trial.tuned_from]
        for trial in comparison.trials
        if trial.chosen and trial.arm.label == trial.tuned_from
    }
    pair = contenders(summary)
    if pair is None or bool(pair[0].arm.tuned_from) == bool(pair[1].arm.tuned_from):
        return
    tuned, other = sorted(pair, key=lambda row: not row.arm.tuned_from)
    beaten = {row.arm.tuned_from for row in ranked(summary, tuned.arm.replicas)}
    if not (other.arm.label in beaten or other.arm.group in kept):
        yield Caveat(
            f"{tuned.arm.label} is tuned and {other.arm.label} is not: a part of the difference "
            "may come from the tuning.",
            "Compare two tuned arms, or two with default settings: see Verdicts and Tuning.",
        )


def _what_was_computed(arms: Sequence[ArmRow]) -> Iterator[Caveat]:
    apart = [row for row in arms if not row.comparable]
    if len(apart) < len(arms) and apart:
        yield Caveat(
            f"{_names(apart)}: not comparable. The numbers are shown apart; verdicts and "
            "efficiencies leave them out.",
            "See the reason below the results; `ringside verify --explain` shows the first "
            "difference.",
        )


def _chance(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    if alarmed := false_alarm(summary):
        yield Caveat(
            f"{alarmed} differs from itself: the noise is not as the intervals assume.",
            "Do not believe differences of this size; measure again on a quiet machine.",
        )
    if summary.launches.disturbed and not summary.launches.left_out:
        launches = plural(len(summary.launches.disturbed), "launch")
        yield Caveat(
            f"{launches} disturbed by other programs count, because too few quiet ones are left.",
            "Stop the other programs, and measure again.",
        )
    share = others_share(comparison) if comparison.live else None
    if share is not None and share > DISTURBED_SHARE:
        yield Caveat(
            f"Beside the blocks of the arms other programs took {percent(share)} of the "
            "processors. Stacks differ in how well they defend a processor against others.",
            "Stop the other programs, and compare again.",
        )
    if comparison.runs and not comparison.ended_because:
        yield Caveat(
            "The comparison was interrupted before its last launch.",
            "Continue it with `ringside compare --resume`.",
        )
    if comparison.looks > 1:
        yield Caveat(
            f"Launches were added after the result was read, {comparison.looks - 1}×. Each look is "
            f"another chance of a wrong answer: {percent(CHANCE * comparison.looks)} at most.",
            "Give a new comparison the whole --budget at once.",
        )
    if summary.inflation is not None and summary.inflation > MUCH_BEYOND:
        yield Caveat(
            f"Launches scatter {summary.inflation:.1f} times as much as their blocks would: a new "
            "process changes the speed, or something came and went.",
            "More launches help here, longer ones do not: --launches 6.",
        )


def _runs(comparison: Comparison, summary: Summary) -> Iterator[Caveat]:
    for note in comparison.notes:
        if note.startswith(CONTRADICTION):
            yield Caveat(note, f"An interval is of its own minutes; what would help: {MORE_TIME}.")
        else:
            yield Caveat(note, "See Failures for the cause.", "failures")
    for row in summary.arms:
        if row.not_completed:
            kinds = [f"{run.outcome.kind} in {run.stage}" for run in row.not_completed]
            left = plural(row.spreads["throughput_examples_s"].of, "completed run")
            yield Caveat(
                f"{row.arm.label}: {len(row.not_completed)} of {plural(row.started, 'run')} did "
                f"not complete ({', '.join(kinds)}). Its numbers come from {left}."
                if row.completed
                else f"{row.arm.label}: no run completed ({', '.join(kinds)}).",
                "See Failures for the cause.",
                "failures",
            )
    if any(
        spread.value is None and "needs at least 2 epochs" in spread.reason
        for row in summary.arms
        for spread in row.spreads.values()
    ):
        yield Caveat("The only epoch is warm-up: there is no throughput.", "Use at least 2 epochs.")


def _resources(placed: Sequence[ArmResources], machine: MachineFacts) -> Iterator[Caveat]:
    if placed and placed[0].cores_per_replica is None:
        yield Caveat(
            "No replica was pinned to cores. An arm with one replica may use all cores, so scaling "
            "efficiency compares the same cores, not N times as many.",
            "Use --cores-per-replica.",
        )
    if sharing := [one for one in placed if one.shares]:
        arms = [f"{one.arm.arm.label} ({one.shares})" for one in sharing]
        yield Caveat(
            f"More replicas or processes than cores: {listed(arms)}.",
            "Measure on a machine with enough cores; the numbers will be different there.",
        )
    threads = {
        (
            one.threads_per_replica,
            (one.inter_op_threads or 0) * (one.processes - one.extra) / one.arm.arm.replicas,
        )
        for one in placed
    }
    if len(threads) > 1:
        yield Caveat(
            "The number of TensorFlow's threads for each replica is not the same in all arms (see "
            "Resources), so the arms differ in more than in how they distribute.",
            "Give all arms the same threads, or remember that the settings differ too.",
        )
    if machine.gpus:
        yield Caveat(
            "With a GPU a step ends for the clock when its launch returns: step times are times of "
            "the host.",
            "Compare throughput, which waits for the device.",
        )


def _warm_up(summary: Summary) -> Iterator[Caveat]:
    """Runs whose end of warm-up was not found, by reason."""
    ranked_runs = [
        one.run
        for one in summary.runs
        if one.used and one.run.outcome.completed and not one.arm.for_breakdown
    ]
    reasons: dict[str, list[str]] = {}
    for run in ranked_runs:
        found = warm_up(run)
        if found.reason and len(run.records[0].epochs) > 1:
            reasons.setdefault(re.sub(r"^\d+", "too few", found.reason), []).append(run.arm)
    for reason, labels in reasons.items():
        yield Caveat(
            f"In {len(labels)} of {plural(len(ranked_runs), 'run')} the end of warm-up was not "
            f"found ({reason}): {listed(list(dict.fromkeys(labels)), limit=3)}. Only the first "
            "epoch of these runs is left out.",
            "Train more epochs or more steps.",
        )


def _clock(summary: Summary) -> Iterator[Caveat]:
    shares = {row.arm.label: row.spreads["clock_share"].value or 0.0 for row in summary.arms}
    dear = [f"{label} ({percent(one)})" for label, one in shares.items() if one > MUCH_CLOCK]
    if dear:
        yield Caveat(
            f"Ringside's own clock and counting cost more than {percent(MUCH_CLOCK)} of a step: "
            f"{listed(dear)}.",
            "All arms have this cost; its share falls when steps are longer.",
        )


def _epochs_in_another_order(summary: Summary) -> Iterator[Caveat]:
    """Pairs of arms of which one has the faster steps, and the other the faster epochs."""
    whole = {row.arm.label: row.spreads["whole_epochs_examples_s"].value for row in summary.arms}
    lines = []
    for one in summary.pairs:
        winner, other = one.first, one.second
        if one.ratio.interval is None or one.ratio.interval.low <= 1:
            continue
        ahead, behind = whole[winner], whole[other]
        if ahead is not None and behind is not None and ahead < behind:
            rates = f"{number(ahead)} and {number(behind)} examples/s"
            lines.append(f"{winner} is faster than {other}, and over whole epochs slower ({rates})")
    if lines:
        yield Caveat(
            f"Examples/s leaves out what is paid between two epochs, which changes the order: "
            f"{listed(lines, limit=3)}.",
            "If your epochs are as short as these, compare whole epochs; in longer ones the "
            "difference vanishes.",
            "results",
        )


def _launchers_left_out(summary: Summary) -> Iterator[Caveat]:
    """Arms whose start-up and time to target begin with their first process, not the command."""
    chiefs = [(one, chief_of(one.run)) for one in summary.runs if one.run.outcome.completed]
    arms = [
        one.arm.label
        for one, chief in chiefs
        if chief is not None and not one.arm.for_breakdown and one.run.launch_s(chief) is None
    ]
    if arms:
        yield Caveat(
            f"Start-up and time to target of {listed(list(dict.fromkeys(arms)), limit=3)} leave "
            "out the launcher: the chief ran on another machine than the command, or the file is "
            "older than this time.",
            "Start the command on the first host of the hostfile.",
        )


def _asynchronous(summary: Summary, placed: Sequence[ArmResources]) -> Iterator[Caveat]:
    rows = [row for row in summary.arms if not row.arm.capabilities.synchronous]
    if rows:
        extra = max((one.extra for one in placed if one.arm in rows), default=0)
        helpers = f" It also has {plural(extra, 'process')} without a replica, which count too."
        yield Caveat(
            f"{_names(rows)}: asynchronous. A step is one worker's batch, not the global batch, "
            f"and gradients are computed from older weights.{helpers if extra else ''}",
            "Compare time to accuracy, not only examples/s.",
        )
    for row in rows:
        specs = [one.run.spec for one in summary.runs if one.arm == row.arm]
        count = row.arm.replicas
        if count > 1 and any(spec.learning_rate_rule.rule != "none" for spec in specs):
            yield Caveat(
                f"{row.arm.label}: it makes {count}× as many updates, each from 1/{count} of the "
                "batch, with the learning rate of the whole batch.",
                "Choose a learning-rate rule for this arm alone.",
            )


def _quality(summary: Summary) -> Iterator[Caveat]:
    if summary.quality_target is None:
        return  # the section says so
    missed = []
    for row in summary.arms:
        reached = row.spreads["time_to_target_s"]
        if reached.n < reached.of and not row.arm.twin_of:
            missed.append(f"{row.arm.label} ({reached.n} of {plural(reached.of, 'run')})")
    if missed:
        yield Caveat(
            f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was not always "
            f"reached: {listed(missed)}.",
            "Train more epochs before you compare time to accuracy.",
        )


def _machines(runs: Sequence[RunRow]) -> Iterator[Caveat]:
    facts = [record.machine for row in runs for record in row.run.records]
    hosts = sorted({one.host for one in facts})
    if len(hosts) > 1:
        yield Caveat(
            f"Processes ran on {len(hosts)} hosts: {listed(hosts)}.",
            "Clocks of different hosts are never compared; step times are those of the slowest "
            "host.",
        )
    # On one host such differences are refused, see ringside.stats.comparability.
    for what, found in (
        ("processors", {one.cpu_model for one in facts}),
        ("versions of Python", {one.python for one in facts}),
        ("package versions", {str(sorted(one.packages.items())) for one in facts}),
    ):
        if len(found) > 1:
            yield Caveat(
                f"Hosts differ in their {what}: {listed(sorted(found), limit=3)}.",
                "Use equal hosts with equal software.",
            )


def _links(comparison: Comparison) -> Iterator[Caveat]:
    """Links that changed or could not be measured."""
    used = len(comparison.addresses)
    if used < 2:
        return
    if not comparison.links:
        yield Caveat(
            "The links between the hosts could not be measured, so it is not known what a stack "
            "could have reached.",
            "Measure again when all links work.",
        )
    if any(name.startswith("bbr") for name in congestion_controls(comparison.links)):
        yield Caveat(
            "The hosts use BBR as TCP congestion control. With BBR, stacks that fill both "
            "directions of a link were seen to leave much of it unused, which they use with cubic "
            "(docs/collectives.md). A difference between two stacks may come from that.",
            "Compare with cubic too: sysctl net.ipv4.tcp_congestion_control=cubic on all hosts.",
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
            "Compare within launches only, or measure again on a network that nothing else uses.",
        )


def _unwatched(comparison: Comparison) -> Iterator[Caveat]:
    """Runs during which the load of the hosts was not watched."""
    blind = [run for run in comparison.runs if run.outcome.completed and run.load is None]
    if comparison.hosts and blind:
        yield Caveat(
            f"In {plural(len(blind), 'run')} the load of the hosts could not be watched. Their "
            "launches count as undisturbed.",
            "Look at the hosts' own records: these launches may have been disturbed.",
        )


def caveats_section(careful: Sequence[Caveat]) -> Iterator[Section]:
    """All reasons to be careful; no section if there is none."""
    if careful:
        answer = f"{plural(len(careful), 'reason')} to be careful, each with what to do about it."
        blocks = (Bullets(tuple(careful), "caveats"),)
        yield Section("caveats", "Know before you decide", "Caveats", answer, blocks)
