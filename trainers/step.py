"""One step: what Keras or a model's author wrote, run by each replica on rows of a global batch.

Keras' own `fit`, `evaluate` and `predict` call it: `Steps.take` sets `train_step`, `test_step` and
`predict_step` of a model. Nothing stands between Keras and the author's data.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from backends.base import Backend, statistics
from ringside_core.keras import (
    KERAS,
    OWN_STEP,
    VERSION,
    has_own_step,
    is_of_keras,
    optimizers_of,
    tf,
)
from ringside_core.keras.draws import DRAWN, Draws, drawing
from ringside_core.keras.part import Part, as_given, floating, here, in_python, times
from ringside_core.specs import RefusalError
from trainers.reading import read_the_same
from trainers.row_ledger import RowLedger
from trainers.rows import block, cut, gathered
from trainers.workers import as_it_is, build_symbolically, take

if TYPE_CHECKING:
    from backends.tf_distribute.parameter_server import ParameterServer

if VERSION == 2:
    import ringside_core.keras.legacy_hooks  # it changes Keras within steps
else:
    import ringside_core.keras.keras3_hooks  # noqa: F401


# Methods of Keras' models that run one, beside `fit`.
_RUNNING = ("evaluate", "predict", "predict_on_batch", "test_on_batch", "train_on_batch")


def _reads_only(batch: Any) -> dict[str, Any]:
    """A training step that trains nothing: its batch was read."""
    return {"loss": tf.zeros([])}


class Steps:
    """The steps of the models of one process, on a backend's replicas.

    Attributes:
        at_tape: gradients are added where the outermost tape gives them; else where an optimizer
            applies them.
        each_step: what Keras' own training step returns is over all replicas at each step, as
            callbacks that look at batches need it; else it is so at the end of an epoch.
        ledger: of the rows that are trained.
        hashed: it hashes those of each so many-th batch; 0: of none, as processes read others.
        shards: in how many parts the processes read the training data; 1: each reads all of them.
        passes: in how many a replica runs its rows, one after the other, for one update.
        draws: of the random numbers: by row for certificates, counted where checkpoints hold the
            count; None: each replica draws its own as plain Keras does.
        tiled: a trial, of global batches in which each row of the author's stands as often as there
            are replicas, one after the other: each trains the author's whole batch.
        on_last_step: called when an epoch's last step is over, before its logs are merged.
        used: the variables that training steps use, by id; known once a step was traced.
    """

    def __init__(
        self, backend: Backend, *, passes: int = 1, draws: int | None = None, reduces: bool = True,
        trains: bool = True,
    ) -> None:  # fmt: skip
        """See the class.

        Args:
            backend: on whose replicas the steps run.
            passes: see the class.
            draws: seed of numbers by row; None: they are not.
            reduces: whether gradients are added over replicas; to see what that costs.
            trains: whether steps train; else batches are read, to see what that costs.
        """
        read_the_same()
        self.backend, self.passes, self._reduces = backend, passes, reduces
        self.trains = trains
        self.at_tape = self.each_step = self.tiled = False
        self.hashed, self.shards = 1, 1
        self.ledger = RowLedger(backend)
        with backend.scope():
            counted = backend.spec.save == "all" and backend.capabilities.synchronous
            self.draws = Draws(draws) if counted or draws is not None else None
        self.used: dict[int, Any] = {}
        self._model: Any = None  # that is trained
        self._traced: dict[int, tuple[tuple[Any, ...], dict[int, Any]]] = {}  # by id of the model
        self._models: list[Any] = []
        self._evaluating = False
        self.on_last_step: Callable[[], None] = lambda: None
        self._settle: Callable[[], None] = lambda: None  # seeds of layers are a thread's own
        # Every replica gets the whole global batch; public, and called by both Keras.
        backend.strategy_here.experimental_distribute_dataset = as_it_is
        if backend.in_strategy and backend.capabilities.synchronous:
            for name in _RUNNING:
                setattr(tf.keras.Model, name, self._taking(name))

    def begin(
        self, model: Any, *, at_tape: bool, each_step: bool, hashed: int = 1, shards: int = 1
    ) -> None:
        """A training of a model begins; see the attributes."""
        self.take(model)
        self.at_tape, self.each_step = at_tape, each_step
        self.hashed, self.shards = hashed, shards
        traced_for = (model, at_tape, each_step, hashed, shards, self.tiled)
        before, self.used = self._traced.get(id(model), ((), {}))
        if model.train_function is None or traced_for != before:
            self.used, model.train_function = {}, None
        self._model, self._traced[id(model)] = model, (traced_for, self.used)
        with self.backend.scope():  # it may make a generator
            self._settle = KERAS.as_in_this_thread(lambda: None)

    def end(self) -> None:
        """A training is over: an author's own steps get batches that every process has read."""
        if self.shards > 1 or self.hashed != 1:
            self._model.train_function = None
        self.hashed, self.shards = 1, 1

    def on_rows(
        self,
        author: Callable[..., Any],
        *,
        training: bool,
        merge: Callable[[], bool] = lambda: True,
        noted: Callable[[], bool] = lambda: True,
        kept: Callable[[], list[Any]] = list,
    ) -> Callable[[Any], Any]:
        """A step of global batches from a step of rows.

        Args:
            author: batch → numbers by name: means over the rows, or results of metrics.
            training: whether its gradients may be added at the tape.
            noted: whether the ledger looks at its rows: their hash is no operation of XLA.
            merge: whether what it returns is summed over replicas at once.
            kept: gives the variables that a replica without rows must leave as they are.

        Returns:
            A function: global batch → what Keras is to make of it.
        """
        backend, size = self.backend, self.backend.num_replicas

        def step(batch: Any) -> Any:
            self._settle()
            number = backend.static_replica_number()
            if training and self.draws is not None:
                self.draws.begin_step()
            tiled, passes = self.tiled and size > 1, self.passes if training else 1
            r, of = (0, 1) if tiled else (number, size)
            shards = self.shards if training else 1
            here = of // shards  # replicas among which this batch is divided
            if training:
                own, rows, _ = cut(batch, r % here, here)
                counted = 0 if tiled and number else rows
                looked_at = batch if noted() else None
                same = bool(self.hashed) and shards == 1
                self.ledger.note(own, counted, r, of, looked_at, hashed=self.hashed, same=same)
            if passes > 1 and self.at_tape:
                raise RefusalError(
                    "Gradient accumulation adds gradients where an optimizer applies them.",
                    received='gradients="tape"',
                    advice="Choose one of the two.",
                )
            if size == passes == 1:
                with nullcontext() if self.draws is None else drawing(self.draws):
                    returned = in_python(author)(batch)
                self._note_used()
                return returned
            parts: list[Part] = []
            said: list[Any] = []
            pending: dict[int, Any] | None = {} if passes > 1 else None
            by_row = self.draws if self.draws is not None and self.draws.by_row else None
            drawn = None if by_row is None else by_row.position()
            for k in range(passes):
                if k and by_row is not None:
                    by_row.rewind(drawn)
                place, ways = r + k * of, passes * of
                with tf.control_dependencies(_tensors(pending or {})):  # one pass at a time
                    own, rows, n = cut(batch, r % here + k * here, passes * here)
                    n *= shards
                held = _rows_of_pass(n, k, size, passes) if passes > 1 else None
                part = Part(
                    number,
                    size,
                    rows,
                    n,
                    backend.sum_gradients if self._reduces else as_given,
                    backend.sum_tensors,
                    at_tape=training and self.at_tape,
                    merge=merge(),
                    tiled=tiled,
                    held=rows * size if tiled else held,
                    pending=pending,
                    last=k == passes - 1,
                )
                drawing_as = (number, size) if by_row is None else (place, ways)
                # After its tape, each replica updates its own copies: in a `tf.cond` too.
                part.alone = part.at_tape and backend.let_replicas_update_alone()
                may_be_none = _may_be_none(n, size * passes)
                before = [(v, tf.identity(v)) for v in kept()] if may_be_none else []
                with part.running(), drawing(self.draws, *drawing_as, rows, n):
                    said.append(in_python(author)(own))
                for v, old in before:
                    v.assign(tf.where(rows > 0, v, old))
                parts.append(part)
            self._note_used()
            return self._for_keras(parts, said)

        return step

    def _note_used(self) -> None:
        # Private, TensorFlow 2.21: what a graph reads is public only when it is finished.
        for variable in getattr(tf.compat.v1.get_default_graph(), "_watched_variables", ()):
            for copy in (variable, variable.handle):  # of one replica
                whole = getattr(copy, "_distributed_container", None)
                variable = whole() if callable(whole) else variable
            self.used[id(variable)] = variable

    def _for_keras(self, parts: list[Part], said: list[Any]) -> Any:
        part, returned = parts[-1], said[-1]
        if not part.merge:  # Keras wants one number at least; `_epoch_logs` tells the others
            return {"loss": tf.zeros([1] if VERSION == 3 else [], tf.keras.backend.floatx())}
        if returned is None:  # a step function may return nothing
            return returned
        shares = [part.share for part in parts]

        def counted(*values: Any) -> Any:
            if any(values[-1] is result for result in part.results):
                return times(floating(values[-1]), sum(shares))
            return sum(times(floating(v), s) for v, s in zip(values, shares, strict=True))

        shared = tf.nest.map_structure(counted, *said)
        if not self.backend.in_strategy:
            return tf.nest.pack_sequence_as(shared, part.total(tf.nest.flatten(shared)))
        if VERSION == 2:  # Keras sums them over replicas
            return shared
        return tf.nest.map_structure(lambda v: v[None] * part.size, shared)  # or takes their mean

    def check_replicas(self) -> None:
        """Refuse a training whose replicas cannot be merged into one.

        All processes must call it, outside of a step.

        Raises:
            RefusalError: a step has let the copies of a variable part, or moving statistics are
                a mean with those of a replica that never had a row.
        """
        used = dict(self.used)
        for model in self._models if not used else ():  # of eager steps it is not known
            optimizers = [v for x in optimizers_of(model) for v in KERAS.variables_of(x)]
            used |= {id(v): v for v in (*map(KERAS.raw, model.variables), *optimizers)}
        kept = {id(v) for model in self._models for v in statistics(model)} & used.keys()
        if kept and not self.tiled and self.ledger.read()[0] and not self.ledger.least():
            raise RefusalError(
                "Every replica must have had a row, where layers keep moving statistics.",
                received="a replica without rows in each batch",
                advice="Use a larger batch, or fewer replicas.",
            )
        # What lets others part is small and not trained: a rate, a statistic, a count.
        by_size = sorted(
            used.values(), key=lambda v: (v.shape.num_elements(), v.trainable, _made(v))
        )
        for variable in by_size:
            read_over_all = tf.VariableSynchronization.ON_READ
            if (
                getattr(variable, "synchronization", None) == read_over_all
                or not variable.dtype.is_floating
            ):
                continue  # statistics and counts are each replica's own
            if self._part(variable):
                name = variable.name.removesuffix(":0")
                raise RefusalError(
                    "All replicas must hold the same variables.",
                    received=f"`{name}`, which is written from own rows: its copies part",
                    advice="Compute it from ringside.gather(rows), the rows of all replicas.",
                )

    def _part(self, variable: Any) -> bool:
        local = [np.asarray(v, np.float64) for v in self.backend.local_values(variable)]
        # A sum and a maximum may pass over a NaN, and add what is none.
        local = [np.nan_to_num(v, nan=1e300, posinf=1e301, neginf=-1e301) for v in local]
        first = np.asarray(self.backend.broadcast(local[0]))
        scale = np.max(np.abs(first), initial=0.0)
        apart = max(float(np.max(np.abs(v - first), initial=0.0)) for v in local)
        worst = self.backend.all_reduce(np.array([apart]), "max")[0]
        return bool(worst > 1e-6 * scale)  # what is equal but for rounding does not part

    def _taking(self, name: str) -> Any:
        """A method of Keras' models that takes one that was not compiled in the scope."""
        upstream = getattr(tf.keras.Model, name)

        @wraps(upstream)
        def run(model: Any, *args: Any, **kwargs: Any) -> Any:
            here = model.distribute_strategy is self.backend.strategy_here
            if OWN_STEP in vars(model) or not here:
                return upstream(model, *args, **kwargs)
            self.take(model)
            return getattr(model, name)(*args, **kwargs)

        return run

    def take(self, model: Any) -> None:
        """Let Keras' own `fit`, `evaluate` and `predict` of a model work on rows."""
        held = vars(model)
        with self.backend.scope():  # it may make a generator
            self._settle = KERAS.as_in_this_thread(lambda: None)
        if OWN_STEP in held:
            return
        held[OWN_STEP] = has_own_step(model)
        # They may have been traced for the author's own steps.
        model.train_function = model.test_function = model.predict_function = None
        if self.draws is not None:
            held[DRAWN] = self.draws.drawn
        if not self.backend.capabilities.synchronous:  # a worker's rows are a batch of their own
            take(cast("ParameterServer", self.backend), model)
            if self.draws is not None:
                held["train_step"] = self.draws.step(model.train_step)
            return
        self._models.append(model)
        several = self.backend.num_replicas > 1 or self.passes > 1

        def with_metrics(step: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                if several:
                    self._take_metrics(model)
                    part = here()  # no `:=` here: autograph leaves such a function as it is
                    if VERSION == 2 and part is not None:
                        # Keras reads it behind this step; "first" reduces nothing.
                        model.distribute_reduction_method = "sum" if part.merge else "first"
                return in_python(step)(*args)

            return run

        for name in ("train_step", "test_step"):
            author = getattr(model, name)
            if name == "train_step" and not self.trains:
                author = _reads_only
            held[name] = self.on_rows(
                with_metrics(author),
                training=name == "train_step",
                merge=partial(self._merges, model) if name == "train_step" else lambda: True,
                noted=lambda: not model.jit_compile,
                kept=lambda: statistics(model),
            )
        if not several:
            return
        if VERSION == 3 and self.backend.in_strategy:
            held["_maybe_symbolic_build"] = partial(build_symbolically, self.backend, model)
        if model.jit_compile and self.backend.xla_obstacle(self.backend.num_replicas):
            held["_jit_compile"] = False
        if self.backend.in_strategy:
            held["predict_step"] = partial(self._predict, model.predict_step)
        evaluate, train_on_batch = model.evaluate, model.train_on_batch

        def merged_at_once(*args: Any, **kwargs: Any) -> Any:
            if self.shards > 1:
                raise RefusalError(
                    "Nothing else is trained while fit trains data that ringside.shard divides.",
                    received="train_on_batch",
                    advice="Leave ringside.shard out.",
                )
            if not self._merges(model):
                held[_MERGED_AT_ONCE], model.train_function = True, None
            hold_own(model)
            return train_on_batch(*args, **kwargs)

        def averaged(*args: Any, **kwargs: Any) -> Any:
            self.backend.average_statistics(model)
            self._evaluating = True
            try:
                return evaluate(*args, **kwargs)
            finally:
                self._evaluating = False

        held["evaluate"], held["train_on_batch"] = averaged, merged_at_once
        for name in ("reset_metrics", "test_on_batch"):
            held[name] = partial(_with_own, model, getattr(model, name))
        held[KERAS.epoch_logs] = partial(self._epoch_logs, model)
        read = with_metrics(model.get_metrics_result)

        def results() -> Any:
            part = here()
            # What `_for_keras` drops is not read: a strategy would reduce each over replicas.
            return read() if part is None or part.merge else {}

        held["get_metrics_result"] = results

    def _predict(self, predict: Callable[[Any], Any], batch: Any) -> Any:
        backend = self.backend
        part, rows = block(batch, backend.static_replica_number(), backend.num_replicas)
        found = in_python(predict)(part)
        return tf.nest.map_structure(
            lambda t: t[: tf.where(rows > 0, tf.shape(t)[0], 0)] if tf.is_tensor(t) else t, found
        )

    def _merges(self, model: Any) -> bool:
        """Whether a training step returns numbers over all replicas; an author's may use them."""
        return self.each_step or has_own_step(model) or _MERGED_AT_ONCE in vars(model)

    def _epoch_logs(self, model: Any, logs: Any) -> Any:
        """What Keras tells of an epoch or an evaluation, from the logs of its last step."""
        if not self._evaluating:
            self.on_last_step()
        states = [KERAS.raw(v) for metric in model.metrics for v in metric.variables]
        said = getattr(type(model), KERAS.epoch_logs).__get__(model)
        read = type(model).get_metrics_result.__get__(model)
        own = self._evaluating or self._merges(model)

        hold_own(model)
        vars(model)[_HELD] = self.backend.hold_sums(states)  # for callbacks
        with self.backend.scope():
            found = said(logs) if own else read()
            # A result may be the variable itself.
            return {name: np.asarray(value)[()] for name, value in found.items()}

    def _take_metrics(self, model: Any) -> None:
        containers = [getattr(model, name, None) for name in KERAS.containers]
        for metric in model.metrics:
            if not any(metric is container for container in containers):
                self.take_metric(metric)
        for container in containers:
            if container is not None:
                self._take_container(container)

    def _take_container(self, container: Any) -> None:
        """What `Model.compile` was given makes its metrics in the first step, of replica 0."""
        if container.built:
            for metric in container.metrics:
                self.take_metric(metric)
        held = vars(container)
        if _TAKEN in held:
            return
        held[_TAKEN] = True
        build = container.build

        def built(*args: Any) -> None:
            with tf.init_scope():  # of each replica, and not of the graph that is traced
                build(*args)
            for metric in container.metrics:
                self.take_metric(metric)

        held["build"] = built

    def take_metric(self, metric: Any) -> None:
        """Let a metric count a replica's rows, and tell the result over all replicas."""
        held = vars(metric)
        if _TAKEN in held:
            return
        held[_TAKEN] = True
        if self.backend.in_strategy and VERSION == 2:
            # TensorFlow divides what it assigns, and what stands in a file cannot be divided.
            load = metric.load_own_variables
            held["load_own_variables"] = lambda store: load(
                {name: np.asarray(store[name]) for name in store}
            )
        upstream = metric.update_state
        by_author = not is_of_keras(getattr(metric, "_fn", None) or type(metric))

        def update_state(*args: Any, **kwargs: Any) -> Any:
            part = here()
            if part is None:
                return upstream(*args, **kwargs)
            states = [KERAS.raw(v) for v in metric.variables]
            of_rows = any(map(_has_rows, (*args, *kwargs.values())))
            whole = by_author and of_rows
            undone = (part.tiled and of_rows) or _may_be_none(part.n, part.size * self.passes)
            if not whole and not undone:
                return upstream(*args, **kwargs)
            before = [tf.identity(v) for v in states]
            if whole:  # its state may be no sum over rows: replica 0 counts the whole batch
                part.whole = True
                try:
                    upstream(
                        *(_whole(part, a) for a in args),
                        **{k: _whole(part, v) for k, v in kwargs.items()},
                    )
                finally:
                    part.whole = False
                for v, old in zip(states, before, strict=True):
                    count = v if part.held is None else tf.where(part.held > 0, v, old)
                    # States are added, also those begun at a minimum. All make the same graph.
                    v.assign(tf.where(part.number == 0, count, tf.zeros_like(v)))
            else:
                upstream(*args, **kwargs)
                for v, old in zip(states, before, strict=True):
                    v.assign(tf.where(part.counts if of_rows else part.rows > 0, v, old))
            return None

        held["update_state"] = update_state
        result = metric.result

        def over_replicas() -> Any:
            part = here()
            if part is None or not part.merge:
                return result()
            value = result() if self.backend.in_strategy and VERSION == 2 else summed(part)
            part.results += tf.nest.flatten(value)
            return value

        def summed(part: Part) -> Any:
            """Of a strategy's metrics, legacy Keras does it."""
            states = [KERAS.raw(v) for v in metric.variables]
            own = [tf.identity(v) for v in states]
            with part.together():
                totals = part.total(own)
            for v, total in zip(states, totals, strict=True):
                v.assign(total)
            value = tf.nest.map_structure(tf.identity, result())
            for v, old in zip(states, own, strict=True):
                v.assign(old)
            return value

        held["result"] = over_replicas


def hold_own(model: Any) -> None:
    """Let metrics hold what each process has counted, before they count more or are reset.

    Behind an epoch or an evaluation they hold the sums over all, for callbacks.
    """
    vars(model).pop(_HELD, lambda: None)()


def _with_own(model: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    hold_own(model)
    return method(*args, **kwargs)


def _has_rows(value: Any) -> bool:
    return value is not None and bool(tf.convert_to_tensor(value).shape.rank)


def _whole(part: Part, value: Any) -> Any:
    """With the rows of all replicas, of what has rows."""
    return gathered(part, value) if _has_rows(value) else value


def _made(variable: Any) -> int:
    """In the order in which variables were made, the same in every process. Private: 2.21."""
    return int(variable._unique_id.rpartition("_")[2])


def _tensors(pending: dict[int, Any]) -> list[Any]:
    flat = tf.nest.flatten(list(pending.values()), expand_composites=True)
    return [t for t in flat if t is not None]


def _rows_of_pass(n: Any, k: int, size: int, passes: int) -> Any:
    """How many of n rows all replicas have in pass k: runs of `size`, each `passes`-th one."""
    least, most = (min, max) if isinstance(n, int) else (tf.minimum, tf.maximum)
    return n // (size * passes) * size + least(most(n % (size * passes) - size * k, 0), size)


def _may_be_none(n: Any, size: int) -> bool:
    """Whether a replica may have no rows; asked of all, so that all make the same graph."""
    return not isinstance(n, int) or n < size


_TAKEN, _HELD = "_ringside_taken", "_ringside_held"
_MERGED_AT_ONCE = "_ringside_merged_at_once"
