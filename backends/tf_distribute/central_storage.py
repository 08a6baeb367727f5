"""CentralStorageStrategy: variables on the CPU, one replica on each compute device."""

from typing import Any

from backends.devices import replica_devices
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import VERSION, optimizers_of, tf
from ringside_core.specs import RefusalError


class CentralStorage(StrategyBackend):
    """GPUs, or as many logical CPU devices as replicas."""

    def _make_strategy(self) -> Any:
        return tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=replica_devices(self.local_replicas), parameter_device="CPU:0"
        )

    def prepare_model(self, model: Any) -> None:
        """Refuse an optimizer that Keras would refuse in the first step."""
        for optimizer in optimizers_of(model) if VERSION == 2 else ():
            clips = [name for name in _CLIPPING if getattr(optimizer, name, None) is not None]
            if clips and isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
                raise RefusalError(
                    "A legacy optimizer cannot clip gradients under central_storage.",
                    received=f"{type(optimizer).__name__} with {clips[0]}",
                    advice="Take the optimizer from tf.keras.optimizers without `legacy`.",
                )
        super().prepare_model(model)


_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
