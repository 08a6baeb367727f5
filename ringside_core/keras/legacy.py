"""Legacy Keras (tf-keras 2): what Ringside needs of it, and calls by other names."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tf_keras.src.backend import _SEED_GENERATOR, RandomGenerator
from tf_keras.src.engine.compile_utils import LossesContainer, MetricsContainer
from tf_keras.src.mixed_precision import policy
from tf_keras.src.utils import losses_utils

from ringside_core.keras.legacy_chance import chance_of, count_draws, draw_as_before
from ringside_core.keras.legacy_changes import let_replicas_set_rate
from ringside_core.keras.tensorflow import (
    flat,
    global_seed,
    is_seeded,
    tf,
)

__all__ = ["chance_of", "count_draws", "draw_as_before"]


optimizer_kinds = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
# An optimizer's config does not hold exclusions from weight decay, nor a legacy one's functions.
_NOT_IN_CONFIG = (
    "_exclude_from_weight_decay",
    "_exclude_from_weight_decay_names",
    "gradient_aggregator",
    "gradient_transformers",
)


def reduce_first(optimizer: Any, reduce: Callable[[list[Any], list[Any]], list[Any]]) -> None:
    """Let an optimizer apply what a function makes of its gradients.

    Args:
        optimizer: changed in place.
        reduce: (gradients, variables) → gradients; called in the step of each replica.
    """
    on_apply(optimizer, lambda apply, gradients, variables: apply(reduce(gradients, variables)))


APPLY = "apply_gradients"  # the method of an optimizer by which all gradients go


def on_apply(optimizer: Any, instead: Callable[..., Any]) -> None:
    """Let a function be called where an optimizer applies gradients.

    Args:
        optimizer: changed in place.
        instead: (apply, gradients, variables) → what its caller gets; `apply` takes gradients of
            these variables.
    """
    upstream = optimizer.apply_gradients

    def applied(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]

        def apply(others: Sequence[Any]) -> Any:
            return upstream(list(zip(others, variables, strict=True)), *args, **kwargs)

        return instead(apply, gradients, variables)

    optimizer.apply_gradients = applied


def change_reduction(optimizer: Any, reduction: Callable[..., list[Any]]) -> None:
    """Let an optimizer of a strategy combine gradients in another way.

    Keras hands all (gradient, variable) pairs to one method of the optimizer. A legacy optimizer
    has another name for that method.

    Args:
        optimizer: changed in place.
        reduction: (upstream's reduction, gradients, variables) → gradients.
    """
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    legacy = isinstance(scaled, tf.keras.optimizers.legacy.Optimizer)
    method = "_aggregate_gradients" if legacy else "aggregate_gradients"
    upstream = getattr(scaled, method)

    def reduce(gradients: Any, variables: Any) -> list[Any]:
        reduced = upstream(list(zip(gradients, variables, strict=True)))
        return [gradient for gradient, _ in reduced]

    def aggregate(grads_and_vars: Any) -> list[tuple[Any, Any]]:
        gradients, variables = (list(column) for column in zip(*grads_and_vars, strict=True))
        return list(zip(reduction(reduce, gradients, variables), variables, strict=True))

    setattr(scaled, method, aggregate)


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the optimizer's own variables for these of a model; a legacy one has no `build`."""
    make = getattr(optimizer, "build", None) or optimizer._create_all_weights
    make(variables)


def set_schedule(optimizer: Any, schedule: Any) -> None:
    """Let an optimizer's rate follow a schedule.

    The variable of the present rate is made now. Within a step of several replicas TensorFlow
    cannot make it: the first update fails.
    """
    optimizer.learning_rate = schedule
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    if hasattr(scaled, "_compute_current_learning_rate"):  # a legacy one has no such variable
        scaled._compute_current_learning_rate()
        let_replicas_set_rate(scaled)


def draw_by_rank(model: Any, rank: int) -> None:
    """Let layers with a generator of their own draw from another stream in each rank.

    Keras' layers that augment images have one, and TensorFlow's global seed does not reach it. A
    strategy gives each replica a stream of its own.
    """
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    held = [value for layer in layers for value in flat(list(vars(layer).values()))]
    found = [value for value in held if isinstance(value, tf.random.Generator)]
    for value in held:
        if isinstance(value, RandomGenerator) and value._rng_type == value.RNG_STATEFUL:
            value._maybe_init()
            found.append(value._generator)
    for generator in {id(one): one for one in found}.values():
        generator.reset_from_key_counter(generator.key + rank, generator.state[:-1])


def make_shared_generator() -> None:
    """Keras 2 has none that would be made within a step."""


def let_seeds_be_answered(seed: Callable[[Any], Any]) -> None:
    """Keras 2 draws seeds by tf.random.Generator, which is answered itself."""
    del seed


def let_unseeded_be_answered(numbers: Callable[[Any], Any]) -> None:
    """Keras 2 draws by tf.random where it is given no seed."""
    del numbers


def seed_weights(seed: int, *, also_if_seeded: bool) -> None:
    """Seed the initial weights; TensorFlow's other draws follow, Python's and NumPy's do not.

    Args:
        seed: of the weights.
        also_if_seeded: whether a seed that the author has set is overridden.
    """
    if also_if_seeded or getattr(_SEED_GENERATOR, "generator", None) is None:
        _SEED_GENERATOR.generator = random.Random(seed)
    if also_if_seeded or not is_seeded():
        tf.random.set_seed(seed)


def as_in_this_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function make layers in any thread as in this one: seeds of weights are a thread's own.

    A mirrored strategy runs each replica in a thread of its own.
    """
    seeds = vars(_SEED_GENERATOR).copy()

    def made(*args: Any) -> Any:
        vars(_SEED_GENERATOR).update(seeds)
        return function(*args)

    return made


@contextlib.contextmanager
def same_chance() -> Iterator[None]:
    """After this block, everything that draws goes on as if it had not been."""
    python, numpy, keras = random.getstate(), np.random.get_state(), vars(_SEED_GENERATOR).copy()
    seed = global_seed()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        vars(_SEED_GENERATOR).clear()
        vars(_SEED_GENERATOR).update(keras)
        tf.random.set_seed(seed)


@contextlib.contextmanager
def schedule_as_it_is(optimizer: Any) -> Iterator[None]:
    """Let an optimizer's config hold its learning-rate schedule itself, not the schedule's config.

    `Model.fit` asks no schedule for a config, so many that people write have none. Copies of an
    optimizer may share a schedule, because it has no state.
    """
    schedule = getattr(optimizer, "_learning_rate", None)
    if not isinstance(schedule, tf.keras.optimizers.schedules.LearningRateSchedule):
        yield
        return
    upstream = optimizer.get_config

    def get_config() -> Any:
        optimizer._learning_rate = 0.0
        try:
            return {**upstream(), "learning_rate": schedule}
        finally:
            optimizer._learning_rate = schedule

    optimizer.get_config = get_config
    try:
        yield
    finally:
        del optimizer.get_config


def keep_exclusions(optimizer: Any, copy: Any) -> None:
    """Give an optimizer that was made from another one's config what that does not hold."""
    for name in _NOT_IN_CONFIG:
        if hasattr(optimizer, name):
            setattr(copy, name, getattr(optimizer, name))


def weights_of(model: Any) -> list[Any]:
    """The weights of a model in order, without the states of metrics that its author gave it.

    And without vocabularies, which Keras counts among the weights of a lookup layer.
    """
    states = {id(variable) for metric in model.metrics for variable in metric.variables}
    return [one for one in model.weights if id(one) not in states and hasattr(one, "shape")]


def get_weights(model: Any) -> list[Any]:
    """The values of `weights_of`."""
    values: list[Any] = tf.keras.backend.batch_get_value(weights_of(model))
    return values


def set_weights(model: Any, values: Sequence[Any]) -> None:
    """Assign values to `weights_of`."""
    tf.keras.backend.batch_set_value(list(zip(weights_of(model), values, strict=True)))


def variables_of(optimizer: Any) -> list[Any]:
    """All variables of an optimizer in order: an attribute in new ones, a method in legacy ones."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def variable_names(optimizer: Any) -> list[str]:
    """Names of all variables, such as `m/dense/kernel`, the same in every family.

    Variables that `fit` makes have the optimizer's name in front, which Horovod changes.
    """
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    own = f"{getattr(scaled, 'name', None) or scaled._name}/"
    return [v.name.removesuffix(":0").removeprefix(own) for v in variables_of(optimizer)]


slot_names = variable_names


def raw(variable: Any) -> Any:
    """TensorFlow's variable of one of Keras, which is the same here."""
    return variable


def trainable_of(model: Any) -> list[Any]:
    """The trainable weights of a model, as TensorFlow's variables."""
    return list(model.trainable_variables)


def is_graph_network(model: Any) -> bool:
    """Whether a model says how its layers are connected."""
    return bool(model._is_graph_network)


def mask_of(output: Any) -> Any:
    """The mask of an output of a graph network, or None."""
    return getattr(output, "_keras_mask", None)


def added_losses(layer: Any) -> list[Any]:
    """What a layer itself has added to the loss in its last call, without weight decay."""
    return list(layer._eager_losses)


def scaled_loss(optimizer: Any, loss: Any) -> Any:
    """A loss times the optimizer's loss scale, if it has one."""
    return optimizer.get_scaled_loss(loss) if _scales(optimizer) else loss


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """One update by the gradients of a scaled loss."""
    if _scales(optimizer):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def _scales(optimizer: Any) -> bool:
    return isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)


def let_losses_be_of_one_replica(alone: Callable[[], bool], called: Callable[[], bool]) -> None:
    """Let Keras' losses be means over a replica's own examples, where `alone()` says so.

    Under a strategy Keras would divide them by the number of replicas, or refuse them.

    Args:
        alone: whether the calling thread runs a step.
        called: whether losses that were not compiled, but are called by their author, are such
            means everywhere: in a `test_step` that Keras runs, for example.
    """
    losses_utils.scale_loss_for_distribution = _chosen(
        alone, losses_utils.scale_loss_for_distribution, lambda loss: loss
    )
    upstream = tf.keras.losses.Loss._get_reduction

    def reduction(loss: Any) -> Any:
        if not (alone() or (called() and not loss._allow_sum_over_batch_size)):
            return upstream(loss)
        return _MEAN if loss.reduction == tf.keras.losses.Reduction.AUTO else loss.reduction

    tf.keras.losses.Loss._get_reduction = reduction


policy_scope = policy.policy_scope
_MEAN = tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE
MEANS = (tf.keras.losses.Reduction.AUTO, _MEAN)  # reductions


def _chosen(
    alone: Callable[[], bool], upstream: Callable[..., Any], instead: Callable[..., Any]
) -> Callable[..., Any]:
    def chosen(given: Any) -> Any:
        return instead(given) if alone() else upstream(given)

    return chosen


def compiled_losses(model: Any) -> Any:
    """What `Model.compile` has made of the losses."""
    return model.compiled_loss


def compiled_metrics(model: Any) -> Any:
    """What `Model.compile` has made of the metrics."""
    return model.compiled_metrics


def output_losses(losses: Any) -> list[Any]:
    """The metrics that hold the losses of single outputs, of a model with several."""
    return list(losses.metrics[1:])


def loss_metrics(model: Any) -> list[Any]:
    """The metrics in which Keras' own step keeps its losses: of the whole, then of each output."""
    return [] if model.compiled_loss is None else list(model.compiled_loss.metrics)


def metrics_of(model: Any) -> list[Any]:
    """All metrics of a model."""
    return list(model.metrics)


def told_as(metric: Any) -> str:
    """The name by which a metric of `metrics_of` is told."""
    return str(metric.name)


def new_losses(loss: Any, weights: Any, names: Any, y: Any, predictions: Any) -> Any:
    """What `Model.compile` makes of losses, built."""
    losses = LossesContainer(loss, weights, output_names=names)
    build_losses(losses, y, predictions)
    return losses


def new_metrics(weighted: Any, names: Any, y: Any, predictions: Any) -> Any:
    """What `Model.compile` makes of metrics, built."""
    metrics = MetricsContainer(weighted_metrics=weighted, output_names=names)
    build_metrics(metrics, y, predictions)
    return metrics


def build_losses(losses: Any, y: Any, predictions: Any) -> None:
    """Make the metrics of single outputs, which Keras makes in the first step."""
    del y
    if not losses.built:
        losses.build(predictions)


def build_metrics(metrics: Any, y: Any, predictions: Any) -> None:
    """Make the metrics that are given as names and functions."""
    if not metrics.built:
        metrics.build(predictions, metrics._conform_to_outputs(predictions, y))


def with_loss_scale(optimizer: Any, model: Any) -> Any:
    """The optimizer that `Model.compile` makes of one for this model: it does so itself."""
    del model
    return optimizer


def count_step(model: Any, *, first: bool = False) -> None:
    """Count a step of a loop for Keras' TensorBoard callback; `first`: begin at zero."""
    if first:
        model._train_counter.assign(0)
    else:
        model._train_counter.assign_add(1)


def name_alike(metrics: Any, others: Any) -> None:
    """Give metrics the names of others that were built alike: Keras numbers those without one."""
    for metric, twin in zip(metrics.metrics, others.metrics, strict=True):
        metric._name = twin.name


def compiled_by(model: Any) -> dict[str, Any]:
    """What the author has told `Model.compile`: its arguments by name."""
    metrics, losses = model.compiled_metrics, model.compiled_loss
    return {
        "optimizer": model.optimizer,
        "loss": losses._user_losses,
        "loss_weights": losses._user_loss_weights,
        "metrics": metrics._user_metrics,
        "weighted_metrics": metrics._user_weighted_metrics,
    }


def looks_at_steps(callback: Any) -> bool:
    """Whether a callback is to be called at each step of a training."""
    return bool(callback._implements_train_batch_hooks())


def generator_of(layer: Any) -> Any:
    """What a layer draws random numbers from; None: it draws none."""
    return getattr(layer, "_random_generator", None)


def set_generator(layer: Any, generator: Any) -> None:
    """Let a layer draw from another generator, with the methods of the one that it has."""
    layer._random_generator = generator


# What `Model.compile` sets: the author's metrics may be without weights, for example.
COMPILED = (
    *("_compile_config", "_run_eagerly", "_jit_compile", "_steps_per_execution"),
    *("_distribute_reduction_method", "compiled_loss", "compiled_metrics", "loss"),
)


def forget_traced(model: Any) -> None:
    """Let a model trace its steps anew."""
    model._reset_compile_cache()


def set_floatx(precision: str, policy: str | None = None) -> None:
    """Let layers compute in a precision or by a policy, unless their author says otherwise."""
    tf.keras.backend.set_floatx(precision)
    if policy is not None:
        tf.keras.mixed_precision.set_global_policy(policy)


def number_names_anew() -> None:
    """Let layers that their author does not name be called as in a new process."""
    tf.keras.backend.reset_uids()


def clear_session() -> None:
    """Forget names and graphs, so that names do not depend on what was built before."""
    tf.keras.backend.clear_session()
