"""One `ringside.fit`: Keras' own `fit` with its author's arguments, timed, recorded and saved."""

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from backends.base import Backend
from ringside_core.keras import KERAS, VERSION, has_own_step, optimizers_of, tf
from ringside_core.keras.part import in_python
from ringside_core.specs import RecordInProgress, RefusalError, RunSpec
from ringside_core.users_errors import in_one_line, refusals_as_they_are
from ringside_core.workloads.without_horovod import without_reductions
from trainers import checkpoint
from trainers.artifacts import Checkpoint, Export, savers
from trainers.callback_state import CallbackState, Learned, learned_by, of_this_process
from trainers.checkpoint import Position, weights_digest
from trainers.data_graph import drawn_again, draws_in_parallel, reads_the_same
from trainers.driver import Driver, Listener, Training
from trainers.fit_call import FitCall, no_batch
from trainers.preemption import Preemption
from trainers.reading import Reading, reading, rows_of_arrays
from trainers.resume import check_goes_on, restored
from trainers.shard import digest, digest_of_held_out
from trainers.step import Steps, hold_own
from trainers.sync_proof import ReplicasDifferError, SyncProof
from trainers.totals import Totals
from trainers.workers import fit_by_workers

_HASHED = 8  # each so many-th batch of a timed run: to hash all is a tenth of a small model's step


def train_call(
    call: FitCall,
    record: RecordInProgress,
    steps: Steps,
    *,
    run_dir: Path,
    number: int,
    listeners: Sequence[Listener] = (),
    watching: Sequence[Any] = (),
    rebuilt: Callable[[], Any] | None = None,
    timed: bool = False,
    must_train: bool = True,
) -> Any:
    """Train what an author asks for.

    Args:
        call: of `ringside.fit`.
        record: of this process. It says how to run, and what is seen is written into it.
        steps: of this process.
        run_dir: where the chief puts checkpoints and logs.
        number: of the training in its script, from 1.
        listeners: called after those that save.
        watching: Keras callbacks that change nothing, called last.
        rebuilt: builds the model once more, to be exported; None: its author saves it.
        timed: what parallel maps of its data draw is each process's own, as its author wrote it.
        must_train: see SyncProof.

    Returns:
        Keras' History.

    Raises:
        RefusalError: the model, its data or the checkpoint cannot be trained as the spec says.
    """
    spec, model, backend = record.spec, call.model, steps.backend
    if not call.epochs:
        return call.no_history()
    executions = max(spec.steps_per_execution, executions_of(model))
    _check_executions(call, executions)
    set_executions(model, executions)
    if spec.jit_compile:
        setattr(model, "_jit_compile" if VERSION == 2 else "jit_compile", True)
    if not backend.capabilities.synchronous:
        executions = 1  # a coordinator dispatches one step, and learns when it has ended
    at_tape, shards = call.gradients == "tape", call.shards
    backend.prepare_model(model, at_tape=at_tape)
    if backend.num_replicas > 1:
        _check_state(model)
    looks, learns, same_cores = _agreed(call, backend)
    x = call.arguments.get("x")
    drawn = timed and same_cores and backend.capabilities.synchronous and draws_in_parallel(x)
    hashed = 0 if drawn else _HASHED if timed else 1
    merges = looks or spec.merges_each_step
    steps.begin(model, at_tape=at_tape, each_step=merges, hashed=hashed, shards=shards)
    with backend.scope():
        make_variables(call)
    begins = Position(call.first_epoch)
    position = restored(record, model, backend, run_dir) or begins
    workers = 1 if backend.capabilities.synchronous else backend.num_readers
    before = 0 if position.begun is None else position.begun.batches
    held_out = call.arguments.get("validation_data")
    held = spec.ablation == "no_input"
    as_written = drawn or (timed and reads_the_same(x))
    data = Reading(
        call.begins_again, position.place, held_out, before, held=held, as_written=as_written
    )
    before_stop = 0 if position.place is None else position.place.of_epoch
    data.of_epoch = call.steps_per_epoch or before_stop
    if position.begun is not None and not backend.capabilities.synchronous:
        raise RefusalError(
            "Workers that update on their own go on at the beginning of an epoch.",
            received="a checkpoint within an epoch",
            advice="Go on from one at the end of an epoch.",
        )
    training = Training(
        spec=spec,
        backend=backend,
        model=model,
        totals=Totals(model, steps),
        epochs_left=call.last_epoch - position.epochs_done,
        workers=workers,
        first_epoch=position.epochs_done,
        begun=position.begun,
        updates_before=before,
        steps_per_execution=executions,
        feed=_feed(spec, call, number),
        data=data,
    )
    check_goes_on(training, position)
    record.initial_digest = weights_digest(model) if model.built else ""
    sizes = [v.shape.num_elements() * v.dtype.size for v in KERAS.trainable_of(model)]
    record.gradient_bytes = sum(sizes) or None
    stopped = position.ended and spec.resume_from != "auto"
    calls = _Calls(call, backend, position, stopped=stopped, looks=looks)
    record.warnings += calls.warnings
    if position.place is not None and (why := why_drawn_again(call)):
        record.warnings += (
            f"{why}. What it draws begins again at a restart, so the rows may not be those that "
            "were due.",
        )
    learned = calls.learned if learns else lambda: None
    saving = savers(training, record, run_dir, rebuilt=rebuilt, learned=learned)
    proved = backend.capabilities.synchronous and spec.ablation != "no_reduction"
    proof = [SyncProof(record, must_train=must_train and steps.trains)] if proved else []
    ending = [Preemption(one) for one in saving if isinstance(one, Checkpoint)]
    driver = Driver(training, record, [*proof, *saving, *listeners, *ending])
    calls.driver = driver
    steps.on_last_step = driver.stop_clock
    if position.epochs_done >= call.last_epoch:
        steps.end()
        data.leave_out(call.arguments.get("x"))
        with backend.scope():
            for one in optimizers_of(model):  # as Keras' `fit` does behind its last epoch
                if getattr(one, "use_ema", False):
                    one.finalize_variable_values(model.trainable_variables)
        for saver in saving:  # it may have been killed before
            if isinstance(saver, Export):
                saver.training = training
                saver.on_end()
        return call.no_history()
    with Preemption.heard(ending), reading(data, backend.strategy_here), refusals_as_they_are():
        driver.start()
        try:
            history = _fitted(call, calls, watching, position)
        except ReplicasDifferError:
            steps.check_replicas()  # what has let them part, if it is a variable of the step
            raise
        finally:
            steps.end()
    backend.average_statistics(model)
    if driver.clock.done:
        driver.measure(calls.listeners_s)
    driver.end()
    if proved:
        steps.check_replicas()
    return history


def _fitted(call: FitCall, calls: "_Calls", watching: Sequence[Any], position: Position) -> Any:
    training = calls.driver.training
    model, first = call.model, position.epochs_done
    if VERSION == 2:
        # Begin within an epoch, as legacy Keras' own BackupAndRestore does: its data are those of
        # all epochs. Private: 2.21.
        vars(model)["_maybe_load_initial_counters_from_ckpt"] = lambda steps, epoch: (
            first,
            training.updates_before,
        )
    own = of_this_process(call.callbacks, model, training.backend)
    given = call.given(callbacks=[_First(calls), *own, calls, *watching], verbose=0)
    # Legacy Keras repeats arrays for the epochs that it is asked for: all, of which some were read.
    if VERSION == 3 or position.place is not None:
        given = given.given(initial_epoch=first if VERSION == 3 else 0)
    if (
        VERSION == 2
        and isinstance(call.arguments.get("x"), tf.data.Dataset)
        and (call.steps_per_epoch is None and training.steps_per_epoch is not None)
    ):
        # Legacy Keras knows by now how long an epoch is. Else it would look behind its end again,
        # and the optimizer would count that as an update.
        size = training.steps_per_epoch
        sized = call.arguments["x"].take(size)
        given = given.given(x=sized.apply(tf.data.experimental.assert_cardinality(size)))
    try:
        if not training.backend.capabilities.synchronous:
            return fit_by_workers(
                cast("Any", training.backend),
                model,
                given.arguments,
                data=training.data,
                on_epoch=training.totals.note_workers,
            )
        with training.backend.scope():
            return model.fit(**given.arguments)
    except ValueError as error:
        if "Empty logs" in str(error):  # legacy Keras'
            raise _no_batch_left(position.begun) from None
        raise
    finally:
        vars(model).pop("_maybe_load_initial_counters_from_ckpt", None)


class _Quiet(tf.keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        # It reads no logs. Unsaid, Keras would copy them to the host after every step.
        self._supports_tf_logs = True


class _First(_Quiet):
    """Called before the author's callbacks: the last step of an epoch is over."""

    def __init__(self, calls: "_Calls") -> None:
        super().__init__()
        self._calls = calls

    def on_train_begin(self, logs: Any = None) -> None:
        """The author's callbacks have changed nothing yet."""
        self._calls.keep()

    def on_test_begin(self, logs: Any = None) -> None:
        """The clock does not time an evaluation."""
        self._calls.driver.stop_clock()
        self._calls.driver.tell_phase("evaluating")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Nor what callbacks do then."""
        self._calls.driver.stop_clock()


class _Calls(_Quiet):
    """Called after the author's callbacks: lets the driver follow Keras' `fit`."""

    driver: Driver

    def __init__(
        self, call: FitCall, backend: Backend, position: Position, *, stopped: bool, looks: bool
    ) -> None:
        super().__init__()
        self._call, self._backend, self._looks = call, backend, looks
        self._learning = Learned(call.callbacks, call.model)
        self._state: CallbackState | None = None
        self._values: list[Any] = []
        self._before_epoch = 0  # updates of this run before the epoch's number 0
        self._begun_at = 0  # updates of this run when the epoch began
        self.listeners_s: list[float] = []  # of each execution
        resumed = position != Position(call.first_epoch)
        self.warnings: tuple[str, ...] = ()  # of what callbacks have not learned
        if resumed:
            self._state, self.warnings = learned_by(
                call.callbacks, position.learned, call.model, stopped=stopped
            )

    def learned(self) -> CallbackState:
        """What the author's callbacks have learned until now."""
        return self._learning.state(stops=False)

    def keep(self) -> None:
        """Keep what a model that goes on holds: callbacks change it where they begin."""
        if self._state is not None:
            self._values = checkpoint.values_in(checkpoint.snapshot(self._call.model))

    def on_train_begin(self, logs: Any = None) -> None:
        """What callbacks do to a model that goes on was done before the checkpoint."""
        if self._state is not None:
            self._put_back()
        self._learning.begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin it."""
        training = self.driver.training
        resumed = training.begun is not None and epoch == training.first_epoch
        if self._state is not None and resumed:
            self._put_back()
        self._state = None
        self._before_epoch = self._begun_at = self.driver.clock.done
        if resumed:
            self._before_epoch -= training.updates_before
        self.driver.begin_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A callback may have evaluated the model."""
        hold_own(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """`batch` is the number, in its epoch, of the last update made."""
        hold_own(self.model)
        began, driver = time.perf_counter(), self.driver
        training, end = driver.training, batch + 1
        workers = training.workers
        if training.steps_per_epoch is not None:  # Keras 3 counts a short last execution as whole
            end = min(end, training.steps_per_epoch // workers)
        done = self._before_epoch + end * workers
        training.data.read += (done - driver.clock.done) // workers
        training.totals.put_before()
        driver.step(done)
        if self._looks:  # a callback may end the training at any batch
            self._agree_to_stop()
        self.listeners_s.append(time.perf_counter() - began)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End it."""
        self._agree_to_stop()
        # As a checkpoint will hold them: a replica without rows goes on from its own otherwise.
        self._backend.average_statistics(self.model)
        driver = self.driver
        training, done = driver.training, driver.clock.done
        if done == self._begun_at:
            if not driver.record.epochs:
                raise _no_batch_left(training.begun)
            return  # the data ran out before it: Keras says so
        data = training.data
        data.of_epoch = data.of_epoch or (done - self._before_epoch) // training.workers
        driver.end_epoch(logs or {})

    def _agree_to_stop(self) -> None:
        """One process that stopped alone would leave the others waiting in a collective."""
        if self._backend.size > 1:
            wanted = np.array([float(self.model.stop_training)])
            self.model.stop_training = bool(self._backend.all_reduce(wanted, "max")[0])

    def _put_back(self) -> None:
        assert self._state is not None
        checkpoint.put(self._values, self.model, self._backend)
        with self._backend.scope():
            self._learning.restore(self._state)


def _no_batch_left(begun: Any) -> RefusalError:
    if begun is None:
        return no_batch()
    return RefusalError(
        "A training goes on within an epoch that has a batch left.",
        received="a checkpoint behind the last one, of data whose number was not known",
        advice=f"Go on from the checkpoint before it: --resume-from …/{checkpoint.BEFORE}.",
    )


def executions_of(model: Any) -> int:
    """Updates in one execution of a compiled model."""
    return int(model.steps_per_execution if VERSION == 3 else model._steps_per_execution.numpy())


def set_executions(model: Any, executions: int) -> None:
    """Let a compiled model make so many updates in an execution."""
    if executions == executions_of(model):
        return
    if VERSION == 3:
        model.steps_per_execution = executions
    else:
        model._steps_per_execution.assign(executions)
    # They were traced for another number.
    model.train_function = model.test_function = model.predict_function = None


def _check_executions(call: FitCall, executions: int) -> None:
    """Keras 3 makes the last execution of an epoch whole, if there are data: other updates."""
    if VERSION == 2 or executions == 1:
        return
    asked, batches = call.arguments.get("steps_per_epoch"), call.steps_per_epoch
    if batches is None or (asked is not None and asked % executions):
        raise RefusalError(
            "With Keras 3 an epoch must be of whole executions, or of data whose number of batches "
            "is known.",
            received=f"steps_per_epoch={asked}, steps_per_execution={executions}",
            advice="Let steps_per_epoch be a multiple, or leave steps_per_execution out.",
        )


def _check_state(model: Any) -> None:
    kinds = [one for one in model._flatten_layers() if isinstance(one, tf.keras.layers.RNN)]
    if names := [one.name for one in kinds if one.stateful]:
        raise RefusalError(
            "A layer must not keep a state for each row of a batch: each replica has other rows.",
            received=f"{names[0]}, which is stateful",
            advice="Leave stateful=True out, or train one replica.",
        )


def _agreed(call: FitCall, backend: Backend) -> tuple[bool, bool, bool]:
    """(Any callbacks that look at batches, any callbacks, as many processors in all processes)."""
    # TensorFlow reads as many files at once as there are processors, where its author leaves it
    # that.
    looks = any(map(KERAS.looks_at_steps, call.callbacks))
    batches = -1 if call.steps_per_epoch is None else call.steps_per_epoch
    held = call.arguments.get("validation_data")
    held_out = digest_of_held_out(held) if backend.size > 1 else 0  # arrays may be large
    same = [batches, len(os.sched_getaffinity(0)), digest(call.arguments.get("x")), held_out]
    own = np.array([looks, bool(call.callbacks), *same, *(-value for value in same)], np.float64)
    found = backend.all_reduce(own, "max")
    (looks, learns), (most, cores, digested, held_out) = found[:2], found[2:6]
    fewest, least_cores, other, other_held_out = -found[6:]
    if digested != other:
        raise RefusalError(
            "Every process must give ringside.shard the same data.",
            received="other numbers or texts, or in another order",
            advice="Seed what shuffles them, and sort lists of files and what comes from a set.",
        )
    if most != fewest:
        raise RefusalError(
            "Every process must read the same batches.",
            received=f"{int(fewest)} batches in an epoch of one process, {int(most)} of another",
            advice="Give each process all data: Ringside divides each batch among the replicas.",
        )
    if held_out != other_held_out:
        raise RefusalError(
            "Every process must evaluate on the same data.",
            received="validation_data with other rows",
            advice="Seed what divides the data into those to train and those to evaluate.",
        )
    return bool(looks), bool(learns), bool(cores == least_cores)


def make_variables(call: FitCall) -> None:
    """Make the variables that the first step would make: replicas begin with the same ones.

    The step is traced on data of the same form, of which nothing is read.

    Raises:
        RefusalError: the data's form is not known before they are read.
    """
    model = call.model
    first, *others = optimizers_of(model)
    unbuilt = [layer for layer in model._flatten_layers() if not layer.built]
    if not (unbuilt or others or has_own_step(model)):
        KERAS.build_optimizer(first, KERAS.trainable_of(model))
        return
    form, error = _form_of(call), ""
    if form is not None:
        _check_without_horovod(model, form)
        step = partial(model.distribute_strategy.run, model.train_step)
        try:
            with refusals_as_they_are():
                _trace(step, form)
        except RefusalError:
            raise
        except Exception as found:  # an author's eager step may be none for a graph
            error = in_one_line(found)
            if _needs_known_rows(step, form):
                raise RefusalError(
                    "How many rows a batch has is not known while a step is traced.",
                    received=error,
                    advice="Write tf.shape(x)[0] for x.shape[0], or batch with drop_remainder.",
                ) from None
            if not (unbuilt and model.run_eagerly):
                raise
        else:
            return
    if unbuilt:
        raise RefusalError(
            "A model must have weights before its first step, or data whose form is known.",
            received=error or f"{unbuilt[0].name}, which has none yet, and a generator",
            advice="Call the model once on a batch, within ringside.scope(): model(x[:1]).",
        )


def _trace(step: Callable[..., Any], form: Any) -> None:
    tf.function(lambda batch: step(args=(batch,))).get_concrete_function(form)


def _needs_known_rows(step: Callable[..., Any], form: Any) -> bool:
    """Whether a step that fails on batches of any number of rows runs on batches of 64."""

    def known(part: Any) -> Any:
        rows = isinstance(part, tf.TensorSpec) and bool(part.shape.rank) and part.shape[0] is None
        return tf.TensorSpec([64, *part.shape[1:]], part.dtype) if rows else part

    known_rows = tf.nest.map_structure(known, form)
    with suppress(Exception):
        if known_rows != form:
            _trace(step, known_rows)
            return True
    return False


def _check_without_horovod(model: Any, form: Any) -> None:
    """Refuse a step of the author's that reduces itself; under a strategy Horovod would not run."""
    if not has_own_step(model) or tf.distribute.has_strategy():
        return
    step = in_python(type(model).train_step)
    try:
        with refusals_as_they_are(), without_reductions():
            alone = tf.function(lambda batch: step(model, batch))
            alone.get_concrete_function(form)
    except RefusalError:
        raise
    except Exception:  # the training's own trace says what is wrong
        return


def _form_of(call: FitCall) -> Any:
    """The form of a batch, with any number of rows; None: not known before one is read."""
    x = call.arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return x.element_spec
    if isinstance(x, tf.keras.utils.Sequence):
        drawn = random.getstate(), np.random.get_state()
        batch = x[0]  # Keras looks at it once more, and is to get the same
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
    elif rows_of_arrays(call.arguments) is not None:
        batch = tf.nest.map_structure(lambda a: a[:1], call.arrays)
    else:
        return None

    def of_rows(array: Any) -> Any:
        kind = (
            tf.type_spec_from_value(array) if tf.is_tensor(array) else tf.convert_to_tensor(array)
        )
        floats = kind.dtype.is_floating
        dtype = tf.keras.backend.floatx() if floats else kind.dtype
        if isinstance(kind, tf.RaggedTensorSpec):
            return tf.RaggedTensorSpec([None, *kind.shape[1:]], dtype, kind.ragged_rank)
        return tf.TensorSpec([None, *kind.shape[1:]], dtype)

    return tf.nest.map_structure(of_rows, batch)


def why_drawn_again(call: FitCall) -> str:
    """Why a restart may not read the rows that were due; empty: it does."""
    x = call.arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return drawn_again(x)
    return "The data run Python" if rows_of_arrays(call.arguments) is None else ""


def _feed(spec: RunSpec, call: FitCall, number: int) -> str:
    found = {
        "workload": spec.workload,
        "fit": number,
        "seed": spec.seed,
        "global_batch": spec.global_batch,
        "precision": spec.precision,
        "gradients": call.gradients,
    }
    return json.dumps(found, sort_keys=True)
