"""tf.distribute.OneDeviceStrategy: a strategy with one replica, to see what a strategy costs."""

from typing import Any

from backends.devices import replica_devices
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf


class OneDevice(StrategyBackend):
    """One replica on one device."""

    def _make_strategy(self) -> Any:
        return tf.distribute.OneDeviceStrategy(replica_devices(1)[0])
