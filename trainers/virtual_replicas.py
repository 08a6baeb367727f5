"""A training step as several replicas would make it, in one process: what arms are compared with.

A step of an author's own may couple the examples of its batch, or normalise by them. What it then
means in data-parallel training is: each replica takes its part of the batch, and the gradients are
combined where an optimizer applies them. Here each replica is a thread, and one runs at a time:
until it applies gradients, or until its step is over.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from backends.base import statistics
from ringside_core.keras import functions_in_python, on_apply, optimizers_of, tf
from ringside_core.specs import RefusalError
from trainers.gather import Together
from trainers.lookups import Lookups

_here = threading.local()


@dataclass(frozen=True)
class _Handed:
    """What a replica hands to all.

    Attributes:
        value: of this replica.
        joined: makes one tensor of those of all replicas.
    """

    value: Any
    joined: Callable[[list[Any]], Any]


@dataclass(frozen=True)
class _Asked:
    """What a replica wants applied.

    Attributes:
        optimizer: of the model.
        apply: of the optimizer, as it was; it takes gradients of the variables.
        gradients: each × the replica's share.
        variables: of the gradients.
    """

    optimizer: Any
    apply: Callable[[Sequence[Any]], Any]
    gradients: Sequence[Any]
    variables: Sequence[Any]


class VirtualReplicas:
    """Runs a step as replicas that share one model.

    What no optimizer updates, such as the statistics of batch normalisation, each replica changes
    for itself. Statistics end at their mean over the replicas, as they do over real ones.
    """

    def __init__(self, model: Any, others: Sequence[Any], lookups: Lookups) -> None:
        """Take over where the model's optimizers apply gradients.

        Args:
            model: compiled. Its step must run in Python, which is seen to.
            others: weights of the model that no optimizer updates.
            lookups: of the model; they add what the replicas ask.
        """
        self._others, self._lookups = others, lookups
        self._averaged = {id(variable) for variable in statistics(model)}
        model.run_eagerly, model._jit_compile = True, False
        for optimizer in optimizers_of(model):
            on_apply(optimizer, partial(_ask, optimizer, lookups))

    def run(self, parts: Sequence[Callable[[], None]]) -> None:
        """Make one step.

        Args:
            parts: the step of each replica, on its part of the batch.

        Raises:
            RefusalError: replicas end with other values of what is no statistic.
            RuntimeError: the replicas do not apply the same gradients one after the other.
        """
        replicas = [_Replica(number, part) for number, part in enumerate(parts)]
        values = [[tf.identity(variable) for variable in self._others] for _ in replicas]
        try:
            # A tf.function would hand what it applies from one graph to another.
            with functions_in_python():
                while any(asked := [*map(self._turn, replicas, values)]):
                    told = _answered(asked, self._lookups)
                    for replica in replicas:
                        replica.answer = told
        finally:
            for replica in replicas:
                replica.cancel()
        for variable, ends in zip(self._others, zip(*values, strict=True), strict=True):
            variable.assign(self._end(variable, ends))

    def _turn(self, replica: "_Replica", own: list[Any]) -> "_Asked | _Handed | None":
        """Let a replica go on with its own values, and note those that it leaves."""
        for variable, value in zip(self._others, own, strict=True):
            variable.assign(value)
        asked = replica.go_on()
        own[:] = [tf.identity(variable) for variable in self._others]
        return asked

    def _end(self, variable: Any, ends: Sequence[Any]) -> Any:
        if id(variable) in self._averaged:
            return tf.add_n(list(ends)) / len(ends)
        if not all(bool(tf.reduce_all(tf.equal(end, ends[0]))) for end in ends):
            raise RefusalError(
                "What a step changes without an optimizer must be the same on all replicas, or a "
                "mean over them.",
                received=f"{variable.name}, which each replica sets from its own part of the batch",
                advice="Make it a tf.Variable with aggregation=tf.VariableAggregation.MEAN.",
            )
        return ends[0]


def run_together(parts: Sequence[Callable[[], Any]]) -> list[Any]:
    """What functions return that run as replicas, which may gather rows; nothing is applied."""
    replicas = [_Replica(number, part) for number, part in enumerate(parts)]
    try:
        while any(asked := [replica.go_on() for replica in replicas]):
            told = _answered(asked)
            for replica in replicas:
                replica.answer = told
    finally:
        for replica in replicas:
            replica.cancel()
    return [replica.returned for replica in replicas]


def _hand(value: Any, joined: Callable[[list[Any]], Any]) -> Any:
    replica = _replica()
    return joined([value]) if replica is None else replica.ask(_Handed(value, joined))


def _replica() -> "_Replica | None":
    """The replica whose thread this is; None: a step is only traced, or a callback's."""
    return getattr(_here, "replica", None)


TOGETHER = Together(
    rows=lambda rows: _hand(rows, lambda all_rows: tf.concat(all_rows, 0)),
    total=lambda tensor: _hand(tensor, tf.add_n),
    number=lambda: getattr(_replica(), "number", 0),
)
"""How replicas that run so reach each other."""


class _Replica:
    """A step in a thread of its own, which runs only while it has its turn."""

    def __init__(self, number: int, part: Callable[[], Any]) -> None:
        self.number, self._part, self.answer, self.returned = number, part, None, None
        self._asked: _Asked | _Handed | None = None
        self._error: BaseException | None = None
        self._cancelled = self._ended = False
        self._turn, self._over = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True, name="virtual-replica").start()

    def go_on(self) -> _Asked | _Handed | None:
        """Run until it wants something of the others, or applied; None: its step is over."""
        self._asked = None
        if not self._ended:
            self._turn.release()
            self._over.acquire()
        if self._error is not None:
            raise self._error
        return self._asked

    def ask(self, asked: _Asked | _Handed) -> Any:
        """Called in its thread: wait for the others; returns what was applied, or is joined."""
        self._asked = asked
        self._over.release()
        self._turn.acquire()
        if self._cancelled:
            raise SystemExit  # ends the thread
        return self.answer

    def cancel(self) -> None:
        """End its thread, if another replica's step has failed."""
        self._cancelled = True
        self._turn.release()

    def _run(self) -> None:
        self._turn.acquire()
        if self._cancelled:
            return
        _here.replica = self
        try:
            self.returned = self._part()
        except BaseException as error:  # raised where the step is made
            self._error = error
        self._ended = True
        self._over.release()


def _ask(
    optimizer: Any,
    lookups: Lookups,
    apply: Callable[..., Any],
    gradients: list[Any],
    variables: list[Any],
) -> Any:
    replica = _replica()
    if replica is None:
        lookups.note(gradients, variables)
        return apply(gradients)
    return replica.ask(_Asked(optimizer, apply, gradients, variables))


def _answered(asked: Sequence[_Asked | _Handed | None], lookups: Lookups | None = None) -> Any:
    """Join what the replicas hand to all, or apply what they ask."""
    handed = [one for one in asked if isinstance(one, _Handed)]
    if not handed:
        assert lookups is not None
        return _applied([one for one in asked if isinstance(one, _Asked)], lookups, of=len(asked))
    if len(handed) < len(asked):
        raise RuntimeError("some replicas of a step gather rows, and others do not")
    return handed[0].joined([one.value for one in handed])


def _applied(there: Sequence[_Asked], lookups: Lookups, *, of: int) -> Any:
    """Apply the sum of what so many replicas ask."""
    first = there[0]
    for one in there:
        same = [v is w for v, w in zip(one.variables, first.variables, strict=False)]
        if one.optimizer is not first.optimizer or not all(same):
            raise RuntimeError("the replicas of a step apply gradients of other variables")
    if len(there) < of:
        raise RuntimeError("some replicas of a step apply gradients, and others do not")
    columns = zip(*(one.gradients for one in there), strict=True)
    return first.apply([*map(lookups.added, columns, first.variables)])
