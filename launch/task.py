"""What one process of a run owes its launcher: progress, cores, log, record, exit code.

What the process does is a function (`Work`): train.py trains, allreduce_task.py times collectives.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from launch.journal import Journal, set_record_aside, write_record
from launch.launchers.slurm import node_addresses
from launch.plan import LAUNCHER, RUN_ID
from launch.remote.sweep import temporary_prefix
from launch.turns import takes_turns
from launch.watch import WAITING, progress_line
from ringside_core.readings.cores import physical_cores, usable_cores
from ringside_core.readings.machine import boot_id, machine_facts
from ringside_core.readings.process import (
    cores_for,
    peak_memory_bytes,
    pin,
    process_start_unix_s,
    shared_memory_bytes,
    start_ticks,
)
from ringside_core.specs import (
    AUTO,
    EpochRecord,
    Outcome,
    PreemptedError,
    RecordInProgress,
    RefusalError,
    RunSpec,
    Surroundings,
    read_surroundings,
)
from ringside_core.specs.keras_version import use_version
from ringside_core.text import epoch_line
from ringside_core.workloads.registry import script_words

LAUNCHER_POLL_S = 1.0


class Reporter:
    """Tells the launcher how far this process is, in a small file that each change overwrites."""

    def __init__(self, run_dir: Path, task: str, *, aloud: bool) -> None:
        path = run_dir / "progress" / task
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._aloud = aloud
        self._done = self._total = 0
        self._fit = 1
        self._journal: Journal | None = None
        self.phase("starting")

    def begin(self, record: RecordInProgress, run_dir: Path, fit: int = 1) -> None:
        """Keep the epochs of this record, of the script's training number `fit`, from now on."""
        self._journal = Journal(record, run_dir)
        if fit != self._fit:
            self._fit, self._done, self._total = fit, 0, 0

    def phase(self, name: str) -> None:
        """Note a phase, see `launch.watch.Progress`."""
        line = progress_line(name, self._done, self._total, self._fit)
        with contextlib.suppress(OSError):  # a full disk
            os.pwrite(self._file, line, 0)  # about 2 µs

    def step(self, done: int, total: int) -> None:
        """Note an update."""
        self._done, self._total = done, total
        self.phase("training")

    def waiting(self, done: int) -> None:
        """Note that this many updates are done and that the next turn is awaited."""
        self._done = done
        self.phase(WAITING)

    def epoch(self, number: int, record: EpochRecord, *, quiet: bool = False) -> None:
        """Keep an epoch; print how it went if there is no launcher that prints (`aloud`).

        A training that has a record of its own (a case that is verified) is not kept.
        """
        if self._journal is not None:
            self._journal.keep()
        if self._aloud and not quiet:
            rate = record.examples / record.train_s
            print(epoch_line(number + 1, record.train, record.validation, rate), flush=True)


# (record, surroundings, run_dir, reporter): what it learns goes into the record at once, so that a
# failure leaves what came before it.
Work = Callable[[RecordInProgress, Surroundings, Path, Reporter], None]


def run_process(
    work: Work, spec: RunSpec, surroundings: Surroundings, run_dir: Path, *, aloud: bool
) -> int:
    """Run this process's part of a run and write its record.

    Args:
        work: what it does.
        spec: of the run.
        surroundings: the place of this process in it.
        run_dir: folder of the run.
        aloud: print the progress, because no launcher does.

    Returns:
        The exit code: 0 completed, 1 failed, 2 refused, 75 preempted.

    Raises:
        RefusalError: the run dir cannot be written, so no record is possible.
    """
    with must_be_writable():
        if spec.resume_from == AUTO:
            set_record_aside(run_dir, surroundings.task_name)
        reporter = Reporter(run_dir, surroundings.task_name, aloud=aloud)
    record = begun(spec, surroundings)
    with must_be_writable():
        reporter.begin(record, run_dir)
    use_version(spec.keras)
    try:
        work(record, surroundings, run_dir, reporter)
        outcome = Outcome(kind="completed")
    except BaseException as error:
        outcome = ended_by(error)
        program = (*script_words(spec.workload), sys.argv[0])[0]
        _say(outcome.traceback or f"{Path(program).name}: {error}")
    path = end_record(record, outcome, run_dir)
    reporter.phase("finished")
    if aloud and record.is_chief:
        for warning in record.warnings:
            _say(f"warning: {warning}")
        if outcome.completed:
            print(f"record: {path}", flush=True)
    return outcome.exit_code


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the disk of the log is full; the record holds it too
        print(text, file=sys.stderr, flush=True)


def begun(spec: RunSpec, surroundings: Surroundings) -> RecordInProgress:
    """The record of this process, at the beginning of a run; it is pinned as the spec says."""
    record = RecordInProgress.begun(spec, task=surroundings.task_name, rank=surroundings.rank)
    record.started_unix_s, record.boot_id = process_start_unix_s(), boot_id()
    record.run_id = os.environ.get(RUN_ID, "")
    record.cores = _take_cores(spec, surroundings)
    record.physical_cores = physical_cores(record.cores)
    return record


def ended_by(error: BaseException) -> Outcome:
    """The outcome of a process that this error ends."""
    if isinstance(error, RefusalError):
        return Outcome(kind="refused", reason=str(error))
    if isinstance(error, PreemptedError):
        return Outcome(kind="preempted", reason=str(error))
    return Outcome(
        kind="failed",
        error_class=type(error).__name__,
        reason=str(error).strip() or "no message",
        traceback="".join(traceback.format_exception(error)),
    )


def end_record(record: RecordInProgress, outcome: Outcome, run_dir: Path) -> Path:
    """Complete the record of this process and write it; returns its file."""
    record.machine = machine_facts()
    record.peak_memory_bytes = peak_memory_bytes()
    record.shared_memory_bytes = shared_memory_bytes()
    record.cpu_s = time.process_time()
    return write_record(record.ended(outcome), run_dir)


def own_surroundings(spec: RunSpec) -> Surroundings:
    """Who started this process, and its place in a run of this spec."""
    surroundings = read_surroundings(os.environ, node_addresses)
    return surroundings.placed(spec.backend, servers=spec.options.num_servers)


def run_launched(work: Work, arguments: list[str]) -> int:
    """Started with `--spec F --run-dir D [--log] [--watch-stdin]`; returns the exit code."""
    spec_file = Path(arguments[arguments.index("--spec") + 1])
    run_dir = Path(arguments[arguments.index("--run-dir") + 1])
    spec = RunSpec.from_json(spec_file.read_text(encoding="utf-8"), origin=str(spec_file))
    surroundings = own_surroundings(spec).replace(is_frozen_at_times=takes_turns(run_dir))
    if run_id := os.environ.get(RUN_ID):
        # A killed process removes nothing: TensorFlow's temporary files go where the sweep of this
        # run cleans up.
        with must_be_writable("Name another by TMPDIR.", folder="temporary directory"):
            tempfile.tempdir = tempfile.mkdtemp(prefix=temporary_prefix(run_id))
    if "--log" in arguments:
        with must_be_writable():
            path = run_dir / "logs" / f"{surroundings.task_name}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        for printed in (1, 2):  # C++ code prints there too
            os.dup2(log, printed)
    if LAUNCHER in os.environ:
        threading.Thread(target=_end_with_launcher, daemon=True, name="launcher-watch").start()
    if "--watch-stdin" in arguments:
        threading.Thread(target=_end_with_stdin, daemon=True, name="stdin-watch").start()
    return run_process(work, spec, surroundings, run_dir, aloud=False)


def _take_cores(spec: RunSpec, surroundings: Surroundings) -> tuple[int, ...]:
    """Pin this process as the spec says, by the same rule for every backend and launcher."""
    available = usable_cores()
    wanted = spec.resources.cores_per_replica
    if wanted is None:
        return tuple(sorted(available))
    task = surroundings.task
    place, replicas = surroundings.local_rank, spec.topology.replicas_per_process
    if task is not None and task.cluster.ps and task.type != "worker":
        # Coordinator and servers share the cores of the workers, so that an arm with R replicas
        # never has the cores of more than R.
        host = task.address.rpartition(":")[0]
        beside = sum(worker.rpartition(":")[0] == host for worker in task.cluster.worker)
        place, replicas = 0, max(1, beside)
    cores = cores_for(place, replicas, wanted, available)
    pin(cores)
    return cores


def _end_with_launcher() -> None:
    """End this process when the launcher that started it has ended, for any reason."""
    pid, _, started = os.environ[LAUNCHER].partition(":")
    # Not by a pidfd: older kernels have none, and some containers do not allow it.
    with contextlib.suppress(OSError):
        while start_ticks(int(pid)) == int(started):
            time.sleep(LAUNCHER_POLL_S)
    os._exit(1)


def _end_with_stdin() -> None:
    """End this process when standard input closes, as it does when an ssh connection ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # a server ends in good order, any other process at once


@contextlib.contextmanager
def must_be_writable(
    advice: str = "Let this user write there, or choose another folder.",
    *,
    folder: str = "folder for the results",
) -> Iterator[None]:
    """Refuse a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        raise RefusalError(
            f"The {folder} must be writable.", received=error, advice=advice
        ) from None


def end_process(code: int) -> None:
    """End this process at once: threads of TensorFlow and Horovod could keep it alive for ever.

    The record is written by now, so nothing is lost.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    own = temporary_prefix(os.environ.get(RUN_ID, ""))
    if (folder := Path(tempfile.gettempdir())).name.startswith(own):
        shutil.rmtree(folder, ignore_errors=True)
    for module in list(sys.modules.values()):  # TensorFlow removes them only at a normal exit
        name = getattr(module, "__file__", None) or ""
        if Path(name).name.startswith("__autograph_generated_file"):
            with contextlib.suppress(OSError):
                Path(name).unlink()
    os._exit(code)
