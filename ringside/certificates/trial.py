"""What a process that verifies a program does: it runs it up to its fit, and trains there.

Each training is short, on the author's own first batches, and leaves a trace: what the model and
its optimizers hold after each update, and what Keras tells. Plain Keras does the same in a process
that starts no backend.
"""

import functools
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.certificates.cut import cut as cut_call
from ringside.certificates.store import users_code
from ringside.certificates.trace import Trace
from ringside.certificates.trial_request import (
    CASES,
    SHORT,
    SUMS,
    TILED,
    TRIAL,
    UPDATES,
    TrialRequest,
    trace_file,
)
from ringside_core.keras import (
    KERAS,
    OWN_STEP,
    VERSION,
    has_own_step,
    is_of_keras,
    lowest_bits,
    optimizer_variables,
    optimizers_of,
    tf,
)
from ringside_core.keras.draws import Draws, drawing
from ringside_core.keras.part import Part, as_given, in_python
from ringside_core.specs import RecordInProgress
from ringside_core.users_errors import of_users
from ringside_core.workloads.registry import fit_number
from ringside_core.workloads.script import ScriptIsOver
from trainers.driver import single_numbers
from trainers.fit import executions_of, make_variables, set_executions, train_call, why_drawn_again
from trainers.fit_call import FitCall
from trainers.input_changes import changed
from trainers.reading import rows_of_arrays
from trainers.row_ledger import RowLedger
from trainers.rows import cut, repeated, rows_of

# How many elements, over all variables, are kept after each update: 20 updates of 500,000 float64
# are 80 MB. Of larger models only a fixed sample is kept, and everything after the last update.
KEPT_ELEMENTS = 500_000


class Trial:
    """The trainings at one fit of a script, instead of the author's own."""

    def __init__(
        self, request: TrialRequest, record: RecordInProgress, run_dir: Path, fit: int
    ) -> None:
        """Train nothing yet.

        Args:
            request: what is asked.
            record: of this process.
            run_dir: folder of these processes.
            fit: number of the fit in the script, from 1.
        """
        self._request, self._record, self._run_dir, self._fit = request, record, run_dir, fit
        self.reached = 0
        _rank_in_float32()
        self._authors_executions = 1
        self._draws = Draws(record.spec.seed) if request.plain else None
        self._ledger: Any = None
        self._authors: dict[int, Any] = {}  # training steps of models of plain Keras

    @property
    def plain(self) -> bool:
        """Whether plain Keras trains."""
        return self._request.plain

    def fit(self, call: FitCall, session: Any) -> Any:
        """Train at a fit of the script; at the one that is asked for, the script ends.

        Args:
            call: what the author asks for.
            session: of `ringside.script`.
        """
        self.reached += 1
        spec = self._record.spec
        call = call.in_batches_of(spec.global_batch, authors=spec.authors_batch)
        session.set_rate(call)
        self._authors_executions = max(self._authors_executions, executions_of(call.model))
        set_executions(call.model, 1)  # updates are noted one by one
        if self.reached < self._fit:
            return self._train("before", cut_call(call, whole=2, tail=0, epochs=1), session, None)
        asked, batch = self._request, spec.global_batch
        if asked.at_tape:
            call = FitCall(call.model, call.arguments, "tape")
        if asked.moved and not asked.states:
            with session.backend.scope():
                make_variables(call)
            move(KERAS.trainable_of(call.model), asked.moved, np.random.default_rng(0))
        several = asked.workers > 1 or not spec.has_one_result
        whole = max(1, asked.updates // 2 - 1)
        if asked.whole_states:
            make_variables(call)
            if stride_of(call.model) > 1:
                raise ScriptIsOver
        if asked.tiled:
            two = self._cut(call, whole=2, tail=0, epochs=1)
            self._watched(TILED, two.given(validation_data=None), session)
        if asked.watched:
            self._watched(UPDATES, self._cut(call, whole=whole, tail=1, epochs=2), session)
        if asked.watched and not (asked.states or asked.resume_from):
            short = min(asked.most_replicas + 1, batch)
            first = whole if several else 1
            self._watched(SHORT, self._cut(call, whole=first, tail=short, epochs=1), session)
        if asked.sums:
            self._gradients(call)
        raise ScriptIsOver

    def _cut(self, call: FitCall, **few: int) -> FitCall:
        """The same training on few batches, read as the arm says."""
        found = cut_call(call, **few)
        return found if self.plain else changed(found, self._record.spec.input)

    def _watched(self, case: str, call: FitCall, session: Any) -> None:
        trace = Trace()
        watch = Watch(trace, call, None if self.plain else session.backend)
        watch.draws = self._draws or session.steps.draws
        updates = case == UPDATES
        if updates and self._request.states:
            watch.states = Trace.read(Path(self._request.states))
            watch.moved = self._request.moved
        watch.each = updates or case == TILED
        try:
            if self.plain:
                self._take(call, session)
            else:
                session.steps.tiled = case == TILED
            watch.before()
            self._train(case, call, session, watch)
            watch.after()
        except Exception as error:
            traceback.print_exc()  # whole, into the log
            trace.meta["error"] = of_users(error)
        finally:
            if not self.plain:
                session.steps.tiled = False
        trace.meta["sources"] = users_code()
        trace.meta["drawn_again"] = why_drawn_again(call)
        trace.write(trace_file(self._run_dir, case, self._record.task))
        if trace.error:
            raise ScriptIsOver

    def _take(self, call: FitCall, session: Any) -> None:
        """Let plain Keras' steps of a model draw for certificates, and note the rows they get."""
        # As long as this process lives: several trainings of a model are traced once.
        model, draws = call.model, self._draws
        vars(model).setdefault(OWN_STEP, has_own_step(model))  # `noting` is not the author's
        make_variables(call)
        if id(model) in self._authors:
            return
        assert draws is not None
        self._authors[id(model)] = author = model.train_step
        ledger = self._ledger = self._ledger or RowLedger(session.backend)
        step = _as_workers(draws.step(author), self._request.workers)

        def noting(batch: Any) -> Any:
            flat = [t for t in tf.nest.flatten(batch) if t is not None]
            n = rows_of(flat, divided=False)[0]
            ledger.note(batch, n, 0, 1, None if model.jit_compile else batch)
            return step(batch)

        vars(model)["train_step"], model.train_function = noting, None
        vars(model)["test_step"], model.test_function = draws.step(model.test_step), None

    def _gradients(self, call: FitCall) -> None:
        """What plain Keras applies for a batch in which each row stands once, twice or thrice."""
        trace, model = Trace(), call.model
        variables = KERAS.trainable_of(model)
        kept = [tf.Variable(tf.zeros_like(v)) for v in variables]
        places = {id(v): k for k, v in enumerate(variables)}
        gave: list[tuple[Any, int]] = []  # by tapes
        at_once: list[bool] = []

        def note(optimizer: Any, _: Any, gradients: Any, given: Any) -> Any:
            for gradient, variable in zip(gradients, given, strict=True):
                if gradient is not None:
                    at_once.append(is_of_keras(type(optimizer)) and _is_as_given(gradient, gave))
                    kept[places[id(KERAS.raw(variable))]].assign(tf.convert_to_tensor(gradient))
            return optimizer.iterations

        for optimizer in optimizers_of(model):
            KERAS.on_apply(optimizer, partial(note, optimizer))
        try:
            batch, size = call.first_batch(), self._request.most_replicas
            flat = [t for t in tf.nest.flatten(batch) if t is not None]
            n = int(rows_of(flat)[0])
            trace.meta["same"] = _same_in_each(batch, call)
            parts = {r: cut(batch, r, size)[:2] for r in range(size)}
            # What rows draw depends on which they are, of how many, and how often each stands
            # there. It is traced once for all, but where the size of a batch is a constant.
            x = call.arguments.get("x")
            fixed = model.jit_compile or _has_fixed_size(x)
            place: list[Any] = [tf.Variable(0, trainable=False) for _ in range(5)]
            assert self._draws is not None
            begun = self._draws.count()

            def applied(of: Any, *numbers: int) -> NDArray[Any]:
                assert self._draws is not None
                self._draws.rewind(begun)
                if fixed:
                    place[:], model.train_function = numbers, None
                else:
                    for variable, number in zip(place, numbers, strict=True):
                        variable.assign(number)
                model.fit(_alone(of, x, fixed=fixed), verbose=0)
                return np.concatenate([np.asarray(v).reshape(-1) for v in kept])

            step = self._authors[id(model)]

            def drawn(batch: Any) -> Any:
                numbers = [v if fixed else v.read_value() for v in place]
                # By the rule, under which a loss that is not reduced is no sum.
                rows, n = numbers[2:4]
                part = Part(0, 1, rows, n, reduce=as_given, total=as_given)
                with part.running(), drawing(self._draws, *numbers):
                    return in_python(step)(batch)

            vars(model)["train_step"], model.train_function = drawn, None
            with _noted(gave):
                for k in (1, 2, 3):
                    of = repeated(batch, k)
                    trace.final[f"gradient {k}"] = applied(of, 0, 1, k * n, n, k)
                trace.meta["at_once"] = len(at_once) == len(gave) > 0 and all(at_once)
                for r, (of, own) in parts.items():
                    if int(own):
                        found = applied(of, r, size, int(own), n, 1)
                        trace.final[f"rows {r}"] = found * (int(own) / n)
        except Exception as error:
            traceback.print_exc()
            trace.meta["error"] = of_users(error)
        trace.write(trace_file(self._run_dir, SUMS, self._record.task))

    def _train(self, case: str, call: FitCall, session: Any, watch: "Watch | None") -> Any:
        watching = [] if watch is None else [watch]
        if self.plain:
            return self._plainly(call, session, watch)
        spec = self._record.spec.replace(
            save="all" if case == UPDATES and not self._request.resume_from else "record",
            epochs=call.last_epoch,
            resume_from=self._request.resume_from or None if case == UPDATES else None,
            steps_per_execution=self._executions(call) if case == SHORT else 1,
        )
        record = RecordInProgress.begun(spec, task=self._record.task, rank=self._record.rank)
        session.backend.spec = spec
        in_turn = watch is not None and watch.each
        if not spec.capabilities.synchronous:
            session.backend.coordinator.in_turn = True  # as plain Keras makes them, too
        try:
            with _in_turn(session.backend) if in_turn else nullcontext():
                history = train_call(
                    call,
                    record,
                    session.steps,
                    run_dir=self._run_dir / CASES / case,
                    number=self.reached,
                    listeners=session.listeners(call),
                    watching=watching,
                    must_train=case == UPDATES,
                )
        finally:
            if watch is not None:
                watch.ledgers = [
                    (epoch.ledger.rows, epoch.ledger.hash)
                    for epoch in record.epochs
                    if epoch.ledger is not None
                ]
        return history

    def _executions(self, call: FitCall) -> int:
        """Updates in an execution of the run; with Keras 3 they divide the few that are made."""
        wanted = max(self._authors_executions, self._record.spec.steps_per_execution)
        given = call.arguments.get("steps_per_epoch")
        return wanted if VERSION == 2 or given is None else gcd(wanted, given)

    def _plainly(self, call: FitCall, session: Any, watch: "Watch | None") -> Any:
        """Keras' own `fit`."""
        if watch is None:
            self._take(call, session)
            return call.model.fit(**call.arguments)
        ledger, ledgers = self._ledger, watch.ledgers

        class Epochs(tf.keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                rows, found = ledger.read()
                hashed = "" if call.model.jit_compile else f"{found:016x}"
                ledgers.append((rows, hashed))
                ledger.begin()

        ledger.begin()
        return call.model.fit(**call.given(callbacks=[Epochs(), watch]).arguments)


def trial_of(record: RecordInProgress, run_dir: Path) -> Trial:
    """What the request in a run folder asks of this process."""
    path = run_dir / TRIAL
    request = TrialRequest.from_json(path.read_text(encoding="utf-8"), origin=TRIAL)
    return Trial(
        request, record, run_dir, fit_number(record.spec.workload, record.spec.workload_options)
    )


class Watch(tf.keras.callbacks.Callback):
    """Notes what a model holds after each update, and what Keras tells.

    Attributes:
        each: after each update; else after the last one.
        states: each update begins from the state of this trace before it; None: from its own.
        moved: roundings by which the weights of these states are moved.
        ledgers: (rows, their hash) of each epoch.
        draws: by row.
    """

    draws: Draws

    def __init__(self, trace: Trace, call: FitCall, backend: Any) -> None:
        """Note nothing yet.

        Args:
            trace: gets what is seen.
            call: that is trained.
            backend: started; None: plain Keras.
        """
        super().__init__()
        self._supports_tf_logs = True  # or Keras would copy the logs to the host in each step
        self._trace, self._call, self._backend = trace, call, backend
        self.each = True
        self.states: Trace | None = None
        self.moved = 0
        self._chance = np.random.default_rng(0)
        self.ledgers: list[tuple[int, str]] = []
        self._rows: dict[str, list[NDArray[Any]]] = {}
        self._slot_rows: dict[str, list[NDArray[Any]]] = {}
        self._gaps: list[float] = []
        self._logs: list[dict[str, float]] = []
        self._updates: list[int] = []
        self._drawn: list[int] = []

    def before(self) -> None:
        """The author's model is evaluated as it is."""
        if self._backend is not None:  # of plain Keras they were made before its steps were taken
            with self._backend.scope():
                make_variables(self._call)
        self._trace.before = self._evaluated()
        self._made = self._counts()

    def after(self) -> None:
        """Write what was seen into the trace."""
        trace, model = self._trace, self._call.model
        trained = {id(v) for v in KERAS.trainable_of(model)}
        trace.weights = {name: np.stack(rows) for name, rows in self._rows.items()}
        trace.slots = {name: np.stack(rows) for name, rows in self._slot_rows.items()}
        trace.replica_gap = np.array(self._gaps)
        trace.final = {name: value for name, (value, _) in self._weights()}
        for group, begins in (("metrics", False), ("evaluation", True)):
            names = (
                [n for n in self._logs[0] if n.startswith("val_") == begins] if self._logs else []
            )
            found = {
                n.removeprefix("val_"): np.array([said.get(n, np.nan) for said in self._logs])
                for n in names
            }
            setattr(trace, group, found)
        trace.predictions = self._predicted()
        trace.meta |= {
            "updates": self._updates,
            "ledgers": self.ledgers,
            "drawn": self._drawn,
            "train_examples": self.ledgers[0][0] if self.ledgers else 0,
            "validation_examples": [self._validated] * len(self._updates),
            "made": [n - n0 for n, n0 in zip(self._counts(), self._made, strict=True)],
            "on_gpus": bool(tf.config.list_physical_devices("GPU")),
            "every": self._stride,
            "bits": lowest_bits(model),
            "trained": {name: id(v) in trained for name, v in self._named()},
        }

    def on_train_begin(self, logs: Any = None) -> None:
        """Note the initial state."""
        self._put(0)
        self._note(first=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note what the update has changed; the next may begin from another state."""
        self._in_epoch = batch + 1
        if self.each:
            self._note()
            self._put(len(self._gaps))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note what Keras tells."""
        self._updates.append(self._in_epoch)
        self._drawn.append(self.draws.count())
        self._logs.append(single_numbers(logs))

    def on_train_end(self, logs: Any = None) -> None:
        """Note the end of a training that was not disturbed."""
        if not self.each:
            self._note()

    def _note(self, *, first: bool = False) -> None:
        gap = 0.0
        slots = [(name, self._read(v, shared=True)) for name, v in self._named_slots()]
        for rows, found in ((self._rows, self._weights()), (self._slot_rows, slots)):
            for name, (value, apart) in found:
                rows.setdefault(name, []).append(value.reshape(-1)[:: self._stride].copy())
                gap = max(gap, apart)
        if not first:
            self._gaps.append(gap)

    def _put(self, update: int) -> None:
        """Let the model hold the other run's state after this update."""
        if self.states is None:
            return
        kinds = ((self.states.weights, self._named()), (self.states.slots, self._named_slots()))
        for rows, variables in kinds:
            for name, variable in variables:
                value = rows[name][update].reshape(variable.shape)
                variable.assign(np.asarray(value, variable.dtype.as_numpy_dtype))
        if self.moved:
            move(KERAS.trainable_of(self._call.model), self.moved, self._chance)

    def _named(self) -> list[tuple[str, Any]]:
        return [
            (f"{k:03d} {v.name.removesuffix(':0')}", v)
            for k, v in enumerate(KERAS.weights_of(self._call.model))
        ]

    def _named_slots(self) -> list[tuple[str, Any]]:
        pairs = optimizer_variables(self._call.model, KERAS.slot_names)
        return [(f"{k:03d} {name}", v) for k, (name, v) in enumerate(pairs)]

    def _weights(self) -> list[tuple[str, tuple[NDArray[Any], float]]]:
        trained = {id(v) for v in KERAS.trainable_of(self._call.model)}
        return [(name, self._read(v, shared=id(v) in trained)) for name, v in self._named()]

    def _read(self, variable: Any, *, shared: bool) -> tuple[NDArray[Any], float]:
        """The value of a variable, and how far replicas of this process are apart."""
        # A value that each replica has by itself, such as moving statistics: the mean.
        if self._backend is None:
            return np.asarray(variable.numpy()), 0.0
        first, *others = local = [np.asarray(v) for v in self._backend.local_values(variable)]
        if shared or first.dtype.kind != "f":
            return first, max((difference(first, other) for other in others), default=0.0)
        return self._backend.all_reduce(np.mean(local, axis=0), "mean"), 0.0

    def _counts(self) -> list[int]:
        """Updates that each optimizer has made."""
        return [int(x.iterations.numpy()) for x in optimizers_of(self._call.model)]

    @functools.cached_property
    def _stride(self) -> int:
        return stride_of(self._call.model)

    @property
    def _validated(self) -> int:
        """Rows of arrays that are validated with; 0: they are not known."""
        data = self._call.arguments.get("validation_data")
        known = isinstance(data, tuple | list) or hasattr(data, "shape")
        return (rows_of_arrays({"x": data}) or 0) if known else 0

    def _sizes(self) -> dict[str, Any]:
        given = self._call.arguments
        size = given.get("validation_batch_size") or given.get("batch_size")
        return {"steps": given.get("validation_steps"), "batch_size": size}

    def _evaluated(self) -> dict[str, Any]:
        data = self._call.arguments.get("validation_data")
        if data is None:
            return {}
        given = (
            dict(zip(("x", "y", "sample_weight"), data, strict=False))
            if isinstance(data, tuple)
            else {"x": data}
        )
        said = self._call.model.evaluate(**given, **self._sizes(), verbose=0, return_dict=True)
        return {name: np.asarray(value) for name, value in said.items() if np.ndim(value) == 0}

    def _predicted(self) -> dict[str, NDArray[Any]]:
        """Of what the author validates with, where the model can predict."""
        data = self._call.arguments.get("validation_data")
        if data is None:
            return {}
        x = data[0] if isinstance(data, tuple) else data
        try:
            outputs = self._call.model.predict(x, **self._sizes(), verbose=0)
        except Exception:  # its author never asks for it, and plain Keras says the same
            return {}
        return {f"output {k}": storable(a) for k, a in enumerate(tf.nest.flatten(outputs))}


def _as_workers(step: Any, workers: int) -> Any:
    """One update for each worker, of its rows w::workers; without rows it makes none."""

    def run(batch: Any) -> Any:
        logs = step(cut(batch, 0, workers)[0])
        for w in range(1, workers):
            own, rows, _ = cut(batch, w, workers)
            update = partial(step, own)
            logs = tf.cond(tf.convert_to_tensor(rows) > 0, update, lambda kept=logs: kept)
        return logs

    return run


@contextmanager
def _in_turn(backend: Any) -> Iterator[None]:
    """Let each asynchronous update wait for the one before, so that there is one right result."""
    if backend.capabilities.synchronous:
        yield
        return
    coordinator = backend.coordinator
    schedule = coordinator.schedule

    def waited(*args: Any, **kwargs: Any) -> Any:
        scheduled = schedule(*args, **kwargs)
        coordinator.join()
        return scheduled

    coordinator.schedule = waited
    try:
        yield
    finally:
        coordinator.schedule = schedule


def stride_of(model: Any) -> int:
    """Every so many elements of a model's weights are kept after each update."""
    total = sum(int(np.prod(w.shape)) for w in KERAS.weights_of(model))
    return max(1, -(-total // KEPT_ELEMENTS))


@contextmanager
def _noted(gave: list[tuple[Any, int]]) -> Iterator[None]:
    """Within this block what tapes give is noted, and by how many operations it is used then."""
    upstream = tf.GradientTape.gradient

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found = upstream(*args, **kwargs)
        gave.extend((g, _uses(g)) for g in tf.nest.flatten(found) if g is not None)
        return found

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = upstream


def _is_as_given(gradient: Any, gave: list[tuple[Any, int]]) -> bool:
    """Whether a gradient is what a tape gave, and nothing else was computed from it since."""
    return any(gradient is given and _uses(given) == uses for given, uses in gave)


def _uses(gradient: Any) -> int:
    if tf.executing_eagerly():
        return -1
    tensor = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return len(tensor.consumers())


def _has_fixed_size(data: Any) -> bool:
    """Whether each batch of a data set has the same number of rows, as its form says."""
    return isinstance(data, tf.data.Dataset) and any(
        spec.shape.rank and spec.shape[0] is not None
        for spec in tf.nest.flatten(data.element_spec)
        if isinstance(spec, tf.TensorSpec)
    )


def _rank_in_float32() -> None:
    """TensorFlow finds the k largest of float32 only, as metrics of the top k ask."""
    upstream = tf.math.in_top_k

    def in_top_k(targets: Any, predictions: Any, k: Any, name: Any = None) -> Any:
        return upstream(targets, tf.cast(predictions, tf.float32), k, name)

    for math in (tf.math, tf.compat.v2.math):
        math.in_top_k = in_top_k


def _same_in_each(first: Any, call: FitCall) -> str:
    """A part that has as many rows as a batch, all of which the next batch has too; empty: none."""
    data = call.arguments.get("x")
    if not isinstance(data, tf.data.Dataset):
        return ""
    n = rows_of([t for t in tf.nest.flatten(first) if t is not None])[0]
    for later in data.skip(1).take(1):
        flat = [t for t in tf.nest.flatten(first) if t is not None]
        others = [t for t in tf.nest.flatten(later) if t is not None]
        same = {
            number: bool(tf.reduce_all(part == other))
            for number, (part, other) in enumerate(zip(flat, others, strict=True))
            if isinstance(part, tf.Tensor) and part.shape[:1] == [n] and part.shape == other.shape
        }
        if all(same.values()):  # one batch that comes again and again
            return ""
        named = isinstance(first, dict) and len(first) == len(flat)
        for number, equal in same.items():
            if equal and not bool(tf.reduce_all(flat[number] == flat[number][:1])):
                return f"`{sorted(first)[number]}`" if named else f"part {number + 1}"
    return ""


def _alone(batch: Any, data: Any, *, fixed: bool) -> tf.data.Dataset:
    """A data set of this batch; if it has no fixed size, its form says any number of rows."""
    alone = tf.data.Dataset.from_tensors(batch)
    if fixed:
        return alone

    def of_any_size(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
            return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
        return spec

    if isinstance(data, tf.data.Dataset):
        signature = data.element_spec
    else:
        signature = tf.nest.map_structure(of_any_size, alone.element_spec)
    of_any = tf.data.Dataset.from_generator(lambda: [batch], output_signature=signature)
    return of_any.apply(tf.data.experimental.assert_cardinality(1))


def storable(array: Any) -> NDArray[Any]:
    """An array that a file can hold: NumPy has no bfloat16, whose numbers are in float32 too."""
    found = np.asarray(array)
    return found if found.dtype.kind in "biufc" else found.astype(np.float32)


def difference(first: NDArray[Any], other: NDArray[Any]) -> float:
    """Largest absolute difference; infinite if either has an element that is no number."""
    if not first.size:
        return 0.0
    largest = float(np.max(np.abs(first.astype(np.float64) - other.astype(np.float64))))
    return largest if np.isfinite(largest) else float("inf")


def move(variables: Sequence[Any], roundings: int, chance: np.random.Generator) -> None:
    """Move each element by so many roundings of it, up or down."""
    for variable in variables:
        values = variable.numpy()
        up = chance.random(values.shape) < 0.5
        by = (roundings * np.spacing(np.abs(values))).astype(values.dtype)
        variable.assign(np.where(up, values + by, values - by))
