"""Parameter servers: all workers at once read the variable and add their gradients.

Each worker times itself, inside the function that the coordinator sends: dispatching is not
communication. The workers start nearly together, when the coordinator sends the function; there is
no barrier among workers. Clocks of different workers are never compared.

In repetition k every element begins as k mod 5. Worker w adds (w + 1) · m(i) to element i, where
m(i) = (i + k) mod 61 + 1. This gradient is made before the clock starts, and sent when the whole
variable has arrived. So a worker reads the first value plus what some others have added by then,
which is a whole multiple of m(i). When all p workers have finished, the value is
k mod 5 + p(p + 1)/2 · m(i). All are whole numbers below 2**24, so they are compared by equality.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from backends.base import Backend
from ringside.collectives.request import LEAST_WARM_UP, RankTimes, Request, repetitions
from ringside_core.keras import tf

PERIOD = 61
BEGINNINGS = 5


def time_push_pull(
    backend: Backend, request: Request, on_size: Callable[[int, int], None]
) -> tuple[tuple[RankTimes, ...], ...]:
    """Time every size; returns the times of each worker. Only the coordinator calls this."""
    found: list[list[RankTimes]] = [[] for _ in range(backend.num_replicas)]
    for number, size_bytes in enumerate(request.sizes, start=1):
        sender = _PushPull(
            backend, size_bytes // 4, functools.partial(on_size, number, len(request.sizes))
        )
        for worker, times in enumerate(sender.times(request, size_bytes)):
            found[worker].append(times)
    return tuple(map(tuple, found))


class _PushPull:
    """A variable of one size on the servers, and the functions that use it."""

    def __init__(self, backend: Backend, count: int, on_repetition: Callable[[], None]) -> None:
        self._on_repetition = on_repetition
        self._workers = backend.num_replicas
        # The backend has made it already: each strategy has one.
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(
            backend.strategy  # type: ignore[attr-defined]
        )
        with backend.scope():
            self._variable = tf.Variable(tf.zeros([count]), trainable=False)
        self._count = count
        self._push_pull = tf.function(self._on_worker)
        self._begin = tf.function(self._on_server_before)
        self._check = tf.function(self._on_server_after)

    def times(self, request: Request, size_bytes: int) -> list[RankTimes]:
        """Repeat as often as `repetitions` says, as in every stack."""
        rows: list[list[float]] = []
        wrong = 0
        for k in range(LEAST_WARM_UP):
            began = time.perf_counter()
            wrong += self._repeat(k, [])
            wall_s = time.perf_counter() - began
        warm_up, count = repetitions(wall_s, most=request.most, budget_s=request.budget_s)
        for k in range(LEAST_WARM_UP, warm_up):
            wrong += self._repeat(k, [])
        for k in range(warm_up, warm_up + count):
            row: list[float] = []
            wrong += self._repeat(k, row)
            rows.append(row)
        by_worker = list(zip(*rows, strict=True))
        return [
            RankTimes(
                operation="push_pull",
                size_bytes=size_bytes,
                seconds=seconds,
                # A number of all workers, put down for one: `joined` adds up the ranks.
                wrong=wrong if worker == 0 else 0,
                warm_up=warm_up,
            )
            for worker, seconds in enumerate(by_worker)
        ]

    def _repeat(self, k: int, row: list[float]) -> int:
        """Let every worker do it once; append their times to `row`; returns the wrong elements."""
        repetition = tf.constant(k)
        with tf.device(self._variable.device):
            self._begin(repetition)
        self._coordinator.start_over()  # so that worker w gets the w-th call
        sent = [
            self._coordinator.schedule(self._push_pull, args=(tf.constant(worker), repetition))
            for worker in range(self._workers)
        ]
        self._coordinator.join()
        wrong = 0
        for one in sent:
            seconds, mistakes = one.fetch()
            row.append(float(seconds))
            wrong += int(mistakes)
        with tf.device(self._variable.device):
            wrong += int(self._check(repetition))
        self._on_repetition()
        return wrong

    def _multiples(self, repetition: Any) -> Any:
        """m(i)."""
        return tf.cast((tf.range(self._count) + repetition) % PERIOD + 1, tf.float32)

    def _on_worker(self, worker: Any, repetition: Any) -> tuple[Any, Any]:
        """(seconds, wrong elements among those read)."""
        multiples = self._multiples(repetition)
        weight = tf.cast(worker + 1, tf.float32)
        gradient = weight * multiples
        with tf.control_dependencies([gradient]):
            began = tf.timestamp()
        with tf.control_dependencies([began]):
            read = tf.identity(self._variable.read_value())
        # A gradient must wait for its weights. This copy on the worker waits too; without it the
        # gradient would be sent as soon as it exists: while the weights arrive, or earlier.
        with tf.control_dependencies([read]):
            gradient = tf.identity(gradient)
            added = self._variable.assign_add(gradient, read_value=False)
        with tf.control_dependencies([added]):
            seconds = tf.timestamp() - began
        by_others = (read - tf.cast(repetition % BEGINNINGS, tf.float32)) / multiples
        most = self._workers * (self._workers + 1) / 2 - weight
        right = (by_others >= 0) & (by_others <= most) & (by_others == tf.round(by_others))
        return seconds, tf.reduce_sum(tf.cast(~right, tf.int64))

    def _on_server_before(self, repetition: Any) -> None:
        beginning = tf.cast(repetition % BEGINNINGS, tf.float32)
        self._variable.assign(tf.fill([self._count], beginning), read_value=False)

    def _on_server_after(self, repetition: Any) -> Any:
        weights = self._workers * (self._workers + 1) / 2
        right = tf.cast(repetition % BEGINNINGS, tf.float32) + weights * self._multiples(repetition)
        return tf.reduce_sum(tf.cast(self._variable.read_value() != right, tf.int64))
