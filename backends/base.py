"""Backend: one interface over every way of distributing a Keras training.

The public methods check and convert, once for all backends. An implementation fills in the small
hooks that begin with an underscore. `serial` is a backend too: it is the reference.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import VERSION, on_apply, raw, reduce_first, tf, told_as
from ringside_core.specs import (
    BackendOptions,
    Capabilities,
    InputShard,
    RefusalError,
    RunSpec,
    Surroundings,
)

Reduction = Literal["sum", "mean", "max"]
Role = Literal["replica", "coordinator", "server"]
# (upstream's reduction, gradients, variables) → the gradients that are applied, in the same order.
GradientReduction = Callable[[Callable[[Any, Any], Any], list[Any], list[Any]], list[Any]]


class Backend(ABC):
    """A started backend knows who this process is, what it reads, and how values are combined.

    Use it as a context manager: to enter it starts or joins a run, to leave it frees what it took.

    Attributes:
        rank: of this process among those that hold replicas.
        size: number of those processes.
        local_replicas: replicas in this process.
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
        del options
        return None

    @classmethod
    def xla_obstacle(cls, num_replicas: int) -> str | None:
        """Why XLA cannot compile the training step on this machine; None if nothing is known.

        Args:
            num_replicas: of the run.
        """
        del num_replicas
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

    @property
    def input_shard(self) -> InputShard:
        """The part of the data that this process reads."""
        return InputShard(index=self.rank, count=self.num_readers)

    # Building

    def scope(self) -> AbstractContextManager[Any]:
        """The model is built and compiled within this scope."""
        return nullcontext()

    def wrap_optimizer(self, optimizer: Any, *, by_tape: bool = False) -> Any:
        """The optimizer in the form that this family needs.

        Args:
            optimizer: as the model's author made it.
            by_tape: the step is written out with a tape, see `wrap_tape`.
        """
        del by_tape
        several = self.num_replicas > 1 and self.capabilities.synchronous
        if VERSION == 3 and several and not self.spec.as_shipped:
            reduce_first(optimizer, partial(self._summed, optimizer))
        return optimizer

    def wrap_tape(self, tape: Any, optimizer: Any) -> Any:
        """The tape of a written-out step in the form that this family needs.

        Args:
            tape: a tf.GradientTape that has recorded the step.
            optimizer: from `wrap_optimizer`, that applies the gradients in the replica's step. A
                strategy's sums them then.
        """
        del optimizer
        return tape

    def lend_reduction(self, optimizer: Any) -> None:
        """Let an author's own optimizer do in Keras' step what `wrap_optimizer` returns.

        It stays the object that his callbacks hold.
        """
        self.wrap_optimizer(optimizer)  # a strategy's is the optimizer itself

    def combine_on_apply(self, optimizer: Any, share: Callable[[], Any]) -> None:
        """Let `optimizer.apply_gradients` combine the gradients of all replicas first.

        It then applies the sum of each replica's gradient × its share. This is for a training step
        that `Model.fit` does not write itself; in Keras' own, `wrap_optimizer` does it.

        Args:
            optimizer: not wrapped; changed in place.
            share: called in the step of each replica; all shares add up to 1.
        """

        def combined(gradients: list[Any], variables: list[Any]) -> list[Any]:
            counted = [_times(gradient, share()) for gradient in gradients]
            return self._summed(optimizer, counted, variables)

        if self.spec.as_shipped:
            on_apply(optimizer, lambda apply, g, v: apply([_times(one, share()) for one in g]))
        else:
            reduce_first(optimizer, combined)

    def _summed(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Gradients summed over replicas, unless the optimizer does so when it applies them."""
        del optimizer, variables
        return gradients

    def all_gather(self, rows: Any) -> Any:
        """The rows of all replicas, those of replica 0 first; called in the step of each.

        Args:
            rows: [n, …], with any n in each replica.
        """
        raise NotImplementedError(f"{self.name} gathers nothing")

    def all_sum(self, tensor: Any) -> Any:
        """The sum of a tensor over all replicas; called in the step of each."""
        raise NotImplementedError(f"{self.name} gathers nothing")

    def replica_number(self) -> Any:
        """Number of the replica in whose step this is called, from 0."""
        return self.rank

    def change_reduction(self, optimizer: Any, reduction: GradientReduction) -> None:
        """Let an optimizer that this backend wrapped combine gradients in another way.

        Everything else stays as it is: to see what the reduction costs, or what a wrong one does.
        """
        raise NotImplementedError(f"{self.name} reduces no gradients")

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
        del variables, upstream
        return gradients

    def sum_tensors(self, tensors: list[Any]) -> list[Any]:
        """The sums of tensors over all replicas."""
        return tensors

    def let_replicas_update_alone(self) -> bool:
        """Let each replica update its own copies of variables while `Part.alone`; else False."""
        return False

    def distribute(self, dataset_fn: Callable[[InputShard], Any]) -> Any:
        """Input that `Model.fit` takes, from a function: input shard → batches of one replica."""
        return dataset_fn(self.input_shard)

    def prepare_model(self, model: Any) -> None:
        """Prepare the layers of a model for this family, after it was built in the scope."""
        del model
        return

    # Training

    def begin_training(self, model: Any) -> None:
        """Do what this family needs before the first step. All processes must call it.

        Args:
            model: compiled; its weights are those to begin with.
        """
        del model
        return

    def begin_epoch(self) -> None:
        """Do what this family needs before the first step of each epoch."""
        return

    # Steps outside `fit`

    _on_step: Callable[[], None] = staticmethod(lambda: None)

    def tell_steps(self, on_step: Callable[[], None]) -> None:
        """Have a function called after each step of a `stepper`, so that a launcher hears of it."""
        self._on_step = on_step

    def steps_over(
        self, step: Callable[[Any], Any], batches: Any, *, most: int = 1
    ) -> Callable[[int], None]:
        """A function that makes the next steps over data, as many in one call as its argument says.

        It is called in the scope. When it returns, a step may not have ended (`step_ends`).

        Args:
            step: runs on every replica with one of its batches.
            batches: what `distribute` returned.
            most: steps of a call; with 1 all calls are for one step.
        """

        @tf.function(reduce_retracing=True)
        def on_replicas(iterator: Any, steps: Any) -> None:
            if most == 1:
                tf.distribute.get_strategy().run(step, args=(next(iterator),))
            else:
                for _ in tf.range(steps):
                    tf.distribute.get_strategy().run(step, args=(next(iterator),))

        iterators: list[Any] = []

        def make(steps: int) -> None:
            if not iterators:
                iterators.append(self._iterator(batches))
            self._call(on_replicas, iterators[0], steps if most == 1 else tf.constant(steps))

        return make

    def _iterator(self, batches: Any) -> Any:
        return iter(batches)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)

    def stepper(
        self, step: Callable[[Any], Any], dataset_fn: Callable[[InputShard], Any]
    ) -> Callable[[int], None]:
        """A function that makes one pass over the data and waits for its end.

        The function's argument is the number of steps of the pass.

        Args:
            step: runs on every replica with one of its batches.
            dataset_fn: input shard → batches of one replica, for all steps of one pass.
        """
        with self.scope():
            # Endless, so that one iterator is enough for all passes. A strategy needs a tenth of a
            # second to make an iterator, and sometimes many seconds to free it
            # (`keeping_iterators`). The iterator reads the first batches of the next pass ahead;
            # with the prefetch every backend does so.
            batches = self.distribute(lambda shard: dataset_fn(shard).repeat().prefetch(2))
            make = self.steps_over(step, batches)

        def run(steps: int) -> None:
            with self.scope():
                for _ in range(steps):
                    make(1)
                    self._on_step()

        return run

    def step_ends(self) -> list[float] | None:
        """`time.perf_counter()` at the end of each step since the epoch began.

        None if `fit` waits for each step: then the step ends when its call returns.
        """
        return None

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

    def broadcast(self, value: Any, root: int = 0) -> NDArray[Any]:
        """The array of process `root`, in every process."""
        if not 0 <= root < self.size:
            raise RefusalError(
                "root must be the rank of a process.", received=f"{root} of {self.size}"
            )
        array = np.asarray(value)
        return self.all_reduce(array if self.rank == root else np.zeros_like(array))

    def barrier(self) -> None:
        """Wait until every process has called this."""
        self.all_reduce(np.zeros(1, np.float32))

    def _all_reduce(self, array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
        raise NotImplementedError(f"{self.name} has one process that holds replicas")

    def local_values(self, variable: Any) -> list[NDArray[Any]]:
        """The value of a variable on each replica of this process."""
        return [np.asarray(value) for value in self._local_results(variable)]

    def _local_results(self, variable: Any) -> tuple[Any, ...]:
        here = tf.distribute.get_strategy()
        results: tuple[Any, ...] = here.experimental_local_results(raw(variable))
        return results

    def summed_state(self, metric: Any) -> list[NDArray[Any]]:
        """The state of a Keras metric summed over all replicas; the metric stays as it is.

        All processes must call this.
        """
        with self.scope():
            return [np.asarray(variable.numpy()) for variable in metric.variables]

    def merged_results(self, metrics: list[Any]) -> dict[str, NDArray[Any]]:
        """Result of each Keras metric from its state summed over all replicas, by name."""
        # A strategy sums metric variables when they are read, over its processes too.
        with self.scope():
            return {told_as(metric): np.asarray(metric.result()) for metric in metrics}

    def summed(self, variable: Any) -> NDArray[Any]:
        """The sum over all replicas of a variable that each has its own copy of."""
        with self.scope():
            return np.asarray(raw(variable).numpy())

    def with_summed(self, variables: list[Any], read: Callable[[], Any]) -> Any:
        """What a function reads while variables hold their sums over all replicas.

        All processes must call this. A strategy's are read as sums outside of a step.
        """
        del variables
        with self.scope():
            return read()

    def average_statistics(self, model: Any) -> None:
        """Give every replica the mean over all replicas of the statistics that layers keep.

        Each replica sees its own slice of the data, so the moving statistics of batch normalisation
        differ between replicas. All processes must call this.
        """
        del model
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


def _times(gradient: Any, factor: Any) -> Any:
    """A gradient × a scalar; None where a variable has no gradient.

    0 where the factor is 0: a replica without examples may have a gradient that is no number.
    """
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.math.multiply_no_nan(gradient.values, tf.cast(factor, gradient.dtype))
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))


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
        for variable in map(raw, kept)
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
