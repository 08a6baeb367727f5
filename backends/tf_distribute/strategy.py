"""The common part of the backends that are a tf.distribute.Strategy."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from backends.base import Backend, GradientReduction, statistics
from ringside_core.keras import VERSION, change_reduction, raw, tf
from ringside_core.keras.part import here
from ringside_core.specs import InputShard, RefusalError


class StrategyBackend(Backend):
    """The common part of the backends that are a tf.distribute.Strategy."""

    _strategy: Any = None

    @property
    def strategy(self) -> Any:
        """The started strategy."""
        if self._strategy is None:
            raise RuntimeError(f"{self.name} is used before it was started")
        return self._strategy

    def _start(self) -> None:
        self._strategy = self._make_strategy()
        replicas = self._strategy.num_replicas_in_sync
        if self.capabilities.synchronous and replicas != self.num_replicas:
            raise RefusalError(
                "The strategy must hold the replicas that the run asks for.",
                received=f"{replicas} replicas found, {self.num_replicas} asked for",
                advice=f"Use --replicas {replicas}.",
            )

    @abstractmethod
    def _make_strategy(self) -> Any:
        """The tf.distribute.Strategy; devices are free to be configured."""

    def _stop(self) -> None:
        self._strategy = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """The strategy's scope."""
        with self.strategy.scope():
            yield

    def distribute(self, dataset_fn: Callable[[InputShard], Any]) -> Any:
        """One input pipeline for each process, each giving its replicas their batches in turn."""

        def for_pipeline(context: Any) -> Any:
            return dataset_fn(
                InputShard(index=context.input_pipeline_id, count=context.num_input_pipelines)
            )

        return keeping_iterators(self.strategy.distribute_datasets_from_function(for_pipeline))

    def average_statistics(self, model: Any) -> None:
        """To read a variable of kind MEAN gives the mean over replicas; to assign sets all."""
        if self.num_replicas == 1 or not self.capabilities.synchronous:
            return  # nobody else holds a copy
        with self.scope():
            for variable in statistics(model):
                variable.assign(variable.numpy())

    def wrap_optimizer(self, optimizer: Any, *, by_tape: bool = False) -> Any:
        """Refuse what Keras 3 would end in the first step."""
        one = getattr(optimizer, "inner_optimizer", optimizer)
        asked = [name for name in _IN_A_CONDITION if VERSION == 3 and getattr(one, name, None)]
        if asked:
            raise RefusalError(
                "An optimizer of Keras 3 cannot do this under tf.distribute.",
                received=asked[0],
                advice="Leave it out. --gradient-accumulation-steps accumulates under every "
                "backend.",
            )
        return super().wrap_optimizer(optimizer, by_tape=by_tape)

    def _summed(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Legacy Keras sums when it applies; Keras 3 would clip before that."""
        del optimizer, variables
        there = [one for one in gradients if one is not None]
        if VERSION == 2 or not there:
            return gradients
        context = tf.distribute.get_replica_context()
        reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
        return [None if one is None else next(reduced) for one in gradients]

    def all_gather(self, rows: Any) -> Any:
        """Replicas may have different numbers of rows."""
        return tf.distribute.get_replica_context().all_gather(rows, axis=0)

    def all_sum(self, tensor: Any) -> Any:
        """As Keras sums gradients."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensor)

    def replica_number(self) -> Any:
        """A process may hold several replicas; the first one stands for them outside of a step."""
        context = tf.distribute.get_replica_context()
        return 0 if context is None else context.replica_id_in_sync_group

    def change_reduction(self, optimizer: Any, reduction: GradientReduction) -> None:
        """Keras has divided the gradients by the number of replicas, for their sum."""
        change_reduction(optimizer, reduction)

    @property
    def in_strategy(self) -> bool:
        """Keras asks it."""
        return True

    @property
    def strategy_here(self) -> Any:
        """The strategy itself."""
        return self.strategy

    def static_replica_number(self) -> int:
        """Known while a step is traced: each replica is traced by itself."""
        context = tf.distribute.get_replica_context()
        return int(tf.get_static_value(context.replica_id_in_sync_group))

    def sum_gradients(
        self, gradients: list[Any], variables: list[Any], upstream: Callable[[Any], Any] | None
    ) -> list[Any]:
        """By the optimizer's own sum; TensorFlow packs gradients of one type only."""
        found = list(gradients)
        for kind in {g.dtype for g in gradients if g is not None}:
            own = [k for k, g in enumerate(gradients) if g is not None and g.dtype == kind]
            if upstream is None:
                summed = self.sum_tensors([gradients[k] for k in own])
            else:
                summed = [g for g, _ in upstream([(gradients[k], variables[k]) for k in own])]
            for k, gradient in zip(own, summed, strict=True):
                found[k] = gradient
        return found

    def sum_tensors(self, tensors: list[Any]) -> list[Any]:
        """As Keras sums gradients; TensorFlow packs tensors of one type only."""
        found = list(tensors)
        context = tf.distribute.get_replica_context()
        for kind in {t.dtype for t in tensors}:
            own = [k for k, t in enumerate(tensors) if t.dtype == kind]
            # Of one tensor in a graph, TensorFlow does not return a list.
            given = [*(tensors[k] for k in own), tf.zeros([], kind)]
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, given)
            for k, total in zip(own, summed, strict=False):
                found[k] = total
        return found

    def let_replicas_update_alone(self) -> bool:
        """A `merge_call` waits for all replicas, and cannot stand in a `tf.cond`. Private: 2.21."""

        def use_merge_call() -> bool:
            part = here()
            return part is None or not part.alone

        vars(self.strategy.extended)["_use_merge_call"] = use_merge_call
        return True

    def _local_results(self, variable: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = self.strategy.experimental_local_results(raw(variable))
        return results


def keeping_iterators(batches: Any) -> Any:
    """A distributed dataset that keeps its newest iterator until the next one is made.

    The strategy adds datasets for each device, and TensorFlow runs an autotuner for them that
    nobody can turn off. To free their iterator, TensorFlow waits for the autotuner's present
    period. It doubles from 10 ms to a minute while the iterator lives (`Model::OptimizeLoop`), so
    `fit` would return that much later. The last iterator is never freed: the process ends with
    `os._exit`.
    """
    key = id(batches)

    class Keeping(type(batches)):  # type: ignore[misc]
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            _NEWEST_ITERATOR[key] = (
                self,
                iterator,
            )  # also the dataset, so that its id is not used again
            return iterator

    batches.__class__ = Keeping
    return batches


# It asks for them within a condition, where a strategy cannot go on.
_IN_A_CONDITION = ("gradient_accumulation_steps", "ema_overwrite_frequency")
_NEWEST_ITERATOR: dict[int, tuple[Any, Any]] = {}
