"""tf.distribute.ParameterServerStrategy: a coordinator, workers, and servers with the variables.

Asynchronous: each step is an update from one worker's batch. A TF_CONFIG names the `chief` (the
coordinator), `worker` and `ps` tasks. Servers and workers serve until the coordinator says that it
is over.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Reduction, Role
from backends.devices import inter_op_threads, use_local_gpu
from backends.tf_distribute.multi_worker_mirrored import take_place
from backends.tf_distribute.serving import hear_over, serve_until_over, tell_over
from backends.tf_distribute.sharded_coordinator import ShardedCoordinator
from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf
from ringside_core.specs import PreemptedError, RefusalError
from ringside_core.specs.cluster import ClusterTask
from ringside_core.specs.options import ParameterServerOptions


class ParameterServer(StrategyBackend):
    """The coordinator trains with `Model.fit`; the other tasks only `serve`."""

    _coordinator: ShardedCoordinator | None = None
    _server: Any = None

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """The servers hold the variables."""
        return "XLA compiles for one device, and the variables lie on those of the servers"

    @property
    def _task(self) -> ClusterTask:
        task = self.surroundings.task
        assert task is not None
        return task

    def _check_surroundings(self) -> None:
        super()._check_surroundings()
        task = self.surroundings.task
        advice = "ringside launch --backend parameter_server starts all of them."
        if task is None:
            raise RefusalError(
                "The backend parameter_server needs a coordinator, workers and servers.",
                received="no TF_CONFIG",
                advice=advice,
            )
        if not task.cluster.ps:
            raise RefusalError(
                "The backend parameter_server needs `ps` tasks in TF_CONFIG.",
                received=f"only {', '.join(sorted({t.type for t in task.cluster.tasks()}))}",
                advice=advice,
            )
        options = self.spec.options
        assert isinstance(options, ParameterServerOptions)
        if options.servers != len(task.cluster.ps):
            raise RefusalError(
                "The number of `ps` tasks in TF_CONFIG must be that of the run.",
                received=f"{len(task.cluster.ps)} in TF_CONFIG, servers={options.servers}",
            )

    @property
    def role(self) -> Role:
        """The chief dispatches steps; all other tasks serve it."""
        return "coordinator" if self._task.type == "chief" else "server"

    @property
    def is_chief(self) -> bool:
        """The coordinator is the process that writes."""
        return self.role == "coordinator"

    @property
    def num_readers(self) -> int:
        """One input pipeline on each worker."""
        return len(self._task.cluster.worker)

    def _start(self) -> None:
        take_place(self._task)
        if self.role == "server":
            config = tf.compat.v1.ConfigProto()
            # Servers take the sizes of their thread pools from here, not from tf.config.threading.
            config.intra_op_parallelism_threads = self.spec.resources.intra_op_threads or 0
            config.inter_op_parallelism_threads = inter_op_threads(self.spec)
            self._give_gpu(config)
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            self._server = tf.distribute.Server(
                resolver.cluster_spec(),
                job_name=self._task.type,
                task_index=self._task.index,
                protocol="grpc",
                config=config,
                start=True,
            )
            return
        tf.config.set_visible_devices([], "GPU")  # or it would take the memory that workers need
        super()._start()
        options = self.spec.options
        assert isinstance(options, ParameterServerOptions)
        self._coordinator = ShardedCoordinator(self.strategy)
        self._coordinator.in_turn = options.schedule == "in_turn"

    def _give_gpu(self, config: Any) -> None:
        """One to each worker, and none to servers."""
        if self._task.type != "worker":
            tf.config.set_visible_devices([], "GPU")
            config.device_count["GPU"] = 0
        elif use_local_gpu(self.local_rank, self.surroundings.local_size):
            # A server learns of its devices here, too.
            config.gpu_options.visible_device_list = str(self.local_rank)
            config.gpu_options.allow_growth = True

    def _make_strategy(self) -> Any:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)

    def _stop(self) -> None:
        self._coordinator = None
        super()._stop()

    def begin_epoch(self) -> None:
        """Each epoch begins at worker 0, whose shard holds the first slice of each batch."""
        self.coordinator.start_over()

    @property
    def coordinator(self) -> ShardedCoordinator:
        """Of the started backend, in the coordinator's process."""
        assert self._coordinator is not None
        return self._coordinator

    def tell_steps(self, on_step: Callable[[], None]) -> None:
        """Every step, as it ends: hundreds may be dispatched before the first one does."""
        self.coordinator.on_step_end = on_step

    def step_ends(self) -> list[float] | None:
        """When each step of this epoch was finished, as the coordinator learned it."""
        return sorted(self.coordinator.finished_at)

    def all_reduce(self, value: Any, reduction: Reduction = "sum") -> NDArray[Any]:
        """Only the coordinator has values: they are returned unchanged."""
        return np.asarray(value)

    def barrier(self) -> None:
        """Wait until every scheduled step is done."""
        self.coordinator.join()

    def serve(self) -> None:
        """Serve until the coordinator says that the training is over.

        Raises:
            CoordinatorLostError, KeyboardInterrupt: see `serve_until_over`.
        """
        serve_until_over(self._task.cluster.chief[0], hear_over(self._task))

    def __exit__(self, *exception: object) -> None:
        """A coordinator that ends in good order tells those that serve it."""
        if self._coordinator is not None and exception[:1] in ((), (None,), (PreemptedError,)):
            tell_over([task for task in self._task.cluster.tasks() if task.type != "chief"])
        super().__exit__(*exception)
