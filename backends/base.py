"""Backend: one interface over every way of distributing a Keras training.

The public methods check and convert, once for all backends. An implementation fills in the small
hooks that begin with an underscore. `serial` is a backend too: it is the reference.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import KERAS, tf
from ringside_core.specs import BackendOptions, Capabilities, RefusalError, RunSpec, Surroundings

Reduction = Literal["sum", "mean", "max"]
Role = Literal["replica", "coordinator", "server"]


class TimelineEntry(NamedTuple):
    """What a stack says of one tensor: on one track entries are nested; ns, begin since 1970."""

    name: str
    track: int
    begin_ns: int
    ns: int


class Backend(ABC):
    """A started backend knows who this process is, what it reads, and how values are combined.

    Use it as a context manager: to enter it starts or joins a run, to leave it frees what it took.
    """

    def __init__(self, spec: RunSpec, surroundings: Surroundings) -> None:
        self.spec = spec
        self.surroundings = surroundings
        self._check_surroundings()
        self._check_xla()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    @classmethod
    def obstacle(cls, options: BackendOptions) -> str | None:
        """Why no run with these options can work on this machine; None if nothing is known."""
        return None

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """Why XLA cannot compile the training step on this machine; None if nothing is known.

        Args:
            num_replicas: of the run.
        """
        return None

    def _check_xla(self) -> None:
        reason = self.xla_obstacle(self.num_replicas) if self.spec.jit_compile else None
        if reason is not None:
            raise RefusalError(
                "XLA must be able to compile the training step.",
                received=f"jit_compile with {self.name}: {reason}",
                advice="Leave --jit-compile away.",
            )

    def _check_surroundings(self) -> None:
        """Refuse a launcher that cannot start this backend, and a missing one."""
        here, size = self.surroundings, self.spec.topology.num_processes
        if here.kind != "alone" and here.kind not in self.capabilities.joins:
            raise RefusalError(
                f"The backend {self.name} cannot be started by {_LAUNCHED[here.kind]}.",
                received=f"{here.size} processes from {_LAUNCHED[here.kind]}",
                advice=_HOW_TO_START[self._start_hint()].format(backend=self.name, size=here.size),
            )
        if here.size != size:
            raise RefusalError(
                "The number of processes must be that of the run.",
                received=f"{here.size} from "
                f"{_LAUNCHED[here.kind]}, {size} in the run ({size} replicas)",
                advice=_HOW_TO_START[self._start_hint()].format(backend=self.name, size=size),
            )

    def _start_hint(self) -> str:
        joins = self.capabilities.joins
        return joins[0] if joins else "alone"

    # Who am I

    @property
    def name(self) -> str:
        """The name of the backend, as a person types it."""
        return self.spec.backend

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is able to do."""
        return self.spec.capabilities

    @property
    def rank(self) -> int:
        """Rank of this process among those that hold replicas, from 0."""
        return self.surroundings.rank

    @property
    def size(self) -> int:
        """Number of processes that hold replicas."""
        return self.spec.topology.num_processes

    @property
    def local_rank(self) -> int:
        """Rank of this process among those on its host."""
        return self.surroundings.local_rank

    @property
    def local_replicas(self) -> int:
        """Replicas in this process."""
        return self.spec.topology.replicas_per_process

    @property
    def num_replicas(self) -> int:
        """Replicas in the whole run."""
        return self.spec.topology.num_replicas

    @property
    def role(self) -> Role:
        """What this process does: train, dispatch, or serve a coordinator."""
        return "replica"

    @property
    def is_chief(self) -> bool:
        """Whether this is the one process that may write."""
        return self.rank == 0

    @property
    def num_readers(self) -> int:
        """Input pipelines in the whole run."""
        return self.size

    # Building

    def scope(self) -> AbstractContextManager[Any]:
        """The model is built and compiled within this scope."""
        return nullcontext()

    # Within the step of a replica

    @property
    def in_strategy(self) -> bool:
        """Whether the replicas are a strategy's, which Keras knows of."""
        return False

    @property
    def strategy_here(self) -> Any:
        """The strategy in whose scope Keras trains; without one, TensorFlow's default."""
        return tf.distribute.get_strategy()

    def static_replica_number(self) -> int:
        """Number of the replica in whose step this is called, from 0."""
        return self.rank

    def sum_gradients(
        self, gradients: list[Any], variables: list[Any], upstream: Callable[[Any], Any] | None
    ) -> list[Any]:
        """The gradients of all replicas, added by the stack's own reducer.

        Args:
            gradients: of this replica, tensors or slices; None where a variable has none.
            variables: in the same order.
            upstream: the optimizer's own sum of (gradient, variable) pairs; None: a tape asks.
        """
        return gradients

    def sum_tensors(self, tensors: list[Any]) -> list[Any]:
        """The sums of tensors over all replicas; those of one type together."""
        found = list(tensors)
        for kind in dict.fromkeys(t.dtype for t in tensors):
            own = [k for k, t in enumerate(tensors) if t.dtype == kind]
            for k, total in zip(own, self._sum_tensors([tensors[k] for k in own]), strict=True):
                found[k] = total
        return found

    def _sum_tensors(self, tensors: list[Any]) -> list[Any]:
        return tensors

    def let_replicas_update_alone(self) -> bool:
        """Let each replica update its own copies of variables while `Part.alone`; else False."""
        return False

    def prepare_model(self, model: Any, *, at_tape: bool = False) -> None:
        """Prepare the layers of a model for this family, after it was built in the scope.

        Args:
            model: compiled.
            at_tape: gradients are added where a tape gives them, not by an optimizer.

        Raises:
            RefusalError: the family cannot train it.
        """
        return

    # Training

    def begin_training(self, model: Any) -> None:
        """Do what this family needs before the first step. All processes must call it.

        Args:
            model: compiled; its weights are those to begin with.
        """
        return

    def begin_epoch(self) -> None:
        """Do what this family needs before the first step of each epoch."""
        return

    def tell_steps(self, on_step: Callable[[], None]) -> None:
        """Have a function called after each step of which `fit` does not hear at once."""
        return

    def step_ends(self) -> list[float] | None:
        """`time.perf_counter()` at the end of each step since the epoch began.

        None if `fit` waits for each step: then the step ends when its call returns.
        """
        return None

    def start_timeline(self, file: Path) -> None:
        """Let the stack itself tell of its collectives, where it can; `file` is its own to use."""
        return

    def end_timeline(self) -> list[TimelineEntry]:
        """What it said since `start_timeline`, in one process of a run."""
        return []

    # Combining values over processes

    def all_reduce(self, value: Any, reduction: Reduction = "sum") -> NDArray[Any]:
        """Combine an array over all processes that hold replicas; all get the result.

        Args:
            value: array of the same shape and type in every process.
            reduction: element by element.
        """
        array = np.asarray(value)
        if self.size == 1:
            return array
        if reduction == "mean":
            return np.asarray(self._all_reduce(array, "sum") / self.size)
        return np.asarray(self._all_reduce(array, reduction))

    def broadcast(self, value: Any) -> NDArray[Any]:
        """The array of the first process, in every process."""
        array = np.asarray(value)
        return self.all_reduce(np.zeros_like(array) if self.rank else array)

    def barrier(self) -> None:
        """Wait until every process has called this."""
        self.all_reduce(np.zeros(1, np.float32))

    def _all_reduce(self, array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
        raise NotImplementedError(f"{self.name} has one process that holds replicas")

    def local_values(self, variable: Any) -> list[NDArray[Any]]:
        """The value of a variable on each replica of this process."""
        here = self.strategy_here.experimental_local_results(KERAS.raw(variable))
        return [np.asarray(value) for value in here]

    def summed(self, variable: Any) -> NDArray[Any]:
        """The sum over all replicas of a variable that each has its own copy of."""
        with self.scope():
            return np.asarray(KERAS.raw(variable).numpy())

    def hold_sums(self, variables: list[Any]) -> Callable[[], None]:
        """Let variables that are read outside of a step hold their sums over all replicas.

        All processes must call this. A strategy's are read as sums there.

        Returns:
            A function that lets each process hold its own again.
        """
        return lambda: None

    def average_statistics(self, model: Any) -> None:
        """Give every replica the mean over all replicas of the statistics that layers keep.

        Each replica sees its own slice of the data, so the moving statistics of batch normalisation
        differ between replicas. All processes must call this.
        """
        return

    # Coming and going

    @abstractmethod
    def _start(self) -> None:
        """Take devices, and join the other processes."""

    def _stop(self) -> None:
        """Give back what `_start` took."""
        return

    def serve(self) -> None:
        """Serve a coordinator until it is gone (role `server`)."""
        raise NotImplementedError(f"{self.name} has no servers")


def statistics(model: Any) -> list[Any]:
    """The variables that layers update in training, each replica from the data that it sees.

    Layers mark them by VariableAggregation.MEAN. Batch normalisation marks its moving mean and
    variance so.
    """
    try:
        kept = model.non_trainable_variables
    except ValueError:  # Keras': a part of it has no weights yet
        return []
    return [
        variable
        for variable in map(KERAS.raw, kept)
        if getattr(variable, "aggregation", None) == tf.VariableAggregation.MEAN  # no vocabulary
        and variable.dtype.is_floating
    ]


_LAUNCHED = {
    "alone": "plain python",
    "horovodrun": "horovodrun",
    "mpirun": "mpirun (or horovodrun, which uses it where it can)",
    "tf_config": "TF_CONFIG",
    "slurm": "srun",
}
_HOW_TO_START = {
    "alone": "Start it as: python train.py --backend {backend} --replicas {size}",
    "horovodrun": "Start it as: horovodrun -np {size} python train.py --backend {backend}",
    "tf_config": "Start one process for each task with TF_CONFIG set, or: "
    "ringside launch --backend {backend} --replicas {size}",
}
