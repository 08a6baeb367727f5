"""Horovod's and tf.distribute's all-reduce, each called as a training step calls it.

The input of each rank is a tensor already. The result is a new tensor: it is allocated, and each of
its pages first written, while the clock runs. A training pays for that in every step.

tf.distribute reduces several packs of gradients at once. With `bytes_per_pack` the array comes as
several tensors, each as large as a pack; else as one tensor.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.base import Backend
from ringside.collectives.ranks import Floats, Ranks
from ringside.collectives.stacks import Stack
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.specs.options import CommunicationOptions

Reduction = Callable[[list[Any]], list[Any]]  # tensors of this rank → their sums over all ranks


class TensorFlowRanks(Ranks):
    """The ranks of a started backend."""

    def __init__(self, backend: Backend, stack: Stack) -> None:
        self.rank, self.size = backend.rank, backend.size
        self._backend = backend
        self._on_gpu = bool(tf.config.list_logical_devices("GPU"))
        horovod = stack.library == "horovod"
        self._reduction = _horovod(stack) if horovod else _strategy(backend)

    def barrier(self) -> None:
        """The backend's own barrier: a sum of one element, returned on the host."""
        self._backend.barrier()

    def slowest(self, seconds: float) -> float:
        """By the backend's all-reduce."""
        return float(self._backend.all_reduce(np.array([seconds], np.float64), "max")[0])

    def prepare(self, array: Floats) -> Callable[[], tuple[float, Floats]]:
        """On tensors that exist before the clock starts."""
        options = self._backend.spec.options
        pack = options.bytes_per_pack if isinstance(options, CommunicationOptions) else 0
        each = pack // array.itemsize or array.size

        def once() -> tuple[float, Floats]:
            parts = [array[start : start + each] for start in range(0, array.size, each)]
            # identity: onto the GPU, if there is one.
            tensors = [tf.identity(tf.constant(part)) for part in parts]
            if self._on_gpu:
                tf.test.experimental.sync_devices()
            seconds, sums = self.timed(lambda: finished(self._reduction(tensors), self._on_gpu))
            # After the clock has stopped, copy results from a GPU and join the parts.
            return seconds, np.concatenate(sums) if len(sums) > 1 else np.asarray(sums[0])

        return once


def finished(results: list[Any], on_gpu: bool) -> list[Any]:
    """Wait until the results exist, without a copy, because MPI's results are not copied either.

    `EagerTensor.numpy()` copies. A view of the tensor's memory waits, because it needs the address.
    """
    if on_gpu:
        tf.test.experimental.sync_devices()
        return results
    return [np.asarray(memoryview(result)) for result in results]


def _horovod(stack: Stack) -> Reduction:
    import horovod.tensorflow as hvd  # the backend has checked that it fits this TensorFlow

    if stack.needs_nccl and not hvd.nccl_built():
        raise RefusalError("Horovod was built without NCCL.", received="nccl_built() = 0")

    @tf.function
    def function(tensors: list[Any]) -> list[Any]:
        return [hvd.allreduce(tensor, op=hvd.Sum) for tensor in tensors]

    return function


def _strategy(backend: Backend) -> Reduction:
    """As tf_keras.src.optimizers.utils.all_reduce_sum_gradients does, packs included."""
    with backend.scope():
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
        with backend.scope():
            return list(function(tensors))

    return call
