"""CentralStorageStrategy: variables on the CPU, one replica on each compute device.

TensorFlow 2.21 makes no copies of variables of ON_READ there: a metric's state and a layer's moving
statistics would be one variable, and what a replica assigns to it, also to leave it as it is, is
added to what the others assign. Here each replica has its copy, as under every other strategy.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tensorflow.python.distribute import distribute_utils

from backends.devices import replica_devices
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import VERSION, optimizers_of, tf
from ringside_core.specs import RefusalError


class CentralStorage(StrategyBackend):
    """GPUs, or as many logical CPU devices as replicas."""

    def _make_strategy(self) -> Any:
        strategy = tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=replica_devices(self.local_replicas), parameter_device="CPU:0"
        )
        if self.local_replicas > 1:
            create = strategy.extended._create_variable
            vars(strategy.extended)["_create_variable"] = partial(_with_copies, strategy, create)
        return strategy

    def prepare_model(self, model: Any, *, at_tape: bool = False) -> None:
        """Refuse an optimizer that Keras would refuse in the first step."""
        for optimizer in optimizers_of(model) if VERSION == 2 else ():
            clips = [name for name in _CLIPPING if getattr(optimizer, name, None) is not None]
            if clips and isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
                raise RefusalError(
                    "A legacy optimizer cannot clip gradients under central_storage.",
                    received=f"{type(optimizer).__name__} with {clips[0]}",
                    advice="Take the optimizer from tf.keras.optimizers without `legacy`.",
                )
        super().prepare_model(model, at_tape=at_tape)


def _with_copies(
    strategy: Any, upstream: Callable[..., Any], creator: Callable[..., Any], **kwargs: Any
) -> Any:
    """A variable; one of ON_READ has a copy for each replica, on the CPU too. Private: 2.21."""
    if kwargs.get("synchronization") != tf.VariableSynchronization.ON_READ:
        return upstream(creator, **kwargs)

    def copies(**kwargs: Any) -> list[Any]:
        with tf.device("CPU:0"):
            made = [creator(**kwargs)]
            name = made[0].name.removesuffix(":0")
            kwargs["initial_value"] = made[0].read_value
            for number in range(1, len(strategy.extended.worker_devices)):
                made.append(creator(**{**kwargs, "name": f"{name}/replica_{number}/"}))
            return made

    return distribute_utils.create_mirrored_variable(
        strategy,
        copies,
        distribute_utils.VARIABLE_CLASS_MAPPING,
        distribute_utils.VARIABLE_POLICY_MAPPING,
        **kwargs,
    )


_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
