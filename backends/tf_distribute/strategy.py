"""The common part of the backends that are a tf.distribute.Strategy."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from backends.base import Backend, statistics
from ringside_core.keras import VERSION, optimizers_of, tf
from ringside_core.keras.part import here
from ringside_core.specs import RefusalError


class StrategyBackend(Backend):
    """The common part of the backends that are a tf.distribute.Strategy."""

    _strategy: Any = None
    # Whether each replica updates its own copies, without a merge_call, where a tape has added.
    _updates_in_branches = False

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

    def average_statistics(self, model: Any) -> None:
        """To read a variable of kind MEAN gives the mean over replicas; to assign sets all."""
        if self.num_replicas == 1 or not self.capabilities.synchronous:
            return  # no other process holds a copy
        with self.scope():
            for variable in statistics(model):
                variable.assign(variable.numpy())

    def prepare_model(self, model: Any, *, at_tape: bool = False) -> None:
        """Refuse what Keras 3 would end in the first step."""
        helps = self._updates_in_branches and self.num_replicas > 1
        for optimizer in optimizers_of(model) if VERSION == 3 and not (at_tape and helps) else ():
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            if asked := [name for name in _IN_A_CONDITION if getattr(inner, name, None)]:
                raise RefusalError(
                    "An optimizer of Keras 3 cannot do this under tf.distribute.",
                    received=asked[0],
                    advice='Add gradients at the tape: ringside.fit(…, gradients="tape").'
                    if helps
                    else "Leave it out.",
                )

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

    def _sum_tensors(self, tensors: list[Any]) -> list[Any]:
        """As Keras sums gradients."""
        context = tf.distribute.get_replica_context()
        # Of one tensor in a graph, TensorFlow does not return a list.
        given = [*tensors, tf.zeros([], tensors[0].dtype)]
        return list(context.all_reduce(tf.distribute.ReduceOp.SUM, given))[:-1]

    def let_replicas_update_alone(self) -> bool:
        """A `merge_call` waits for all replicas, and cannot stand in a `tf.cond`. Private: 2.21."""

        def use_merge_call() -> bool:
            part = here()
            return part is None or not part.alone

        vars(self.strategy.extended)["_use_merge_call"] = use_merge_call
        return True


# Keras 3's optimizer asks for them within a condition, where a strategy cannot go on.
_IN_A_CONDITION = ("gradient_accumulation_steps", "ema_overwrite_frequency")
