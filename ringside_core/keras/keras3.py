"""Keras 3 on TensorFlow: what Ringside needs of it, changes in it, and calls by other names.

As shipped, Keras 3 computes something else under several replicas (docs/upstream.md). What is
changed here, for all programs of this process:

- A variable adds in one operation. Keras writes `assign(self + value)`: parameter servers lose
  counts, and central storage adds a variable to itself.
- What layers keep beside their weights, such as moving statistics, is each replica's own, and its
  mean is read, as in legacy Keras.
- Each replica draws random numbers from a stream of its own. All would drop the same units.
"""

import contextlib
import functools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow import random as random_module
from keras.src.backend.tensorflow.core import Variable
from keras.src.losses import loss as loss_module
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from ringside_core.keras.tensorflow import global_seed, tf, with_rank

Reduce = Callable[[list[Any], list[Any]], list[Any]]
"""(gradients, variables) → gradients combined over all replicas, in the same order."""

_here = threading.local()  # a strategy traces each replica in a thread of its own


# ---- changes in Keras -----------------------------------------------------------------------------


def _at_once(change: str, upstream: Any) -> Any:
    """Add to a variable, or take from it, in one operation."""

    @functools.wraps(upstream)
    def changed(self: Any, value: Any) -> Any:
        if in_stateless_scope() or self._value is None:
            return upstream(self, value)
        value = self._convert_to_tensor(value, dtype=self.dtype)
        getattr(self._value, change)(value)
        return self._value

    return changed


for _change in ("assign_add", "assign_sub"):
    setattr(Variable, _change, _at_once(_change, getattr(Variable, _change)))


def _of_each_replica(make: Any) -> Any:
    """Let what a layer keeps, and does not train, be each replica's own."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        before = getattr(_here, "kept", False)
        _here.kept = not kwargs.get("trainable", True)
        try:
            return make(*args, **kwargs)
        finally:
            _here.kept = before

    return made


def _aggregated(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, aggregation: str) -> Any:
        if getattr(_here, "kept", False) and aggregation == "none":
            aggregation = "mean" if "float" in self._dtype else "only_first_replica"
        return upstream(self, aggregation)

    return chosen


def _synchronized(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, synchronization: str) -> Any:
        if getattr(_here, "kept", False) and synchronization == "auto":
            synchronization = "on_read"
        return upstream(self, synchronization)

    return chosen


keras.Layer.add_weight = _of_each_replica(keras.Layer.add_weight)
Variable._map_aggregation = _aggregated(Variable._map_aggregation)
Variable._map_synchronization = _synchronized(Variable._map_synchronization)


def _seeded(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _kept():
            upstream(self, *args, **kwargs)

    return made


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    before = getattr(_here, "kept", False)
    _here.kept = True
    try:
        yield
    finally:
        _here.kept = before


_STREAM = 1_000_003  # between the seeds of two replicas
_rank = 0  # of this process, where each is a replica by itself


def _own_stream(upstream: Any) -> Any:
    """Let each replica draw from a stream of its own; the first one's is Keras'."""

    @functools.wraps(upstream)
    def drawn(self: Any, ordered: bool = True) -> Any:
        seed = upstream(self, ordered)
        context = tf.distribute.get_replica_context()
        replica = _rank if context is None else context.replica_id_in_sync_group + _rank
        if isinstance(replica, int) and not replica:
            return seed
        return seed + tf.stack([tf.cast(replica, seed.dtype) * _STREAM, 0])

    return drawn


_Seeds = keras.random.SeedGenerator
_Seeds.__init__ = _seeded(_Seeds.__init__)
_Seeds.next = _own_stream(_Seeds.next)


def _wide_in_float64(make: Any) -> Any:
    """In float64 every layer computes so, also one whose author chose another type: proofs do."""

    @functools.wraps(make)
    def made(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        lower = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
        wide = keras.backend.floatx() == "float64" and name in lower
        make(self, "float64" if wide else name, *args, **kwargs)

    return made


keras.DTypePolicy.__init__ = _wide_in_float64(keras.DTypePolicy.__init__)


def _weigh_examples(upstream: Any) -> Any:
    """Let a weight for each example weigh all of its loss, which may be a map of pixels.

    Keras would lay the weights of a batch over columns of the map.
    """

    @functools.wraps(upstream)
    def weighed(values: Any, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        rank = len(getattr(values, "shape", ()))
        if sample_weight is not None and len(sample_weight.shape) == 1 and rank > 2:
            sample_weight = with_rank(tf.convert_to_tensor(sample_weight), rank)
        return upstream(values, sample_weight, *args, **kwargs)

    return weighed


loss_module.reduce_weighted_values = _weigh_examples(loss_module.reduce_weighted_values)


MEANS = ("sum_over_batch_size", "mean")  # reductions


def let_losses_be_of_one_replica(alone: Callable[[], bool]) -> None:
    """Let Keras' losses be means over a replica's own examples, where `alone()` says so.

    Under a strategy Keras would divide them by the number of replicas.
    """
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        upstream = getattr(loss_module, name)
        setattr(loss_module, name, _unless(alone, upstream))


def _unless(alone: Callable[[], bool], upstream: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(value: Any) -> Any:
        return value if alone() else upstream(value)

    return chosen


@contextlib.contextmanager
def policy_scope(policy: str) -> Iterator[None]:
    """Within this block layers compute by this policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


# ---- optimizers -----------------------------------------------------------------------------------

optimizer_kinds = (keras.optimizers.Optimizer,)
_NOT_IN_CONFIG = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_names")
_REDUCE = "_ringside_reduce"


def reduce_first(optimizer: Any, reduce: Reduce) -> None:
    """Let an optimizer combine the gradients of all replicas before it does anything with them.

    As shipped it clips, and looks for overflows, in each replica by itself.

    Args:
        optimizer: the outermost: one with a loss scale, not the one within. Changed in place.
        reduce: called in the step of each replica.
    """
    vars(optimizer)[_REDUCE] = reduce

    def reduced(apply: Any, gradients: list[Any], variables: list[Any]) -> Any:
        return apply(vars(optimizer)[_REDUCE](gradients, variables))

    on_apply(optimizer, reduced)
    for one in (optimizer, getattr(optimizer, "inner_optimizer", optimizer)):
        vars(one)["_all_reduce_sum_gradients"] = lambda pairs: pairs


APPLY = "apply"  # the method of an optimizer by which all gradients go


def on_apply(optimizer: Any, instead: Callable[..., Any]) -> None:
    """Let a function be called where an optimizer applies gradients.

    Args:
        optimizer: changed in place.
        instead: (apply, gradients, variables) → what its caller gets; `apply` takes gradients of
            these variables. Variables are TensorFlow's.
    """
    upstream = optimizer.apply

    def applied(grads: Any, trainable_variables: Any = None) -> Any:
        known = getattr(optimizer, "inner_optimizer", optimizer)._trainable_variables
        variables = list(known if trainable_variables is None else trainable_variables)
        return instead(lambda others: upstream(others, variables), list(grads), _owned(variables))

    vars(optimizer)["apply"] = applied


def change_reduction(optimizer: Any, reduction: Callable[..., list[Any]]) -> None:
    """Let an optimizer after `reduce_first` combine gradients in another way.

    Args:
        optimizer: changed in place.
        reduction: (the present reduce, gradients, variables) → gradients.
    """
    upstream = vars(optimizer)[_REDUCE]
    vars(optimizer)[_REDUCE] = lambda gradients, variables: reduction(
        upstream, gradients, variables
    )


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the optimizer's own variables for these of a model (`trainable_of`)."""
    if not optimizer.built:
        optimizer.build([_of_keras(one) for one in variables])


def set_schedule(optimizer: Any, schedule: Any) -> None:
    """Let an optimizer's rate follow a schedule."""
    optimizer.learning_rate = schedule


def scaled_loss(optimizer: Any, loss: Any) -> Any:
    """A loss times the optimizer's loss scale, if it has one."""
    return optimizer.scale_loss(loss)


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """One update by the gradients of a scaled loss."""
    optimizer.apply(gradients, [_of_keras(one) for one in variables])


def new_optimizer(given: Any) -> Any:
    """A new optimizer from what `Model.compile` takes: a name, or an instance, which is copied."""
    optimizer = keras.optimizers.get(given)
    if optimizer is not given:
        return optimizer
    with schedule_as_it_is(optimizer):
        copy = type(optimizer).from_config(optimizer.get_config())
    keep_exclusions(optimizer, copy)
    return copy


@contextlib.contextmanager
def schedule_as_it_is(optimizer: Any) -> Iterator[None]:
    """Let an optimizer's config hold its learning-rate schedule itself, not the schedule's config.

    `Model.fit` asks no schedule for a config, so many that people write have none. Copies of an
    optimizer may share a schedule, because it has no state.
    """
    schedule, upstream = getattr(optimizer, "_learning_rate", None), optimizer.get_config
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        yield
        return

    def get_config() -> Any:
        vars(optimizer)["_learning_rate"] = tf.constant(0.0)
        try:
            return {**upstream(), "learning_rate": schedule}
        finally:
            vars(optimizer)["_learning_rate"] = schedule

    vars(optimizer)["get_config"] = get_config
    try:
        yield
    finally:
        del vars(optimizer)["get_config"]


def keep_exclusions(optimizer: Any, copy: Any) -> None:
    """Give an optimizer that was made from another one's config what that does not hold."""
    for name in _NOT_IN_CONFIG:
        if hasattr(optimizer, name):
            setattr(copy, name, getattr(optimizer, name))


def variables_of(optimizer: Any) -> list[Any]:
    """All variables of an optimizer in order."""
    return [raw(one) for one in optimizer.variables]


def variable_names(optimizer: Any) -> list[str]:
    """Names of all variables, such as `dense_kernel_momentum`."""
    return [one.path.partition("/")[2] or one.path for one in optimizer.variables]


# ---- models ---------------------------------------------------------------------------------------


def raw(variable: Any) -> Any:
    """TensorFlow's variable of one of Keras."""
    return variable._value if isinstance(variable, Variable) else variable  # `value` may cast it


def _of_keras(variable: Any) -> Any:
    return getattr(variable, _OWNER, variable)


_OWNER = "_ringside_owner"


def _owned(variables: Sequence[Any]) -> list[Any]:
    """TensorFlow's variables, of each of which Keras' is known."""
    found = []
    for one in variables:
        value = raw(one)
        if value is not one:
            setattr(value, _OWNER, one)
        found.append(value)
    return found


def trainable_of(model: Any) -> list[Any]:
    """The trainable weights of a model, as TensorFlow's variables."""
    return _owned(model.trainable_variables)


def weights_of(model: Any) -> list[Any]:
    """The weights of a model in order, without the states of metrics and of random generators."""
    return _owned(model.weights)


def get_weights(model: Any) -> list[Any]:
    """The values of `weights_of`."""
    return [variable.numpy() for variable in weights_of(model)]


def set_weights(model: Any, values: Sequence[Any]) -> None:
    """Assign values to `weights_of`."""
    for variable, value in zip(weights_of(model), values, strict=True):
        variable.assign(value)


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step."""
    return type(model).train_step is not keras.Model.train_step


def is_graph_network(model: Any) -> bool:
    """Whether a model says how its layers are connected."""
    return isinstance(model, keras.src.models.functional.Functional)


def mask_of(output: Any) -> Any:
    """The mask of an output of a graph network, or None."""
    return keras.src.backend.get_keras_mask(output)


def lowest_bits(model: Any) -> int:
    """Bits of the narrowest floating-point type in which a layer of a model computes."""
    types = {tf.as_dtype(one.compute_dtype) for one in model._flatten_layers() if one.compute_dtype}
    return min((one.size * 8 for one in types if one.is_floating), default=32)


def added_losses(layer: Any) -> list[Any]:
    """What a layer itself has added to the loss in its last call, without weight decay."""
    return list(layer._losses)


def compiled_losses(model: Any) -> Any:
    """What `Model.compile` has made of the losses; None: there are none."""
    return model._compile_loss


def compiled_metrics(model: Any) -> Any:
    """What `Model.compile` has made of the metrics."""
    if model._compile_metrics is None:
        vars(model)["_compile_metrics"] = CompileMetrics(None, None)
    return model._compile_metrics


def output_losses(losses: Any) -> list[Any]:
    """The metrics that hold the losses of single outputs, of a model with several."""
    return [] if losses is None else list(losses.metrics)


def loss_metrics(model: Any) -> list[Any]:
    """The metrics in which Keras' own step keeps its losses: of the whole, then of each output."""
    return [model._loss_tracker, *output_losses(model._compile_loss)]


def metrics_of(model: Any) -> list[Any]:
    """All metrics of a model, each with the name by which it is told."""
    found: list[Any] = []
    for metric in model.metrics:
        found += _leaves(metric) if isinstance(metric, CompileMetrics) else [metric]
    return found


def _leaves(container: Any) -> list[Any]:
    if not container.built:
        return []
    names: set[str] = set()
    for held in (*container._flat_metrics, *container._flat_weighted_metrics):
        for metric in held.metrics if held else ():
            name = f"{held.output_name}_{metric.name}" if held.output_name else metric.name
            number = 1
            while name in names:
                name, number = f"{name}_{number}", number + 1
            names.add(name)
            vars(metric)[_TOLD] = name
    return list(container.metrics)


_TOLD = "_ringside_told"


def told_as(metric: Any) -> str:
    """The name by which a metric of `metrics_of` is told."""
    return str(vars(metric).get(_TOLD, metric.name))


def new_losses(loss: Any, weights: Any, names: Any, y: Any, predictions: Any) -> Any:
    """What `Model.compile` makes of losses, built; None: there are none."""
    if loss is None:
        return None
    losses = CompileLoss(loss, weights, output_names=names)
    losses.build(y, predictions)
    return losses


def new_metrics(weighted: Any, names: Any, y: Any, predictions: Any) -> Any:
    """What `Model.compile` makes of metrics, built."""
    metrics = CompileMetrics(None, weighted, output_names=names)
    build_metrics(metrics, y, predictions)
    _leaves(metrics)
    return metrics


def build_losses(losses: Any, y: Any, predictions: Any) -> None:
    """Make the metrics of single outputs, which Keras makes in the first step."""
    if losses is not None and not losses.built:
        losses.build(y, predictions)


def build_metrics(metrics: Any, y: Any, predictions: Any) -> None:
    """Make the metrics that are given as names and functions."""
    if not metrics.built:
        metrics.build(y, predictions)


def with_loss_scale(optimizer: Any, model: Any) -> Any:
    """The optimizer that `Model.compile` makes of one for this model."""
    scales = keras.optimizers.LossScaleOptimizer
    if model.dtype_policy.name != "mixed_float16" or isinstance(optimizer, scales):
        return optimizer
    return scales(optimizer, name="loss_scale_optimizer")


def count_step(model: Any, *, first: bool = False) -> None:
    """Keras 3 counts no steps in a model."""
    del model, first


def name_alike(metrics: Any, others: Any) -> None:
    """Give metrics the names of others that were built alike: Keras numbers those without one."""
    for metric, twin in zip(metrics.metrics, others.metrics, strict=True):
        metric.name = twin.name
    _leaves(metrics)


def compiled_by(model: Any) -> dict[str, Any]:
    """What the author has told `Model.compile`: its arguments by name."""
    metrics, losses = model._compile_metrics, model._compile_loss
    return {
        "optimizer": model.optimizer,
        "loss": losses and losses._user_loss,
        "loss_weights": losses and losses._user_loss_weights,
        "metrics": metrics and metrics._user_metrics,
        "weighted_metrics": metrics and metrics._user_weighted_metrics,
    }


def looks_at_steps(callback: Any) -> bool:
    """Whether a callback is to be called at each step of a training."""
    kind, base = type(callback), keras.callbacks.Callback
    names = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
    return any(getattr(kind, name) is not getattr(base, name) for name in names)


# ---- chance ---------------------------------------------------------------------------------------


_NUMBERS = "_ringside_numbers"  # on a SeedGenerator: what answers its draws


class _Generator:
    """What Keras draws by the random generators of one layer."""

    def __init__(self, seeds: Sequence[Any]) -> None:
        self._seed = seeds[0]

    def dropout(self, inputs: Any, rate: Any, noise_shape: Any = None) -> Any:
        return _drawn["dropout"](inputs, rate, noise_shape, seed=self._seed)

    def random_uniform(
        self, shape: Any, minval: Any = 0.0, maxval: Any = None, dtype: Any = None
    ) -> Any:
        high = 1.0 if maxval is None else maxval
        return _drawn["uniform"](shape, minval, high, dtype, seed=self._seed)

    def random_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        return _drawn["normal"](shape, mean, stddev, dtype, seed=self._seed)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        return _drawn["truncated_normal"](shape, mean, stddev, dtype, seed=self._seed)


def _seeds_of(layer: Any) -> list[Any]:
    held = [*layer._seed_generators, *vars(layer).values()]
    found = {id(one): one for one in held if isinstance(one, keras.random.SeedGenerator)}
    return list(found.values())


def generator_of(layer: Any) -> Any:
    """What a layer draws random numbers from; None: it draws none."""
    seeds = _seeds_of(layer)
    return (getattr(seeds[0], _NUMBERS, None) or _Generator(seeds)) if seeds else None


def set_generator(layer: Any, generator: Any) -> None:
    """Let a layer draw from another generator, with the methods of the one that it has."""
    for seed in _seeds_of(layer):
        vars(seed)[_NUMBERS] = None if isinstance(generator, _Generator) else generator


def _answered(name: str, upstream: Any) -> Any:
    @functools.wraps(upstream)
    def drawn(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        numbers = getattr(seed, _NUMBERS, None)
        if numbers is None:
            return upstream(*args, seed=seed, **kwargs)
        if name == "dropout":
            args, kwargs = _with_whole_shape(*args, **kwargs), {}
        return getattr(numbers, _METHODS[name])(*args, **kwargs)

    return drawn


def _with_whole_shape(inputs: Any, rate: Any, noise_shape: Any = None) -> tuple[Any, ...]:
    return inputs, rate, random_module._get_concrete_noise_shape(inputs, noise_shape)


_METHODS = {
    "dropout": "dropout",
    "uniform": "random_uniform",
    "normal": "random_normal",
    "truncated_normal": "truncated_normal",
}
_drawn = {name: getattr(random_module, name) for name in _METHODS}
for _name, _function in _drawn.items():
    setattr(random_module, _name, _answered(_name, _function))


def draw_by_rank(model: Any, rank: int) -> None:
    """Let each rank draw from a stream of its own."""
    global _rank
    del model
    _rank = rank


def seed_weights(seed: int, *, also_if_seeded: bool) -> None:
    """Seed the initial weights, which follow Python's random numbers, and TensorFlow's draws.

    Args:
        seed: of the weights.
        also_if_seeded: whether a seed that the author has set is overridden.
    """
    if also_if_seeded or global_seed() is None:
        random.seed(seed)
        tf.random.set_seed(seed)


@contextlib.contextmanager
def same_chance() -> Iterator[None]:
    """After this block, everything that draws goes on as if it had not been."""
    python, numpy, seed = random.getstate(), np.random.get_state(), global_seed()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        tf.random.set_seed(seed)
