"""The detection matrix: which deliberate mistakes the gate catches, in which arms."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from launch.interrupts import Interrupts
from launch.remote.host_checks import machine_of
from ringside.verify import store
from ringside.verify.cases import (
    COUNTING,
    NUM_COUNTED,
    counting_case,
    on_own_workload,
    watched_spec,
)
from ringside.verify.certify import Subject, judge
from ringside.verify.mistakes import (
    EPOCHS,
    GLOBAL_BATCH,
    MISTAKES,
    obstacle,
    shows_after_restart,
    workload_of,
)
from ringside.verify.processes import HERE, Start, Watched, run_request, side_by_side
from ringside.verify.request import Case, Request
from ringside.verify.trace import Trace
from ringside_core.specs import (
    REFERENCE,
    ControlResult,
    DetectionMatrix,
    RunSpec,
    Topology,
    backend_options,
)
from ringside_core.text import file_name

# Runs without a mistake, in each arm: (name, seed, a mistake on whose workload it runs).
CLEAN = (
    ("clean", 1, "gradients_summed"),
    ("clean-2", 2, "gradients_summed"),
    ("clean-3", 3, "gradients_summed"),
    ("clean-batch-norm", 1, "batch_norm_not_synchronised"),
    ("clean-resumed", 1, "state_not_restored_everywhere"),
)
# Mistakes that show in what is applied, not in what is fed or evaluated.
COUNTED = ("gradients_summed", "rate_scaled_twice", "padding_counted")
# Errors by which the training itself reports that something is wrong. Others do not count.
GUARDS = ("ReplicasDifferError", "LedgerError", "DivergedError", "NothingTrainedError")


def detect(
    subjects: Sequence[Subject],
    *,
    folder: Path,
    on_start: Callable[[str], None] = lambda _: None,
    start: Start = HERE,
) -> DetectionMatrix:
    """Make every mistake in every arm where it can be made, and see whether the gate catches it.

    The mistakes are made on small workloads of their own (controls.py), not on the workload of the
    arms.

    Args:
        subjects: the arms; arms of one replica are left out, because little can go wrong there.
        folder: where traces and logs go.
        on_start: called with the label of each arm, before its processes start.
        start: where the processes are started, and by which launcher.
    """
    several = [subject for subject in subjects if subject.replicas > 1]
    batches = sorted({_batch(subject) for subject in several})

    def reference(batch: int, interrupts: Interrupts) -> Watched:
        on_start(f"the serial reference, batches of {batch}")
        return _reference(batch, folder / f"serial-{batch}", interrupts, start)

    made = side_by_side([partial(reference, batch) for batch in batches])
    references = dict(zip(batches, made, strict=True))

    def tried(subject: Subject, interrupts: Interrupts) -> _Bench:
        on_start(subject.arm.label)
        place = folder / file_name(subject.arm.label)
        bench = _Bench(subject, references[_batch(subject)], place)
        bench.run(interrupts, start)
        return bench

    benches = list(side_by_side([partial(tried, subject) for subject in several]))
    return DetectionMatrix(
        controls=MISTAKES,
        arms=tuple(subject.arm.label for subject in several),
        results=tuple(result for bench in benches for result in bench.results()),
        clean_runs=sum(bench.clean_runs for bench in benches),
        false_alarms=tuple(alarm for bench in benches for alarm in bench.false_alarms()),
        machine=machine_of(start.placement),
        code_version=store.code_version(),
        created_unix_s=time.time(),
    )


def _control_spec(spec: RunSpec, mistake: str, batch: int, *, seed: int = 1) -> RunSpec:
    """The run of an arm on the workload in which a mistake shows."""
    workload = workload_of(mistake)
    return on_own_workload(
        watched_spec(spec), workload, global_batch=batch, epochs=EPOCHS, seed=seed
    )


def _batch(subject: Subject) -> int:
    """The smallest global batch of GLOBAL_BATCH or more that the replicas can share equally."""
    return -(-GLOBAL_BATCH // subject.replicas) * subject.replicas


def _clean_cases(spec: RunSpec, batch: int) -> tuple[Case, ...]:
    return tuple(
        Case(
            name=name,
            spec=_control_spec(spec, mistake, batch, seed=seed),
            steps=None,
            resumed=shows_after_restart(mistake),
        )
        for name, seed, mistake in CLEAN
    )


def _reference(batch: int, folder: Path, interrupts: Interrupts, start: Start) -> Watched:
    spec = RunSpec(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        global_batch=batch,
        epochs=EPOCHS,
    )
    # Also what arms train in two parts: a fault of resuming must not be in both.
    cases = tuple(case.replace(resumed=False) for case in _clean_cases(spec, batch))
    request = Request(cases=cases)
    return run_request(request, watched_spec(spec), folder, interrupts, start)


class _Bench:
    """One arm and all the mistakes that can be made in it."""

    def __init__(self, subject: Subject, reference: Watched, folder: Path) -> None:
        self._subject, self._reference, self._folder = subject, reference, folder
        self._spec = watched_spec(subject.spec)
        batch = _batch(subject)
        self._obstacles = {
            control.name: obstacle(control.name, _control_spec(self._spec, control.name, batch))
            for control in MISTAKES
        }
        mistaken = [name for name, reason in self._obstacles.items() if reason is None]
        self._clean = [
            case
            for case in _clean_cases(self._spec, batch)
            # The state from which an asynchronous run restarts has no single right value.
            if subject.exact or not case.resumed
        ]
        cases = [*self._clean, counting_case(self._spec, NUM_COUNTED)]
        for name in mistaken:
            cases.append(
                Case(
                    name=name,
                    spec=_control_spec(self._spec, name, batch),
                    steps=None,
                    mistake=name,
                    resumed=shows_after_restart(name),
                )
            )
            if self._counts(name):
                counting = f"{COUNTING}-{name}"
                counting_of = counting_case(self._spec, NUM_COUNTED, name=counting, mistake=name)
                cases.append(counting_of)
        self._cases = tuple(cases)
        self._traces: dict[str, Mapping[str, Trace]] = {}
        self._ended: dict[str, str] = {}
        self._tasks: tuple[str, ...] = ()

    def run(self, interrupts: Interrupts, start: Start) -> None:
        """Run every case. If a case ends its processes, note it, and start again for the others."""
        left, attempt = self._cases, 1
        while left:
            place = self._folder / f"start-{attempt}"
            watched = run_request(Request(cases=left), self._spec, place, interrupts, start)
            self._tasks = watched.tasks
            done = [c for c in left if len(watched.traces[c.name]) == len(watched.tasks)]
            self._traces |= {case.name: watched.traces[case.name] for case in done}
            left, attempt = tuple(case for case in left if case not in done), attempt + 1
            if left:  # the first missing case ended the processes
                self._ended[left[0].name] = watched.obstacle or "its processes wrote no trace"
                left = left[1:]

    @property
    def clean_runs(self) -> int:
        """Runs without a mistake."""
        return len(self._clean)

    def results(self) -> list[ControlResult]:
        """What became of each mistake."""
        label = self._subject.arm.label
        found = []
        for name, reason in self._obstacles.items():
            caught, by = (None, reason) if reason is not None else self._found(name)
            found.append(ControlResult(control=name, arm=label, caught=caught, by=by))
        return found

    def false_alarms(self) -> list[str]:
        """Faults that the gate reports in runs without a mistake."""
        alarms = []
        for case in self._clean:
            name = case.name
            if complaint := self._ended.get(name) or self._complaint(name, name, COUNTING):
                alarms.append(f"{self._subject.arm.label}, {name}: {complaint}")
        return alarms

    def _found(self, mistake: str) -> tuple[bool, str]:
        """Whether the gate caught a mistake, and by which check."""
        counting = f"{COUNTING}-{mistake}" if self._counts(mistake) else COUNTING
        for name in (mistake, counting):
            error = self._ended.get(name) or next(
                (trace.error for trace in self._traces.get(name, {}).values() if trace.error), ""
            )
            if error and not error.startswith(GUARDS):
                return False, f"the run with the mistake ended otherwise: {error}"
        complaint = self._complaint(mistake, _clean_name(mistake), counting)
        return bool(complaint), complaint or "nothing"

    def _complaint(self, case: str, clean: str, counting: str) -> str:
        """The first check that a case fails, with its finding; empty: it passes all."""
        (reference,) = self._reference.traces[clean].values()
        checks = judge(
            self._traces[case],
            reference,
            {NUM_COUNTED: self._traces.get(counting, {})},
            exact=self._subject.exact,
            tasks=self._tasks,
        )
        failed = next((check for check in checks if not check.passed), None)
        return "" if failed is None else f"{failed.name}: {failed.finding}"

    def _counts(self, mistake: str) -> bool:
        """Whether only counted gradients can show it, because the weights have no right value."""
        return not self._subject.exact and mistake in COUNTED


def _clean_name(mistake: str) -> str:
    """The run without a mistake with which a run with this mistake is compared."""
    return next(
        name
        for name, _, other in CLEAN
        if workload_of(other) == workload_of(mistake)
        and shows_after_restart(other) == shows_after_restart(mistake)
    )
