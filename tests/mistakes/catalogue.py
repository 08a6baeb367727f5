"""Every mistake that a certificate must catch: what the suite's checks are held to.

Each is a real fault of somebody's distributed training. It is planted in a process of the arm when
its backend has started (planted.py), as near to the interface as it can be: in a method of the
backend, in the workload, or in what a replica's step is given. The first sentence of a function
says what is then done wrong. This file imports no TensorFlow, so that it can be listed.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from ringside_core.specs import LearningRateRule

Plant = Callable[[Any], None]
# x, y, weights, factor of the loss (global batch ÷ its rows), and numbers of a replica's rows; the
# number of a row that only fills up a batch is negative.
Rows = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        plant: makes it, of the started backend of a process.
        fails: name of the check that must say no.
        arms: where it can be made: a backend, of two replicas unless `:3` follows.
        quick: those of them that are tried in every `make test`.
        workload: a function of workloads.py, on which it shows.
        changes: fields of the run.
        everywhere: made in the serial run too, so that only plain Keras shows it.
    """

    name: str
    what: str
    plant: Plant
    fails: str
    arms: tuple[str, ...]
    quick: tuple[str, ...] = ()
    workload: str = "dense"
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    everywhere: bool = False


MISTAKES: dict[str, Mistake] = {}
PARITY, SINGLE, AS_TIMED = "float64 parity", "float32 single updates", "as timed"
RESUMED, RANDOMNESS = "resumed", "independent randomness"
LEDGER, EVALUATED, ONCE = "training ledger", "validation ledger", "each gradient once"
KERAS3: Mapping[str, Any] = MappingProxyType({"keras": 3, "trained_by": "loop"})


def mistake(fails: str, *arms: str, **others: Any) -> Callable[[Plant], Plant]:
    """A function that plants a mistake goes into the table, under its name."""

    def listed(plant: Plant) -> Plant:
        name, what = plant.__name__, (plant.__doc__ or "").partition("\n")[0]
        MISTAKES[name] = Mistake(name, what, plant, fails, arms, **others)
        return plant

    return listed


# How mistakes are planted


def _replace(owner: Any, name: str, other: Callable[..., Any]) -> None:
    """Let `other`, which is given the present function first, be called in its stead."""
    setattr(owner, name, partial(other, getattr(owner, name)))


def _optimizer(backend: Any, change: Callable[[Any], None]) -> None:
    """Change each optimizer that the backend has wrapped."""

    def wrapped(wrap: Any, optimizer: Any, **how: Any) -> Any:
        made = wrap(optimizer, **how)
        change(made)
        return made

    _replace(backend, "wrap_optimizer", wrapped)


def _reduction(backend: Any, reduction: Callable[[Any, list[Any], list[Any]], list[Any]]) -> None:
    """Combine gradients in another way, from (how it should be, gradients, variables)."""
    _optimizer(backend, lambda made: backend.change_reduction(made, reduction))


def _scaled(backend: Any, factor: Callable[[Any], Any]) -> None:
    """Multiply combined gradients by a function of the optimizer."""
    from ringside_core.keras import tf

    def change(made: Any) -> None:
        def reduction(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
            times = factor(made)
            reduced = reduce(gradients, variables)
            return [tf.math.scalar_mul(tf.cast(times, g.dtype), g) for g in reduced]

        backend.change_reduction(made, reduction)

    _optimizer(backend, change)


def _workload(change: Callable[[Any], Any]) -> None:
    """Train another workload than what was asked."""
    from trainers import prepare

    def ready(right: Any, record: Any, workload: Any, *others: Any, **named: Any) -> Any:
        return right(record, change(workload), *others, **named)

    _replace(prepare, "prepare", ready)


def _model(change: Callable[[Any], None]) -> None:
    """Train another model than what was asked."""

    def changed(workload: Any) -> Any:
        def model() -> Any:
            built = workload.model()
            change(built)
            return built

        return dataclasses.replace(workload, model=model)

    _workload(changed)


def _rows(
    *,
    read: Callable[[Rows, Any], Rows] = lambda rows, batch: rows,
    trained: Callable[[Rows, bool], Rows] = lambda rows, watched: rows,
) -> None:
    """Change a replica's rows within its step, before or after the ledger has noted them.

    Beside the rows, `read` is given the number of the batch in its epoch, and `trained` whether
    this run is watched after each update.
    """
    from trainers import train_step

    def taken(take: Any, data: Any, totals: Any) -> Any:
        batch, watched = totals.batches + 0, totals.fed is not None
        data = (read(data[0], batch), data[1]) if watched else read(data, batch)
        return trained(take(data, totals), watched)

    _replace(train_step, "take_tag", taken)


def _on_last(backend: Any, right: Any, wrong: Any) -> Any:
    """What is wrong on the last replica, and right on all others."""
    from ringside_core.keras import tf

    return tf.where(tf.equal(backend.replica_number(), backend.num_replicas - 1), wrong, right)


def _evaluated(backend: Any, change: Callable[[Any, Rows], None]) -> None:
    """Evaluate in another way, from (the right step, a replica's rows)."""

    def stepper(make: Any, step: Any, dataset_fn: Any) -> Any:
        def other(rows: Any) -> None:
            # What is not rows is drawn to compare random numbers.
            change(step, rows) if isinstance(rows, tuple) and len(rows) == 5 else step(rows)

        return make(other, dataset_fn)

    _replace(backend, "stepper", stepper)


def _restarted(backend: Any, change: Callable[[Any], None]) -> None:
    """Change the optimizer of a training that goes on from a checkpoint."""

    def begun(begin: Any, model: Any) -> None:
        begin(model)
        # A new training has made no update yet, so it has nothing to forget.
        if int(model.optimizer.iterations.numpy()):
            with backend.scope():
                change(model.optimizer)

    _replace(backend, "begin_training", begun)


def _in_half_precision(values: list[Any]) -> list[Any]:
    return [v.astype("float16").astype(v.dtype) if v.dtype.kind == "f" else v for v in values]


# Gradients


@mistake(PARITY, "horovod", "mirrored", "multi_worker_mirrored", "central_storage")
def gradients_summed(backend: Any) -> None:
    """The gradients of the replicas are added up where their mean is meant."""
    _scaled(backend, lambda optimizer: backend.num_replicas)


@mistake(PARITY, "mirrored", "horovod", changes=KERAS3, quick=("mirrored",))
def gradients_summed_by_keras_3(backend: Any) -> None:
    """The gradients of the replicas are added up where their mean is meant."""
    gradients_summed(backend)


@mistake(SINGLE, "horovod", "multi_worker_mirrored")
def gradients_summed_later(backend: Any) -> None:
    """In float32, gradients are added up instead of averaged from the fifth update on."""
    from ringside_core.keras import tf

    def factor(optimizer: Any) -> Any:
        narrow = tf.keras.backend.floatx() == "float32"
        return tf.where(narrow & (optimizer.iterations >= 4), backend.num_replicas, 1)

    _scaled(backend, factor)


@mistake(PARITY, "horovod", "mirrored", "multi_worker_mirrored", "central_storage")
def gradients_not_reduced(backend: Any) -> None:
    """Each replica applies its own gradients; to shared variables, those of the first."""
    _reduction(backend, lambda reduce, gradients, variables: gradients)


@mistake(PARITY, "horovod", "multi_worker_mirrored")
def last_gradient_not_reduced(backend: Any) -> None:
    """The gradients of all variables but the last are reduced."""

    def most(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return [*reduce(gradients[:-1], variables[:-1]), gradients[-1]]

    _reduction(backend, most)


@mistake(SINGLE, "horovod", "mirrored")
def gradients_reduced_in_float16(backend: Any) -> None:
    """In float32, gradients are reduced in float16, which was not asked for."""
    from ringside_core.keras import tf

    def compressed(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        if gradients[0].dtype != tf.float32:
            return list(reduce(gradients, variables))
        halves = reduce([tf.cast(one, tf.float16) for one in gradients], variables)
        return [tf.cast(half, tf.float32) for half in halves]

    _reduction(backend, compressed)


@mistake(PARITY, "horovod", "mirrored", workload="clipping")
def clipped_before_the_sum(backend: Any) -> None:
    """Each replica clips its own gradients, not those of the global batch."""
    from ringside_core.keras import tf

    def clipped(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return list(reduce(tf.clip_by_global_norm(gradients, 0.05)[0], variables))

    _reduction(backend, clipped)


@mistake(PARITY, "horovod", workload="embedding")
def rows_of_a_table_averaged_twice(backend: Any) -> None:
    """Sparse gradients are divided by the number of replicas once more."""
    from ringside_core.keras import tf

    def halved(reduce: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return [
            tf.math.scalar_mul(0.5, one) if isinstance(one, tf.IndexedSlices) else one
            for one in reduce(gradients, variables)
        ]

    _reduction(backend, halved)


@mistake(ONCE, "parameter_server", quick=("parameter_server",))
def push_applied_twice(backend: Any) -> None:
    """Each worker applies its gradients twice."""

    def twice(apply: Any, pairs: Any, *others: Any, **named: Any) -> Any:
        pairs = list(pairs)
        apply(pairs, *others, **named)
        return apply(pairs, *others, **named)

    _optimizer(backend, lambda made: _replace(made, "apply_gradients", twice))


@mistake(ONCE, "parameter_server")
def pushes_dropped_later(backend: Any) -> None:
    """Every fifth push of a worker is dropped, from the thirtieth on."""
    from ringside_core.keras import tf

    def change(made: Any) -> None:
        def most(apply: Any, pairs: Any, *others: Any, **named: Any) -> Any:
            kept = (made.iterations < 30) | (made.iterations % 5 != 4)
            pairs = [(tf.where(kept, g, tf.zeros_like(g)), v) for g, v in pairs]
            return apply(pairs, *others, **named)

        _replace(made, "apply_gradients", most)

    _optimizer(backend, change)


@mistake(PARITY, "mirrored", changes={"gradient_accumulation_steps": 2})
def gradients_of_passes_summed(backend: Any) -> None:
    """The gradients of the passes of an update are added up where their mean is meant."""
    from trainers import accumulation

    _replace(accumulation, "_over", lambda over, gradient, number: gradient)


# The rate and the optimizer


@mistake(PARITY, "horovod", "mirrored", "multi_worker_mirrored", workload="adam")
def rate_scaled_by_replicas(backend: Any) -> None:
    """The learning rate is multiplied by the number of replicas."""

    def change(made: Any) -> None:
        made.learning_rate = backend.num_replicas * float(made.learning_rate.numpy())

    _optimizer(backend, change)


@mistake("one worker", "parameter_server")
def one_worker_trains_otherwise(backend: Any) -> None:
    """One worker alone halves the learning rate."""

    def change(made: Any) -> None:
        if backend.num_replicas == 1:
            made.learning_rate = 0.5 * float(made.learning_rate.numpy())

    _optimizer(backend, change)


@mistake(
    PARITY,
    "mirrored",
    changes={"learning_rate_rule": LearningRateRule(rule="linear", warmup_epochs=1)},
)
def warm_up_by_replicas(backend: Any) -> None:
    """The warm-up of the learning rate takes as many times longer as there are replicas."""
    from trainers import build

    def longer(apply: Any, optimizer: Any, spec: Any, workload: Any, steps: int) -> None:
        apply(optimizer, spec, workload, steps * backend.num_replicas)

    _replace(build, "apply_rule", longer)


@mistake(PARITY, "multi_worker_mirrored", workload="weight_decay")
def weight_decayed_twice(backend: Any) -> None:
    """Weight decay is twice what was asked where there are several replicas."""

    def change(made: Any) -> None:
        made.weight_decay *= 2

    _optimizer(backend, change)


@mistake(PARITY, "horovod", workload="weight_decay")
def exclusions_from_decay_lost(backend: Any) -> None:
    """The backend's copy of an optimizer forgets what is left out of weight decay."""
    _optimizer(backend, lambda made: made.exclude_from_weight_decay(var_names=[]))


# Rows


@mistake(LEDGER, "multi_worker_mirrored", "horovod", quick=("multi_worker_mirrored",))
def row_trained_twice(backend: Any) -> None:
    """The last replica trains one row of a batch twice, and another one not at all."""
    from ringside_core.keras import tf

    def doubled(rows: Rows, batch: Any) -> Rows:
        def repeated(tensor: Any) -> Any:
            wrong = tf.concat([tensor[:1], tensor[:1], tensor[2:]], axis=0)
            return _on_last(backend, tensor, tf.where(tf.equal(batch, 1), wrong, tensor))

        x, y, weight, scale, ids = rows
        x, y, weight, ids = tf.nest.map_structure(repeated, (x, y, weight, ids))
        return x, y, weight, scale, ids

    _rows(read=doubled)


@mistake(LEDGER, "horovod", "mirrored")
def batch_of_a_replica_lost(backend: Any) -> None:
    """The last replica trains nothing in the second update of each epoch."""
    from ringside_core.keras import tf

    def emptied(rows: Rows, batch: Any) -> Rows:
        x, y, weight, scale, ids = rows
        none = tf.where(tf.equal(batch, 1), tf.constant(-1, ids.dtype), ids)
        nothing = tf.where(tf.equal(batch, 1), tf.zeros_like(weight), weight)
        return x, y, _on_last(backend, weight, nothing), scale, _on_last(backend, ids, none)

    _rows(read=emptied)


@mistake(PARITY, "mirrored", "multi_worker_mirrored")
def labels_of_other_rows(backend: Any) -> None:
    """On the last replica each row has the label of its neighbour."""
    from ringside_core.keras import tf

    def shifted(rows: Rows, watched: bool) -> Rows:
        x, y, *others = rows
        return x, _on_last(backend, y, tf.roll(y, 1, axis=0)), *others

    _rows(trained=shifted)


@mistake(PARITY, "horovod", "mirrored")
def mean_over_own_rows(backend: Any) -> None:
    """A replica's loss is a mean over its own rows, also where replicas have unequal shares."""
    from ringside_core.keras import tf

    def local(rows: Rows, watched: bool) -> Rows:
        x, y, weight, scale, ids = rows
        own = tf.reduce_sum(tf.cast(ids >= 0, scale.dtype))
        return x, y, weight, tf.cast(tf.size(ids), scale.dtype) / tf.maximum(own, 1), ids

    _rows(trained=local)


@mistake(PARITY, "horovod", "mirrored:3")
def filling_rows_counted(backend: Any) -> None:
    """The last replica counts rows that only fill up a short batch."""
    from ringside_core.keras import tf

    def counted(rows: Rows, watched: bool) -> Rows:
        x, y, weight, scale, ids = rows
        ones = tf.where(ids >= 0, weight, tf.ones_like(weight))
        return x, y, _on_last(backend, weight, ones), scale, ids

    _rows(trained=counted)


@mistake(AS_TIMED, "horovod", "mirrored", workload="class_weights")
def weights_of_rows_lost_as_timed(backend: Any) -> None:
    """Where a run is not watched, rows lose their weights."""
    from ringside_core.keras import tf

    def plain(rows: Rows, watched: bool) -> Rows:
        x, y, weight, scale, ids = rows
        ones = tf.cast(ids >= 0, weight.dtype)
        return x, y, weight if watched else ones, scale, ids

    _rows(trained=plain)


# Data as they are read


@mistake(LEDGER, "horovod", "multi_worker_mirrored")
def every_replica_is_the_first(backend: Any) -> None:
    """Every process reads the share of the first one."""

    def first(distribute: Any, dataset_fn: Any) -> Any:
        return distribute(lambda shard: dataset_fn(shard.replace(index=0)))

    _replace(backend, "distribute", first)


@mistake(LEDGER, "horovod", "multi_worker_mirrored")
def own_order_in_each_process(backend: Any) -> None:
    """Each process shuffles with a seed of its own."""
    from trainers import prepare

    def seeded(make: Any, spec: Any, *others: Any, **named: Any) -> Any:
        return make(spec.replace(seed=spec.seed + backend.rank), *others, **named)

    _replace(prepare, "make_pipeline", seeded)


@mistake(PARITY, "mirrored", "multi_worker_mirrored")
def two_labels_exchanged(backend: Any) -> None:
    """In the last process two rows have each other's labels."""

    def exchanged(workload: Any) -> Any:
        x, y = workload.train.arrays
        order = [*range(len(y))]
        if backend.rank == backend.size - 1:
            i, j = 0, next(k for k in order if y[k] != y[0])
            order[i], order[j] = j, i
        train = dataclasses.replace(workload.train, arrays=(x, y[order]))
        return dataclasses.replace(workload, train=train)

    _workload(exchanged)


@mistake("fed elements", "horovod", "mirrored")
def labels_of_other_rows_at_the_end(backend: Any) -> None:
    """From row 250 on, which no case reaches, the label is that of the neighbour."""
    from ringside_core.keras import tf
    from ringside_core.workloads.pipeline import Pipeline

    dataset = Pipeline.dataset

    def shifted(x: Any, y: Any, weight: Any, scale: Any, ids: Any) -> Rows:
        return x, tf.where(ids >= 250, tf.roll(y, 1, axis=0), y), weight, scale, ids

    def other(self: Any, *others: Any, **named: Any) -> Any:
        return dataset(self, *others, **named).map(shifted)

    setattr(Pipeline, "dataset", other)  # noqa: B010 - mypy knows that it is a method


@mistake(LEDGER, "horovod", "mirrored")
def last_row_dropped(backend: Any) -> None:
    """The last row of the training data is not trained."""

    def fewer(workload: Any) -> Any:
        train = workload.train.first(workload.train.num_examples - 1)
        return dataclasses.replace(workload, train=train)

    _workload(fewer)


@mistake("reference is plain Keras", "mirrored", workload="class_weights", everywhere=True)
def weights_of_rows_lost_everywhere(backend: Any) -> None:
    """Class weights are left out in every arm and in the serial run."""
    _workload(lambda workload: dataclasses.replace(workload, class_weight=None))


# Evaluation


@mistake(EVALUATED, "horovod", "parameter_server", quick=("horovod",))
def evaluation_over_a_part(backend: Any) -> None:
    """The last held-out row is not evaluated."""

    def fewer(workload: Any) -> Any:
        validation = workload.validation.first(workload.validation.num_examples - 1)
        return dataclasses.replace(workload, validation=validation)

    _workload(fewer)


@mistake(EVALUATED, "central_storage", "parameter_server")
def metrics_counted_twice(backend: Any) -> None:
    """Each batch counts twice in an evaluation."""

    def twice(step: Any, rows: Rows) -> None:
        step(rows)
        step(rows)

    _evaluated(backend, twice)


@mistake(PARITY, "mirrored", "multi_worker_mirrored")
def evaluation_without_the_last_replica(backend: Any) -> None:
    """What the last replica evaluates is counted as rows, but has no weight."""

    def weightless(step: Any, rows: Rows) -> None:
        x, y, weight, *others = rows
        step((x, y, _on_last(backend, weight, 0 * weight), *others))

    _evaluated(backend, weightless)


@mistake(PARITY, "horovod")
def metric_mean_of_replicas(backend: Any) -> None:
    """A metric is the plain mean of the replicas' results over unequal shares."""

    def merged(merge: Any, metrics: list[Any]) -> Any:
        own = {
            metric.name: backend.all_reduce(metric.result().numpy(), "mean")
            for metric in metrics
            if not metric.name.startswith("ringside_")
        }
        return {**merge(metrics), **own}

    _replace(backend, "merged_results", merged)


@mistake(PARITY, "mirrored", workload="batch_norm")
def evaluated_as_in_training(backend: Any) -> None:
    """Evaluations call the model as in training."""

    def training(call: Any, *inputs: Any, **named: Any) -> Any:
        return call(*inputs, **{**named, "training": True})

    def change(model: Any) -> None:
        for layer in model.layers:
            if "batch_norm" in layer.name:
                _replace(layer, "call", training)

    _model(change)


# Initial values, statistics and random numbers


@mistake(PARITY, "horovod", "multi_worker_mirrored")
def own_initial_weights(backend: Any) -> None:
    """Each process draws its own initial weights, and they are not broadcast."""
    from ringside_core.keras import tf

    def seeded(workload: Any) -> Any:
        def model() -> Any:
            tf.keras.utils.set_random_seed(1 + backend.rank)
            return workload.model()

        return dataclasses.replace(workload, model=model)

    _workload(seeded)
    _replace(backend, "begin_training", lambda begin, model: None)


@mistake(PARITY, "one_device:1", "mirrored")
def initial_weights_in_half_precision(backend: Any) -> None:
    """The initial weights pass through float16 on their way to the device."""

    def begun(begin: Any, model: Any) -> None:
        with backend.scope():
            model.set_weights(_in_half_precision(model.get_weights()))
        begin(model)

    _replace(backend, "begin_training", begun)


@mistake(PARITY, "horovod", "mirrored", workload="batch_norm")
def statistics_not_averaged(backend: Any) -> None:
    """Moving statistics stay those of a replica's own rows."""
    _replace(backend, "average_statistics", lambda average, model: None)


@mistake(PARITY, "horovod", "mirrored", workload="sync_batch_norm")
def batch_norm_not_synchronised(backend: Any) -> None:
    """Batch normalisation is asked to be synchronised, and silently is not."""

    def change(model: Any) -> None:
        for layer in model.layers:
            if hasattr(layer, "synchronized"):
                layer.synchronized = False

    _model(change)


@mistake(RANDOMNESS, "multi_worker_mirrored", workload="dropout")
def seeds_of_processes_equal(backend: Any) -> None:
    """All processes draw the same random numbers."""
    from ringside_core.keras import tf

    _replace(tf.random, "set_seed", lambda set_seed, seed: set_seed(backend.spec.seed))
    _replace(backend, "replica_number", lambda number: 0)


# Checkpoints


@mistake(RESUMED, "mirrored", "multi_worker_mirrored", quick=("mirrored",))
def slots_lost_after_a_restart(backend: Any) -> None:
    """After a restart the optimizer's slots are zero."""
    _restarted(backend, _without_slots)


@mistake(RESUMED, "horovod")
def slots_restored_by_the_first_process_only(backend: Any) -> None:
    """After a restart only the first process has the optimizer's slots."""
    if backend.rank:
        _restarted(backend, _without_slots)


def _without_slots(optimizer: Any) -> None:
    for variable in optimizer.variables:
        if variable.shape.rank:  # neither the rate nor the number of updates
            variable.assign(0 * variable)


@mistake(RESUMED, "mirrored", workload="adam")
def updates_counted_from_zero_after_a_restart(backend: Any) -> None:
    """After a restart the optimizer counts its updates from zero."""
    _restarted(backend, lambda optimizer: optimizer.iterations.assign(0))


@mistake(RESUMED, "horovod", "mirrored")
def stale_weights_after_a_restart(backend: Any) -> None:
    """After a restart the first weight is that of an untrained model."""
    from trainers import checkpoint

    def stale(put: Any, values: list[Any], model: Any, *others: Any) -> None:
        put([model.get_weights()[0], *values[1:]], model, *others)

    _replace(checkpoint, "put", stale)


@mistake(RESUMED, "mirrored", "horovod")
def order_begins_again_after_a_restart(backend: Any) -> None:
    """After a restart the epochs come in the order of the first ones."""
    from trainers import prepare

    def again(read: Any, spec: Any, train: Any, position: Any) -> Any:
        return read(spec, train, dataclasses.replace(position, epochs_done=0))

    _replace(prepare, "reader", again)


@mistake(RESUMED, "mirrored")
def saved_in_half_precision(backend: Any) -> None:
    """A checkpoint holds its weights in float16."""
    from trainers import checkpoint

    def half(take: Any, model: Any) -> Any:
        arrays = take(model)
        names = [name for name in arrays if name.startswith("weight_")]
        halves = _in_half_precision([arrays[name] for name in names])
        return {**arrays, **dict(zip(names, halves, strict=True))}

    _replace(checkpoint, "snapshot", half)
