"""Certify arms of a program: plain Keras on the untouched program is what they are held against.

The questions in their order, as docs/decisions/0004-what-a-certificate-proves.md says why:

1. The author's batches, update by update, short ones among them; then unwatched, as it is timed.
2. Unequal: a batch in which each row stands once for each replica. All replicas hold the same rows,
   so every program must equal plain Keras, also one that couples the rows of a batch. What does
   rounding do to plain Keras itself? Is it a sum over rows? Only what is no sum may be called
   coupled; it is held against another stack, whose replicas take the same rows.
3. Resumed from a checkpoint; single updates in the precision of the run.

Each answer decides what is asked next; what all arms ask is started together.

Asynchronous workers have one right result where each update waits for the one before: plain Keras'
own, which makes an update of each worker's rows. As they are timed, their updates and rows are
counted. The same code with one worker is certified like a synchronous arm.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from launch.interrupts import Interrupts
from launch.remote.host_checks import machine_of
from ringside.certificates import store
from ringside.certificates.gate import TOLERANCE, beyond_rounding, ends, parity, unfinished
from ringside.certificates.processes import HERE, Start, Watched, watched
from ringside.certificates.subject import Subject
from ringside.certificates.trace import Trace
from ringside.certificates.trial_request import (
    CASES,
    DEFAULT_UPDATES,
    SHORT,
    SUMS,
    TILED,
    TRACES,
    TRIAL,
    UPDATES,
    TrialRequest,
    trace_file,
)
from ringside.certificates.updates import each_update, may_be_chance, single_updates
from ringside_core.readings.machine import gpu_names
from ringside_core.specs import (
    REFERENCE,
    ByDesign,
    Certificate,
    Check,
    RunSpec,
    Topology,
    backend_options,
    write_whole,
)
from ringside_core.text import file_name
from ringside_core.users_errors import essence, names_a_type

Traces = Mapping[str, Trace]
Jobs = Mapping[str, Callable[[Interrupts], None]]
Ledgers = list[tuple[int, str]]  # rows of each epoch and their hash
# Keras' gradients of a batch that stands twice or three times over are the same to this share.
SAME = 1e-6
_NARROW, _ROUNDED_TILED = "plain-narrow", "rounded-tiled"
# Roundings. By one, a value that rounding put on the other side of a ReLU often comes there again.
_NEAR = 64
_MOST_AT_ONCE = 4
_NO_TRACE = Trace(meta={"error": "nothing was trained"})


@dataclass
class _Runs:
    """What the processes of one command have done; each is started once."""

    spec: RunSpec  # of plain Keras
    folder: Path
    start: Start
    asked: TrialRequest
    precision: str = "float64"  # of all but single updates
    done: dict[str, Watched] = field(default_factory=dict)

    def job(self, name: str, spec: RunSpec, request: TrialRequest, *, precision: str = "") -> Jobs:
        """The start of one set of processes, by its name."""
        spec = spec.replace(precision=precision or self.precision)

        def run(interrupts: Interrupts) -> None:
            place = self.folder / file_name(name)
            write_whole(place / TRIAL, request.to_json())
            cases = (TILED, UPDATES, SHORT, SUMS)
            self.done[name] = watched(cases, spec, place, interrupts, self.start)

        return {name: run}

    def plainly(self, name: str, precision: str = "", **asked: Any) -> Jobs:
        """A start of plain Keras."""
        request = self.asked.replace(plain=True, **asked)
        return self.job(name, self.spec, request, precision=precision)

    def missing(self, jobs: Jobs) -> Jobs:
        """Those that were not started yet."""
        return {name: job for name, job in jobs.items() if name not in self.done}

    def run(self, jobs: Jobs, *, over: Callable[[], bool] = lambda: False) -> None:
        """Run these, several at once. Once over, start no more.

        Nothing is timed here, and a start is mostly waiting. On GPUs only one job runs at a time,
        because TensorFlow takes the whole memory of each GPU.
        """
        at_once = 1 if gpu_names() else min(_MOST_AT_ONCE, len(os.sched_getaffinity(0)))
        with Interrupts() as interrupts, ThreadPoolExecutor(at_once) as pool:
            try:
                for done in [pool.submit(job, interrupts) for job in jobs.values()]:
                    done.result()
                    if over():
                        break
            finally:
                pool.shutdown(cancel_futures=True)

    def of(self, name: str, case: str) -> Traces:
        """Trace of each process."""
        done = self.done[name]
        found, outcome = done.traces[case], done.execution.outcome
        if found or outcome.completed:
            return found
        said = f"a process that {outcome.kind}: {essence(outcome.reason) or outcome.reason}"
        return {done.tasks[0]: Trace(meta={"error": said})}

    def single(self, name: str, case: str) -> Trace:
        """Trace of a run's first process; without one, or without the run, an error."""
        found = self.of(name, case) if name in self.done else {}
        return next(iter(found.values()), _NO_TRACE)


def certify(
    subjects: Sequence[Subject],
    *,
    folder: Path,
    steps: int = DEFAULT_UPDATES,
    on_start: Callable[[str], None] = lambda _: None,
    on_end: Callable[[Certificate], None] = lambda _: None,
    start: Start = HERE,
    quickly: bool = False,
) -> tuple[Certificate, ...]:
    """Certify arms of one program that differ only in backend, options and size.

    Args:
        subjects: the arms.
        folder: where traces and logs go.
        steps: updates to compare.
        on_start: called with what is started.
        on_end: called with each certificate.
        start: where the processes are started, and by which launcher.
        quickly: ask neither whether an arm goes on after a restart nor for single updates in the
            precision of the run: a trial, and no certificate to keep.

    Returns:
        A certificate for each arm, in order; also for arms that do not pass.
    """
    most = max(s.replicas for s in subjects)
    asked = TrialRequest(updates=steps, most_replicas=most)
    runs = _Runs(_serial(subjects[0].spec), folder, start, asked)
    alone = [_one_worker(s) for s in subjects if not s.exact]
    arms = {s.arm.label: s for s in (*alone, *subjects)}
    workers = (1, *sorted({s.replicas for s in subjects if not s.exact}))

    def trained() -> Jobs:
        plain = [runs.plainly(_plain(w), workers=w) for w in workers]
        return _all([*plain, *(runs.job(label, arm.spec, asked) for label, arm in arms.items())])

    on_start("plain Keras and the arms")
    first = trained()
    if not quickly and runs.spec.precision != runs.precision:
        narrow = runs.plainly(_NARROW, runs.spec.precision, whole_states=True)
        first = {_plain(1): first[_plain(1)], **narrow, **first}  # in this order
    runs.run(first, over=lambda: names_a_type(runs.single(_plain(1), UPDATES).error))
    not_in_float64 = ""
    if names_a_type(error := runs.single(_plain(1), UPDATES).error):
        not_in_float64 = f"it cannot be trained in float64: {error.partition(': ')[2]}"
        runs.precision, runs.folder = runs.spec.precision, folder / "float32"
        runs.done.clear()
        on_start(f"the same in {runs.precision}, as {not_in_float64}")
        rounded = [runs.plainly(_plain(w, "rounded"), moved=1, workers=w) for w in workers]
        runs.run(_all([*rounded, trained()]))
    judges = [
        _Judge(runs, subject, arms, steps, not_in_float64, quickly) for subject in arms.values()
    ]
    while jobs := runs.missing(_all(judge.asks() for judge in judges)):
        on_start(", ".join(jobs))
        runs.run(jobs)
    made: dict[str, Certificate] = {}
    for (label, subject), judge in zip(arms.items(), judges, strict=True):
        found = judge.certificate()
        if not subject.exact and not found.obstacle:
            found = _with_one_worker(found, made[_alone(subject)])
        made[label] = found
        if subject in subjects:
            on_end(found)
    if all(found.passed for found in made.values()):
        for done in runs.done.values():
            for large in (TRACES, CASES):
                shutil.rmtree(done.folder / large, ignore_errors=True)
    return tuple(made[s.arm.label] for s in subjects)


def _all(several: Iterable[Jobs]) -> Jobs:
    return dict(chain.from_iterable(jobs.items() for jobs in several))


def _plain(workers: int, name: str = "plain") -> str:
    """The name of plain Keras' training that makes the updates of so many workers."""
    return name if workers == 1 else f"{name}-as-{workers}"


def _alone(subject: Subject) -> str:
    return f"{subject.arm.group} ×1"


def _one_worker(subject: Subject) -> Subject:
    """The arm of one worker that runs the same code as an asynchronous arm of several."""
    settings = subject.arm.settings.replace(slow_worker=None)
    arm = subject.arm.replace(label=_alone(subject), replicas=1, twin_of="", settings=settings)
    return Subject(arm, subject.spec.replace(topology=Topology()))


def _with_one_worker(several: Certificate, alone: Certificate) -> Certificate:
    finding = "with one worker, the same code is certified, update by update"
    if not alone.passed:
        finding = f"with one worker, the same code is not certified: {alone.reason}"
    check = Check(name="one worker", passed=alone.passed, finding=finding)
    return several.replace(checks=(*several.checks, check))


def _serial(spec: RunSpec) -> RunSpec:
    return spec.replace(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        ablation="none",
        resume_from=None,
        resources=spec.resources.replace(cores_per_replica=None, intra_op_threads=None),
    )


class _Judge:
    """Holds one arm against plain Keras, or against another stack where rows are coupled."""

    def __init__(
        self,
        runs: _Runs,
        subject: Subject,
        arms: Mapping[str, Subject],
        steps: int,
        not_in_float64: str,
        quickly: bool,
    ) -> None:
        self._runs, self._subject, self._steps, self._quickly = runs, subject, steps, quickly
        self._not_in_float64 = not_in_float64
        self._workers = 1 if subject.exact else subject.replicas
        self._label = subject.arm.label
        self._plain = self._reference = _plain(self._workers)
        self._several = subject.exact and subject.replicas > 1
        self._again = f"{self._label} again"
        self._tiled = f"{self._label} tiled"
        self._tape = f"{self._label} at the tape"
        self._narrow = f"{self._label} narrow"  # the arm's single updates
        self._narrow_near = f"{self._narrow} near by"
        self._peer_spec = peer = peer_of(subject.spec)
        label = f"{peer.backend} ×{subject.replicas}"
        is_an_arm = label in arms and arms[label].spec == peer
        self._peer = label if is_an_arm else f"peer {label}"
        self._amplifies = False
        self._by_design: tuple[ByDesign, ...] = ()

    def asks(self) -> Jobs:
        """What its next questions start, some of which may have been started."""
        runs, asked, spec = self._runs, self._runs.asked, self._subject.spec
        if self._obstacle() or not all(check.passed for check in self._begun()):
            return {}
        self._reference = self._plain
        check = self._parity("")
        if not check.passed and check.worst is None:
            return {}
        jobs: dict[str, Callable[[Interrupts], None]] = {}
        if not check.passed:
            jobs |= self._rounded_reference()
        why = self._several and not check.passed
        if why:
            jobs |= runs.plainly("sums", sums=True, tiled=True, watched=False)
        known = why and not runs.missing(jobs)
        coupled = known and self._why(check) is None
        if known and self._computes_with_gradients():
            jobs |= runs.job(self._tape, spec, asked.replace(at_tape=True))
        if coupled:
            jobs |= runs.job(self._tiled, spec, asked.replace(tiled=True, watched=False))
            jobs |= runs.job(self._peer, self._peer_spec, asked)
            if self._not_in_float64:
                jobs |= runs.plainly(_ROUNDED_TILED, moved=1, tiled=True, watched=False)
        resumes = "" if self._quickly else self._saved()
        if resumes and (check.passed or coupled):
            jobs |= runs.job(self._again, spec, asked.replace(resume_from=resumes))
        if runs.missing(jobs) and not check.passed:
            return jobs
        if self._was_tiled and not self._once.passed:
            return jobs
        passed = self._updates.passed
        if self._reference != self._plain and not self._parity("").passed:
            jobs |= self._rounded_reference()
        if not passed:
            return jobs
        later = [self._each_update()]
        if self._subject.exact:
            later.append(self._as_timed())
        if self._again in runs.done:
            later.append(self._resumed())
        if not all(check is None or check.passed for check in later):
            jobs |= self._rounded_reference()
        if not self._quickly and self._not_single() == "":
            jobs |= (singles := self._singles())
            if not runs.missing(singles):
                single = self._single()
                if single is not None and may_be_chance(single):
                    jobs |= self._singles_once_more()
        return jobs

    def certificate(self) -> Certificate:
        """What was found."""
        subject, start = self._subject, self._runs.start
        blank = Certificate(
            arm=subject.arm,
            spec=subject.spec,
            kind="exact" if subject.exact else "in turn",
            steps=self._steps,
            code_version=store.code_version(),
            machine=machine_of(start.placement),
            orders=store.orders(),
            hosts=start.placement.hosts or (),
            launcher=start.launcher_of(subject.spec),
            created_unix_s=time.time(),
            folder=str(self._runs.done[self._label].folder),
        )
        if obstacle := self._obstacle():
            return blank.replace(obstacle=obstacle)
        plain = self._runs.single(self._plain, UPDATES)
        checks = self._checks()
        return blank.replace(
            steps=max(1, plain.steps),
            every=plain.meta["every"],
            sources={**plain.meta["sources"]},
            checks=tuple(checks),
            by_design=(*self._by_design, *self._draws(plain)),
            not_in_float64=self._not_in_float64,
            on_gpus=plain.meta["on_gpus"],
            amplifies=self._amplifies,
        )

    def _obstacle(self) -> str:
        """Why there is nothing to hold the arm against; empty: there is."""
        error = self._runs.single(self._plain, UPDATES).error
        rows = _about_rows(error, "the last batch here has 1")
        return f"plain Keras ends with {error}{rows}" if error else ""

    def _begun(self) -> list[Check]:
        """Checks that all others need."""
        fed = self._fed()
        return [fed] if self._subject.exact or not fed.passed else [fed, self._counted()]

    def _checks(self) -> list[Check]:
        checks = self._begun()
        if not all(check.passed for check in checks):
            return checks
        if self._was_tiled:
            checks.append(once := self._once)
            if not once.passed:
                return checks
        at_tape, updates = self._equal_at_tape(), self._updates
        name = f"{self._runs.precision} parity"
        checks.append(updates.replace(name=name, finding=f"{updates.finding}{at_tape}"))
        if not updates.passed:
            return checks
        if self._reference != self._plain:
            layer = ByDesign(
                layer=f"the training step{at_tape}",
                differs=f"what it computes from rows that replicas have parts of{self._beside()}",
                treated=f"held against {self._peer_spec.backend}, whose replicas take the same "
                "rows",
                split=True,
            )
            self._by_design = (layer,)
        found = [self._each_update()]
        if self._subject.exact:
            found.append(self._as_timed())
        if not self._quickly:
            found += [self._resumed(), self._single()]
        checks += [check for check in found if check is not None]
        if self._runs.single(self._plain, UPDATES).evaluation:
            evaluated = "as plain Keras evaluates, before, within and after the training"
            checks.append(Check(name="evaluation", passed=True, finding=evaluated))
        if self._reference == self._plain:
            said = "the untouched program, trained by plain Keras, is what the arm is held against"
            checks.append(Check(name="reference is plain Keras", passed=True, finding=said))
        return checks

    def _counted(self) -> Check:
        """Whether workers make as many updates as plain Keras of their rows, in turn and not."""
        name, updates = "counted updates", 0
        for case in (UPDATES, SHORT):
            wanted = self._runs.single(self._plain, case).meta.get("made", [])
            for task, trace in self._runs.of(self._label, case).items():
                if trace.meta["made"] != wanted:
                    finding = f"{task} made {trace.meta['made']} updates, plain Keras {wanted}"
                    return Check(name=name, passed=False, finding=finding)
            updates += sum(wanted)
        finding = (
            f"{updates} updates of {self._workers} workers, as plain Keras makes of their rows"
        )
        return Check(name=name, passed=True, finding=finding)

    def _fed(self) -> Check:
        """Whether the rows of each epoch were plain Keras' rows, in its order."""
        name = "training ledger"
        rows = 0
        for case in (UPDATES, SHORT):
            expected = self._ledgers(self._runs.single(self._plain, case))
            traces = self._runs.of(self._label, case)
            if obstacle := unfinished(traces, tasks=self._runs.done[self._label].tasks):
                own = f"a replica has one in {self._subject.replicas} rows of a batch"
                obstacle += _about_rows(obstacle, own) if self._several else ""
                return Check(name=name, passed=False, finding=obstacle)
            for task, trace in traces.items():
                found = self._ledgers(trace)
                if _other_rows(found, expected):
                    finding = (
                        f"{task} trained {sum(n for n, _ in found)} rows, and plain Keras "
                        f"{sum(n for n, _ in expected)}, or others: the data differ from "
                        "reading to reading. Seed each generator of random numbers, as "
                        "numpy.random.default_rng(1), and sort lists of files and what comes "
                        "from a set"
                    )
                    return Check(name=name, passed=False, finding=finding)
                rows += sum(n for n, _ in found)
        both = self._runs.single(self._plain, UPDATES), self._runs.single(self._label, UPDATES)
        hashed = all(h for trace in both for _, h in trace.meta["ledgers"])
        finding = (
            f"{rows:,} rows, with what they hold and in their order, as plain Keras reads them"
        )
        if not self._subject.spec.capabilities.synchronous:
            return Check(name=name, passed=True, finding=f"{rows:,} rows, as plain Keras reads")
        if not hashed:
            finding = f"{rows:,} rows, as plain Keras reads; XLA makes no hash of them"
        return Check(name=name, passed=True, covered=hashed, finding=finding)

    def _ledgers(self, trace: Trace) -> Ledgers:
        """Rows of each epoch and their hash, which workers do not keep."""
        found = trace.meta.get("ledgers", ())
        kept = self._subject.spec.capabilities.synchronous
        return [(n, hashed if kept else "") for n, hashed in found]

    @property
    def _rounding(self) -> str:
        """The reference once more, from weights that are moved to neighbouring numbers."""
        return self._of_reference(_plain(self._workers, "rounded"))

    def _rounded_reference(self) -> Jobs:
        """Its start; where nothing is trained in float64, plain Keras' own was one of the first."""
        return self._by_reference(self._rounding, moved=1, workers=self._workers)

    def _of_reference(self, name: str) -> str:
        return name if self._reference == self._plain else f"{self._peer} {name}"

    def _by_reference(self, name: str, precision: str = "", **asked: Any) -> Jobs:
        """A start of what the arm is held against: plain Keras, or another stack."""
        if self._reference == self._plain:
            return self._runs.plainly(name, precision, **asked)
        request = self._runs.asked.replace(**asked)
        return self._runs.job(name, self._peer_spec, request, precision=precision)

    def _allowing(self, check: Callable[[Trace | None], Check], case: str) -> Check:
        """A check; where it fails, once more with what rounding does, if that was looked at."""
        found = self._runs.single(self._rounding, case)
        rounded = None if found.error else found
        if self._not_in_float64:
            return check(rounded)
        strict = check(None)
        if strict.passed or strict.worst is None or rounded is None:
            return strict
        allowed = check(rounded)
        self._amplifies = self._amplifies or allowed.passed
        return allowed if allowed.passed else strict

    def _parity(self, said: str) -> Check:
        """Of all updates, with the present reference."""
        runs = self._runs
        arm, reference = runs.of(self._label, UPDATES), runs.single(self._reference, UPDATES)
        tasks = runs.done[self._label].tasks
        found = self._allowing(
            lambda rounded: parity(
                arm, reference, precision=runs.precision, tasks=tasks, rounded=rounded
            ),
            UPDATES,
        )
        return found.replace(finding=f"{said}{found.finding}")

    @property
    def _was_tiled(self) -> bool:
        return self._tiled in self._runs.done

    @cached_property
    def _once(self) -> Check:
        """Where all replicas hold the same rows."""
        runs, name = self._runs, "each gradient once"
        rounded = runs.single(_ROUNDED_TILED, TILED) if self._not_in_float64 else None
        found = parity(
            runs.of(self._tiled, TILED),
            runs.single("sums", TILED),
            precision=runs.precision,
            tasks=runs.done[self._tiled].tasks,
            rounded=rounded,
        )
        said = f"with each row once for each replica, {found.finding}"
        expected = self._ledgers(runs.single("sums", TILED))
        arm = runs.of(self._tiled, TILED).values()
        if any(_other_rows(self._ledgers(trace), expected) for trace in arm):
            said = "other rows than plain Keras trains"
            return found.replace(name=name, passed=False, finding=said)
        return found.replace(name=name, finding=said)

    @property
    def _updates(self) -> Check:
        """Of all updates, once what it needs was started. It decides what the arm is held to."""
        said = "" if self._subject.exact else "where each update waits for the one before, "
        self._reference = self._plain
        check = self._parity(said)
        if check.passed or check.worst is None or not self._several:
            return check
        if (why := self._why(check)) is not None:
            return check.replace(finding=why.replace("{}", check.finding))
        self._reference, other = self._peer, self._peer_spec.backend
        if error := self._runs.single(self._peer, UPDATES).error:
            said = f"it couples rows, and {other}, which it is held against, ends with {error}"
            return check.replace(finding=f"{said}; unlike plain Keras: {check.finding}")
        again = self._parity(
            f"as data-parallel training defines it ({other}, with the same rows), "
        )
        if again.passed:
            return again
        said = f"unlike plain Keras: {check.finding}; unlike {other}: {again.finding}"
        return again.replace(finding=said)

    def _why(self, check: Check) -> str | None:
        """Why a step of several replicas differs from plain Keras; None: it couples rows."""
        apart = {found.kind for found in check.by_step if found.exceeds(check.tolerance or 0.0)}
        if not apart & {"weights", "slots", "replicas"}:
            return (
                "all that is trained is plain Keras', and numbers that a step returns or evaluates "
                "are not: let them be means over the rows. {}"
            )
        seen = self._runs.single("sums", SUMS)
        if error := self._runs.single("sums", TILED).error or seen.error:
            return "{}; why is not known: " + error
        if _is_sum(seen):
            return (
                "the training step applies a sum over the rows of a batch, of which replicas have "
                "parts: divide it by the number of rows, or use a mean. {}"
            )
        if _is_mean(seen):
            # It must equal plain Keras then, and another stack may err in the same way.
            return "it couples no rows, and differs: {}"
        return None

    def _beside(self) -> str:
        """What may be no row, and is divided as rows are."""
        if not (same := self._runs.single("sums", SUMS).meta["same"]):
            return ""
        return (
            f" ({same} of a batch is the same in every batch, and is divided as it has as many "
            "rows; if it belongs to every row, let it be a constant of the model)"
        )

    def _computes_with_gradients(self) -> bool:
        """Whether anything is computed from what tapes give, before it is applied."""
        seen = self._runs.single("sums", SUMS)
        return not seen.error and not _is_sum(seen) and not seen.meta["at_once"]

    def _equal_at_tape(self) -> str:
        """Whether adding gradients where a tape gives them makes the program plain Keras'."""
        if self._tape not in self._runs.done:
            return ""
        arm, plain = self._runs.of(self._tape, UPDATES), self._runs.single(self._plain, UPDATES)
        if not parity(arm, plain, precision=self._runs.precision).passed:
            return ""
        return ' (with gradients="tape" in ringside.fit it equals plain Keras)'

    def _saved(self) -> str:
        """The checkpoint within an epoch that the arm has written; empty: none."""
        folder = self._runs.done[self._label].folder
        saved = folder / CASES / UPDATES / "checkpoint.before.npz"
        return str(saved.absolute()) if saved.exists() else ""

    @property
    def _states(self) -> str:
        free = self._reference if self._not_in_float64 else _NARROW
        return str(trace_file(self._runs.done[free].folder, UPDATES, "rank-0").absolute())

    def _singles(self) -> Jobs:
        """Starts of single updates: from the states of the reference, in the run's precision."""
        runs, spec = self._runs, self._subject.spec
        asked = runs.asked.replace(states=self._states)
        if self._not_in_float64:
            jobs = self._by_reference(self._moved, states=asked.states, moved=1)
        else:
            jobs = runs.plainly(self._moved, "float64", states=asked.states)
        return {**jobs, **runs.job(self._narrow, spec, asked, precision=spec.precision)}

    def _singles_once_more(self) -> Jobs:
        """By both, from other states near by: chance does not put the same update off again."""
        spec, near = self._subject.spec, {"states": self._states, "moved": _NEAR}
        asked = self._runs.asked.replace(**near)
        arm = self._runs.job(self._narrow_near, spec, asked, precision=spec.precision)
        return {**self._by_reference(self._near, spec.precision, **near), **arm}

    def _each_update(self) -> Check | None:
        if self._runs.precision != "float64":
            return None
        arm = self._runs.of(self._label, UPDATES)
        reference = self._runs.single(self._reference, UPDATES)
        return self._allowing(lambda rounded: each_update(arm, reference, rounded), UPDATES)

    def _as_timed(self) -> Check:
        runs, reference = self._runs, self._runs.single(self._reference, SHORT)
        name, tolerance = "as timed", TOLERANCE[runs.precision]
        arm, tasks = runs.of(self._label, SHORT), runs.done[self._label].tasks
        if obstacle := unfinished(arm, tasks=tasks) or reference.error:
            return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
        updates = sum(reference.meta["updates"])
        found = [d for task, trace in arm.items() for d in ends(task, trace, reference, updates)]
        said = "unwatched, a short last batch where the data have one, largest deviation at the end"
        return self._allowing(
            lambda rounded: beyond_rounding(name, found, reference, rounded, runs.precision, said),
            SHORT,
        )

    def _resumed(self) -> Check:
        runs, name = self._runs, self._again
        if not self._saved():
            finding = "not covered: no checkpoint was found to go on from"
            return Check(name="resumed", passed=True, covered=False, finding=finding)
        later = _from_first_update(runs.single(self._reference, UPDATES).since(1))
        arm = {task: _from_first_update(t) for task, t in runs.of(name, UPDATES).items()}

        def resumed(rounded: Trace | None) -> Check:
            return parity(
                arm,
                later,
                precision=runs.precision,
                tasks=runs.done[name].tasks,
                rounded=None if rounded is None else _from_first_update(rounded.since(1)),
            )

        check = self._allowing(resumed, UPDATES)
        due = self._ledgers(later)
        others = [_other_rows(self._ledgers(trace), due) for trace in arm.values()]
        if check.worst is None and not check.passed:
            return check.replace(name="resumed", finding=f"after the restart, {check.finding}")
        counts = {tuple(n for n, _ in self._ledgers(trace)) for trace in (*arm.values(), later)}
        why = later.meta["drawn_again"]
        if any(others) and why and len(counts) == 1:
            said = f"not covered: {why[0].lower()}{why[1:]}, which draws again after a restart"
            return Check(name="resumed", passed=True, covered=False, finding=said)
        if check.passed and any(others):
            said = "other rows than those that were due"
            return check.replace(name="resumed", passed=False, finding=said)
        return check.replace(name="resumed", finding=f"after the restart, {check.finding}")

    @property
    def _moved(self) -> str:
        """The reference of single updates once more, with other rounding."""
        return self._of_reference("narrow-rounded")

    @property
    def _near(self) -> str:
        return self._of_reference("narrow reference near by")

    def _not_single(self) -> str | None:
        """Why single updates are not covered; empty: they are. None: they say nothing here."""
        alone = bool(self._not_in_float64)
        if not self._subject.exact or (self._subject.spec.precision == "float64" and not alone):
            return None
        if self._reference != self._plain and not alone:
            return "rows are coupled, and plain Keras in float32 has others"
        if self._runs.single(self._reference, UPDATES).meta["every"] > 1:
            return "of a model of more than 500,000 weights not all are kept after each update"
        return ""

    def _single(self) -> Check | None:
        runs, alone = self._runs, bool(self._not_in_float64)
        if (why := self._not_single()) is None:
            return None
        if why:
            finding = f"not covered: {why}"
            return Check(name="narrow", passed=not alone, covered=False, finding=finding)
        again = None
        if self._narrow_near in runs.done:
            again = (runs.of(self._narrow_near, UPDATES), runs.single(self._near, UPDATES))
        found = single_updates(
            runs.of(self._narrow, UPDATES),
            runs.single(self._reference if alone else _NARROW, UPDATES),
            runs.single(self._moved, UPDATES),
            precision="float32",
            tasks=runs.done[self._narrow].tasks,
            alone=alone,
            again=again,
        )
        if alone and not found.passed:
            found = found.replace(finding=f"{found.finding}; {self._not_in_float64}")
        return found

    def _draws(self, plain: Trace) -> tuple[ByDesign, ...]:
        if not any(plain.meta.get("drawn", ())):
            return ()
        differs = "each replica draws other numbers when it is timed"
        treated = "drawn for the rows of the whole batch here, so that all draw the same"
        return (ByDesign(layer="the training step", differs=differs, treated=treated),)


def _other_rows(found: Ledgers, expected: Ledgers) -> bool:
    """Whether other rows were trained, or more or fewer; XLA makes no hash of them."""
    if [rows for rows, _ in found] != [rows for rows, _ in expected]:
        return True
    pairs = zip(found, expected, strict=True)
    return any(here and there and here != there for (_, here), (_, there) in pairs)


def _from_first_update(trace: Trace) -> Trace:
    """Without the state before: legacy Keras counts an update where data of unknown size end."""
    return replace(
        trace,
        weights={name: rows[1:] for name, rows in trace.weights.items()},
        slots={name: rows[1:] for name, rows in trace.slots.items()},
        before={},
    )


def _about_rows(error: str, here: str) -> str:
    """What an error about shapes may come from; empty: it is about something else."""
    words = ("shape", "dimension", "slice", "size", "elements", "killed by SIGABRT")
    kinds = ("InvalidArgumentError", "ValueError", "ProcessDied")
    said = error.partition("<tf.Tensor")[0]
    if not any(kind in said for kind in kinds) or not any(word in said for word in words):
        return ""
    return f". A step must take any number of rows along the first axis of its data: {here}"


def _is_sum(trace: Trace) -> bool:
    """Whether gradients grow with the rows: by the same at a second and at a third standing."""
    if trace.error or len(trace.final) < 3:
        return False
    once, twice, thrice = (trace.final[f"gradient {k}"] for k in (1, 2, 3))
    size = np.max(np.abs(once), initial=0.0)
    grown, again = twice - once, thrice - twice
    if np.max(np.abs(grown), initial=0.0) <= SAME * size:
        return False
    if np.max(np.abs(grown - again), initial=0.0) <= SAME * size:
        return True
    # A sum that couples rows, such as a contrastive loss of each, does not grow evenly.
    norms = [float(np.linalg.norm(g)) for g in (once, twice, thrice)]
    return norms[1] > 1.5 * norms[0] and norms[2] > 2.2 * norms[0]


def _is_mean(trace: Trace) -> bool:
    """Whether the gradient of the batch is the mean of those of its rows: nothing couples them."""
    parts = [found for name, found in trace.final.items() if name.startswith("rows ")]
    whole = trace.final["gradient 1"]
    size = np.max(np.abs(whole), initial=0.0)
    return bool(np.max(np.abs(whole - sum(parts)), initial=0.0) <= SAME * size)


def peer_of(spec: RunSpec) -> RunSpec:
    """The same run on the other family."""
    replicas = spec.topology.num_replicas
    if spec.capabilities.family == "horovod":
        name, topology = "mirrored", Topology(replicas_per_process=replicas)
    else:
        name, topology = "horovod", Topology(processes_per_host=replicas)
    return spec.replace(
        backend=name,
        options=backend_options(name, {}),
        topology=topology,
        steps_per_execution=1,  # under a strategy Keras 3 can do no more
        slow_worker=None,  # of replicas in one process none can be slow
    )
