"""A ClusterCoordinator that gives every worker its own share of the data, exactly once.

TensorFlow gives each closure to any worker that is free, and tells every worker's dataset function
"input pipeline 0 of 1" (`PerWorkerDatasetFromDatasetFunction`). With a
shard for each worker, a fast worker would run out of data while a slow one would not use all of its
own. Here step k belongs to worker k mod W, and worker w's dataset function is reader w of W.

TensorFlow offers no way to do this, so this file (and no other) uses private parts of its
coordinator. tests/contract checks the result: each example is used once. With `schedule=free` a
worker whose steps are all made takes those of others, on its own data.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ringside_core.keras import tf


class _TurnQueue:
    """Replaces `queue.Queue` inside the closure queue: closures go to the workers in turn."""

    # A worker thread stores its number in `reader`; then `empty` and `get` are about its own
    # closures only. The closure queue holds its lock during every call.

    def __init__(self, num_workers: int, max_size: int) -> None:
        self.in_turn = True
        self._closures: list[deque[Any]] = [deque() for _ in range(num_workers)]
        self._max_size = max_size
        self.next_worker = 0
        self.reader = threading.local()

    def put(self, closure: Any, block: bool = True) -> None:
        owner = getattr(closure, "ringside_worker", None)
        if owner is None:  # new; otherwise it came back after its worker failed
            owner = self.next_worker
            closure.ringside_worker = owner
            self.next_worker = (owner + 1) % len(self._closures)
        self._closures[owner].append(closure)

    def get(self, block: bool = True) -> Any:
        for closures in self._mine():
            if closures:
                return closures.popleft()
        raise queue.Empty

    def empty(self) -> bool:
        return not any(self._mine())

    def full(self) -> bool:
        return self.qsize() >= self._max_size

    def qsize(self) -> int:
        return sum(map(len, self._closures))

    def _mine(self) -> list[deque[Any]]:
        worker = getattr(self.reader, "worker", None)
        if worker is None:
            return self._closures
        own = self._closures[worker]
        return [own] if self.in_turn else [own, *(c for c in self._closures if c is not own)]


class ShardedCoordinator(tf.distribute.experimental.coordinator.ClusterCoordinator):
    """Deals steps to the workers in turn and feeds worker w of W the input shard w of W.

    Attributes:
        in_turn: False: a free worker also takes the steps of others.
        finished_at: `time.perf_counter()` at which each step was known to be finished.
        on_step_end: called after each, in a thread of its worker.
    """

    def __init__(self, strategy: Any) -> None:
        if getattr(self, "_has_initialized", False):
            return  # Keras asks for "the" coordinator again; there is one for each strategy
        super().__init__(strategy)
        self.finished_at: list[float] = []
        self.on_step_end: Callable[[], None] = lambda: None
        closures = self._cluster.closure_queue
        with closures._queue_lock:
            turns = _TurnQueue(self.num_workers, max_size=closures._queue.maxsize)
            closures._queue = turns
            # Upstream wakes one waiting worker, which may not be the one that has work now.
            condition = closures._closures_queued_condition
            notify = condition.notify
            condition.notify = lambda n=1: notify(max(n, self.num_workers))
            condition.notify_all()  # workers that already wait must look at the new queue
        self._turns = turns
        self._identify_readers(closures)
        self._note_finishes(closures)

    @property
    def in_turn(self) -> bool:
        """See above."""
        return self._turns.in_turn

    @in_turn.setter
    def in_turn(self, value: bool) -> None:
        self._turns.in_turn = value

    @property
    def num_workers(self) -> int:
        """Workers that run steps."""
        return len(self._cluster.workers)

    def start_over(self) -> None:
        """Let the next step go to worker 0: called where an epoch or an evaluation begins."""
        self.join()
        self._turns.next_worker = 0
        self.finished_at.clear()

    def create_per_worker_dataset(self, dataset_fn: Callable[[], Any]) -> Any:
        """As upstream, but `dataset_fn` is traced once for each worker, see `tracing_worker`."""
        return _PerWorkerShards(self, dataset_fn)

    tracing_worker = 0  # number of the worker whose dataset function is being traced

    def _identify_readers(self, closures: Any) -> None:
        upstream = closures.get

        def get(timeout: float | None = None, tag: int | None = None) -> Any:
            self._turns.reader.worker = tag
            return upstream(timeout=timeout, tag=tag)

        closures.get = get

    def _note_finishes(self, closures: Any) -> None:
        upstream = closures.mark_finished

        def mark_finished() -> None:
            self.finished_at.append(time.perf_counter())
            self.on_step_end()
            # `wait` is to be woken when everybody is through, not only this worker.
            self._turns.reader.worker = None
            upstream()

        closures.mark_finished = mark_finished


class _PerWorkerShards:
    """A dataset on each worker, of a function that is traced for it; iterating makes iterators."""

    def __init__(self, coordinator: ShardedCoordinator, dataset_fn: Callable[[], Any]) -> None:
        self._coordinator = coordinator
        self._functions = []
        for index in range(coordinator.num_workers):
            coordinator.tracing_worker = index
            self._functions.append(tf.function(dataset_fn).get_concrete_function())
        coordinator.tracing_worker = 0
        # A data set knows how often it was iterated: a shuffle draws another order each time.
        self._datasets = [
            worker.create_resource(function)
            for worker, function in zip(coordinator._cluster.workers, self._functions, strict=True)
        ]

    @property
    def element_spec(self) -> Any:
        return self._functions[0].structured_outputs.element_spec

    def __iter__(self) -> Any:
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.distribute.coordinator.values import PerWorkerDistributedIterator

        spec = input_lib.get_iterator_spec_from_dataset(
            self._coordinator.strategy, self._functions[0].structured_outputs
        )
        iterators = []
        workers = self._coordinator._cluster.workers
        for worker, dataset in zip(workers, self._datasets, strict=True):
            iterator = worker.create_resource(partial(_iterator_of, dataset))
            iterator._type_spec = spec
            iterators.append(iterator)
        return PerWorkerDistributedIterator(tuple(iterators))


def _iterator_of(remote: Any) -> Any:
    """Of a dataset on a worker, called by the thread that has made it there."""
    if (error := remote._get_error()) is not None:
        raise error
    return iter(remote._get_values())
