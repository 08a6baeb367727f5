"""Legacy Keras (tf-keras 2.21): see `protocol.Keras`."""

import random
from collections.abc import Callable, Sequence
from typing import Any

# Private: seeds of initial weights, which are a thread's own.
from tf_keras.src.backend import _SEED_GENERATOR

# Private: what `fit` itself runs in.
from tf_keras.src.engine.training_utils import RespectCompiledTrainableState

from ringside_core.keras.protocol import Keras
from ringside_core.keras.tensorflow import is_seeded, tf


class Legacy(Keras):
    """What Ringside asks of legacy Keras."""

    optimizers: tuple[type, ...] = (
        tf.keras.optimizers.Optimizer,
        tf.keras.optimizers.legacy.Optimizer,
    )
    epoch_logs = "_validate_and_get_metrics_result"
    containers: tuple[str, ...] = ("compiled_loss", "compiled_metrics")

    def raw(self, variable: Any) -> Any:
        """The same here."""
        return variable

    def weights_of(self, model: Any) -> list[Any]:
        """Without vocabularies, which Keras counts among the weights of a lookup layer."""
        states = {id(variable) for metric in model.metrics for variable in metric.variables}
        return [v for v in model.weights if id(v) not in states and hasattr(v, "shape")]

    def trainable_of(self, model: Any) -> list[Any]:
        """As it was compiled: so `fit` trains it, whatever its author has frozen since."""
        with RespectCompiledTrainableState(model):
            return list(model.trainable_variables)

    def variables_of(self, optimizer: Any) -> list[Any]:
        """An attribute in new ones, a method in legacy ones."""
        variables = optimizer.variables
        return list(variables() if callable(variables) else variables)

    def variable_names(self, optimizer: Any) -> list[str]:
        """Variables that `fit` makes have the optimizer's name in front."""
        scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
        own = f"{getattr(scaled, 'name', None) or scaled._name}/"
        names = [v.name for v in self.variables_of(optimizer)]
        return [name.removesuffix(":0").removeprefix(own) for name in names]

    slot_names = variable_names

    def build_optimizer(self, optimizer: Any, variables: Sequence[Any]) -> None:
        """A legacy one has no `build`."""
        make = getattr(optimizer, "build", None) or optimizer._create_all_weights
        make(variables)

    def on_apply(self, optimizer: Any, instead: Callable[..., Any]) -> None:
        upstream = optimizer.apply_gradients

        def applied(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]

            def apply(others: Sequence[Any]) -> Any:
                return upstream(list(zip(others, variables, strict=True)), *args, **kwargs)

            return instead(apply, gradients, variables)

        optimizer.apply_gradients = applied

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        """The variable of the present rate is made now: a step of several replicas cannot."""
        optimizer.learning_rate = schedule
        scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
        if hasattr(scaled, "_compute_current_learning_rate"):  # a legacy one has no such variable
            scaled._compute_current_learning_rate()

    def seed_weights(self, seed: int) -> None:
        """TensorFlow's other draws follow, Python's and NumPy's do not."""
        if getattr(_SEED_GENERATOR, "generator", None) is None:
            _SEED_GENERATOR.generator = random.Random(seed)
        if not is_seeded():
            tf.random.set_seed(seed)

    def chance_of(self, model: Any) -> list[Any]:
        """Its operations keep their state where no checkpoint can read it."""
        return []

    def draws(self, layer: Any) -> bool:
        return getattr(layer, "_random_generator", None) is not None

    def looks_at_steps(self, callback: Any) -> bool:
        return bool(callback._implements_train_batch_hooks())

    def set_floatx(self, precision: str, policy: str | None) -> None:
        tf.keras.backend.set_floatx(precision)
        if policy is not None:
            tf.keras.mixed_precision.set_global_policy(policy)

    def begin_names(self) -> None:
        tf.keras.backend.reset_uids()

    def as_in_this_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A mirrored strategy runs each replica in a thread of its own."""
        seeds = vars(_SEED_GENERATOR).copy()

        def made(*args: Any) -> Any:
            vars(_SEED_GENERATOR).update(seeds)
            return function(*args)

        return made
