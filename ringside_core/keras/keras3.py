"""Keras 3 on TensorFlow: what Ringside needs of it, by the names that legacy Keras has too."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.losses import loss as loss_module
from keras.src.models.functional import Functional
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from ringside_core.keras.keras3_chance import (
    chance_of,
    count_draws,
    draw_as_before,
    draw_by_rank,
    generator_of,
    let_seeds_be_answered,
    let_unseeded_be_answered,
    make_shared_generator,
    same_chance,
    seed_weights,
    set_generator,
)
from ringside_core.keras.tensorflow import AS_SHIPPED, tf
from ringside_core.keras.variables import of_keras, owned, raw

if not AS_SHIPPED:
    import ringside_core.keras.keras3_changes  # noqa: F401  # it changes Keras

__all__ = [
    "chance_of",
    "count_draws",
    "draw_as_before",
    "draw_by_rank",
    "generator_of",
    "let_seeds_be_answered",
    "let_unseeded_be_answered",
    "make_shared_generator",
    "raw",
    "same_chance",
    "seed_weights",
    "set_generator",
]

Reduce = Callable[[list[Any], list[Any]], list[Any]]
"""(gradients, variables) → gradients combined over all replicas, in the same order."""


def _wide_in_float64(make: Any) -> Any:
    """In float64 every layer computes so, also one whose author chose another type: proofs do."""

    @functools.wraps(make)
    def made(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        lower = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
        wide = keras.backend.floatx() == "float64" and name in lower
        make(self, "float64" if wide else name, *args, **kwargs)

    return made


keras.DTypePolicy.__init__ = _wide_in_float64(keras.DTypePolicy.__init__)


MEANS = ("sum_over_batch_size", "mean")  # reductions


def let_losses_be_of_one_replica(alone: Callable[[], bool], called: Callable[[], bool]) -> None:
    """Let Keras' losses be means over a replica's own examples, where `alone()` says so.

    Under a strategy Keras would divide them by the number of replicas. It refuses none, so `called`
    is not asked.
    """
    del called
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        upstream = getattr(loss_module, name)
        setattr(loss_module, name, _unless(alone, upstream))


def _unless(alone: Callable[[], bool], upstream: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(value: Any) -> Any:
        return value if alone() else upstream(value)

    return chosen


def set_floatx(precision: str, policy: str | None = None) -> None:
    """Let layers compute in a precision or by a policy, unless their author says otherwise."""
    follows = keras.config.dtype_policy().name == keras.config.floatx()  # made from it, and kept
    keras.config.set_floatx(precision)
    if follows:
        keras.config.set_dtype_policy(precision)
    if policy is not None:
        keras.config.set_dtype_policy(policy)


def number_names_anew() -> None:
    """Let layers that their author does not name be called as in a new process."""
    set_global_attribute("object_name_uids", None)


def as_in_this_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function make layers in any thread as in this one: these settings are a thread's own.

    A mirrored strategy runs each replica in a thread of its own.
    """
    settings = {name: get_global_attribute(name) for name in ("object_name_uids", "dtype_policy")}

    def made(*args: Any) -> Any:
        for name, value in settings.items():
            set_global_attribute(name, value)
        return function(*args)

    return made


def clear_session() -> None:
    """Forget names and graphs, so that names do not depend on what was built before.

    Keras would forget the global dtype policy too.
    """
    policy = keras.config.dtype_policy()
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)


@contextlib.contextmanager
def policy_scope(policy: str) -> Iterator[None]:
    """Within this block layers compute by this policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


optimizer_kinds = (keras.optimizers.Optimizer,)
_NOT_IN_CONFIG = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
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
        return instead(lambda others: upstream(others, variables), list(grads), owned(variables))

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
        optimizer.build([of_keras(one) for one in variables])


def set_schedule(optimizer: Any, schedule: Any) -> None:
    """Let an optimizer's rate follow a schedule."""
    optimizer.learning_rate = schedule


def scaled_loss(optimizer: Any, loss: Any) -> Any:
    """A loss times the optimizer's loss scale, if it has one."""
    return optimizer.scale_loss(loss)


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """One update by the gradients of a scaled loss."""
    optimizer.apply(gradients, [of_keras(one) for one in variables])


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
    if (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        keep_exclusions(inner, copy.inner_optimizer)


def variables_of(optimizer: Any) -> list[Any]:
    """All variables of an optimizer in order."""
    return [raw(one) for one in optimizer.variables]


def variable_names(optimizer: Any) -> list[str]:
    """Names of all variables, such as `dense_kernel_momentum`."""
    return [one.path.partition("/")[2] or one.path for one in optimizer.variables]


def slot_names(optimizer: Any) -> list[str]:
    """The same with the slot first, such as `momentum/dense_kernel`, as in legacy Keras."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    trained = [one.path.replace("/", "_") for one in getattr(inner, "_trainable_variables", ())]
    found = []
    for name in variable_names(optimizer):
        of = max((one for one in trained if name.startswith(f"{one}_")), key=len, default="")
        found.append(f"{name.removeprefix(f'{of}_')}/{of}" if of else name)
    return found


def trainable_of(model: Any) -> list[Any]:
    """The trainable weights of a model, as TensorFlow's variables."""
    return owned(model.trainable_variables)


def weights_of(model: Any) -> list[Any]:
    """The weights of a model in order, without the states of metrics and of random generators."""
    return owned(model.weights)


def get_weights(model: Any) -> list[Any]:
    """The values of `weights_of`."""
    return [variable.numpy() for variable in weights_of(model)]


def set_weights(model: Any, values: Sequence[Any]) -> None:
    """Assign values to `weights_of`."""
    for variable, value in zip(weights_of(model), values, strict=True):
        variable.assign(value)


def is_graph_network(model: Any) -> bool:
    """Whether a model says how its layers are connected."""
    return isinstance(model, Functional)


def mask_of(output: Any) -> Any:
    """The mask of an output of a graph network, or None."""
    return keras.src.backend.get_keras_mask(output)


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
    if not model.compiled:
        return []
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
    build_losses(losses, y, predictions)
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
        losses.build(_of_outputs(losses, y, predictions), predictions)


def _of_outputs(losses: Any, y: Any, predictions: Any) -> Any:
    """Labels at the places of their outputs, as in the first step: some may have no loss."""
    found, given = keras.tree.flatten(y), losses._user_loss
    judged = [one is not None for one in keras.tree.flatten(given)]
    if len(found) == len(keras.tree.flatten(predictions)) or len(found) != sum(judged):
        return y
    rest = iter(found)
    return keras.tree.pack_sequence_as(given, [next(rest) if one else None for one in judged])


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
    base = keras.callbacks.Callback
    names = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
    methods = {name: getattr(callback, name) for name in names}  # LambdaCallback sets its own
    return any(getattr(m, "__func__", m) is not getattr(base, n) for n, m in methods.items())


# What `Model.compile` sets: the author's metrics may be without weights, for example.
COMPILED = (
    *("_compile_config", "_run_eagerly", "_jit_compile", "steps_per_execution"),
    *("_distribute_reduction_method", "_compile_loss", "_compile_metrics", "_loss_tracker"),
    "loss",
)


def forget_traced(model: Any) -> None:
    """Let a model trace its steps anew."""
    model.train_function = model.test_function = model.predict_function = None
