"""The one place that says which Keras and which TensorFlow a process runs on.

A process runs legacy Keras or Keras 3 (`ringside_core/specs/keras_version.py`); `tf.keras` is the
one that it runs. What the two call by other names stands in `legacy.py` and `keras3.py`, by the
same names in both.

Horovod's Keras modules say `from keras import backend`, which would take Keras 3 from beside
TensorFlow; so `keras` names tf_keras while Horovod is imported (workaround in horovod#4290). Not
longer: who says `import keras` means Keras 3.

Import TensorFlow through here: `from ringside_core.keras import tf`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ringside_core.keras.tensorflow import (
    AS_SHIPPED,
    VERSION,
    ag_ctx,
    autograph,
    control_flow_ops,
    flat,
    functions_in_python,
    gen_random_ops,
    gen_stateful_random_ops,
    gen_stateless_random_ops_v2,
    global_seed,
    has_own_step,
    has_own_test_step,
    is_of_keras,
    let_averages_be_of_one_replica,
    own_of_step,
    python_of,
    random_seed,
    tf,
    with_rank,
)
from ringside_core.specs import RefusalError

if not AS_SHIPPED:
    import ringside_core.keras.ctc  # noqa: F401  # it changes TensorFlow
if TYPE_CHECKING or VERSION == 2:
    from ringside_core.keras import legacy as _keras
else:
    try:
        from ringside_core.keras import keras3 as _keras
    except (ImportError, AttributeError) as error:
        raise RefusalError(
            "Keras 3 must be installed, in a version whose private parts Ringside knows: 3.15.",
            received=error,
            advice="Run `make setup`: the lock names it.",
        ) from error

MEANS = _keras.MEANS
let_losses_be_of_one_replica = _keras.let_losses_be_of_one_replica
added_losses = _keras.added_losses
apply = _keras.apply
build_losses = _keras.build_losses
build_metrics = _keras.build_metrics
build_optimizer = _keras.build_optimizer
change_reduction = _keras.change_reduction
compiled_losses = _keras.compiled_losses
compiled_metrics = _keras.compiled_metrics
draw_by_rank = _keras.draw_by_rank
get_weights = _keras.get_weights
is_graph_network = _keras.is_graph_network
keep_exclusions = _keras.keep_exclusions
loss_metrics = _keras.loss_metrics
mask_of = _keras.mask_of
metrics_of = _keras.metrics_of
new_losses = _keras.new_losses
new_metrics = _keras.new_metrics
number_names_anew = _keras.number_names_anew
optimizer_kinds = _keras.optimizer_kinds
output_losses = _keras.output_losses
policy_scope = _keras.policy_scope
raw = _keras.raw
reduce_first = _keras.reduce_first
same_chance = _keras.same_chance
scaled_loss = _keras.scaled_loss
schedule_as_it_is = _keras.schedule_as_it_is
let_seeds_be_answered = _keras.let_seeds_be_answered
let_unseeded_be_answered = _keras.let_unseeded_be_answered
make_shared_generator = _keras.make_shared_generator
seed_weights = _keras.seed_weights
set_schedule = _keras.set_schedule
set_weights = _keras.set_weights
slot_names = _keras.slot_names
told_as = _keras.told_as
trainable_of = _keras.trainable_of
variable_names = _keras.variable_names
variables_of = _keras.variables_of
weights_of = _keras.weights_of
chance_of = _keras.chance_of
count_draws = _keras.count_draws
draw_as_before = _keras.draw_as_before
as_in_this_thread = _keras.as_in_this_thread
clear_session = _keras.clear_session
forget_traced = _keras.forget_traced
COMPILED = _keras.COMPILED
APPLY = _keras.APPLY
on_apply = _keras.on_apply
set_floatx = _keras.set_floatx
set_generator = _keras.set_generator
generator_of = _keras.generator_of
looks_at_steps = _keras.looks_at_steps
compiled_by = _keras.compiled_by
name_alike = _keras.name_alike
count_step = _keras.count_step
with_loss_scale = _keras.with_loss_scale

__all__ = [
    "APPLY",
    "COMPILED",
    "MEANS",
    "VERSION",
    "added_losses",
    "ag_ctx",
    "apply",
    "as_in_this_thread",
    "autograph",
    "build_losses",
    "build_metrics",
    "build_optimizer",
    "chance_of",
    "change_reduction",
    "clear_session",
    "compiled_by",
    "compiled_losses",
    "compiled_metrics",
    "control_flow_ops",
    "count_draws",
    "count_step",
    "draw_as_before",
    "draw_by_rank",
    "flat",
    "forget_traced",
    "functions_in_python",
    "gen_random_ops",
    "gen_stateful_random_ops",
    "gen_stateless_random_ops_v2",
    "generator_of",
    "get_weights",
    "global_seed",
    "has_own_step",
    "has_own_test_step",
    "is_graph_network",
    "is_of_keras",
    "keep_exclusions",
    "legacy_named_keras",
    "let_averages_be_of_one_replica",
    "let_losses_be_of_one_replica",
    "let_seeds_be_answered",
    "let_unseeded_be_answered",
    "looks_at_steps",
    "loss_metrics",
    "lowest_bits",
    "make_shared_generator",
    "mask_of",
    "metrics_of",
    "name_alike",
    "new_losses",
    "new_metrics",
    "new_optimizer",
    "note_unused",
    "number_names_anew",
    "on_apply",
    "optimizer_kinds",
    "optimizer_variables",
    "optimizers_of",
    "output_losses",
    "own_of_step",
    "policy_scope",
    "python_of",
    "random_seed",
    "raw",
    "reduce_first",
    "same_chance",
    "scaled_loss",
    "schedule_as_it_is",
    "seed_weights",
    "set_floatx",
    "set_generator",
    "set_schedule",
    "set_weights",
    "slot_names",
    "slots_of",
    "tf",
    "told_as",
    "trainable_of",
    "updates_made",
    "variable_names",
    "variables_of",
    "weights_of",
    "with_loss_scale",
    "with_rank",
]


@contextlib.contextmanager
def legacy_named_keras() -> Iterator[None]:
    """Let `import keras` mean legacy Keras, for modules that are imported within."""
    if VERSION == 3:
        yield
        return
    import tf_keras

    named = sys.modules.get("keras")
    sys.modules["keras"] = tf_keras
    try:
        yield
    finally:
        del sys.modules["keras"]
        if named is not None:
            sys.modules["keras"] = named


def lowest_bits(model: Any) -> int:
    """Bits of the narrowest floating-point type in which a layer of a model computes."""
    types = {tf.as_dtype(one.compute_dtype) for one in model._flatten_layers() if one.compute_dtype}
    return min((one.size * 8 for one in types if one.is_floating), default=32)


def new_optimizer(given: Any) -> Any:
    """A new optimizer from what `Model.compile` takes: a name, or an instance, which is copied."""
    optimizer = tf.keras.optimizers.get(given)
    if optimizer is not given:
        return optimizer
    with schedule_as_it_is(optimizer):
        copy = type(optimizer).from_config(optimizer.get_config())
    keep_exclusions(optimizer, copy)
    return copy


def optimizers_of(model: Any) -> list[Any]:
    """Every optimizer that the model or a layer of it holds, the compiled one first; each once."""
    held = [getattr(model, "optimizer", None)]
    for part in dict.fromkeys([model, *model._flatten_layers()]):
        held += flat(list(vars(part).values()))
    found = {id(one): one for one in held if isinstance(one, optimizer_kinds)}
    inner = {id(getattr(one, "inner_optimizer", None)) for one in found.values()}  # of a loss scale
    return [one for one in found.values() if id(one) not in inner]


def updates_made(model: Any) -> Any:
    """How often the optimizers of a model were applied, all together, int64."""
    return tf.add_n([tf.cast(one.iterations, tf.int64) for one in optimizers_of(model)])


def note_unused(model: Any, updated: Sequence[bool]) -> None:
    """Note which optimizers of parts of a model a training leaves alone, such as a teacher's.

    Args:
        model: compiled.
        updated: whether each of `optimizers_of` is seen to be applied. The model's own may be
            applied in a later update.
    """
    parts = [one for one in model._flatten_layers() if one is not model]
    of_parts = {id(getattr(one, "optimizer", None)) for one in parts}
    for one, used in zip(optimizers_of(model), updated, strict=True):
        vars(one)[_UNUSED] = not used and id(one) in of_parts


_UNUSED = "_ringside_unused"


def optimizer_variables(
    model: Any, names: Callable[[Any], list[str]] = variable_names
) -> list[tuple[str, Any]]:
    """The variables of all optimizers of a model in order, each with its name.

    Not what one that is not used keeps for weights: Keras 3 makes that of a compiled one when it
    evaluates under a strategy, and else when it trains.

    Args:
        model: compiled.
        names: of the variables of an optimizer; of several optimizers, with a number before each.
    """
    optimizers = optimizers_of(model)
    heads = [f"{number}/" if len(optimizers) > 1 else "" for number, _ in enumerate(optimizers)]
    return [
        (head + name, variable)
        for head, one in zip(heads, optimizers, strict=True)
        for name, variable in zip(names(one), variables_of(one), strict=True)
        if not (variable.shape.rank and getattr(one, _UNUSED, False))
    ]


def slots_of(model: Any) -> list[Any]:
    """The variables of `optimizer_variables`, without their names."""
    return [variable for _, variable in optimizer_variables(model)]
