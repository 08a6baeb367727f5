"""What a training script calls: `ringside.scope`, `ringside.fit`, `ringside.is_chief`.

    with ringside.scope():
        model = …
        model.compile(…)
    history = ringside.fit(model, x, y, epochs=5)

`python script.py` trains serially. `horovodrun -np 4 python script.py`, mpirun, srun, a TF_CONFIG
and `ringside launch script.py --backend mirrored` distribute it. Every process runs the script
whole; Keras' own `fit` trains rows of its own global batches (docs/decisions/0009-rows.md).
"""

import atexit
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
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
from launch.turns import MOST_EPOCHS, allowed_until, never_ends, takes_turns
from launch.watch import IN_SCRIPT
from ringside_core.keras import KERAS, VERSION, optimizers_of, tf
from ringside_core.seeds import seed_script
from ringside_core.specs import (
    AUTO,
    Outcome,
    RecordInProgress,
    RefusalError,
    Surroundings,
    read_surroundings,
)
from ringside_core.specs.run_spec import Option
from ringside_core.specs.timeline import TRACED
from ringside_core.workloads import script as program
from ringside_core.workloads.registry import (
    fit_number,
    load_workload,
    must_train_all_fits,
    script_words,
)
from ringside_core.workloads.workload import Workload, made_outside
from trainers.driver import Listener, Progress
from trainers.fault import drilled
from trainers.fit import train_call
from trainers.fit_call import FitCall, fit_call
from trainers.input_changes import change_calls, changed
from trainers.learning_rate import apply_rule
from trainers.process import started, trained_on
from trainers.reading import read_the_same
from trainers.shard import sharded
from trainers.step import Steps
from trainers.tracer import Tracer
from trainers.turns import WaitForTurn


@dataclass
class _Session:
    """This process's part of a run, from the script's first call to its end."""

    backend: Backend
    steps: Steps | None  # of its models; None: plain Keras trains them
    script: str  # it and its arguments; empty: a notebook, or an interpreter
    record: RecordInProgress  # of the next training
    surroundings: Surroundings
    run_dir: Path
    reporter: Reporter
    # A launcher of Ringside's chose batch and epochs of the first training, and writes the record.
    launched: bool
    timed: int | None = None  # number of the fit after which the script ends; None: it runs whole
    trial: Any = None  # trains instead, where the script is verified
    trainings: int = 0  # how many fits have trained
    workload: Workload | None = None  # that a function has returned; None: a script runs

    def set_rate(self, call: FitCall) -> None:
        """Let the learning rate of a workload follow the batch, as the run says."""
        spec, workload = self.record.spec, self.workload
        reference = None if workload is None else workload.reference_batch
        apply_rule(optimizers_of(call.model)[0], spec, reference, call.steps_per_epoch)

    def listeners(self, call: FitCall) -> list[Listener]:
        """Those of a training that tell its launcher how far it is."""
        said = self.reporter
        return [Progress(said.step, partial(said.epoch, quiet=not call.says), said.phase)]


_session: _Session | None = None
probe: Any = None  # of `ringside.probe`, which looks up to a fit
# What legacy Keras says of a model that is compiled in another scope than it was made in.
_MADE_OUTSIDE = "was not created in the distribution strategy"
_AFTER_START = r"cannot be (modified|set) after .*initializ"  # TensorFlow, of its configuration
_compile = tf.keras.Model.compile


def _compiled(model: Any, *args: Any, **kwargs: Any) -> Any:
    """A model may be evaluated before it is trained, and is so on rows too."""
    done = _compile(model, *args, **kwargs)
    # Not a model that is made once more to be exported.
    if _session is not None and _session.steps is not None and _Scope.open:
        _session.steps.take(model)
    return done


tf.keras.Model.compile = _compiled


class _Scope(AbstractContextManager[None]):
    """The scope of a backend, which can be entered again, and be left for the time of a `fit`."""

    open: ClassVar[list["_Scope"]] = []

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._entered: list[AbstractContextManager[Any]] = []

    def enter(self) -> None:
        """Build variables as the backend wants them, from now on."""
        entered = self._backend.scope()
        entered.__enter__()
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
    if probe is not None:
        _check_strategy(None)
        return ExitStack()
    session = _here()
    _check_strategy(session.backend.strategy_here if session.backend.in_strategy else None)
    # Unseeded they would differ from stack to stack.
    KERAS.seed_weights(session.record.spec.seed)
    return _Scope(session.backend)


def _check_strategy(own: Any) -> None:
    found = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() and found is not own:
        raise RefusalError(
            "A script has no strategy of its own: the backend is one, where it needs one.",
            received=f"ringside.scope() within the scope of a {type(found).__name__}",
            advice="Delete it, and choose it by --backend of ringside launch.",
        )


def is_chief() -> bool:
    """Whether this process writes what is written once, such as the trained model."""
    if probe is not None:
        return True
    return _here().backend.is_chief


def fit(model: Any, *data: Any, gradients: Any = "optimizer", **arguments: Any) -> Any:
    """Train a model: `model.fit`, with its arguments and its History.

    The batch is the global one, under every backend.

    Args:
        model: built and compiled within `scope()`; or a function with `@ringside.step`.
        data: x and y as for `Model.fit`.
        gradients: "optimizer": gradients are added over replicas where an optimizer applies them.
            "tape": where a tape gives them, so that what a step computes with gradients before it
            applies them (clipping, accumulation) is of the whole batch.
        arguments: the others of `Model.fit`.

    Returns:
        Keras' History, with the metrics of the whole run.

    Raises:
        RefusalError: what cannot be trained the same under every backend.
    """
    if probe is not None:
        return probe.reached(fit_call(model, *data, gradients=gradients, **arguments))
    session = _here()
    with _out_of_scopes():
        with session.backend.scope():  # a step function's model is made now
            call = fit_call(model, *data, gradients=gradients, **arguments)
        if session.trial is not None:
            return session.trial.fit(call, session)
        return _train(session, call)


def shard(data: Any) -> Any:
    """The rows of a data set that this process trains: where a Horovod user writes `.shard(…)`.

    Each process reads all data otherwise, and trains its rows of each batch. Shuffle and draw
    before it; behind it stand costly maps, `cache()`, `repeat`, `batch`, whose size stays the
    global one, and `prefetch`. So all processes together train the batches of a serial run.
    Serially, under parameter servers and while a program is verified it gives the data as they are.

    Args:
        data: a `tf.data.Dataset` of single rows, of known number or without an end.

    Returns:
        A data set of every P-th row, with P processes; of several where a process has replicas.

    Raises:
        RefusalError: the number of rows is not known, or cannot be divided by the replicas.

    Example:
        >>> data = ringside.shard(rows.shuffle(1000)).map(decode).batch(64)
    """
    if probe is not None:
        probe.sharded = True
        return data
    if (session := _here()).trial is not None:
        return data
    return sharded(data, session.backend)


def run_whole(
    record: RecordInProgress,
    backend: Backend,
    surroundings: Surroundings,
    run_dir: Path,
    reporter: Reporter,
    trial: Any = None,
) -> None:
    """Run a script to its end, or through the fit that is timed, in a process of a launcher.

    Args:
        record: of this process; its spec names the script.
        backend: started.
        surroundings: where this process stands in the run.
        run_dir: folder of the run.
        reporter: hears each phase and update.
        trial: trains instead of the fits (`ringside.certificates.trial`).
    """
    global _session
    spec = record.spec
    timed = fit_number(spec.workload, spec.workload_options) if spec.save == "record" else None
    if timed is None:
        must_train_all_fits(spec.workload, spec.workload_options)
    read_the_same()
    backend, steps = trained_on(spec, backend), None
    if trial is None or not trial.plain:
        steps = Steps(
            backend,
            passes=spec.gradient_accumulation_steps,
            draws=None if trial is None else spec.seed,
            reduces=spec.ablation != "no_reduction",
            trains=spec.ablation != "no_training",
        )
    _session = _Session(
        *(backend, steps, spec.workload, record, surroundings, run_dir, reporter),
        launched=True,
        timed=timed,
        trial=trial,
    )
    reporter.phase(IN_SCRIPT)
    if trial is None or not trial.plain:
        change_calls(spec.input)
    try:
        run_program(
            *(spec.workload, spec.workload_options, spec.data_dir),
            epochs=spec.epochs,
            global_batch=spec.global_batch,
        )
    except program.ScriptIsOver:
        return
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"the script ended with exit code {end.code}") from None
    except (BlockingIOError, RuntimeError) as error:
        if (sentence := _said(error)) is error:
            raise
        raise sentence from None
    if trial is not None:
        raise program.no_fit(spec.workload, fits=trial.reached)
    if timed is not None:
        raise program.no_fit(spec.workload, fits=_session.trainings)
    if not _session.trainings:
        raise program.no_fit(spec.workload)


def run_program(
    name: str,
    options: Mapping[str, Option],
    data_dir: str | None,
    *,
    epochs: int,
    global_batch: int | None = None,
) -> None:
    """Run a script whole, or make what a workload's function returns, and fit it.

    Args:
        name: of the program.
        options: of the function.
        data_dir: where data sets are kept.
        epochs: of the function's fit.
        global_batch: for a function that wants to know it; None: its own.
    """
    if script_words(name):
        program.run(name)
        return
    seed_script()
    with scope():
        workload = load_workload(
            name, options=options, data_dir=data_dir, global_batch=global_batch
        )
        model = workload.compiled()
    if _session is not None:
        _session.workload = workload
    fit(model, **workload.arguments(epochs=epochs))


def _train(session: _Session, call: FitCall) -> Any:
    number, backend = session.trainings, session.backend
    first = number + 1 == session.timed if session.timed else number == 0
    first_launched = session.launched and first
    record, run_dir = session.record, session.run_dir
    if first_launched:
        call = _as_launched(call, record)
        session.set_rate(call)
        if session.workload is not None and session.workload.target is not None:
            target = session.workload.target
            record.quality_target = (target.metric, target.at_least)
        if session.timed:  # a callback that stops early would end arms after different epochs
            call = call.given(callbacks=None)
        if never_ends(run_dir):
            call = call.without_end(MOST_EPOCHS)
    else:
        # Another training has an order of its own, a record, and checkpoints.
        spec = record.spec.replace(
            global_batch=call.global_batch or backend.num_replicas,
            epochs=max(1, call.last_epoch),
            resume_from=AUTO if record.spec.resume_from == AUTO else None,
        )
        # In the run's own folder a launcher would take it for the fit that is timed.
        run_dir = run_dir / f"fit-{number + 1}" if number or session.timed else run_dir
        record = begun(spec, session.surroundings)
        if spec.resume_from == AUTO:
            set_record_aside(run_dir, record.task)
        if number:
            record.started_unix_s = time.time()
        record.role, record.is_chief = backend.role, backend.is_chief
    session.trainings = number + 1
    session.reporter.begin(record, run_dir, number + 1)
    if record.spec.ablation != "unused":  # then another one trains
        backend.spec = record.spec
    try:
        history = _trained(session, call, record, run_dir)
    except BaseException as error:
        if not first_launched:
            end_record(record, ended_by(error), run_dir)
        raise
    if not first_launched:
        end_record(record, Outcome(kind="completed"), run_dir)
    elif session.timed:
        raise program.ScriptIsOver
    return history


def _as_launched(call: FitCall, record: RecordInProgress) -> FitCall:
    """The call with the batch, the epochs and the input of the run."""
    spec = record.spec
    asked = call.in_batches_of(spec.global_batch, authors=spec.authors_batch)
    asked = changed(asked.given(epochs=spec.epochs), spec.input)
    if call.epochs and not asked.epochs:
        raise RefusalError(
            "--epochs must be more than the initial_epoch of the program's fit.",
            received=f"--epochs {spec.epochs}, initial_epoch={call.first_epoch}",
            advice="Ask for more epochs.",
        )
    return asked


def _trained(session: _Session, call: FitCall, record: RecordInProgress, run_dir: Path) -> Any:
    reporter = session.reporter
    reporter.phase("building")
    said, drills = session.listeners(call), session.trainings
    listeners = [*said, *drilled(session.run_dir, record.task, drills)]
    if takes_turns(session.run_dir) and session.trainings == session.timed:
        validates = call.arguments.get("validation_freq") if never_ends(run_dir) else None
        allowed = partial(allowed_until, session.run_dir)
        listeners.append(WaitForTurn(allowed, reporter.waiting, validates))
    if (session.run_dir / TRACED).exists() and session.trainings == session.timed:
        listeners.append(
            Tracer(session.run_dir, record.task, call.arguments.get("validation_freq"))
        )
    assert session.steps is not None  # plain Keras trains in trials only
    history = train_call(
        call,
        record,
        session.steps,
        run_dir=run_dir,
        number=session.trainings,
        listeners=listeners,
        rebuilt=None if session.workload is None else session.workload.model,
        timed=session.trainings == session.timed,
    )
    reporter.phase(IN_SCRIPT)
    return history


def _here() -> _Session:
    """The session of this process; a script that a person or another launcher starts begins it."""
    global _session
    if _session is None:
        _session = _begun()
    return _session


def _begun() -> _Session:
    name = _own_name()
    if name and not sys.flags.interactive:
        _end_at_errors(Path(script_words(name)[0]).name)
    found = read_surroundings(os.environ, node_addresses)
    # Batch and epochs are known when fit is called.
    spec = spec_from_flags(found, global_batch=found.size, epochs=1, save="record")
    spec = spec.replace(
        workload=name or "notebook", precision=tf.keras.backend.floatx(), keras=VERSION
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
    steps = Steps(backend, passes=spec.gradient_accumulation_steps)
    return _Session(backend, steps, name, record, surroundings, run_dir, reporter, launched=False)


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


def _said(error: BaseException) -> BaseException:
    """An error of the script as it is said: a file that is locked, as h5py says, by what helps."""
    if isinstance(error, RuntimeError) and re.search(_AFTER_START, str(error)):
        return RefusalError(
            "TensorFlow's threads and devices must be set before the backend starts.",
            received=error,
            advice="Leave the call out: --inter-op-threads and --intra-op-threads set threads, "
            "CUDA_VISIBLE_DEVICES chooses devices.",
        )
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
    """Let a refusal be one message, and let no rank outlive its error: peers would wait for it."""
    # Threads of TensorFlow and Horovod could keep it alive.
    shown: Callable[..., Any] = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        error = _said(error)
        if isinstance(error, RefusalError):
            print(f"{script}: {error}", file=sys.stderr)
            end_process(2)
        shown(kind, error, trace)
        if _several():
            end_process(1)

    sys.excepthook = hook
