"""Certify arms: start the processes of each arm once, let them run every case, judge the traces."""

import json
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
from ringside.verify.checks import applied_once, convergence, training_ledger, validation_ledger
from ringside.verify.gate import evaluation, parity
from ringside.verify.processes import HERE, Start, Watched, run_request, side_by_side
from ringside.verify.request import DEFAULT_STEPS, FLOAT32_STEPS, INSPECTION, Case, Request
from ringside.verify.trace import Trace
from ringside_core.specs import (
    REFERENCE,
    Arm,
    ByDesign,
    Certificate,
    Check,
    PipelineOptions,
    RunSpec,
    Topology,
    backend_options,
)
from ringside_core.specs.run_spec import MAX_SEED, LearningRateRule
from ringside_core.text import file_name

COUNTING = "counting"
COUNTING_BATCH_PER_REPLICA = 6
SEEDS = 5
CONVERGENCE_UPDATES = 60


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
    seeds = any(not s.exact for s in subjects)
    reference_spec = _reference_spec(subjects[0].spec)
    cases = _reference_cases(reference_spec, sizes, steps=steps, seeds=seeds)
    precision = subjects[0].spec.precision
    request = Request(cases=cases, inspect=tuple(sizes) or (2,), precision=precision)
    reference = run_request(request, reference_spec, folder / "reference", start=start)
    inspection = _inspection(reference)
    obstacle = _no_reference(reference, inspection)

    def certified(subject: Subject, interrupts: Interrupts) -> Certificate:
        blank = _blank(subject, steps, start)
        if obstacle:
            return blank.replace(obstacle=obstacle)
        on_start(subject.arm.label)
        return _certified(blank, subject, reference, inspection, folder, start, interrupts)

    certificates = []
    for made in side_by_side([partial(certified, subject) for subject in subjects]):
        if made.passed:
            shutil.rmtree(Path(made.folder) / "traces", ignore_errors=True)  # large, and not needed
        certificates.append(made)
        on_end(made)
    return tuple(certificates)


# The request


def _reference_spec(spec: RunSpec) -> RunSpec:
    return watched_spec(spec).replace(
        backend=REFERENCE, options=backend_options(REFERENCE, {}), topology=Topology()
    )


def watched_spec(spec: RunSpec) -> RunSpec:
    """The run as it is watched: with full ledgers, and not pinned, because nothing is timed.

    The number of inter-op threads stays. A parameter server with one such thread, TensorFlow's
    default on a host with one core, waits for ever.
    """
    resources = spec.resources.replace(cores_per_replica=None, intra_op_threads=None)
    return spec.replace(resources=resources, save="record", ledger="full", resume_from=None)


def _reference_cases(
    spec: RunSpec, sizes: Sequence[int], *, steps: int, seeds: bool
) -> tuple[Case, ...]:
    cases = [
        case.replace(name=f"{case.name}{_as_replicas(size)}", virtual_replicas=size)
        for size in (1, *sizes)
        for case in _parity_cases(spec, steps)
    ]
    return (*cases, *(_seed_cases(spec) if seeds else ()))


def _as_replicas(size: int) -> str:
    """Suffix of the name of a case that the serial run computes as this number of replicas."""
    return f"-as-{size}" if size > 1 else ""


def _parity_cases(spec: RunSpec, steps: int) -> list[Case]:
    """One case in float64, and a shorter one in the precision of the run, if that is another."""
    return [
        Case(
            name=precision,
            spec=spec.replace(precision=precision),
            steps=steps if precision == "float64" else min(steps, FLOAT32_STEPS),
        )
        for precision in _precisions(spec)
    ]


def _precisions(spec: RunSpec) -> tuple[str, ...]:
    return ("float64",) if spec.precision == "float64" else ("float64", spec.precision)


def _seed_cases(spec: RunSpec) -> tuple[Case, ...]:
    """The same training from several seeds; only its start and its end are watched."""
    return tuple(
        Case(
            name=f"seed-{seed}",
            spec=spec.replace(seed=seed, ledger="digest"),
            steps=CONVERGENCE_UPDATES,
            watch="ends",
        )
        for seed in ((spec.seed + offset) % (MAX_SEED + 1) for offset in range(SEEDS))
    )


def on_own_workload(
    spec: RunSpec, workload: str, *, global_batch: int, epochs: int, seed: int
) -> RunSpec:
    """The run of an arm, changed to a small workload of Ringside's own in float64."""
    return watched_spec(spec).replace(
        workload=workload,
        workload_options={},
        data_dir=None,
        global_batch=global_batch,
        gradient_accumulation_steps=1,
        epochs=epochs,
        learning_rate_rule=LearningRateRule(),
        precision="float64",
        pipeline=PipelineOptions(),
        seed=seed,
    )


def counting_case(spec: RunSpec, *, name: str = COUNTING, mistake: str = "") -> Case:
    """The case whose final weights show how often each gradient was applied."""
    small = on_own_workload(
        spec,
        "ringside.verify.workloads:counting",
        global_batch=COUNTING_BATCH_PER_REPLICA * spec.topology.num_replicas,
        epochs=2,
        seed=spec.seed,
    )
    return Case(name=name, spec=small, steps=None, mistake=mistake)


def _cases(spec: RunSpec, *, exact: bool, steps: int) -> tuple[Case, ...]:
    counting = counting_case(spec)
    if not exact:
        ledger = Case(name="float64", spec=spec.replace(precision="float64"), steps=steps)
        return (counting, ledger, *_seed_cases(spec))
    return (counting, *_parity_cases(spec, steps))


# The findings


def _inspection(reference: Watched) -> dict[str, Any]:
    path = reference.folder / INSPECTION
    if not path.exists():
        return {"by_design": [], "obstacles": [], "data_digest": ""}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _no_reference(reference: Watched, inspection: Mapping[str, Any]) -> str:
    """Why nothing can be compared with the serial run; empty: it can."""
    if inspection["obstacles"]:
        return "; ".join(inspection["obstacles"])
    if reference.obstacle:
        return f"there is no serial reference: {reference.obstacle}"
    for case, traces in reference.traces.items():
        for trace in traces.values():
            if trace.error:
                return f"there is no serial reference ({case}): {trace.error}"
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
    reference: Watched,
    inspection: Mapping[str, Any],
    folder: Path,
    start: Start,
    interrupts: Interrupts,
) -> Certificate:
    """Run an arm's cases and judge them."""
    spec = watched_spec(subject.spec)
    request = Request(cases=_cases(spec, exact=subject.exact, steps=blank.steps))
    place = folder / file_name(subject.arm.label)
    watched = run_request(request, spec, place, interrupts, start)
    blank = blank.replace(folder=str(place))
    if watched.obstacle:
        return blank.replace(obstacle=watched.obstacle)
    by_design = tuple(ByDesign(**one) for one in inspection["by_design"])
    split_matters = subject.replicas > 1 and any(one.split for one in by_design)
    suffix = _as_replicas(subject.replicas) if split_matters else ""

    def of_reference(case: str) -> Trace:
        (trace,) = reference.traces[case + suffix].values()
        return trace

    whole = of_reference("float64")
    arm = watched.traces["float64"]
    checks = judge(arm, whole, watched.traces[COUNTING], exact=subject.exact, tasks=watched.tasks)
    if subject.exact:
        checks += [
            parity(
                watched.traces[precision],
                of_reference(precision),
                precision=precision,
                tasks=watched.tasks,
            )
            for precision in _precisions(spec)[1:]
        ]
    else:
        checks.append(_convergence(watched, reference))
    first = next(iter(arm.values()), Trace())
    return blank.replace(
        steps=whole.steps,
        sources={n: sha for trace in arm.values() for n, sha in trace.meta["sources"].items()},
        checks=tuple(checks),
        by_design=by_design if subject.replicas > 1 else (),
        reference_digest=str(whole.meta.get("final_digest", "")),
        final_digest=str(first.meta.get("final_digest", "")),
        data_digest=inspection["data_digest"],
    )


def judge(
    arm: Mapping[str, Trace],
    reference: Trace,
    counted: Mapping[str, Trace],
    *,
    exact: bool,
    tasks: Sequence[str],
) -> list[Check]:
    """All checks of a float64 case of an arm; deliberate mistakes are judged by them too.

    Args:
        arm: trace of each of its processes.
        reference: trace of the serial run.
        counted: traces of the arm's counting case.
        exact: whether its updates have one right result.
        tasks: processes that must have written a trace.
    """
    checks = [
        training_ledger(arm, reference, synchronous=exact),
        validation_ledger(arm, reference),
        applied_once(counted, synchronous=exact),
    ]
    if exact:
        return [parity(arm, reference, precision="float64", tasks=tasks), *checks]
    return [*checks, evaluation(arm, reference)]


def _convergence(watched: Watched, reference: Watched) -> Check:
    """The convergence check of an asynchronous arm with several workers."""
    seeds = [name for name in watched.traces if name.startswith("seed-")]

    def traces(of: Watched) -> list[Trace]:
        return [next(iter(of.traces[name].values()), Trace()) for name in seeds]

    return convergence(traces(watched), traces(reference))
