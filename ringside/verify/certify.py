"""Certify arms of a program: plain Keras on the untouched program is what they are held against.

The questions in their order, as docs/decisions/0004-what-a-certificate-proves.md says why:

1. A batch in which each row stands once for each replica: all replicas hold the same rows, so every
   program must equal plain Keras, also one that couples the rows of a batch.
2. The author's batches, update by update, short ones among them. Unequal: what does rounding do to
   plain Keras itself? Is it a sum over rows? Only what is no sum may be called coupled; it is held
   against another stack, whose replicas take the same rows.
3. Unwatched, as it is timed; resumed from a checkpoint; single updates in the precision of the run.

Asynchronous workers have one right result where each update waits for the one before: plain Keras'
own, which makes an update of each worker's rows. As they are timed, their updates and rows are
counted. The same code with one worker is certified like a synchronous arm.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from launch.interrupts import Interrupts
from ringside.verify.gate import TOLERANCE, beyond_rounding, ends, parity, unfinished
from ringside.verify.processes import HERE, Start, Watched, side_by_side, watched
from ringside.verify.subject import Subject, blank_certificate
from ringside.verify.trace import Trace
from ringside.verify.trial_request import (
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
from ringside.verify.updates import each_update, single_updates
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
from ringside_core.users_errors import names_a_type

Traces = Mapping[str, Trace]
# Keras' gradients of a batch that stands twice or three times over are the same to this share.
SAME = 1e-6
_NO_TRACE = Trace(meta={"error": "nothing was trained"})


@dataclass
class _Runs:
    """What the processes of one command have done; each is started once.

    Attributes:
        spec: of plain Keras.
        folder: for all of them.
        asked: what all are asked.
        precision: of all but single updates.
    """

    spec: RunSpec
    folder: Path
    start: Start
    asked: TrialRequest
    precision: str = "float64"
    done: dict[str, Watched] = field(default_factory=dict)

    def job(
        self, name: str, spec: RunSpec, request: TrialRequest, *, precision: str = ""
    ) -> Callable[[Interrupts], None]:
        """The start of one set of processes."""
        spec = spec.replace(precision=precision or self.precision)

        def run(interrupts: Interrupts) -> None:
            place = self.folder / file_name(name)
            write_whole(place / TRIAL, request.to_json())
            cases = (TILED, UPDATES, SHORT, SUMS)
            self.done[name] = watched(cases, spec, place, interrupts, self.start)

        return run

    def plainly(self, name: str, precision: str = "", **asked: Any) -> Callable[..., None]:
        """A start of plain Keras."""
        request = self.asked.replace(plain=True, **asked)
        return self.job(name, self.spec, request, precision=precision)

    def run(self, jobs: Sequence[Callable[[Interrupts], None]]) -> None:
        """Run these; two at once, or as many as there are processors."""
        for _ in side_by_side(jobs):
            pass

    def of(self, name: str, case: str) -> Traces:
        """Trace of each process."""
        done = self.done[name]
        found = done.traces[case]
        if found or not done.obstacle:
            return found
        return {done.tasks[0]: Trace(meta={"error": f"an end as {done.execution.outcome}"})}

    def single(self, name: str, case: str) -> Trace:
        """Trace of a run of one process."""
        return next(iter(self.of(name, case).values()), _NO_TRACE)


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
    on_start("plain Keras")
    alone = [_one_worker(s) for s in subjects if not s.exact]
    arms = {s.arm.label: s for s in (*alone, *subjects)}
    several = sorted({s.replicas for s in subjects if not s.exact})

    def trained() -> list[Callable[[Interrupts], None]]:
        plain = [runs.plainly(_plain(w), workers=w) for w in (1, *several)]
        return [*plain, *(runs.job(label, arm.spec, asked) for label, arm in arms.items())]

    narrow = [] if quickly else [runs.plainly("plain-narrow", runs.spec.precision)]
    runs.run([*narrow, *trained()])
    not_in_float64 = ""
    if (error := runs.single("plain", TILED).error) and names_a_type(error):
        not_in_float64 = f"it cannot be trained in float64: {error.partition(': ')[2]}"
        runs.precision, runs.folder = runs.spec.precision, folder / "float32"
        rounded = [runs.plainly(_rounded(w), moved=True, workers=w) for w in (1, *several)]
        runs.run([*rounded, *trained()])
    made: dict[str, Certificate] = {}
    for label, subject in arms.items():
        on_start(label)
        found = _Judge(runs, subject, steps, not_in_float64, quickly).certificate()
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


def _plain(workers: int) -> str:
    """The name of plain Keras' training that makes the updates of so many workers."""
    return "plain" if workers == 1 else f"plain-as-{workers}"


def _rounded(workers: int) -> str:
    return "rounded" if workers == 1 else f"rounded-as-{workers}"


def _alone(subject: Subject) -> str:
    return f"{subject.arm.group} ×1"


def _one_worker(subject: Subject) -> Subject:
    """The arm of one worker that runs the same code as an asynchronous arm of several."""
    arm = subject.arm.replace(label=_alone(subject), replicas=1, twin_of="")
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
        self, runs: _Runs, subject: Subject, steps: int, not_in_float64: str, quickly: bool
    ) -> None:
        self._runs, self._subject, self._steps, self._quickly = runs, subject, steps, quickly
        self._not_in_float64 = not_in_float64
        self._workers = 1 if subject.exact else subject.replicas
        self._label = subject.arm.label
        self._plain = self._reference = _plain(self._workers)
        self._rounded: Trace | None = None
        if not_in_float64:
            self._rounded = runs.single(_rounded(self._workers), UPDATES)
        self._by_design: tuple[ByDesign, ...] = ()

    def certificate(self) -> Certificate:
        """What was found."""
        blank = blank_certificate(self._subject, self._steps, self._runs.start)
        blank = blank.replace(folder=str(self._runs.done[self._label].folder))
        plain = self._runs.single(self._plain, UPDATES)
        for case in (TILED, UPDATES) if self._subject.exact else (UPDATES,):
            if error := self._runs.single(self._plain, case).error:
                return blank.replace(obstacle=f"plain Keras ends with {error}")
        checks = self._checks()
        return blank.replace(
            steps=max(1, plain.steps),
            every=plain.meta["every"],
            sources={**plain.meta["sources"]},
            checks=tuple(checks),
            by_design=(*self._by_design, *self._draws(plain)),
            not_in_float64=self._not_in_float64,
            on_gpus=plain.meta["on_gpus"],
            amplifies=self._rounded is not None and not self._not_in_float64,
        )

    def _checks(self) -> list[Check]:
        checks = [self._fed()]
        if self._subject.exact:
            said = "with each row once for each replica, "
            checks.append(self._parity(TILED, "each gradient once", said))
        elif checks[0].passed:
            checks.append(self._counted())
        if not all(check.passed for check in checks):
            return checks
        checks.append(updates := self._updates())
        if not updates.passed:
            return checks
        found = [self._each_update()]
        if self._subject.exact:
            found.append(self._as_timed())
        if not self._quickly:
            self._second_wave()
            found += [self._resumed(), *self._single()]
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
        for case in (TILED, UPDATES, SHORT) if self._subject.exact else (UPDATES, SHORT):
            expected = self._ledgers(self._runs.single(self._plain, case))
            traces = self._runs.of(self._label, case)
            if obstacle := unfinished(traces, tasks=self._runs.done[self._label].tasks):
                return Check(name=name, passed=False, finding=obstacle)
            for task, trace in traces.items():
                if (found := self._ledgers(trace)) != expected:
                    finding = (
                        f"{task} trained {sum(n for n, _ in found)} rows, and plain Keras "
                        f"{sum(n for n, _ in expected)}, or others: the data differ from "
                        "reading to reading. Seed each generator of random numbers, as "
                        "numpy.random.default_rng(1), and sort lists of files"
                    )
                    return Check(name=name, passed=False, finding=finding)
                rows += sum(n for n, _ in found)
        hashed = all(h for _, h in self._runs.single(self._plain, UPDATES).meta["ledgers"])
        finding = (
            f"{rows:,} rows, with what they hold and in their order, as plain Keras reads them"
        )
        if not self._subject.spec.capabilities.synchronous:
            return Check(name=name, passed=True, finding=f"{rows:,} rows, as plain Keras reads")
        if not hashed:
            finding = f"{rows:,} rows, as plain Keras reads; XLA makes no hash of them"
        return Check(name=name, passed=True, covered=hashed, finding=finding)

    def _ledgers(self, trace: Trace) -> list[tuple[int, str]]:
        """Rows of each epoch and their hash, which workers do not keep."""
        found = trace.meta.get("ledgers", ())
        kept = self._subject.spec.capabilities.synchronous
        return [(n, hashed if kept else "") for n, hashed in found]

    def _parity(self, case: str, name: str, said: str = "") -> Check:
        runs, reference = self._runs, self._runs.single(self._reference, case)
        arm, tasks = runs.of(self._label, case), runs.done[self._label].tasks
        rounded = self._rounded if case == UPDATES else None
        if self._not_in_float64 and case != UPDATES:
            rounded = runs.single("rounded", case)
        check = parity(arm, reference, precision=runs.precision, tasks=tasks, rounded=rounded)
        return check.replace(name=name, finding=f"{said}{check.finding}")

    def _updates(self) -> Check:
        name = f"{self._runs.precision} parity"
        said = "" if self._subject.exact else "where each update waits for the one before, "
        check = self._parity(UPDATES, name, said)
        if check.passed or check.worst is None:
            return check
        if self._rounded is None:
            name_of = _rounded(self._workers)
            again = self._runs.plainly(name_of, moved=True, workers=self._workers)
            self._once(name_of, again)
            self._rounded = self._runs.single(name_of, UPDATES)
            if (judged := self._parity(UPDATES, name, said)).passed:
                return judged
            self._rounded = None
        if self._subject.replicas == 1 or not self._subject.exact:
            return check
        self._once("sums", self._runs.plainly("sums", sums=True))
        seen = self._runs.single("sums", SUMS)
        if seen.error:
            return check.replace(finding=f"{check.finding}; why is not known: {seen.error}")
        if _is_sum(seen):
            said = (
                "the training step applies a sum over the rows of a batch, of which replicas have "
                f"parts: divide it by the number of rows, or use a mean. {check.finding}"
            )
            return check.replace(finding=said)
        if _is_mean(seen):
            # It must equal plain Keras then, and another stack may err in the same way.
            return check.replace(finding=f"it couples no rows, and differs: {check.finding}")
        return self._coupled(check)

    def _coupled(self, check: Check) -> Check:
        """Held against another stack, whose replicas take the same rows."""
        peer = _peer(self._subject.spec)
        name = f"peer-{peer.backend}-{self._subject.replicas}"
        self._once(name, self._runs.job(name, peer, self._runs.asked))
        self._reference = name
        again = self._parity(UPDATES, check.name)
        at_tape = self._equal_at_tape()
        if not again.passed:
            said = f"unlike plain Keras: {check.finding}; unlike {peer.backend}: {again.finding}"
            return again.replace(finding=f"{said}{at_tape}")
        differs = "what it computes from rows that replicas have parts of"
        treated = f"held against {peer.backend}, whose replicas take the same rows"
        layer = ByDesign(
            layer=f"The training step{at_tape}", differs=differs, treated=treated, split=True
        )
        self._by_design = (layer,)
        said = f"as data-parallel training defines it ({peer.backend}, with the same rows)"
        return again.replace(finding=f"{said}, {again.finding}{at_tape}")

    def _equal_at_tape(self) -> str:
        """Whether adding gradients where a tape gives them makes the program plain Keras'."""
        name = f"tape-{self._label}"
        asked = self._runs.asked.replace(at_tape=True)
        self._once(name, self._runs.job(name, self._subject.spec, asked))
        arm, plain = self._runs.of(name, UPDATES), self._runs.single(self._plain, UPDATES)
        if not parity(arm, plain, precision=self._runs.precision).passed:
            return ""
        return ' (with gradients="tape" in ringside.fit it equals plain Keras)'

    def _once(self, name: str, job: Callable[[Interrupts], None]) -> None:
        if name not in self._runs.done:
            self._runs.run([job])

    def _second_wave(self) -> None:
        """What is asked of an arm that computes the same: started together."""
        runs, label, spec = self._runs, self._label, self._subject.spec
        jobs = []
        saved = runs.done[label].folder / CASES / UPDATES / "checkpoint.before.npz"
        if saved.exists():
            asked = runs.asked.replace(resume_from=str(saved.absolute()))
            jobs.append(runs.job(f"{label} resumed", spec, asked))
        if not self._subject.exact:
            pass
        elif self._not_in_float64:
            states = trace_file(runs.done[self._reference].folder, UPDATES, "rank-0")
            asked = runs.asked.replace(states=str(states.absolute()))
            if (name := self._rounded_alone) not in runs.done:
                plain = self._reference == "plain"
                again = asked.replace(plain=plain, moved=True)
                jobs.append(runs.job(name, runs.spec if plain else _peer(spec), again))
            jobs.append(runs.job(f"{label} narrow", spec, asked))
        elif spec.precision != "float64":
            states = trace_file(runs.done["plain-narrow"].folder, UPDATES, "rank-0")
            asked = runs.asked.replace(states=str(states.absolute()))
            narrow = {"precision": spec.precision}
            if "narrow-rounded" not in runs.done:
                jobs.append(
                    runs.plainly("narrow-rounded", "float64", states=str(states.absolute()))
                )
            jobs.append(runs.job(f"{label} narrow", spec, asked, **narrow))
        runs.run(jobs)

    def _each_update(self) -> Check | None:
        if self._runs.precision != "float64":
            return None
        arm = self._runs.of(self._label, UPDATES)
        return each_update(arm, self._runs.single(self._reference, UPDATES), self._rounded)

    def _as_timed(self) -> Check:
        runs, reference = self._runs, self._runs.single(self._reference, SHORT)
        name, tolerance = "as timed", TOLERANCE[runs.precision]
        arm, tasks = runs.of(self._label, SHORT), runs.done[self._label].tasks
        if obstacle := unfinished(arm, tasks=tasks):
            return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
        updates = sum(reference.meta["updates"])
        found = [d for task, trace in arm.items() for d in ends(task, trace, reference, updates)]
        said = "unwatched, a short last batch where the data have one, largest deviation at the end"
        rounded = runs.single("rounded", SHORT) if self._rounded is not None else None
        return beyond_rounding(name, found, reference, rounded, runs.precision, said)

    def _resumed(self) -> Check:
        runs, name = self._runs, f"{self._label} resumed"
        if name not in runs.done:
            finding = "not covered: no checkpoint was found to go on from"
            return Check(name="resumed", passed=True, covered=False, finding=finding)
        later = _from_first_update(runs.single(self._reference, UPDATES).since(1))
        arm = {task: _from_first_update(t) for task, t in runs.of(name, UPDATES).items()}
        rounded = None if self._rounded is None else _from_first_update(self._rounded.since(1))
        check = parity(
            arm, later, precision=runs.precision, tasks=runs.done[name].tasks, rounded=rounded
        )
        ledgers = {tuple(self._ledgers(trace)) for trace in arm.values()}
        if check.passed and ledgers != {tuple(self._ledgers(later))}:
            said = "other rows than those that were due"
            return check.replace(name="resumed", passed=False, finding=said)
        return check.replace(name="resumed", finding=f"after the restart, {check.finding}")

    @property
    def _rounded_alone(self) -> str:
        """The reference of single updates once more, with other rounding."""
        return "narrow-rounded" if self._reference == "plain" else f"{self._reference} rounded"

    def _single(self) -> list[Check]:
        runs, alone = self._runs, bool(self._not_in_float64)
        if not self._subject.exact or (self._subject.spec.precision == "float64" and not alone):
            return []
        name, free = f"{self._label} narrow", self._reference if alone else "plain-narrow"
        why = ""
        if self._reference != "plain" and not alone:
            why = "rows are coupled, and plain Keras in float32 has others"
        elif runs.single(free, UPDATES).meta.get("every", 1) > 1:
            why = "of a model of more than 500,000 weights not all are kept after each update"
        if why:
            finding = f"not covered: {why}"
            return [Check(name="narrow", passed=not alone, covered=False, finding=finding)]
        return [
            single_updates(
                runs.of(name, UPDATES),
                runs.single(free, UPDATES),
                runs.single(self._rounded_alone, UPDATES),
                precision="float32",
                tasks=runs.done[name].tasks,
                alone=alone,
            )
        ]

    def _draws(self, plain: Trace) -> tuple[ByDesign, ...]:
        if not any(plain.meta.get("drawn", ())):
            return ()
        differs = "each replica draws other numbers when it is timed"
        treated = "drawn for the rows of the whole batch here, so that all draw the same"
        return (ByDesign(layer="The training step", differs=differs, treated=treated),)


def _from_first_update(trace: Trace) -> Trace:
    """Without the state before: legacy Keras counts an update where data of unknown size end."""
    return replace(
        trace,
        weights={name: rows[1:] for name, rows in trace.weights.items()},
        slots={name: rows[1:] for name, rows in trace.slots.items()},
        before={},
    )


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
    # Rows that stand twice draw other numbers the second time.
    norms = [float(np.linalg.norm(g)) for g in (once, twice, thrice)]
    return norms[1] > 1.5 * norms[0] and norms[2] > 2.2 * norms[0]


def _is_mean(trace: Trace) -> bool:
    """Whether the gradient of the batch is the mean of those of its rows: nothing couples them."""
    parts = [found for name, found in trace.final.items() if name.startswith("rows ")]
    whole = trace.final["gradient 1"]
    size = np.max(np.abs(whole), initial=0.0)
    return bool(np.max(np.abs(whole - sum(parts)), initial=0.0) <= SAME * size)


def _peer(spec: RunSpec) -> RunSpec:
    """The same run on the other family."""
    replicas = spec.topology.num_replicas
    if spec.capabilities.family == "horovod":
        name, topology = "mirrored", Topology(replicas_per_process=replicas)
    else:
        name, topology = "horovod", Topology(processes_per_host=replicas)
    return spec.replace(backend=name, options=backend_options(name, {}), topology=topology)
