"""A ninth backend: one class, one type of options and one row."""

from typing import Annotated, Any, Literal

from backends.devices import replica_devices
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf
from ringside_core.specs.backends import BackendRow, Capabilities
from ringside_core.specs.knob import Search
from ringside_core.specs.options import BackendOptions


class NinthOptions(BackendOptions):
    """How the replicas' gradients are added up."""

    reduce_by: Annotated[
        Literal["ReductionToOneDevice", "HierarchicalCopyAllReduce"],
        Search(("HierarchicalCopyAllReduce",), ("replicas",)),
    ] = "ReductionToOneDevice"


class Ninth(StrategyBackend):
    """A MirroredStrategy whose reduction is always chosen."""

    def _make_strategy(self) -> Any:
        options = self.spec.options
        assert isinstance(options, NinthOptions)
        return tf.distribute.MirroredStrategy(
            replica_devices(self.local_replicas),
            cross_device_ops=getattr(tf.distribute, options.reduce_by)(),
        )


ROW = BackendRow(
    "ninth",
    "tests.contract.ninth:Ninth",
    Capabilities(family="tf.distribute", process_model="single"),
    NinthOptions,
    default_arms=("", "reduce_by=HierarchicalCopyAllReduce"),
)
