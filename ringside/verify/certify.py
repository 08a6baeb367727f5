"""Certify arms: start the processes of each arm once, let them run every case, judge the traces."""

import json
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from launch.interrupts import Interrupts
from launch.remote.host_checks import machine_of
from ringside.verify import store
from ringside.verify.as_run import as_timed, resumed
from ringside.verify.cases import (
    AS_TIMED,
    COUNTING_AS_TIMED,
    DRAWS,
    RESUMED,
    SINGLE,
    SINGLE_IN_FLOAT64,
    WATCHED,
    arm_cases,
    as_replicas,
    counted_examples,
    counting_name,
    in_updates,
    reference_cases,
    reference_spec,
    watched_spec,
)
from ringside.verify.checks import (
    Counted,
    convergence,
    each_applied_once,
    independent_randomness,
    reference_is_plain_keras,
    training_ledger,
    validation_ledger,
)
from ringside.verify.gate import evaluation, parity
from ringside.verify.processes import HERE, Start, Watched, run_request, side_by_side
from ringside.verify.request import (
    CASES,
    DEFAULT_STEPS,
    INSPECTION,
    PLAIN,
    Case,
    Request,
    case_folder,
    looked_file,
    states_folder,
)
from ringside.verify.same_elements import Looked, fed_elements
from ringside.verify.trace import Trace
from ringside.verify.updates import each_update, single_updates
from ringside_core.specs import Arm, ByDesign, Certificate, Check, RunSpec, Topology
from ringside_core.text import file_name


@dataclass(frozen=True)
class Subject:
    """An arm to certify, and its run."""

    arm: Arm
    spec: RunSpec

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.spec.topology.num_replicas

    @property
    def exact(self) -> bool:
        """Whether its updates have one right result: it is synchronous, or has one replica."""
        return self.spec.capabilities.synchronous or self.replicas == 1


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
    on_start("the serial reference")
    sizes = sorted({s.replicas for s in subjects if s.replicas > 1})
    workers = sorted({s.replicas for s in subjects if not s.exact})
    serial = reference_spec(subjects[0].spec)
    place = folder / "reference"
    cases = reference_cases(serial, sizes, run_dir=place, steps=steps, workers=workers)
    request = Request(cases=cases, inspect=tuple(sizes) or (2,), precision=serial.precision)
    reference = run_request(request, serial, place, start=start)
    inspection = _inspection(reference)
    obstacle = _no_reference(reference, inspection, request)
    most = max((1, *sizes))

    def certified(subject: Subject, interrupts: Interrupts) -> Certificate:
        blank = _blank(subject, steps, start)
        if obstacle:
            return blank.replace(obstacle=obstacle)
        on_start(subject.arm.label)
        by_design = inspection["by_design"]
        cases = arm_cases(
            subject.spec,
            exact=subject.exact,
            steps=steps,
            most_replicas=most,
            states=states_folder(reference.folder, SINGLE + _suffix(subject, by_design)),
            draws=any(not one["split"] for one in by_design),
        )
        spec, place = watched_spec(subject.spec), folder / file_name(subject.arm.label)
        look = secrets.randbelow(10_000)  # drawn anew, so that nothing hides for long
        watched = run_request(Request(cases=cases, look=look), spec, place, interrupts, start)
        return _certified(blank, subject, watched, reference, inspection)

    alone = [_one_worker(subject) for subject in subjects if not subject.exact]
    jobs = {one.arm.label: one for one in (*alone, *subjects)}
    ordered = sorted(jobs.values(), key=lambda one: not one.exact)
    made: dict[str, Certificate] = {}
    results = side_by_side([partial(certified, one) for one in ordered])
    for subject, one in zip(ordered, results, strict=True):
        label = subject.arm.label
        made[label] = one if subject.exact else with_one_worker(one, made[_alone(subject)])
        if one.passed:
            shutil.rmtree(Path(one.folder) / "traces", ignore_errors=True)  # large, and not needed
        if subject in subjects:
            on_end(made[label])
    shutil.rmtree(reference.folder / CASES, ignore_errors=True)  # states before each update
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


def _inspection(reference: Watched) -> dict[str, Any]:
    path = reference.folder / INSPECTION
    if not path.exists():
        return {"by_design": [], "obstacles": [], "data_digest": ""}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _no_reference(reference: Watched, inspection: Mapping[str, Any], request: Request) -> str:
    """Why nothing can be compared with the serial run; empty: it can."""
    if inspection["obstacles"]:
        return "; ".join(inspection["obstacles"])
    if reference.obstacle:
        return f"there is no serial reference: {reference.obstacle}"
    for case in request.cases:
        if case.updates_per_batch > 1:
            continue  # only asynchronous arms are compared with it, see `convergence`
        for trace in reference.traces[case.name].values():
            missing = trace.error or unseen(case, trace)
            if missing:
                return f"there is no serial reference ({case.name}): {missing}"
    plain = _plain_keras(reference)
    return "" if plain.passed else f"{plain.name}: {plain.finding}"


def _plain_keras(reference: Watched) -> Check:
    """Whether the reference itself is right."""
    (trace,) = reference.traces[WATCHED].values()
    plain = Trace.read(case_folder(reference.folder, WATCHED) / PLAIN)
    return reference_is_plain_keras(plain, trace)


def unseen(case: Case, trace: Trace) -> str:
    """What the trace of a completed case lacks, if it was not watched as planned; else empty."""
    made = sum(trace.meta["updates"])
    fewer = case.keep_states or case.states  # of large models
    if not made or (made < (case.steps or 1) and not fewer):
        return f"it made {made} updates, and not {case.steps}"
    watched = {
        "steps": trace.steps == made,
        "last": trace.final,
        "ends": "initial_loss" in trace.meta,
    }
    if not watched[case.watch]:
        return "it was not watched"
    return ""


def _blank(subject: Subject, steps: int, start: Start) -> Certificate:
    return Certificate(
        arm=subject.arm,
        spec=subject.spec,
        kind="exact" if subject.exact else "statistical",
        steps=steps,
        code_version=store.code_version(),
        machine=machine_of(start.placement),
        hosts=start.placement.hosts or (),
        launcher=start.launcher_of(subject.spec),
        created_unix_s=time.time(),
    )


def _certified(
    blank: Certificate,
    subject: Subject,
    watched: Watched,
    reference: Watched,
    inspection: Mapping[str, Any],
) -> Certificate:
    """Judge what an arm's processes saw of its cases."""
    blank = blank.replace(folder=str(watched.folder))
    if watched.obstacle:
        return blank.replace(obstacle=watched.obstacle)
    by_design = tuple(ByDesign(**one) for one in inspection["by_design"])
    suffix = _suffix(subject, inspection["by_design"])
    references = {
        name: trace
        for name, traces in reference.traces.items()
        for trace in reference.traces.get(name + suffix, traces).values()
    }
    whole, arm = references[WATCHED], watched.traces[WATCHED]
    counted = {n: watched.traces[counting_name(n)] for n in counted_examples(subject.replicas)}
    checks = judge(arm, whole, counted, exact=subject.exact, tasks=watched.tasks)
    if subject.exact:
        checks += _exact_checks(watched, references)
    else:
        checks += _statistical_checks(watched, references, counted, subject.replicas)
    if subject.replicas > 1:
        drawn = watched.traces.get(DRAWS)
        checks.append(
            independent_randomness(drawn, replicas=subject.replicas, synchronous=subject.exact)
        )
    checks += [fed_elements(_looked(watched), tasks=watched.tasks), _plain_keras(reference)]
    return blank.replace(
        steps=whole.steps,
        sources={n: sha for trace in arm.values() for n, sha in trace.meta["sources"].items()},
        checks=tuple(checks),
        by_design=tuple(one for one in by_design if subject.replicas > 1 or not one.split),
        reference_digest=str(whole.meta.get("final_digest", "")),
        final_digest=str(_first(arm).meta.get("final_digest", "")),
        data_digest=inspection["data_digest"],
    )


def _suffix(subject: Subject, by_design: Sequence[Mapping[str, Any]]) -> str:
    """Suffix of the cases of the reference that split a batch as this arm does, if that matters."""
    split_matters = subject.replicas > 1 and any(one["split"] for one in by_design)
    return as_replicas(subject.replicas) if split_matters else ""


def _exact_checks(watched: Watched, references: Mapping[str, Trace]) -> list[Check]:
    """Checks of the other cases of an arm whose updates have one right result."""
    traces, tasks = watched.traces, watched.tasks
    checks = [
        as_timed(traces[AS_TIMED], references[AS_TIMED], tasks=tasks),
        resumed(traces[RESUMED], references[RESUMED], tasks=tasks),
    ]
    if SINGLE in traces:
        checks.append(
            single_updates(
                traces[SINGLE],
                references[SINGLE],
                references[SINGLE_IN_FLOAT64],
                precision="float32",
                tasks=tasks,
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
) -> list[Check]:
    """All checks of a float64 case of an arm; deliberate mistakes are judged by them too.

    Args:
        arm: trace of each of its processes.
        reference: trace of the serial run.
        counted: traces of the arm's counting cases, by their number of examples.
        exact: whether its updates have one right result.
        tasks: processes that must have written a trace.
    """
    checks = [
        training_ledger(arm, reference, synchronous=exact),
        validation_ledger(arm, reference),
        each_applied_once(counted, synchronous=exact),
    ]
    if exact:
        whole = parity(arm, reference, precision="float64", tasks=tasks)
        return [whole, each_update(arm, reference), *checks]
    return [*checks, evaluation(arm, reference)]
