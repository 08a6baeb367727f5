"""What a run costs beside its time: memory and CPU seconds, of all its processes."""

from ringside.stats.figure import Figure
from ringside.stats.step_times import chief_of, expected_processes, missing
from ringside_core.specs import Run, RunRecord

NOT_RECORDED = "a process did not record it"


def peak_pss_bytes(run: Run) -> Figure:
    """Σ over all processes of the peak of their PSS, bytes; servers and coordinator count too.

    The peaks need not be at the same time, so it is an upper bound.
    """
    why_not = missing(run.records, expected_processes(run.spec)[1])
    each = [pss_of(run, record) for record in run.records]
    known = [size for size in each if size is not None]
    if not why_not and len(known) < len(each):
        why_not = NOT_RECORDED
    return Figure(None, why_not) if why_not else Figure(sum(known))


def pss_of(run: Run, record: RunRecord) -> float | None:
    """Peak of the proportional set size of one process, bytes; None: not recorded.

    Its own pages (the highest resident set size less its shared pages), and its part of the pages
    that are shared on its machine: those of the process of the run that has most, ÷ processes of
    the run there. They hold the same libraries, so the union is hardly more than the most. Other
    programs that hold the same pages change nothing.
    """
    beside = [one.shared_memory_bytes for one in run.records if one.boot_id == record.boot_id]
    shared = [size for size in beside if size is not None]
    if not record.peak_memory_bytes or record.shared_memory_bytes is None:
        return None
    own = record.peak_memory_bytes - record.shared_memory_bytes
    return own + max(shared) / len(shared)


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
    begun_with = min(first.examples, first.steps_per_time * slots_per_step(run))
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


def slots_per_step(run: Run) -> int:
    """Places for examples in one step: the global batch, or the batch of one worker alone."""
    plan = run.spec.batch_plan
    return plan.global_batch if run.spec.capabilities.synchronous else plan.per_replica_batch
