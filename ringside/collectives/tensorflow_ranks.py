"""Horovod and the collectives of tf.distribute, each called as a training step calls them.

The operation is one call of a compiled function, as in a training. The input of each rank is a
tensor already. The result is a new tensor: TensorFlow and Horovod allocate it, and first write to
each of its pages, while the clock runs. A training pays for that in every step. Bare MPI does not:
its result is allocated before.

tf.distribute packs whole gradients, up to `bytes_per_pack`, and reduces several packs at once. With
that setting the array comes as several tensors, each as large as a pack; else as one tensor.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from backends.base import Backend
from backends.horovod_ring import import_horovod
from ringside.collectives import pattern
from ringside.collectives.loop import ROOT_RANK, Ranks, Took, timed
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.specs.communication import Operation
from ringside_core.specs.options import CommunicationOptions

# Our own group; the strategy numbers its groups from 1.
GROUP_KEY = 90210


class BackendRanks(Ranks):
    """The ranks of a started backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.rank = backend.rank
        self.size = backend.size
        self._on_gpu = bool(tf.config.list_logical_devices("GPU"))

    def barrier(self) -> None:
        """The backend's own barrier: a sum of one element, returned on the host."""
        self.backend.barrier()

    def slowest(self, seconds: float) -> float:
        """By the backend's all-reduce."""
        return float(self.backend.all_reduce(np.array([seconds], np.float64), "max")[0])

    def prepare(
        self, operation: Operation, array: pattern.Floats
    ) -> Callable[[], tuple[Took, pattern.Floats]]:
        """The operation as one compiled function."""
        function = self._function(operation)

        def once() -> tuple[Took, pattern.Floats]:
            # identity: onto the GPU, if there is one, before the clock starts.
            tensors = [tf.identity(tf.constant(part)) for part in self._parts(operation, array)]
            if self._on_gpu:
                tf.test.experimental.sync_devices()
            took, results = timed(self, lambda: finished(function(tensors), self._on_gpu))
            # After the clock has stopped, copy results from a GPU and join the parts.
            return took, np.concatenate(results) if len(results) > 1 else np.asarray(results[0])

        return once

    def _parts(self, operation: Operation, array: pattern.Floats) -> list[pattern.Floats]:
        """The array, cut into the parts that become tensors."""
        del operation
        return [array]

    @abstractmethod
    def _function(self, operation: Operation) -> Callable[[list[Any]], list[Any]]:
        """Tensors of this rank → results."""


def finished(results: list[Any], on_gpu: bool) -> list[Any]:
    """Wait until the results exist, without a copy, because MPI's results are not copied either.

    `EagerTensor.numpy()` waits and copies. A view of the tensor's memory waits too, because it
    needs the address; on a CPU it is that memory itself.
    """
    if on_gpu:
        tf.test.experimental.sync_devices()
        return results
    return [np.asarray(memoryview(result)) for result in results]


class HorovodRanks(BackendRanks):
    """hvd.allreduce with Sum, hvd.broadcast."""

    def _function(self, operation: Operation) -> Callable[[list[Any]], list[Any]]:
        hvd = import_horovod_functions()

        @tf.function
        def function(tensors: list[Any]) -> list[Any]:
            (tensor,) = tensors
            if operation == "allreduce":
                return [hvd.allreduce(tensor, op=hvd.Sum)]
            return [hvd.broadcast(tensor, root_rank=ROOT_RANK)]

        return function


class StrategyRanks(BackendRanks):
    """The sum of gradients as the optimizer calls it; the broadcast of initial variables."""

    @property
    def _options(self) -> CommunicationOptions:
        assert isinstance(self.backend.spec.options, CommunicationOptions)
        return self.backend.spec.options

    def _parts(self, operation: Operation, array: pattern.Floats) -> list[pattern.Floats]:
        each = self._options.bytes_per_pack // array.itemsize
        if operation != "allreduce" or not each:
            return [array]
        return [array[start : start + each] for start in range(0, array.size, each)]

    def _function(self, operation: Operation) -> Callable[[list[Any]], list[Any]]:
        return self._allreduce() if operation == "allreduce" else self._broadcast()

    def _allreduce(self) -> Callable[[list[Any]], list[Any]]:
        """As tf_keras.src.optimizers.utils.all_reduce_sum_gradients does, packs included."""
        with self.backend.scope():
            variable = tf.Variable(0.0)  # says where the sum is wanted, as the weights do

        def reduce(strategy: Any, tensors: list[Any]) -> Any:
            pairs = [(tensor, variable) for tensor in tensors]
            return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)

        def on_replica(tensors: list[Any]) -> Any:
            return tf.distribute.get_replica_context().merge_call(reduce, args=(tensors,))

        @tf.function
        def function(tensors: list[Any]) -> Any:
            return tf.distribute.get_strategy().run(on_replica, args=(tensors,))

        def call(tensors: list[Any]) -> list[Any]:
            with self.backend.scope():
                return list(function(tensors))

        return call

    def _broadcast(self) -> Callable[[list[Any]], list[Any]]:
        group = {
            "group_size": self.size,
            "group_key": GROUP_KEY,
            "communication_hint": self._options.implementation.lower(),
        }

        @tf.function
        def function(tensor: Any, instance: Any) -> Any:
            if self.rank == ROOT_RANK:
                return tf.raw_ops.CollectiveBcastSendV2(
                    input=tensor, instance_key=instance, **group
                )
            return tf.raw_ops.CollectiveBcastRecvV2(
                T=tensor.dtype, shape=tf.shape(tensor), instance_key=instance, **group
            )

        def call(tensors: list[Any]) -> list[Any]:
            (tensor,) = tensors
            _INSTANCES[0] += 1
            return [function(tensor, tf.constant(_INSTANCES[0]))]

        return call


_INSTANCES = [0]  # each collective needs a key of its own, the same in all ranks


def import_horovod_functions() -> Any:
    """horovod.tensorflow, after a check that it fits this TensorFlow."""
    import_horovod()
    import horovod.tensorflow as hvd

    return hvd


def check_nccl() -> None:
    """Refuse a Horovod that was built without NCCL."""
    if not import_horovod_functions().nccl_built():
        raise RefusalError("Horovod was built without NCCL.", received="nccl_built() = 0")
