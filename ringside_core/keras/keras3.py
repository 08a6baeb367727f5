"""Keras 3 (3.15) on TensorFlow: see `protocol.Keras`."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import keras

# Private: settings that are a thread's own; TensorFlow's variable within one of Keras'.
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.backend.tensorflow.core import Variable
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator

from ringside_core.keras.protocol import Keras
from ringside_core.keras.tensorflow import is_seeded, tf

_OWNER = "_ringside_owner"


def _owned(variables: Sequence[Any]) -> list[Any]:
    """TensorFlow's variables, of each of which Keras' is known."""
    found = []
    for variable in variables:
        value = variable._value if isinstance(variable, Variable) else variable
        if value is not variable:
            setattr(value, _OWNER, variable)
        found.append(value)
    return found


def _seeds_of(layer: Any) -> list[Any]:
    held = [*layer._seed_generators, *vars(layer).values()]
    kind = keras.random.SeedGenerator
    return list({id(one): one for one in held if isinstance(one, kind)}.values())


class Keras3(Keras):
    """What Ringside asks of Keras 3."""

    optimizers: tuple[type, ...] = (keras.optimizers.Optimizer,)
    epoch_logs = "_get_metrics_result_or_logs"
    containers: tuple[str, ...] = ("_compile_loss", "_compile_metrics")

    def raw(self, variable: Any) -> Any:
        """Not `value`, which may cast it."""
        return variable._value if isinstance(variable, Variable) else variable

    def weights_of(self, model: Any) -> list[Any]:
        return _owned(model.weights)

    def trainable_of(self, model: Any) -> list[Any]:
        return _owned(model.trainable_variables)

    def variables_of(self, optimizer: Any) -> list[Any]:
        return [self.raw(variable) for variable in optimizer.variables]

    def variable_names(self, optimizer: Any) -> list[str]:
        """Such as `dense_kernel_momentum`."""
        return [v.path.partition("/")[2] or v.path for v in optimizer.variables]

    def slot_names(self, optimizer: Any) -> list[str]:
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
        trained = [v.path.replace("/", "_") for v in getattr(inner, "_trainable_variables", ())]
        found = []
        for name in self.variable_names(optimizer):
            of = max((t for t in trained if name.startswith(f"{t}_")), key=len, default="")
            found.append(f"{name.removeprefix(f'{of}_')}/{of}" if of else name)
        return found

    def build_optimizer(self, optimizer: Any, variables: Sequence[Any]) -> None:
        if not optimizer.built:
            optimizer.build([getattr(variable, _OWNER, variable) for variable in variables])

    def on_apply(self, optimizer: Any, instead: Callable[..., Any]) -> None:
        upstream = optimizer.apply

        def applied(grads: Any, trainable_variables: Any = None) -> Any:
            known = getattr(optimizer, "inner_optimizer", optimizer)._trainable_variables
            variables = list(known if trainable_variables is None else trainable_variables)
            gradients = list(grads)
            return instead(lambda others: upstream(others, variables), gradients, _owned(variables))

        vars(optimizer)["apply"] = applied

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        optimizer.learning_rate = schedule

    def seed_weights(self, seed: int) -> None:
        """Initial weights follow Python's random numbers."""
        if not is_seeded():
            random.seed(seed)
            tf.random.set_seed(seed)

    def chance_of(self, model: Any) -> list[Any]:
        """The states of seed generators."""
        seeds = {id(s): s for layer in model._flatten_layers() for s in _seeds_of(layer)}
        return [self.raw(seed.state) for seed in seeds.values()]

    def draws(self, layer: Any) -> bool:
        return bool(_seeds_of(layer))

    def looks_at_steps(self, callback: Any) -> bool:
        base = keras.callbacks.Callback
        names = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
        methods = {name: getattr(callback, name) for name in names}  # LambdaCallback sets its own
        return any(getattr(m, "__func__", m) is not getattr(base, n) for n, m in methods.items())

    def set_floatx(self, precision: str, policy: str | None) -> None:
        """The global policy was made from the old one, and is kept."""
        follows = keras.config.dtype_policy().name == keras.config.floatx()
        keras.config.set_floatx(precision)
        if follows:
            keras.config.set_dtype_policy(precision)
        if policy is not None:
            keras.config.set_dtype_policy(policy)

    def begin_names(self) -> None:
        set_global_attribute("object_name_uids", None)

    def as_in_this_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A mirrored strategy runs each replica in a thread of its own.

        So is what draws without a seed, which Keras would make in the graph of a replica.
        """
        if get_global_attribute(GLOBAL_SEED_GENERATOR) is None:
            state = random.getstate()
            global_seed_generator()
            random.setstate(state)
        names = ("object_name_uids", "dtype_policy", GLOBAL_SEED_GENERATOR)
        settings = {name: get_global_attribute(name) for name in names}

        def made(*args: Any) -> Any:
            for name, value in settings.items():
                set_global_attribute(name, value)
            return function(*args)

        return made
