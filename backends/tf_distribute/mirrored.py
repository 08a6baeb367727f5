"""tf.distribute.MirroredStrategy: replicas in one process, variables mirrored on each device."""

from typing import Any

from backends.devices import replica_devices
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf
from ringside_core.specs.options import CrossDeviceOptions


class Mirrored(StrategyBackend):
    """GPUs, or as many logical CPU devices as replicas."""

    _updates_in_branches = True

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """Logical CPU devices: the step of a replica would use the device of another one."""
        if num_replicas == 1 or tf.config.list_physical_devices("GPU"):
            return None
        return "XLA compiles for one device, and these replicas share a CPU"

    def _make_strategy(self) -> Any:
        return tf.distribute.MirroredStrategy(
            replica_devices(self.local_replicas), cross_device_ops=self._cross_device_ops()
        )

    def _cross_device_ops(self) -> Any:
        options = self.spec.options
        assert isinstance(options, CrossDeviceOptions)
        if options.cross_device_ops is None:
            return None
        kind = getattr(tf.distribute, options.cross_device_ops)
        if options.num_packs is None or options.cross_device_ops == "ReductionToOneDevice":
            return kind()
        return kind(num_packs=options.num_packs)
