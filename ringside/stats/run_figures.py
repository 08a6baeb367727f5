"""The figures of one run, computed from the raw times; units are in the names."""

from collections.abc import Sequence

import numpy as np

from ringside.stats.figure import Figure
from ringside.stats.step_times import (
    check_records_agree,
    chief_of,
    counted_blocks,
    counted_epochs,
    durations_s,
    expected_processes,
    missing,
    step_times_ms,
    timed_records,
    together_s,
    why_untimed,
)
from ringside_core.specs import Arm, Run, RunRecord

NOT_RECORDED = "a process did not record it"
NOT_REACHED = "not reached"
TOO_SHORT = "fewer epochs than its author asks for"


# Time


def throughput_examples_s(run: Run) -> Figure:
    """Examples trained for each second of all processes together, examples/s.

    Σ examples ÷ Σ `together_s` of train_s over the counted epochs; of a live run, over the blocks
    (`counted_blocks`). train_s begins at a barrier and ends with the last step of the process.
    """
    if why_not := why_untimed(run):
        return Figure(None, why_not)
    if run.blocks:
        blocks = counted_blocks(run).values()
        if not blocks:
            return Figure(None, "no block of it counts: it trained too few updates")
        return Figure(sum(one.examples for one in blocks) / sum(one.seconds for one in blocks))
    epochs = counted_epochs(run)
    examples = sum(records[0].examples for records in epochs)
    seconds = sum(together_s(run, [epoch.train_s for epoch in records]) for records in epochs)
    return Figure(examples / seconds)


def whole_epochs_examples_s(run: Run) -> Figure:
    """Examples trained for each second from epoch to epoch, without validation, examples/s.

    Σ examples ÷ Σ max over processes of (train_s + beside_s), over the counted epochs. beside_s is
    what each family pays at the end of an epoch: its metrics are merged and reset, and all wait.
    """
    why_not = why_untimed(run)
    # A live run may end within an epoch.
    whole = max((one.steps for record in timed_records(run) for one in record.epochs), default=0)
    epochs = [] if why_not else [of for of in counted_epochs(run) if of[0].steps == whole]
    if not (why_not or epochs):
        why_not = "no whole epoch behind the warm-up"
    if any(epoch.beside_s is None for records in epochs for epoch in records):
        why_not = NOT_RECORDED
    if why_not:
        return Figure(None, why_not)
    seconds = sum(max(one.train_s + (one.beside_s or 0.0) for one in of_all) for of_all in epochs)
    return Figure(sum(of_all[0].examples for of_all in epochs) / seconds)


def step_quantiles_ms(run: Run) -> tuple[Figure, Figure, Figure]:
    """Median, p95 and p99 over all steps of the counted epochs, ms; see `step_times_ms`.

    Interpolated linearly between two times (Hyndman and Fan 1996, type 7). p95 needs 20 times and
    p99 needs 100, so that at least one time lies beyond the quantile.
    """
    times, why_not = step_times_ms(run), why_untimed(run)
    p50, p95, p99 = (_quantile(times, percent, why_not) for percent in (50, 95, 99))
    return p50, p95, p99


def _quantile(times: Sequence[float], percent: int, why_not: str) -> Figure:
    needed = 1 if percent == 50 else round(100 / (100 - percent))
    if not why_not and len(times) < needed:
        why_not = f"{len(times)} step times: p{percent} needs {needed}"
    return Figure(None, why_not) if why_not else Figure(float(np.percentile(times, percent)))


def rank_skew_ms(run: Run) -> Figure:
    """How far apart the processes are in one step, ms.

    Median over the steps of max − min over the processes of the step's duration, each by its own
    clock. A reduction makes all wait, so it is not how long the slowest one makes the others wait.
    """
    why_not = why_untimed(run)
    if not why_not and not run.spec.capabilities.synchronous:
        why_not = "asynchronous: workers make no common steps"
    if not why_not and len(timed_records(run)) < 2:
        why_not = "one process"
    if why_not:
        return Figure(None, why_not)
    skews = [
        np.ptp([durations_s(epoch) for epoch in records], axis=0) for records in counted_epochs(run)
    ]
    return Figure(1000 * float(np.median(np.concatenate(skews))))


def sent_bytes_per_step(run: Run) -> Figure:
    """Bytes that all interfaces of all hosts sent in the counted epochs ÷ steps.

    With loopback and other programs, without what processes exchange through memory.
    """
    why_not = why_untimed(run)
    if not why_not and not run.spec.capabilities.synchronous:
        why_not = "asynchronous: what is sent belongs to no one step"
    epochs = [] if why_not else counted_epochs(run)
    # If a hostfile is filled unevenly, the topology says one host.
    hosts = max(run.spec.topology.hosts, len({one.machine.host for one in run.records}))
    if any(sum(bool(epoch.sent_bytes) for epoch in records) != hosts for records in epochs):
        why_not = "not recorded" if hosts == 1 else "not recorded on every host"
    if why_not:
        return Figure(None, why_not)
    sent = sum(sum(epoch.sent_bytes.values()) for records in epochs for epoch in records)
    return Figure(sent / sum(records[0].steps for records in epochs))


def clock_share(run: Run, median: Figure) -> Figure:
    """The part of a step that Ringside's own clock takes.

    Max over processes of clock_s_per_step ÷ the median step time of the run, in ms.
    """
    costs = [record.clock_s_per_step for record in timed_records(run)]
    known = [cost for cost in costs if cost is not None]
    if median.value is None:
        return median
    if len(known) < len(costs):
        return Figure(None, NOT_RECORDED)
    if not median.value:  # only in an asynchronous run: its steps may end at the same time
        return Figure(None, "the median step time is 0")
    return Figure(1000 * max(known) / median.value)


def startup_s(run: Run) -> Figure:
    """From the command to the end of a process's first step, max over processes, s.

    A process on another machine than the command has another clock and counts from its own start
    (`Execution.launch_s`).
    """
    records = timed_records(run)
    values = [
        one.startup_s + (run.launch_s(one) or 0.0) for one in records if one.startup_s is not None
    ]
    why_not = missing(records, expected_processes(run.spec)[0])
    if not why_not and len(values) < len(records):
        why_not = NOT_RECORDED
    return Figure(None, why_not) if why_not else Figure(max(values))


def alone_start_s(arm: Arm, runs: Sequence[Run]) -> float | None:
    """The start of an arm alone, s: in live launches all start at once. None: they were not live.

    Args:
        arm: or a twin, whose start is that of the arm that it is again.
        runs: of the comparison.
    """
    own = (run for run in runs if run.arm == (arm.twin_of or arm.label))
    return next((run.alone_start_s for run in own if run.alone_start_s), None)


def target_from_alone_s(run: Run, start_s: float | None) -> Figure:
    """`time_to_target_s` of a run, if it had started as its arm does alone."""
    target, own = time_to_target_s(run), startup_s(run)
    if start_s is None or target.value is None or own.value is None:
        return target
    return Figure(target.value + start_s - own.value)


# Memory and processors


def peak_pss_bytes(run: Run) -> Figure:
    """Σ over all processes of the peak of their PSS, bytes; servers and coordinator count too.

    Of each process its own pages (the highest resident set size less its shared pages), and on each
    machine the most that one process shares: they hold the same libraries. The peaks need not be
    at the same time, so it is an upper bound.
    """
    why_not = missing(run.records, expected_processes(run.spec)[1])
    own_bytes, shared = 0, dict[str, int]()
    for one in run.records:
        if not one.peak_memory_bytes or one.shared_memory_bytes is None:
            return Figure(None, why_not or NOT_RECORDED)
        own_bytes += one.peak_memory_bytes - one.shared_memory_bytes
        shared[one.boot_id] = max(shared.get(one.boot_id, 0), one.shared_memory_bytes)
    return Figure(None, why_not) if why_not else Figure(own_bytes + sum(shared.values()))


def cpu_s_per_1000_examples(run: Run) -> Figure:
    """CPU time of all processes after start-up ÷ examples trained after it · 1000, s.

    Start-up ends with the first execution (`RunRecord.startup_cpu_s`), whose examples do not count
    either. Validation counts.
    """
    chief = chief_of(run)
    began = startup_cpu_s(run)
    if began.value is None or chief is None or not chief.epochs:
        return Figure(None, began.reason or "no epoch was recorded")
    first = chief.epochs[0]
    spec = run.spec
    alone = 1 if spec.capabilities.synchronous else spec.topology.num_replicas
    in_step = spec.global_batch // alone
    begun_with = min(first.examples, first.steps_per_time * in_step)
    examples = sum(epoch.examples for epoch in chief.epochs) - begun_with
    if not examples:
        return Figure(None, "all examples were trained in the first step")
    return Figure(1000 * (sum(record.cpu_s for record in run.records) - began.value) / examples)


def startup_cpu_s(run: Run) -> Figure:
    """CPU time of all processes until the end of the first step, s; of a server, until it served.

    It is mostly import and tracing.
    """
    why_not = missing(run.records, expected_processes(run.spec)[1])
    known = [one.startup_cpu_s for one in run.records if one.startup_cpu_s is not None]
    if not why_not and (len(known) < len(run.records) or not all(one.cpu_s for one in run.records)):
        why_not = NOT_RECORDED
    return Figure(None, why_not) if why_not else Figure(sum(known))


# What was learned


def time_to_target_s(run: Run) -> Figure:
    """When the first epoch that met the target had ended, from the command on, s.

    An epoch meets the target if validation[metric] ≥ target. The time includes validation. If the
    chief is on another machine than the command, it is from the start of the chief.
    """
    chief = chief_of(run)
    if why_not := _no_metric(chief):
        return Figure(None, why_not)
    assert chief is not None  # else there is no metric
    number = epochs_to_target(chief)
    if not number:
        short = len(chief.epochs) < run.spec.epochs
        return Figure(None, TOO_SHORT if short else NOT_REACHED)
    end_s = chief.epochs[number - 1].end_since_process_start_s
    return Figure(end_s + (run.launch_s(chief) or 0.0))


def epochs_to_target(chief: RunRecord) -> int:
    """How many epochs were trained until one met the target; 0: none did."""
    metric, target = chief.quality_target or ("", float("inf"))
    values = (epoch.validation.get(metric, float("-inf")) for epoch in chief.epochs)
    return next((number for number, value in enumerate(values, start=1) if value >= target), 0)


def updates_to_target(run: Run) -> Figure:
    """Updates of all epochs until the first that met the target.

    A worker without rows of a batch makes none: those of asynchronous workers are counted.
    """
    chief = chief_of(run)
    reached = time_to_target_s(run)
    if chief is None or reached.value is None:
        return Figure(None, reached.reason)
    epochs = chief.epochs[: epochs_to_target(chief)]
    return Figure(sum(sum(epoch.staleness) or epoch.steps for epoch in epochs))


def mean_staleness(run: Run) -> Figure:
    """How many updates were applied between reading the weights and applying an update, a mean.

    What is more than 63 counts as 63.
    """
    if run.spec.capabilities.synchronous:
        return Figure(None, "synchronous: none")
    kept = [one.staleness for record in run.records for one in record.epochs if one.staleness]
    if not kept:
        return Figure(None, NOT_RECORDED)
    stale = sum(k * count for one in kept for k, count in enumerate(one))
    return Figure(stale / sum(map(sum, kept)))


def final_quality(run: Run) -> Figure:
    """The target's validation metric after its author's last epoch, as the chief recorded it."""
    chief = chief_of(run)
    why_not = _no_metric(chief)
    if why_not or chief is None or chief.quality_target is None:
        return Figure(None, why_not)
    metric = chief.quality_target[0]
    if len(chief.epochs) < run.spec.epochs:
        return Figure(None, TOO_SHORT)
    value = chief.epochs[run.spec.epochs - 1].validation.get(metric)  # more are timed only
    return Figure(value, "" if value is not None else f"no validation metric {metric!r}")


def _no_metric(chief: RunRecord | None) -> str:
    """Why a run has no metric of a target; empty: it has."""
    if chief is None or chief.quality_target is None:
        return "the workload has no target" if chief else "no record of the chief"
    metric = chief.quality_target[0]
    known = any(metric in epoch.validation for epoch in chief.epochs)
    return "" if known else f"no validation metric {metric!r}"


OF_A_RUN = (
    throughput_examples_s,
    whole_epochs_examples_s,
    rank_skew_ms,
    sent_bytes_per_step,
    startup_s,
    time_to_target_s,
    final_quality,
    updates_to_target,
    mean_staleness,
    peak_pss_bytes,
    cpu_s_per_1000_examples,
    startup_cpu_s,
)
TIMED = ("step_time_ms", "step_p95_ms", "step_p99_ms", "clock_share")  # step_time_ms is the median
FIGURES = (*TIMED, *(one.__name__ for one in OF_A_RUN))


def run_figures(run: Run) -> dict[str, Figure]:
    """All FIGURES of a run; if it did not complete, each has the reason instead of a value.

    Raises:
        RefusalError: the processes of the run disagree on what was trained.
    """
    if not run.outcome.completed:
        return dict.fromkeys(FIGURES, Figure(None, f"the run {run.outcome.kind}"))
    check_records_agree(run)
    p50, p95, p99 = step_quantiles_ms(run)
    timed = (p50, p95, p99, clock_share(run, p50))
    return dict(zip(FIGURES, (*timed, *(one(run) for one in OF_A_RUN)), strict=True))
