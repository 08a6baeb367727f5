"""The one place that decides which Keras and which TensorFlow everything runs on.

Every arm trains with legacy Keras (tf-keras), because it is the only Keras under which all
strategies and Horovod work: with Keras 3, `fit` fails under MultiWorkerMirroredStrategy
(keras#20585) and ParameterServerStrategy (keras#18624), and Horovod's optimizer fails with
"'Variable' object has no attribute 'ref'" (horovod#4290).

Horovod's Keras modules say `from keras import backend`, which would take Keras 3 from beside
TensorFlow; so `keras` names tf_keras while Horovod is imported (workaround in horovod#4290). Not
longer: who says `import keras` means Keras 3, and must learn that it is not what runs.

Import TensorFlow through here: `from ringside_core.keras import tf`.
"""

import contextlib
import functools
import inspect
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

if "tensorflow" in sys.modules and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
    raise ImportError(
        "TensorFlow was imported before Ringside, with Keras 3. Write `import ringside` above "
        "`import tensorflow`, or set TF_USE_LEGACY_KERAS=1."
    )
os.environ["TF_USE_LEGACY_KERAS"] = "1"
# Remarks on oneDNN, CPU flags and absent GPUs; real failures surface as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_NOISE = (
    b"Unable to register cu",  # TensorFlow 2.18
    b"All log messages before absl::InitializeLog",
    # TensorFlow 2.21 says both at every log level, since they come before it reads the level.
    b" port.cc:",
    b" cudart_stub.cc:",
)


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Pass on what C++ writes to standard error, but for lines that every start on a CPU writes.

    They come before TensorFlow's logger can be told anything; four ranks would write sixteen lines
    with "E0000" above the first epoch.
    """
    with tempfile.TemporaryFile() as buffer:
        saved = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            buffer.seek(0)
            for line in buffer:
                if not any(noise in line for noise in _NOISE):
                    os.write(2, line)


with _without_noise():
    import tensorflow as tf
    import tf_keras

    # Private parts that Ringside answers or asks; tests/training/test_dataset.py and
    # test_programs.py see that they are still what they were.
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.autograph.impl import api as autograph
    from tensorflow.python.eager import context
    from tensorflow.python.ops import (
        gen_random_ops,
        gen_stateful_random_ops,
        gen_stateless_random_ops_v2,
    )
    from tensorflow.python.ops.parallel_for import control_flow_ops
    from tf_keras.src.backend import _SEED_GENERATOR, RandomGenerator
    from tf_keras.src.metrics.iou_metrics import _IoUBase
    from tf_keras.src.mixed_precision.policy import policy_scope
    from tf_keras.src.utils import losses_utils, metrics_utils

# Keras' remarks on slow callbacks and the like; Ringside's own findings are in the records.
tf.get_logger().setLevel("ERROR")

__all__ = [
    "ag_ctx",
    "autograph",
    "build_optimizer",
    "control_flow_ops",
    "functions_in_python",
    "gen_random_ops",
    "gen_stateful_random_ops",
    "gen_stateless_random_ops_v2",
    "get_weights",
    "global_seed",
    "has_own_step",
    "keep_exclusions",
    "legacy_named_keras",
    "losses_utils",
    "lowest_bits",
    "new_optimizer",
    "optimizer_kinds",
    "optimizer_variables",
    "optimizers_of",
    "policy_scope",
    "python_of",
    "same_chance",
    "schedule_as_it_is",
    "seed_weights",
    "set_schedule",
    "set_weights",
    "slots_of",
    "tf",
    "updates_made",
    "variable_names",
    "variables_of",
    "weights_of",
    "with_rank",
]


def _wide_in_float64(make: Any) -> Any:
    """In float64 every layer computes so, also one whose author chose another type: proofs do."""

    @functools.wraps(make)
    def made(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        lower = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
        wide = tf.keras.backend.floatx() == "float64" and name in lower
        make(self, "float64" if wide else name, *args, **kwargs)

    return made


_Policy = tf.keras.mixed_precision.Policy
_Policy.__init__ = _wide_in_float64(_Policy.__init__)


def _rate_in_float64(make: Any) -> Any:
    """In float64 schedules compute so too; in float32 a graph's cosine may not be Python's."""

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if tf.keras.backend.floatx() == "float64":
            numbers = {name: value for name, value in vars(self).items() if type(value) is float}
            vars(self).update({name: np.float64(value) for name, value in numbers.items()})

    return made


for _schedule in filter(inspect.isclass, vars(tf.keras.optimizers.schedules).values()):
    setattr(_schedule, "__init__", _rate_in_float64(_schedule.__init__))  # noqa: B010  # mypy
optimizer_kinds = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
# An optimizer's config does not hold exclusions from weight decay, nor a legacy one's functions.
_NOT_IN_CONFIG = (
    "_exclude_from_weight_decay",
    "_exclude_from_weight_decay_names",
    "gradient_aggregator",
    "gradient_transformers",
)


@contextlib.contextmanager
def legacy_named_keras() -> Iterator[None]:
    """Let `import keras` mean legacy Keras, for modules that are imported within."""
    named = sys.modules.get("keras")
    sys.modules["keras"] = tf_keras
    try:
        yield
    finally:
        del sys.modules["keras"]
        if named is not None:
            sys.modules["keras"] = named


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
        _let_replicas_set_rate(scaled)


def _let_replicas_set_rate(optimizer: Any) -> None:
    """Under central storage the present rate of a schedule must say which replica sets it."""
    central = isinstance(
        tf.distribute.get_strategy(), tf.distribute.experimental.CentralStorageStrategy
    )
    if central and hasattr(optimizer, "_current_learning_rate"):
        optimizer._current_learning_rate = tf.Variable(
            optimizer._current_learning_rate.read_value(),
            name="current_learning_rate",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


def _with_rate_for_replicas(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def built(optimizer: Any, learning_rate: Any) -> Any:
        rate = upstream(optimizer, learning_rate)
        with tf.init_scope():
            _let_replicas_set_rate(optimizer)
        return rate

    return built


tf.keras.optimizers.Optimizer._build_learning_rate = _with_rate_for_replicas(
    tf.keras.optimizers.Optimizer._build_learning_rate
)


@contextlib.contextmanager
def functions_in_python() -> Iterator[None]:
    """Within this block a user's own tf.function runs in Python, so that what it calls is seen."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def draw_by_rank(model: Any, rank: int) -> None:
    """Let layers with a generator of their own draw from another stream in each rank.

    Keras' layers that augment images have one, and TensorFlow's global seed does not reach it. A
    strategy gives each replica a stream of its own.
    """
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    held = [value for layer in layers for value in _flat(list(vars(layer).values()))]
    found = [value for value in held if isinstance(value, tf.random.Generator)]
    for value in held:
        if isinstance(value, RandomGenerator) and value._rng_type == value.RNG_STATEFUL:
            value._maybe_init()
            found.append(value._generator)
    for generator in {id(one): one for one in found}.values():
        generator.reset_from_key_counter(generator.key + rank, generator.state[:-1])


def lowest_bits(model: Any) -> int:
    """Bits of the narrowest floating-point type in which a layer of a model computes."""
    types = {tf.as_dtype(one.compute_dtype) for one in model._flatten_layers() if one.compute_dtype}
    return min((one.size * 8 for one in types if one.is_floating), default=32)


def global_seed() -> Any:
    """TensorFlow's global seed; None: nobody has set it."""
    return context.global_seed()


def seed_weights(seed: int, *, also_if_seeded: bool) -> None:
    """Seed the initial weights; TensorFlow's other draws follow, Python's and NumPy's do not.

    Args:
        seed: of the weights.
        also_if_seeded: whether a seed that the author has set is overridden.
    """
    if also_if_seeded or getattr(_SEED_GENERATOR, "generator", None) is None:
        _SEED_GENERATOR.generator = random.Random(seed)
    if also_if_seeded or global_seed() is None:
        tf.random.set_seed(seed)


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


def new_optimizer(given: Any) -> Any:
    """A new optimizer from what `Model.compile` takes: a name, or an instance, which is copied."""
    optimizer = tf.keras.optimizers.get(given)
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


def optimizers_of(model: Any) -> list[Any]:
    """Every optimizer that the model or a layer of it holds, the compiled one first; each once."""
    held = [getattr(model, "optimizer", None)]
    for part in dict.fromkeys([model, *model._flatten_layers()]):
        held += _flat(list(vars(part).values()))
    found = {id(one): one for one in held if isinstance(one, optimizer_kinds)}
    inner = {id(getattr(one, "inner_optimizer", None)) for one in found.values()}  # of a loss scale
    return [one for one in found.values() if id(one) not in inner]


def _flat(value: Any) -> list[Any]:
    """What lists, tuples and dicts hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [one for part in value for one in _flat(part)]
        if isinstance(value, list | tuple)
        else [value]
    )


def python_of(function: Any) -> Any:
    """A function as Python. What a tf.function has traced draws by itself, and returns copies."""
    return getattr(function, "python_function", function)


def with_rank(tensor: Any, rank: int) -> Any:
    """A tensor with axes of size 1 after its own, as many as it lacks."""
    return tensor[(..., *[tf.newaxis] * (rank - tensor.shape.rank))]


def _weigh_examples(upstream: Any) -> Any:
    """Let a weight for each example weigh all of its loss, which may be a map of pixels.

    Keras gives weights one more axis only. Those of a batch would be laid over columns of the map.
    """

    @functools.wraps(upstream)
    def weighed(losses: Any, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        weights = getattr(getattr(sample_weight, "shape", None), "rank", None)
        values = getattr(getattr(losses, "shape", None), "rank", None)
        if weights == 1 and values is not None and values > 2:
            sample_weight = with_rank(sample_weight, values)
        return upstream(losses, sample_weight, *args, **kwargs)

    return weighed


losses_utils.compute_weighted_loss = _weigh_examples(losses_utils.compute_weighted_loss)


def _of_elements(weight: Any, values: Any) -> Any:
    """The weights of examples as those of all their elements: Keras' counts want each."""
    if weight is None:
        return None
    weight, values = tf.convert_to_tensor(weight), tf.convert_to_tensor(values)
    if weight.dtype.is_bool:  # a mask
        weight = tf.cast(weight, tf.keras.backend.floatx())
    if weight.shape.rank is None or not 0 < weight.shape.rank <= (values.shape.rank or 0):
        return weight
    return with_rank(weight, values.shape.rank) * tf.ones_like(values, weight.dtype)


def _count_pixels(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def update_state(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        classes = y_true if self.sparse_y_true else tf.argmax(y_true, axis=self.axis)
        return upstream(self, y_true, y_pred, _of_elements(sample_weight, classes))

    return update_state


def _count_elements(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def update(variables: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        # Of one class Keras takes one column of the outputs.
        counted = y_pred if kwargs.get("class_id") is None else y_pred[..., :1]
        kwargs["sample_weight"] = _of_elements(kwargs.get("sample_weight"), counted)
        return upstream(variables, y_true, y_pred, *args, **kwargs)

    return update


_IoUBase.update_state = _count_pixels(_IoUBase.update_state)  # of MeanIoU and its like
metrics_utils.update_confusion_matrix_variables = _count_elements(  # of Precision, AUC and so on
    metrics_utils.update_confusion_matrix_variables
)


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step."""
    return type(model).train_step is not tf.keras.Model.train_step


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


def updates_made(model: Any) -> Any:
    """How often the optimizers of a model were applied, all together, int64."""
    return tf.add_n([tf.cast(one.iterations, tf.int64) for one in optimizers_of(model)])


def optimizer_variables(model: Any) -> list[tuple[str, Any]]:
    """The variables of all optimizers of a model in order, each with its name.

    Names are those of `variable_names`; of several optimizers, with a number before each.
    """
    optimizers = optimizers_of(model)
    heads = [f"{number}/" if len(optimizers) > 1 else "" for number, _ in enumerate(optimizers)]
    return [
        (head + name, variable)
        for head, one in zip(heads, optimizers, strict=True)
        for name, variable in zip(variable_names(one), variables_of(one), strict=True)
    ]


def slots_of(model: Any) -> list[Any]:
    """The variables of `optimizer_variables`, without their names."""
    return [variable for _, variable in optimizer_variables(model)]


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
