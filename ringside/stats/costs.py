"""What a run costs beside its time: memory and CPU seconds, of all its processes."""

from ringside.stats.figure import Figure
from ringside.stats.step_times import chief_of, expected_processes, missing
from ringside_core.specs import Run

NOT_RECORDED = "a process did not record it"


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
    plan = run.spec.batch_plan
    synchronous = run.spec.capabilities.synchronous
    in_step = plan.global_batch if synchronous else plan.per_replica_batch
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
