"""tf.distribute.MultiWorkerMirroredStrategy: one process for each replica, placed by TF_CONFIG."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorflow.python.distribute.values import SyncOnReadVariable
from tensorflow.python.eager import context

from backends.base import Reduction
from backends.devices import use_local_gpu
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.specs.cluster import NO_PROXY, ClusterTask
from ringside_core.specs.options import CommunicationOptions

FROZEN_LIMIT_MS = 3_600_000


class MultiWorkerMirrored(StrategyBackend):
    """Synchronous over processes; without TF_CONFIG, one process that is a cluster of its own."""

    _updates_in_branches = True
    _scopes = 0

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """TensorFlow says "Collectives are not implemented for CPU devices when compiling"."""
        if num_replicas == 1 or tf.config.list_physical_devices("GPU"):
            return None
        return "TensorFlow's collectives are no operations of XLA on CPUs"

    def _start(self) -> None:
        super()._start()
        _let_processes_read_alone(lambda: not self._scopes)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """The strategy's scope; outside of it, a process reads what it holds itself."""
        self._scopes += 1
        try:
            with super().scope():
                yield
        finally:
            self._scopes -= 1

    def _make_strategy(self) -> Any:
        task = self.surroundings.task
        if task is not None:
            if task.cluster.ps:
                raise RefusalError(
                    "A TF_CONFIG with `ps` tasks is for the backend parameter_server.",
                    received="multi_worker_mirrored",
                    advice="Use --backend parameter_server, or remove `ps` from the cluster.",
                )
            take_place(task)
            if self.surroundings.is_frozen_at_times:
                _be_patient()
        use_local_gpu(self.local_rank, self.surroundings.local_size)
        options = self.spec.options
        assert isinstance(options, CommunicationOptions)
        implementation = tf.distribute.experimental.CommunicationImplementation
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=getattr(implementation, options.implementation),
                bytes_per_pack=options.bytes_per_pack,
                timeout_seconds=options.timeout_seconds,
            )
        )

    def _all_reduce(self, array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
        if reduction == "max":  # tf.distribute sums and averages only: gather in a sum
            table = np.zeros((self.size, *array.shape), array.dtype)
            table[self.rank] = array
            return np.asarray(self._all_reduce(table, "sum").max(axis=0))
        own = tf.constant(array)
        per_replica = self.strategy.experimental_distribute_values_from_function(lambda _: own)
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None).numpy()


def _let_processes_read_alone(alone: Callable[[], bool]) -> None:
    """A chief that saves a model alone would wait for the others (tensorflow#38635)."""
    # It would read the states of metrics, and moving statistics, which are summed on read; the
    # latter are equal in all processes after a training. Private: TensorFlow 2.21.
    read = SyncOnReadVariable._get_cross_replica

    def own(variable: Any) -> Any:
        return variable._primary if alone() and tf.executing_eagerly() else read(variable)

    SyncOnReadVariable._get_cross_replica = own


def _be_patient() -> None:
    """Let a peer be silent for an hour; TensorFlow's own limit is 10 s."""
    # The strategy itself configures the coordination service, and sets no heartbeat: its call gets
    # one here.
    configured = context.context().configure_coordination_service
    context.context().configure_coordination_service = partial(
        configured, heartbeat_timeout_in_ms=FROZEN_LIMIT_MS
    )


def take_place(task: ClusterTask) -> None:
    """Let TensorFlow find this task's place, and reach the others past any proxy.

    It reads TF_CONFIG, which srun does not set.

    Raises:
        RefusalError: something listens at its address.
    """
    _check_port_is_free(task)
    os.environ.setdefault("TF_CONFIG", task.to_tf_config())
    os.environ[NO_PROXY] = task.cluster.unproxied(os.environ)


def _check_port_is_free(task: ClusterTask) -> None:
    """Refuse a TF_CONFIG whose own port is taken; TensorFlow would abort the process."""
    host, _, port = task.address.rpartition(":")
    with socket.socket() as probe:
        # As gRPC does: a port in TIME_WAIT from a run just ended is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(port)))
            probe.listen(1)
        except OSError as error:
            raise RefusalError(
                "The port of this task must be free.",
                received=f"{host}:{port} ({error.strerror})",
                advice="Choose another port in TF_CONFIG, or end the process that holds this one.",
            ) from None
