"""CentralStorageStrategy: variables on the CPU, one replica on each compute device."""

from typing import Any, ClassVar

from backends.base import StrategyBackend
from backends.devices import replica_devices
from legacy_keras import tf


class CentralStorage(StrategyBackend):
    """GPUs, or as many logical CPU devices as replicas."""

    name: ClassVar[str] = "central_storage"

    def _make_strategy(self) -> Any:
        return tf.distribute.experimental.CentralStorageStrategy(
            compute_devices=replica_devices(self.local_replicas), parameter_device="CPU:0"
        )
