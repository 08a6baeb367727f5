"""What a training script calls: `ringside.scope`, `ringside.fit`, `ringside.is_chief`.

    with ringside.scope():
        model = …
        model.compile(…)
    history = ringside.fit(model, x, y, epochs=5)

`python script.py` trains serially. `horovodrun -np 4 python script.py`, mpirun, srun, a TF_CONFIG
and `ringside launch script.py --backend mirrored` distribute it. For `ringside verify` and
`ringside compare` a script is a workload (`ringside_core/workloads/script.py`).
"""

import atexit
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from backends.base import Backend
from launch.flags import spec_from_flags
from launch.journal import set_record_aside
from launch.launchers.slurm import node_addresses
from launch.task import (
    Reporter,
    begun,
    end_process,
    end_record,
    ended_by,
    must_be_writable,
    own_surroundings,
)
from launch.watch import IN_SCRIPT
from ringside_core.keras import VERSION, seed_weights, tf
from ringside_core.specs import (
    AUTO,
    Outcome,
    RecordInProgress,
    RefusalError,
    Surroundings,
    read_surroundings,
)
from ringside_core.workloads import script as workload
from ringside_core.workloads.fit_arguments import FitArguments, checked_arguments
from ringside_core.workloads.registry import must_train_all_fits, script_words
from ringside_core.workloads.workload import made_outside
from trainers.adopt import given_back
from trainers.callbacks import calling
from trainers.driver import Progress
from trainers.fault import drilled
from trainers.prepare import prepare
from trainers.process import started
from trainers.results import begin_script, losses_of_one_replica
from trainers.train import train


@dataclass
class _Session:
    """This process's part of a run, from the script's first call to its end.

    Attributes:
        script: it and its arguments; empty: a notebook, or an interpreter.
        record: of the next training.
        surroundings: where this process stands in the run.
        run_dir: folder of the run.
        launched: a launcher of Ringside's waits for the record; it chose batch and epochs of the
            first training, and it writes the record.
        fits: how many were called.
        trainings: how many of them trained.
    """

    backend: Backend
    script: str
    record: RecordInProgress
    surroundings: Surroundings
    run_dir: Path
    reporter: Reporter
    launched: bool
    fits: int = 0
    trainings: int = 0


_session: _Session | None = None
# What legacy Keras says of a model that is compiled in another scope than it was made in.
_MADE_OUTSIDE = "was not created in the distribution strategy"


class _Scope(AbstractContextManager[None]):
    """The scope of a backend, which can be entered again, and be left for the time of a `fit`."""

    open: ClassVar[list["_Scope"]] = []

    def __init__(self, backend: Backend | None) -> None:
        """None: the model is made for whoever runs the script up to its fit, in a scope of his."""
        self._backend = backend
        self._entered: list[ExitStack] = []

    def enter(self) -> None:
        """Build variables as the backend wants them, from now on."""
        entered = ExitStack()
        entered.enter_context(workload.within_scope())
        entered.enter_context(losses_of_one_replica())  # an author may try one out
        if self._backend is not None:
            entered.enter_context(self._backend.scope())
        self._entered.append(entered)

    def leave(self, *error: Any) -> None:
        """Build them as before."""
        self._entered[-1].__exit__(*(error or (None, None, None)))
        self._entered.pop()

    def __enter__(self) -> None:
        self.enter()
        self.open.append(self)

    def __exit__(self, *error: Any) -> None:
        self.open.pop()
        self.leave(*error)
        if isinstance(error[1], ValueError) and _MADE_OUTSIDE in str(error[1]):
            raise made_outside("a variable of the model") from error[1]


@contextmanager
def _out_of_scopes() -> Iterator[None]:
    """A strategy trains outside of its scope; an author may call `fit` within it."""
    left: list[_Scope] = []
    try:
        for one in reversed(_Scope.open):
            try:
                one.leave()
            except RuntimeError as error:  # TensorFlow's: scopes end in the order that they began
                raise RefusalError(
                    "ringside.fit must stand outside of TensorFlow's scopes, but for its own.",
                    received=error,
                    advice="Call it behind the `with` block.",
                ) from None
            left.append(one)
        yield
    finally:
        for one in reversed(left):
            one.enter()


def scope() -> AbstractContextManager[Any]:
    """Where a model is built and compiled: `with ringside.scope(): …`.

    The call itself starts the backend, which must come before TensorFlow's first operation under
    some: `scope = ringside.scope()` can stand at the top.
    """
    if workload.capturing():
        workload.begin_model()
        begin_script()
        return _Scope(None)
    session = _here()
    # Unseeded they would differ from stack to stack.
    seed_weights(session.record.spec.seed, also_if_seeded=False)
    return _Scope(session.backend)


def is_chief() -> bool:
    """Whether this process writes what is written once, such as the trained model."""
    if workload.capturing() and _session is None:
        return read_surroundings(os.environ, node_addresses).rank == 0
    return _here().backend.is_chief


def fit(model: Any, *data: Any, **arguments: Any) -> Any:
    """Train a model, in the place of `model.fit`: with its arguments, and its History.

    The batch is the global one, under every backend. The model is then as `model.fit` would leave
    it.

    Args:
        model: built and compiled within `scope()`; or a function with `@ringside.step`.
        data: x and y as for `Model.fit`: arrays and labels, or a tf.data.Dataset.
        arguments: the others of `Model.fit`.

    Returns:
        Keras' History, with the metrics of the whole run.

    Raises:
        RefusalError: what cannot be trained the same under every backend.
    """
    if workload.capturing():
        with workload.within_scope():
            asked = checked_arguments(model, *data, **arguments)
        return workload.reached(asked)
    session = _here()
    with _out_of_scopes():
        # The model that runs a step function is made now, and models that it calls are built.
        with session.backend.scope(), losses_of_one_replica():
            asked = checked_arguments(model, *data, **arguments)
        session.fits += 1
        return _train(session, asked) if asked.epochs else workload.no_history(asked)


def run_whole(
    record: RecordInProgress,
    backend: Backend,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
) -> None:
    """Run a script to its end, in a process that Ringside has launched.

    Args:
        record: of this process; its spec names the script.
        backend: started.
        surroundings: where this process stands in the run.
        run_dir: folder of the run.
        reporter: is told each phase and update.
    """
    global _session
    begin_script()
    script = record.spec.workload
    must_train_all_fits(record.spec.workload_options)
    _session = _Session(backend, script, record, surroundings, run_dir, reporter, launched=True)
    reporter.phase(IN_SCRIPT)
    try:
        workload.run(script)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"the script ended with exit code {end.code}") from None
    except BlockingIOError as error:
        raise _told(error) from None
    if not _session.trainings:
        raise workload.no_fit(script)


def _train(session: _Session, asked: FitArguments) -> Any:
    number, backend = session.trainings, session.backend
    first_launched = session.launched and number == 0
    record, run_dir = session.record, session.run_dir
    if not first_launched:
        # Another training has an order of its own, a record, and checkpoints.
        spec = record.spec.replace(
            global_batch=asked.global_batch,
            epochs=asked.epochs,
            resume_from=AUTO if record.spec.resume_from == AUTO else None,
            seed=record.spec.seed + (number > 0),
        )
        run_dir = run_dir / f"fit-{number + 1}" if number else run_dir
        record = begun(spec, session.surroundings)
        if spec.resume_from == AUTO:
            set_record_aside(run_dir, record.task)
        if number:
            record.started_unix_s = time.time()
        record.role, record.is_chief = backend.role, backend.is_chief
    session.record, session.trainings = record, number + 1
    session.reporter.begin(record, run_dir, number + 1)
    backend.spec = record.spec
    try:
        history = _trained(session, asked, record, run_dir)
    except BaseException as error:
        if not first_launched:
            end_record(record, ended_by(error), run_dir)
        raise
    if not first_launched:
        end_record(record, Outcome(kind="completed"), run_dir)
    return history


def _trained(
    session: _Session, asked: FitArguments, record: RecordInProgress, run_dir: Path
) -> Any:
    backend, reporter = session.backend, session.reporter
    reporter.phase("building")
    with backend.scope():  # a model that is not built yet gets its weights now
        work = workload.workload_from(asked, session.script, session.fits - 1)
    calls = calling(asked.callbacks, first_epoch=asked.first_epoch)
    told = Progress(
        reporter.step,
        partial(reporter.epoch, quiet=not asked.verbose),
        reporter.phase,
    )
    with given_back(asked.model, backend):
        driver = prepare(
            record,
            work,
            backend,
            run_dir=run_dir,
            listeners=[told, *drilled(session.run_dir, record.task, session.trainings)],
            adopted=asked.model,
            callbacks=[calls],
        )
        if asked.verbose:
            reporter.notes(record.input_notes)
        reporter.notes(record.warnings, of="warning")
        train(driver)
    reporter.phase(IN_SCRIPT)
    return calls.history if record.epochs else workload.no_history(asked)


def _here() -> _Session:
    """The session of this process; a script that a person or another launcher starts begins it."""
    global _session
    if _session is None:
        _session = _begun()
    return _session


def _begun() -> _Session:
    begin_script()
    name = _own_name()
    if name and not sys.flags.interactive:
        _end_at_errors(Path(script_words(name)[0]).name)
    found = read_surroundings(os.environ, node_addresses)
    # Batch and epochs are known when fit is called.
    spec = spec_from_flags(found, global_batch=found.size, epochs=1, save="record")
    spec = spec.replace(
        workload=name or "notebook",
        precision=tf.keras.backend.floatx(),
        keras=VERSION,
        trained_by="fit" if VERSION == 2 else "loop",
    )
    surroundings = own_surroundings(spec)
    run_dir = Path("runs") / spec.replace(global_batch=spec.topology.num_replicas).run_name
    with must_be_writable("Run the script in a folder where you may write: it makes runs/ there."):
        reporter = Reporter(run_dir, surroundings.task_name, aloud=surroundings.rank == 0)
        (run_dir / "records" / f"{surroundings.task_name}.json").unlink(missing_ok=True)
    record = begun(spec, surroundings)
    stack = ExitStack()
    try:
        backend = stack.enter_context(started(record, surroundings, reporter.phase))
    except RuntimeError as error:
        if not any(words in str(error) for words in ("initializ", "program startup")):
            raise
        raise RefusalError(
            f"The backend {spec.backend} must start before TensorFlow's first operation.",
            received=error,
            advice="Write scope = ringside.scope() at the top of the script, and `with scope:` "
            "where the model is built.",
        ) from None
    if backend is None:  # a server: the others train, until its coordinator was gone
        end_record(record, Outcome(kind="completed"), run_dir)
        end_process(0)
        raise AssertionError
    atexit.register(stack.close)
    return _Session(backend, name, record, surroundings, run_dir, reporter, launched=False)


def _own_name() -> str:
    """The running script and its arguments, as a shell reads them; empty: there is none."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or not file.endswith(".py"):
        return ""
    return shlex.join([os.path.relpath(file), *sys.argv[1:]])


def _several() -> bool:
    """Whether other processes run the script too."""
    return _session is not None and _session.surroundings.size > 1


def _told(error: BaseException) -> BaseException:
    """An error of the script as it is told: a file that is locked, as h5py says, by what helps."""
    locked = isinstance(error, BlockingIOError) and "lock" in str(error)
    if not (locked and _several()):
        return error
    return RefusalError(
        "Each process runs the script, and one of them may write a file.",
        received=error,
        advice="Write it where ringside.is_chief() says so; a file that each one reads again, in a "
        "folder of its own: tempfile.mkdtemp().",
    )


def _end_at_errors(script: str) -> None:
    """Let a refusal be one message, and let no rank outlive its error: peers would wait for it.

    Threads of TensorFlow and Horovod could keep it alive.
    """
    shown: Callable[..., Any] = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        error = _told(error)
        if isinstance(error, RefusalError):
            print(f"{script}: {error}", file=sys.stderr)
            end_process(2)
        shown(kind, error, trace)
        if _several():
            end_process(1)

    sys.excepthook = hook
