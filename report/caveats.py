"""What must be known before a number is believed; computed from the records, worst first."""

from collections.abc import Iterator, Sequence

from measure.summary import ArmRow, Missing, RunRow, Summary
from report.placement import Placement, placements
from report.words import listed, plural
from specs import Comparison, MachineFacts, capabilities_of

FEW_ROUNDS = 3


def caveats(comparison: Comparison, summary: Summary) -> list[str]:
    """One sentence or two for each reason to be careful."""
    placed = placements(summary)
    return [
        *_what_was_computed(summary.arms),
        *_runs(comparison, summary.arms),
        *_resources(placed, comparison.machine),
        *_asynchronous(summary, placed),
        *_quality(summary),
        *_machines(summary.runs),
    ]


def _names(rows: Sequence[ArmRow]) -> str:
    return listed([row.arm.label for row in rows])


def _what_was_computed(arms: Sequence[ArmRow]) -> Iterator[str]:
    apart = [row for row in arms if not row.comparable]
    if len(apart) < len(arms) and apart:
        yield (
            f"{_names(apart)}: not comparable. The numbers are shown apart, and are left out of "
            "findings and efficiencies."
        )
    if uneven := [row for row in arms if row.each_example_once == "no"]:
        yield (
            f"{_names(uneven)}: not every example was fed exactly once in every epoch. The numbers "
            "are of other work and are left out of the finding."
        )
    if unequal := [row for row in arms if row.replicas_equal == "no"]:
        yield (
            f"{_names(unequal)}: the replicas end with different weights, though the backend is "
            "synchronous. The difference is below what fails a run, but it should be 0."
        )
    unknown = [row for row in arms if row.completed and row.each_example_once == "unknown"]
    if unknown:
        yield f"{_names(unknown)}: nobody kept count of which examples were fed."
    for row in arms:
        if (passes := getattr(row.arm.options, "backward_passes_per_step", 1)) > 1:
            yield (
                f"{row.arm.label}: an update is made of {passes} batches; the other arms make one "
                "of each: not comparable."
            )


def _runs(comparison: Comparison, arms: Sequence[ArmRow]) -> Iterator[str]:
    rounds = comparison.rounds
    if rounds < FEW_ROUNDS:
        yield (
            f"Only {plural(rounds, 'round')}: "
            + ("a single run has no range." if rounds == 1 else "two runs make a poor range.")
            + f" Use at least {FEW_ROUNDS}."
        )
    for row in arms:
        if row.not_completed:
            kinds = [f"{run.outcome.kind} in round {run.round + 1}" for run in row.not_completed]
            yield (
                f"{row.arm.label}: {len(row.not_completed)} of {plural(row.started, 'run')} did "
                f"not complete ({', '.join(kinds)}); its numbers are from the other "
                f"{row.completed}."
                if row.completed
                else f"{row.arm.label}: no run completed ({', '.join(kinds)})."
            )
    short = [row for row in arms if row.started < rounds]
    if short:
        runs = [f"{row.arm.label} ({row.started})" for row in short]
        yield f"Not every arm ran in all {rounds} rounds: {listed(runs)}."
    if any(
        isinstance(spread, Missing) and "needs at least 2 epochs" in spread.reason
        for row in arms
        for spread in row.spreads.values()
    ):
        yield "One epoch is all warm-up: there is no throughput. Use at least 2 epochs."


def _resources(placed: Sequence[Placement], machine: MachineFacts) -> Iterator[str]:
    if placed and placed[0].cores_per_replica is None:
        yield (
            "Nothing was pinned: an arm with one replica may use every core, so scaling efficiency "
            "compares the same cores, not N times as many."
        )
    if sharing := [one for one in placed if one.shares]:
        arms = [f"{one.arm.arm.label} ({one.shares})" for one in sharing]
        yield (
            f"Over-subscribed: {listed(arms)}. Where cores are shared, expect other numbers on a "
            "larger machine."
        )
    threads = {(one.threads_per_replica, _inter_op_per_replica(one)) for one in placed}
    if len(threads) > 1:
        yield (
            "TensorFlow has not the same number of threads for each replica in all arms (see "
            "Environment), so they differ in more than in how they distribute."
        )
    if machine.gpus:
        yield (
            "With a GPU a step ends when its launch returns: step times are those of the host. "
            "Throughput waits for the device."
        )


def _inter_op_per_replica(one: Placement) -> float | None:
    threads, processes = one.inter_op_threads, one.processes - one.extra
    return None if threads is None else threads * processes / one.arm.arm.replicas


def _asynchronous(summary: Summary, placed: Sequence[Placement]) -> Iterator[str]:
    rows = [row for row in summary.arms if not capabilities_of(row.arm.backend).synchronous]
    if rows:
        extra = max((one.extra for one in placed if one.arm in rows), default=0)
        helpers = f" {plural(extra, 'process')} without a replica come on top, and are charged."
        yield (
            f"{_names(rows)}: asynchronous. A step is one worker's batch, not the global batch, "
            "and updates are made from older weights; compare accuracy, not only examples/s."
            f"{helpers if extra else ''}"
        )
    for row in rows:
        specs = [one.run.spec for one in summary.runs if one.arm == row.arm]
        count = row.arm.replicas
        if count > 1 and any(spec.learning_rate_rule.rule != "none" for spec in specs):
            yield (
                f"{row.arm.label}: {count}× as many updates, each from 1/{count} of the batch, at "
                "the rate of the whole batch."
            )


def _quality(summary: Summary) -> Iterator[str]:
    if summary.quality_target is None:
        if any(row.completed for row in summary.arms):
            yield "The workload names no target: nothing here says whether the arms train as well."
        return
    missed = []
    for row in summary.arms:
        reached = row.spreads["time_to_target_s"]
        count = 0 if isinstance(reached, Missing) else reached.n
        if count < row.completed:
            missed.append(f"{row.arm.label} ({count} of {plural(row.completed, 'run')})")
    if missed:
        yield (
            f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was not always "
            f"reached: {listed(missed)}."
        )


def _machines(runs: Sequence[RunRow]) -> Iterator[str]:
    facts = [record.machine for row in runs for record in row.run.records]
    hosts = sorted({one.host for one in facts})
    if len(hosts) > 1:
        yield f"Processes ran on {len(hosts)} hosts: {listed(hosts)}."
    for what, seen in (
        ("processors", {one.cpu_model for one in facts}),
        ("versions of Python", {one.python for one in facts}),
        ("package versions", {str(sorted(one.packages.items())) for one in facts}),
    ):
        if len(seen) > 1:
            yield f"Runs differ in their {what}: {listed(sorted(seen), limit=3)}."
