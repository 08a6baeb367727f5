"""The figures of one run, from the raw times of all its processes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from measure.evidence import Answer, replicas_equal
from specs import EpochRecord, RefusalError, Run, RunRecord, capabilities_of

NEEDS_TWO_EPOCHS = "needs at least 2 epochs"


@dataclass(frozen=True)
class Figure:
    """One number of one run, or why there is none."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class RunFigures:
    """What one completed run came to; units in the names.

    Attributes:
        final_quality: the validation metric of the workload's target after the last epoch.
        time_to_target_s: when that metric first reached the target, from the start of the process.
        each_example_once: see `measure.evidence`; compared across the arms of a comparison.
        replicas_equal: the same.
    """

    throughput_examples_s: Figure
    step_time_ms: Figure
    startup_s: Figure
    time_to_target_s: Figure
    final_quality: Figure
    peak_memory_bytes: Figure
    cpu_s_per_1000_examples: Figure
    each_example_once: Answer
    replicas_equal: Answer


FIGURES = (
    "throughput_examples_s",
    "step_time_ms",
    "startup_s",
    "time_to_target_s",
    "final_quality",
    "peak_memory_bytes",
    "cpu_s_per_1000_examples",
)


def run_figures(run: Run, each_example_once: Answer) -> RunFigures:
    """All figures of a run; of one that did not complete, the reason in place of each number.

    Raises:
        RefusalError: the processes of the run disagree on what was trained.
    """
    if not run.outcome.completed:
        none = Figure(None, f"the run {run.outcome.kind}")
        empty = dict.fromkeys(FIGURES, none)
        return RunFigures(**empty, each_example_once="unknown", replicas_equal="unknown")
    check_records_agree(run)
    return RunFigures(
        throughput_examples_s=throughput_examples_s(run),
        step_time_ms=step_time_ms(run),
        startup_s=startup_s(run),
        time_to_target_s=time_to_target_s(run),
        final_quality=final_quality(run),
        peak_memory_bytes=peak_memory_bytes(run),
        cpu_s_per_1000_examples=cpu_s_per_1000_examples(run),
        each_example_once=each_example_once,
        replicas_equal=replicas_equal(run),
    )


# Who speaks for a run


def timed_records(run: Run) -> tuple[RunRecord, ...]:
    """The records whose clocks count: replicas, or the coordinator; servers only serve."""
    return tuple(record for record in run.records if record.role != "server")


def chief_of(run: Run) -> RunRecord | None:
    """The record of the process that may write, if it left one."""
    return next((record for record in run.records if record.is_chief), None)


def expected_processes(run: Run) -> tuple[int, int]:
    """How many processes a run has: those whose clocks count, and all."""
    replicas = run.spec.topology.num_processes
    if capabilities_of(run.spec.backend).process_model == "coordinator":
        servers = int(getattr(run.spec.options, "servers", 1))
        return 1, 1 + replicas + servers
    return replicas, replicas


def _missing(records: Sequence[RunRecord], expected: int) -> str:
    """Why nothing may be said when a process that should have left a record did not."""
    if len(records) == expected:
        return ""
    return f"{len(records)} of {expected} processes left a record"


def check_records_agree(run: Run) -> None:
    """Refuse a run whose processes tell different stories of the same epochs.

    Raises:
        RefusalError: naming run and epoch.
    """
    records = [record for record in timed_records(run) if record.epochs]
    for number, epochs in enumerate(_by_epoch(records)):
        for what in ("examples", "steps"):
            seen = {record.task: getattr(epoch, what) for record, epoch in epochs}
            told = [f"{task} {value}" for task, value in seen.items()]
            told += [f"{record.task} none" for record in records if record.task not in seen]
            if len(set(seen.values())) > 1 or len(seen) < len(records):
                raise RefusalError(
                    f"All processes of a run must record the same {what} of each epoch.",
                    received=f"run {run.arm!r} of round {run.round + 1}, epoch {number + 1}: "
                    + ", ".join(told),
                )


def _by_epoch(records: Sequence[RunRecord]) -> list[list[tuple[RunRecord, EpochRecord]]]:
    longest = max((len(record.epochs) for record in records), default=0)
    return [
        [(record, record.epochs[k]) for record in records if k < len(record.epochs)]
        for k in range(longest)
    ]


# The figures


def counted_epochs(run: Run) -> list[list[EpochRecord]]:
    """Epochs that count, each with the record of every timed process.

    All but the first: that one holds tracing and compilation. It is warm-up, recorded and left out.
    """
    epochs = _by_epoch(timed_records(run))
    return [[epoch for _, epoch in records] for records in epochs[1:]]


def throughput_examples_s(run: Run) -> Figure:
    """Examples trained for each second of the slowest process, examples/s.

    Σ examples ÷ Σ max over processes of train_s, both over the counted epochs. `examples` is that
    of all replicas together; train_s lies between two barriers.
    """
    why_not = _why_untimed(run)
    if why_not:
        return Figure(None, why_not)
    epochs = counted_epochs(run)
    examples = sum(records[0].examples for records in epochs)
    seconds = sum(max(epoch.train_s for epoch in records) for records in epochs)
    return Figure(examples / seconds)


def step_times_ms(run: Run) -> list[float]:
    """Time of every step of the counted epochs, ms.

    Of a synchronous run: max over processes of the time since the end of the step before. Of an
    asynchronous one: time between two completions, in the order in which the coordinator learned
    of them. The first step of an epoch counts from the barrier before it.
    """
    if _why_untimed(run):
        return []
    times: list[float] = []
    for records in counted_epochs(run):
        by_process = [_differences(sorted(epoch.step_end_s)) for epoch in records]
        times += [1000 * max(of_step) for of_step in zip(*by_process, strict=True)]
    return times


def step_time_ms(run: Run) -> Figure:
    """Median over all steps of the counted epochs, ms; see `step_times_ms`."""
    why_not = _why_untimed(run)
    return Figure(None, why_not) if why_not else Figure(statistics.median(step_times_ms(run)))


def _why_untimed(run: Run) -> str:
    records = timed_records(run)
    why_not = _missing(records, expected_processes(run)[0])
    if not why_not and len(records[0].epochs) < 2:
        why_not = NEEDS_TWO_EPOCHS
    return why_not


def _differences(ends: Sequence[float]) -> list[float]:
    return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]


def startup_s(run: Run) -> Figure:
    """From the start of a process to the end of its first step, max over processes, s."""
    records = timed_records(run)
    values = [record.startup_s for record in records if record.startup_s is not None]
    why_not = _missing(records, expected_processes(run)[0])
    if not why_not and len(values) < len(records):
        why_not = "a process did not record it"
    return Figure(None, why_not) if why_not else Figure(max(values))


def peak_memory_bytes(run: Run) -> Figure:
    """Σ of the peaks of all processes, bytes; servers and coordinator are charged.

    The peaks need not be at the same time and shared pages count in each, so it is what the run
    needs at most.
    """
    why_not = _missing(run.records, expected_processes(run)[1])
    if not why_not and not all(record.peak_memory_bytes for record in run.records):
        why_not = "a process did not record it"
    if why_not:
        return Figure(None, why_not)
    return Figure(sum(record.peak_memory_bytes for record in run.records))


def cpu_s_per_1000_examples(run: Run) -> Figure:
    """1000 · Σ CPU time of all processes ÷ Σ examples of all epochs, s; it includes start-up."""
    chief = chief_of(run)
    why_not = _missing(run.records, expected_processes(run)[1])
    if not why_not and not all(record.cpu_s for record in run.records):
        why_not = "a process did not record it"
    if why_not or chief is None or not chief.epochs:
        return Figure(None, why_not or "no epoch was recorded")
    examples = sum(epoch.examples for epoch in chief.epochs)
    return Figure(1000 * sum(record.cpu_s for record in run.records) / examples)


def time_to_target_s(run: Run) -> Figure:
    """When the first epoch that met the target was over, from the start of the chief, s.

    An epoch meets it when validation[metric] ≥ target. Validation itself is in the time.
    """
    chief = chief_of(run)
    if chief is None or chief.quality_target is None:
        return Figure(None, "the workload has no target" if chief else "no record of the chief")
    metric, target = chief.quality_target
    if not any(metric in epoch.validation for epoch in chief.epochs):
        return Figure(None, f"no validation metric {metric!r}")
    for epoch in chief.epochs:
        if epoch.validation.get(metric, float("-inf")) >= target:
            return Figure(epoch.end_since_process_start_s)
    return Figure(None, "not reached")


def final_quality(run: Run) -> Figure:
    """The target's validation metric after the last epoch, as the chief recorded it."""
    chief = chief_of(run)
    if chief is None or chief.quality_target is None:
        return Figure(None, "the workload has no target" if chief else "no record of the chief")
    metric = chief.quality_target[0]
    if not chief.epochs or metric not in chief.epochs[-1].validation:
        return Figure(None, f"no validation metric {metric!r}")
    return Figure(chief.epochs[-1].validation[metric])
