"""Every mistake that a certificate must catch: what the suite's checks are held to.

Each is a fault of somebody's distributed training. It is planted in the processes of an arm when
their backend has started (planted.py). The first sentence of a function says what is then done
wrong. This file imports no TensorFlow, so that it can be listed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside_core.specs import LearningRateRule

FED, ONCE, PARITY = "training ledger", "each gradient once", "float64 parity"
AS_TIMED, RESUMED, SINGLE = "as timed", "resumed", "float32 single updates"
COUNTED, ONE_WORKER = "counted updates", "one worker"
BOTH, WORKERS = ("mirrored", "horovod"), ("parameter_server",)


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        plant: makes it, of the started backend of a process.
        fails: name of the check that must say no.
        arms: backends in which it can be made, of two replicas.
        daily: the one of them that is tried in every `make test`; empty: none.
        program: on which it shows: a function of programs.py, or of keras3.py.
        changes: fields of the run.
    """

    what: str
    plant: Callable[[Any], None]
    fails: str
    arms: tuple[str, ...]
    daily: str
    program: str
    changes: Mapping[str, Any]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    fails: str, *arms: str, daily: str = "", program: str = "dense", **changes: Any
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Into the table, under the name of the function."""

    def listed(plant: Callable[[Any], None]) -> Callable[[Any], None]:
        what = (plant.__doc__ or "").partition("\n")[0]
        found = Mistake(what, plant, fails, arms or BOTH, daily, program, changes)
        MISTAKES[plant.__name__] = found
        return plant

    return listed


# How mistakes are planted


def _replace(owner: Any, name: str, other: Callable[..., Any]) -> None:
    """Let `other`, which is given the present function first, be called instead."""
    setattr(owner, name, partial(other, getattr(owner, name)))


def _method(owner: Any, name: str, other: Callable[..., Any]) -> None:
    """The same of a method of a class: `other(upstream, self, …)`."""
    upstream = getattr(owner, name)
    setattr(owner, name, lambda self, *args, **kwargs: other(upstream, self, *args, **kwargs))


def _gradients(backend: Any, change: Callable[..., Any]) -> None:
    """Change each gradient × share of a replica before they are added."""
    _replace(
        backend,
        "sum_gradients",
        lambda add, found, *rest: add([g if g is None else change(g) for g in found], *rest),
    )


def _times(gradient: Any, factor: Any) -> Any:
    from ringside_core.keras import tf

    return tf.math.scalar_mul(tf.cast(factor, gradient.dtype), gradient)


def _is_last(backend: Any) -> bool:
    """Whether the replica that is traced is the last one."""
    return bool(backend.static_replica_number() == backend.num_replicas - 1)


def _is_unwatched(backend: Any) -> bool:
    """Whether the training that is traced is the one that is not watched."""
    from ringside.certificates.trial_request import SHORT

    return _CASE[-1:] == [SHORT]


_CASE: list[str] = []  # of the training that runs


def note_cases() -> None:
    """Know which training of a trial runs."""
    from ringside.certificates.trial import Trial

    def noted(train: Any, self: Any, case: str, *rest: Any) -> Any:
        _CASE.append(case)
        return train(self, case, *rest)

    _method(Trial, "_train", noted)


def _rows(change: Callable[[Any, bool], Any]) -> None:
    """Change what a replica's step is given, after the ledger has noted its rows.

    `change` is given the batch, and whether it is of a training.
    """
    from trainers.step import Steps

    def other(on_rows: Any, self: Any, author: Any, *, training: bool, **rest: Any) -> Any:
        return on_rows(self, lambda b: author(change(b, training)), training=training, **rest)

    _method(Steps, "on_rows", other)


def _cut(change: Callable[..., Any]) -> None:
    """Cut a batch in another way, from (the right way, batch, replica, size)."""
    from trainers import step

    _replace(step, "cut", change)


def _data(change: Callable[[Any], Any]) -> None:
    """Read other data than the author's."""
    from trainers import reading

    _replace(reading, "_iterate", lambda iterate, data: iterate(change(data)))


def _model(change: Callable[[Any], Any]) -> None:
    """Change a model where its training begins."""
    from trainers.step import Steps

    seen: set[int] = set()

    def begun(begin: Any, self: Any, model: Any, **rest: Any) -> None:
        begin(self, model, **rest)
        if id(model) not in seen:
            seen.add(id(model))
            with self.backend.scope():
                change(model)

    _method(Steps, "begin", begun)


def _restored(change: Callable[[list[Any], int], list[Any]]) -> None:
    """Restore other values, from (values, number of weights among them)."""
    from trainers import checkpoint

    def put(right: Any, values: Any, model: Any, *rest: Any) -> None:
        right(change(list(values), len(model.get_weights())), model, *rest)

    _replace(checkpoint, "put", put)


# The reducer


@mistake(ONCE, program="batch_norm")
def gradients_twice(backend: Any) -> None:
    """Each gradient counts twice."""
    _gradients(backend, lambda g: _times(g, 2))


@mistake(PARITY, "central_storage", "multi_worker_mirrored")
def gradients_averaged(backend: Any) -> None:
    """The shares add up to 1, and the sum is divided by the replicas besides."""
    _gradients(backend, lambda g: _times(g, 1 / backend.num_replicas))


@mistake(PARITY, program="keras3.py:momentum", keras=3)
def gradients_averaged_in_keras_3(backend: Any) -> None:
    """The same in Keras 3."""
    gradients_averaged(backend)


@mistake(FED, "mirrored", "horovod", "multi_worker_mirrored", daily="mirrored")
def gradients_not_added(backend: Any) -> None:
    """Each replica trains alone."""
    _replace(backend, "sum_gradients", lambda add, found, *rest: found)


@mistake(FED)
def last_gradient_not_added(backend: Any) -> None:
    """The gradients of all variables but the last are added."""

    def most(add: Any, found: list[Any], variables: list[Any], upstream: Any) -> list[Any]:
        return [*add(found[:-1], variables[:-1], upstream), found[-1]]

    _replace(backend, "sum_gradients", most)


@mistake(PARITY)
def last_replica_left_out(backend: Any) -> None:
    """The last replica's gradients do not count."""
    _gradients(backend, lambda g: _times(g, 0 if _is_last(backend) else 1))


@mistake(SINGLE, daily="mirrored")
def half_precision(backend: Any) -> None:
    """In float32, gradients are sent in 16 bits."""
    from ringside_core.keras import tf

    def narrow(g: Any) -> Any:
        return tf.cast(tf.cast(g, tf.float16), tf.float32) if g.dtype == tf.float32 else g

    _gradients(backend, narrow)


@mistake(SINGLE)
def gradients_twice_later(backend: Any) -> None:
    """In float32, gradients count twice from the fifth update on."""
    from ringside_core.keras import tf

    def later(add: Any, found: list[Any], variables: list[Any], upstream: Any) -> list[Any]:
        if found[0].dtype != tf.float32:
            return list(add(found, variables, upstream))
        times = tf.where(upstream.args[0].iterations >= 4, 2.0, 1.0)
        return [_times(g, times) for g in add(found, variables, upstream)]

    _replace(backend, "sum_gradients", later)


@mistake(PARITY, program="clipping")
def clipped_before_added(backend: Any) -> None:
    """Each replica clips its own gradients, not those of the global batch."""
    from ringside_core.keras import tf

    def clipped(add: Any, found: list[Any], *rest: Any) -> list[Any]:
        return list(add(tf.clip_by_global_norm(found, 0.025)[0], *rest))

    _replace(backend, "sum_gradients", clipped)


@mistake(PARITY, program="embedding")
def rows_of_a_table_halved(backend: Any) -> None:
    """Sparse gradients are divided by the number of replicas once more."""
    from ringside_core.keras import tf

    _gradients(backend, lambda g: _times(g, 0.5) if isinstance(g, tf.IndexedSlices) else g)


@mistake(AS_TIMED, daily="horovod")
def gradients_twice_as_timed(backend: Any) -> None:
    """Where it is not watched, each gradient counts twice."""
    _gradients(backend, lambda g: _times(g, 2 if _is_unwatched(backend) else 1))


@mistake(PARITY, program="momentum", gradient_accumulation_steps=2)
def first_pass_lost(backend: Any) -> None:
    """Of the passes of an update, the gradients of the last alone are applied."""
    from ringside_core.keras import legacy_hooks

    def forgotten(shared: Any, here: Any, *rest: Any, **named: Any) -> Any:
        if here.pending is not None:
            here.pending.clear()
        return shared(here, *rest, **named)

    _replace(legacy_hooks, "shared", forgotten)


# Shares


@mistake(AS_TIMED)
def equal_shares(backend: Any) -> None:
    """Replicas count the same, also where a short batch gives them different numbers of rows."""
    from ringside_core.keras import part, tf

    share = property(lambda self: tf.constant(1 / self.size, tf.float64))
    vars(part)["Part"].share = share


@mistake(PARITY, program="momentum")
def row_that_stands_in_counted(backend: Any) -> None:
    """A replica without rows counts the row that it runs on instead."""
    from ringside_core.keras import part, tf

    def portion(self: Any) -> Any:
        rows = tf.maximum(tf.convert_to_tensor(self.rows), 1)
        return tf.cast(rows, tf.float64) / tf.cast(self.n, tf.float64)

    vars(part)["Part"].portion = property(portion)


# The optimizer


@mistake(PARITY, "mirrored", "horovod", "multi_worker_mirrored")
def rate_times_replicas(backend: Any) -> None:
    """The learning rate is multiplied by the number of replicas."""

    def change(model: Any) -> None:
        rate = float(model.optimizer.learning_rate.numpy())
        model.optimizer.learning_rate = backend.num_replicas * rate

    _model(change)


@mistake(
    PARITY,
    "mirrored",
    program="momentum",
    global_batch=16,
    learning_rate_rule=LearningRateRule(rule="linear", warmup_epochs=1),
)
def warm_up_times_replicas(backend: Any) -> None:
    """The warm-up of the learning rate takes as many times longer as there are replicas."""
    from ringside import script

    def longer(apply: Any, optimizer: Any, spec: Any, reference: Any, steps: int) -> None:
        apply(optimizer, spec, reference, steps * backend.num_replicas)

    _replace(script, "apply_rule", longer)


@mistake(PARITY, "multi_worker_mirrored", program="weight_decay")
def weight_decayed_twice(backend: Any) -> None:
    """Weight decay is twice what was asked for."""

    def change(model: Any) -> None:
        model.optimizer.weight_decay *= 2

    _model(change)


@mistake(PARITY, "horovod", program="weight_decay")
def exclusions_from_decay_lost(backend: Any) -> None:
    """The optimizer forgets what is left out of weight decay."""

    def change(model: Any) -> None:
        model.optimizer._exclude_from_weight_decay_names = []  # private: tf-keras 2.21

    _model(change)


@mistake(PARITY, "mirrored")
def updates_counted_twice(backend: Any) -> None:
    """The optimizer counts two updates where it makes one."""

    def change(model: Any) -> None:
        from ringside_core.keras import KERAS

        def counted(apply: Any, found: Any, variables: Any) -> Any:
            model.optimizer.iterations.assign_add(1)
            return apply(found)

        KERAS.on_apply(model.optimizer, counted)

    _model(change)


# Rows


@mistake(FED, program="momentum")
def rows_one_after_the_other(backend: Any) -> None:
    """A replica gets the next block of rows, and counts it as if it were every second row."""
    from trainers.rows import block

    def blocks(cut: Any, batch: Any, r: int, size: int) -> Any:
        _, rows, n = cut(batch, r, size)
        return block(batch, r, size)[0], rows, n

    _cut(blocks)


@mistake(FED, daily="horovod")
def every_replica_is_the_first(backend: Any) -> None:
    """Every replica trains the rows of the first one."""
    _cut(lambda cut, batch, r, size: cut(batch, 0, size))


@mistake(FED)
def row_read_twice(backend: Any) -> None:
    """A replica reads its first row twice, and its last one not at all."""
    from ringside_core.keras import tf

    def doubled(cut: Any, batch: Any, r: int, size: int) -> Any:
        own, rows, n = cut(batch, r, size)
        twice = tf.nest.map_structure(lambda t: tf.concat([t[:1], t[:-1]], 0), own)
        return twice, rows, n

    _cut(doubled)


@mistake(PARITY)
def row_trained_twice(backend: Any) -> None:
    """The last replica trains its first row twice, and its last one not at all."""
    from ringside_core.keras import tf

    def doubled(batch: Any, training: bool) -> Any:
        if not (training and _is_last(backend)):
            return batch
        return tf.nest.map_structure(lambda t: tf.concat([t[:1], t[:-1]], 0), batch)

    _rows(doubled)


@mistake(PARITY, daily="mirrored")
def labels_of_other_rows(backend: Any) -> None:
    """On the last replica each row has the label of its neighbour."""
    from ringside_core.keras import tf

    def shifted(batch: Any, training: bool) -> Any:
        if not (training and _is_last(backend)):
            return batch
        x, y, *others = batch
        return x, tf.roll(y, 1, axis=0), *others

    _rows(shifted)


@mistake(PARITY, program="weighted_rows")
def weights_of_rows_lost(backend: Any) -> None:
    """All rows count the same, whatever their weights."""
    _rows(lambda batch, training: batch[:2] if training else batch)


# Data as they are read


@mistake(FED)
def last_batch_left_out(backend: Any) -> None:
    """The data end before their last batch."""

    def fewer(data: Any) -> Any:
        batches = int(data.reduce(0, lambda n, *_: n + 1))
        return data.take(batches - 1) if batches > 1 else data

    _data(fewer)


@mistake(FED)
def another_order(backend: Any) -> None:
    """The batches come in another order."""
    _data(lambda data: data.shuffle(9, seed=1))


@mistake(FED, "horovod", "multi_worker_mirrored", daily="multi_worker_mirrored")
def own_order_in_each_process(backend: Any) -> None:
    """Each process shuffles with a seed of its own."""
    _data(lambda data: data.shuffle(9, seed=1 + backend.rank))


@mistake(FED)
def short_batch_filled_up(backend: Any) -> None:
    """The rows of a short batch are trained again, until it is as large as the others."""
    from ringside_core.keras import tf

    def filled(*parts: Any) -> Any:
        n = tf.shape(tf.nest.flatten(parts)[0])[0]
        places = tf.range(tf.maximum(n, 8)) % n
        return tf.nest.map_structure(lambda t: tf.gather(t, places), parts)

    _data(lambda data: data.map(filled))


# Evaluation and history


@mistake(PARITY, daily="horovod")
def evaluation_over_a_part(backend: Any) -> None:
    """The last replica evaluates one of its rows less."""
    from ringside_core.keras import tf

    def fewer(batch: Any, training: bool) -> Any:
        if training or not _is_last(backend):
            return batch
        return tf.nest.map_structure(lambda t: t[: tf.maximum(tf.shape(t)[0] - 1, 1)], batch)

    _rows(fewer)


@mistake(PARITY)
def evaluated_as_in_training(backend: Any) -> None:
    """Evaluations call the model as in training."""
    from trainers.step import Steps

    def taken(take: Any, self: Any, model: Any) -> None:
        for layer in model.layers:
            if "dropout" in layer.name:
                call = layer.call
                layer.call = lambda x, training=None, call=call: call(x, training=True)
        take(self, model)

    _method(Steps, "take", taken)


@mistake(PARITY, "horovod")
def own_metrics(backend: Any) -> None:
    """The metrics of an evaluation are those of one replica."""
    _replace(backend, "hold_sums", lambda hold, variables: lambda: None)


@mistake(PARITY)
def own_history(backend: Any) -> None:
    """The history is a little too high."""
    from trainers.step import Steps

    del backend

    def more(tell: Any, self: Any, model: Any, logs: Any) -> Any:
        factor = 1.01 if _CASE[-1:] == ["updates"] else 1.0
        return {name: value * factor for name, value in tell(self, model, logs).items()}

    _method(Steps, "_epoch_logs", more)


@mistake(PARITY, "mirrored")
def predictions_exchanged(backend: Any) -> None:
    """The replicas' predictions come in another order."""
    from trainers import step

    _replace(step, "block", lambda block, batch, r, size: block(batch, size - 1 - r, size))


# First values, statistics and random numbers


@mistake(FED, "multi_worker_mirrored")  # Horovod's ranks are given those of rank 0
def own_initial_weights(backend: Any) -> None:
    """Each process begins with weights of its own."""

    def change(model: Any) -> None:
        model.set_weights([w * (1 + backend.rank) for w in model.get_weights()])

    _model(change)


@mistake(PARITY, "mirrored", "one_device:1", daily="one_device:1")
def initial_weights_in_half_precision(backend: Any) -> None:
    """The initial weights pass through float16 on their way to the device."""
    _model(lambda model: model.set_weights([_half(w) for w in model.get_weights()]))


def _half(array: Any) -> Any:
    return array.astype("float16").astype(array.dtype) if array.dtype.kind == "f" else array


@mistake(PARITY, program="batch_norm")
def statistics_not_averaged(backend: Any) -> None:
    """Moving statistics stay those of a replica's own rows."""
    _replace(backend, "average_statistics", lambda average, model: None)


@mistake(PARITY, program="sync_batch_norm")
def batch_norm_not_synchronised(backend: Any) -> None:
    """Batch normalisation is asked to be synchronised, and silently is not."""

    def change(model: Any) -> None:
        for layer in model.layers:
            if hasattr(layer, "synchronized"):
                layer.synchronized = False

    _model(change)


@mistake(PARITY)
def other_dropout(backend: Any) -> None:
    """A replica's masks are not those of its rows."""
    from ringside_core.keras.draws import Draws

    _method(Draws, "next", lambda upstream, self, *rest: 1 + upstream(self, *rest))


@mistake(PARITY, daily="mirrored")
def masks_of_the_first_replica(backend: Any) -> None:
    """All replicas draw the masks of the first one's rows."""
    from trainers import step

    _replace(
        step, "drawing", lambda drawing, draws, number=0, *rest: drawing(draws, 0 * number, *rest)
    )


# Checkpoints


@mistake(RESUMED, daily="horovod")
def begins_its_data_again(backend: Any) -> None:
    """A resumed training reads its data from their beginning."""
    from trainers.reading import Reading

    def fresh(init: Any, self: Any, again: bool, place: Any = None, *rest: Any, **how: Any) -> None:
        init(self, again, None, *rest, **how)

    _method(Reading, "__init__", fresh)


@mistake(RESUMED)
def optimizer_forgotten(backend: Any) -> None:
    """A checkpoint does not restore what the optimizer holds."""
    _restored(lambda values, weights: [*values[:weights], *(0 * v for v in values[weights:])])


@mistake(RESUMED, "multi_worker_mirrored")  # Horovod gives all ranks what rank 0 holds
def optimizer_restored_by_the_first_process_only(backend: Any) -> None:
    """After a restart only the first process has what the optimizer held."""
    if backend.rank:
        optimizer_forgotten(backend)


@mistake(RESUMED, "mirrored")
def updates_counted_from_zero_after_a_restart(backend: Any) -> None:
    """After a restart the optimizer counts its updates from zero."""
    _restored(
        lambda values, weights: [
            *values[:weights],
            *(0 * v if v.dtype.kind == "i" else v for v in values[weights:]),
        ]
    )


@mistake(RESUMED)
def stale_weights_after_a_restart(backend: Any) -> None:
    """After a restart the first weight is not the one that was saved."""
    _restored(lambda values, weights: [0.5 * values[0], *values[1:]])


@mistake(RESUMED, "mirrored", "parameter_server")
def saved_in_half_precision(backend: Any) -> None:
    """A checkpoint holds its weights in float16."""
    from trainers import checkpoint

    def half(take: Any, model: Any) -> Any:
        found = take(model)
        return {n: _half(v) if n.startswith("weight_") else v for n, v in found.items()}

    _replace(checkpoint, "snapshot", half)


# Asynchronous workers


def _workers_cut(change: Callable[..., Any]) -> None:
    from trainers import workers

    _replace(workers, "cut", change)


@mistake(COUNTED, *WORKERS, daily="parameter_server")
def push_applied_twice(backend: Any) -> None:
    """Each worker applies its gradients twice."""

    def change(model: Any) -> None:
        apply = model.optimizer.apply_gradients

        def twice(pairs: Any, *others: Any, **named: Any) -> Any:
            pairs = list(pairs)
            apply(pairs, *others, **named)
            return apply(pairs, *others, **named)

        model.optimizer.apply_gradients = twice

    _model(change)


@mistake(PARITY, *WORKERS)
def pushes_dropped_later(backend: Any) -> None:
    """Every fifth push of a worker changes nothing, but not the first of them."""

    def change(model: Any) -> None:
        from ringside_core.keras import KERAS, tf

        def most(apply: Any, found: Any, variables: Any) -> Any:
            made = model.optimizer.iterations
            kept = (made < 5) | (made % 5 != 1)
            return apply([tf.where(kept, g, tf.zeros_like(g)) for g in found])

        KERAS.on_apply(model.optimizer, most)

    _model(change)


@mistake(FED, *WORKERS)
def updates_lost_as_timed(backend: Any) -> None:
    """Where it is not watched, every seventh update of a worker is not dispatched."""
    if backend.role != "coordinator":
        return
    scheduled: list[Any] = []

    def most(schedule: Any, *args: Any, **kwargs: Any) -> Any:
        lost = _is_unwatched(backend) and len(scheduled) % 7 == 6
        scheduled.append(scheduled[-1] if lost else schedule(*args, **kwargs))
        return scheduled[-1]

    _replace(backend.coordinator, "schedule", most)


@mistake(FED, *WORKERS)
def all_workers_are_the_first(backend: Any) -> None:
    """Every worker trains the rows of the first one."""
    _workers_cut(lambda cut, batch, w, size: cut(batch, 0, size))


@mistake(PARITY, *WORKERS)
def labels_of_other_rows_on_workers(backend: Any) -> None:
    """On the last worker each row has the label of its neighbour."""
    from ringside_core.keras import tf

    def shifted(cut: Any, batch: Any, w: int, size: int) -> Any:
        own, rows, n = cut(batch, w, size)
        x, y, *others = own
        return (x, tf.roll(y, 1, axis=0) if w else y, *others), rows, n

    _workers_cut(shifted)


@mistake(ONE_WORKER, *WORKERS)
def one_worker_trains_otherwise(backend: Any) -> None:
    """One worker alone halves the learning rate."""

    def change(model: Any) -> None:
        model.optimizer.learning_rate = 0.5 * float(model.optimizer.learning_rate.numpy())

    if backend.num_replicas == 1:
        _model(change)
