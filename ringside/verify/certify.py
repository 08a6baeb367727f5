"""Certify arms: start the processes of each arm once, let them run every case, judge the traces."""

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from launch.interrupts import Interrupts
from ringside.verify.as_run import as_timed, resumed
from ringside.verify.cases import (
    AS_TIMED,
    COUNTING_AS_TIMED,
    DRAWS,
    ROUNDED,
    SINGLE,
    WATCHED,
    arm_cases,
    can_resume,
    counted_examples,
    counting_name,
    in_updates,
    watched_spec,
)
from ringside.verify.certify_script import certify_script
from ringside.verify.checks import (
    Counted,
    convergence,
    each_applied_once,
    independent_randomness,
    training_ledger,
    validation_ledger,
)
from ringside.verify.gate import evaluation, parity
from ringside.verify.processes import HERE, Start, Watched, run_request, side_by_side
from ringside.verify.reference import Reference, run_reference
from ringside.verify.request import (
    CASES,
    DEFAULT_STEPS,
    TRACES,
    Request,
    looked_file,
)
from ringside.verify.same_elements import Looked, fed_elements
from ringside.verify.subject import Subject, blank_certificate
from ringside.verify.trace import Trace
from ringside.verify.updates import each_update, single_updates
from ringside_core.specs import Certificate, Check, Topology
from ringside_core.text import file_name


def certify(
    subjects: Sequence[Subject],
    *,
    folder: Path,
    steps: int = DEFAULT_STEPS,
    on_start: Callable[[str], None] = lambda _: None,
    on_end: Callable[[Certificate], None] = lambda _: None,
    start: Start = HERE,
) -> tuple[Certificate, ...]:
    """Certify arms of one workload that differ only in backend, options and size.

    Args:
        subjects: the arms.
        folder: where traces and logs go.
        steps: updates to compare.
        on_start: called with the label of each arm, before its processes start.
        on_end: called with each certificate.
        start: where the processes are started, and by which launcher.

    Returns:
        A certificate for each arm, in order; also for arms that do not pass.
    """
    return certify_script(
        subjects, folder=folder, steps=steps, on_start=on_start, on_end=on_end, start=start
    )
    on_start("the serial reference")
    sizes = sorted({s.replicas for s in subjects if s.replicas > 1})
    reference = run_reference(
        subjects[0].spec,
        sizes,
        workers=sorted({s.replicas for s in subjects if not s.exact}),
        steps=steps,
        folder=folder,
        start=start,
    )

    def certified(subject: Subject, interrupts: Interrupts) -> Certificate:
        blank = blank_certificate(subject, steps, start)
        if obstacle := reference.obstacle(exact=subject.exact):
            return blank.replace(obstacle=obstacle)
        on_start(subject.arm.label)
        cases = arm_cases(
            subject.spec,
            exact=subject.exact,
            steps=steps,
            most_replicas=max((1, *sizes)),
            states=reference.states(subject.replicas),
            draws=any(not one.split for one in reference.by_design),
            true_examples=reference.inspection["true_examples"],
            wide=not reference.not_in_float64,
        )
        spec, place = watched_spec(subject.spec), folder / file_name(subject.arm.label)
        look = secrets.randbelow(10_000)  # drawn anew, so that nothing hides for long
        watched = run_request(Request(cases=cases, look=look), spec, place, interrupts, start)
        return _certified(blank, subject, watched, reference)

    alone = [_one_worker(subject) for subject in subjects if not subject.exact]
    jobs = {one.arm.label: one for one in (*alone, *subjects)}
    ordered = sorted(jobs.values(), key=lambda one: not one.exact)
    made: dict[str, Certificate] = {}
    results = side_by_side([partial(certified, one) for one in ordered])
    try:
        for subject, one in zip(ordered, results, strict=True):
            label = subject.arm.label
            made[label] = one if subject.exact else with_one_worker(one, made[_alone(subject)])
            if one.passed:
                for large in (TRACES, CASES):
                    shutil.rmtree(Path(one.folder) / large, ignore_errors=True)
            if subject in subjects:
                on_end(made[label])
    finally:
        reference.remove_states()
    return tuple(made[subject.arm.label] for subject in subjects)


def _alone(subject: Subject) -> str:
    return f"{subject.arm.group} ×1"


def _one_worker(subject: Subject) -> Subject:
    """The arm of one worker that runs the same code as an asynchronous arm of several."""
    arm = subject.arm.replace(label=_alone(subject), replicas=1, twin_of="")
    return Subject(arm, subject.spec.replace(topology=Topology()))


def with_one_worker(several: Certificate, alone: Certificate) -> Certificate:
    """The certificate of several asynchronous workers, with a check of the same code with one.

    With one worker the updates have a right result, so that each of them is compared.
    """
    if several.obstacle:
        return several
    finding = "with one worker, the same code is certified, update by update"
    if not alone.passed:
        finding = f"with one worker, the same code is not certified: {alone.reason}"
    check = Check(name="one worker", passed=alone.passed, finding=finding)
    return several.replace(checks=(*several.checks, check))


# The findings


def _certified(
    blank: Certificate, subject: Subject, watched: Watched, reference: Reference
) -> Certificate:
    """Judge what an arm's processes saw of its cases."""
    blank = blank.replace(folder=str(watched.folder))
    if watched.obstacle:
        return blank.replace(obstacle=watched.obstacle)
    replicas, exact = subject.replicas, subject.exact
    serial, arm = reference.traces(replicas), watched.traces[WATCHED]
    whole = serial[WATCHED]
    counted = {
        n: watched.traces[counting_name(n)] for n in counted_examples(replicas, synchronous=exact)
    }
    checks = judge(
        arm,
        whole,
        counted,
        exact=exact,
        tasks=watched.tasks,
        precision=reference.precision,
        rounded=reference.rounded(WATCHED, replicas),
    )
    if exact:
        checks += _exact_checks(subject, watched, reference)
    else:
        checks += _statistical_checks(watched, serial, counted, replicas)
    if replicas > 1:
        drawn = watched.traces.get(DRAWS)
        checks.append(independent_randomness(drawn, replicas=replicas, synchronous=exact))
    checks += [fed_elements(_looked(watched), tasks=watched.tasks), reference.plain]
    return blank.replace(
        steps=whole.steps,
        every=whole.meta["every"],
        sources={n: sha for trace in arm.values() for n, sha in trace.meta["sources"].items()},
        checks=tuple(checks),
        by_design=tuple(one for one in reference.by_design if replicas > 1 or not one.split),
        reference_digest=str(whole.meta.get("final_digest", "")),
        final_digest=str(_first(arm).meta.get("final_digest", "")),
        data_digest=reference.inspection["data_digest"],
        not_in_float64=reference.not_in_float64,
        on_gpus=reference.inspection["on_gpus"],
        amplifies=reference.amplifies,
    )


def _exact_checks(subject: Subject, watched: Watched, reference: Reference) -> list[Check]:
    """Checks of the other cases of an arm whose updates have one right result."""
    traces, tasks = watched.traces, watched.tasks
    references = reference.traces(subject.replicas)
    judged: dict[str, Any] = {"tasks": tasks, "precision": reference.precision}
    rounded = partial(reference.rounded, replicas=subject.replicas)
    timed, twin = references[AS_TIMED], rounded(AS_TIMED)
    checks = [as_timed(traces[AS_TIMED], timed, **judged, rounded=twin)]
    if can_resume(subject.spec):
        whole, twin = references[WATCHED], rounded(WATCHED)
        checks.append(resumed(traces[WATCHED], whole, **judged, rounded=twin))
    if SINGLE in traces:
        checks.append(
            single_updates(
                traces[SINGLE],
                references[SINGLE],
                references[f"{SINGLE}{ROUNDED}"],
                precision="float32",
                tasks=tasks,
                alone=bool(reference.not_in_float64),
            )
        )
    return checks


def _statistical_checks(
    watched: Watched, references: Mapping[str, Trace], counted: Counted, workers: int
) -> list[Check]:
    """Checks of the other cases of an asynchronous arm with several workers."""
    traces = watched.traces
    one = _first(next(iter(counted.values())))
    seeds = [name for name in traces if name.startswith("seed-")]
    return [
        as_timed(traces[COUNTING_AS_TIMED], one, tasks=watched.tasks, exact=False),
        convergence(
            [_first(traces[name]) for name in seeds],
            [references[name] for name in seeds],
            [references[f"{name}{in_updates(workers)}"] for name in seeds],
        ),
    ]


def _looked(watched: Watched) -> dict[str, Looked]:
    """What each process found of the elements that it is fed, by task."""
    files = {task: looked_file(watched.folder, task) for task in watched.tasks}
    return {
        task: Looked.from_json(path.read_text(encoding="utf-8"), origin=str(path))
        for task, path in files.items()
        if path.exists()
    }


def _first(traces: Mapping[str, Trace]) -> Trace:
    return next(iter(traces.values()), Trace())


def judge(
    arm: Mapping[str, Trace],
    reference: Trace,
    counted: Counted,
    *,
    exact: bool,
    tasks: Sequence[str],
    precision: str = "float64",
    rounded: Trace | None = None,
) -> list[Check]:
    """All checks of a watched case of an arm.

    Args:
        arm: trace of each of its processes.
        reference: trace of the serial run.
        counted: traces of the arm's counting cases, by their number of examples.
        exact: whether its updates have one right result.
        tasks: processes that must have written a trace.
        precision: of the case.
        rounded: see `ringside.verify.gate.parity`.
    """
    checks = [
        training_ledger(arm, reference, synchronous=exact),
        validation_ledger(arm, reference),
        each_applied_once(counted, synchronous=exact),
    ]
    if not exact:
        return [*checks, evaluation(arm, reference, precision=precision)]
    whole = parity(arm, reference, precision=precision, tasks=tasks, rounded=rounded)
    # Of free updates in float32 rounding is not small; they are judged from the same states.
    free = [each_update(arm, reference, rounded)] if precision == "float64" else []
    return [whole, *free, *checks]
