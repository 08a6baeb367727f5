"""How a task that serves learns that the training is over: the coordinator says so.

The word is an element in a queue of TensorFlow's on the task itself, as TensorFlow 1 ended its
parameter servers. A coordinator that is silent, or gone, has not said it: then the task has failed.
"""

import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ringside_core.keras import tf
from ringside_core.specs.cluster import ClusterTask

POLL_S = 1.0
# Nothing listens at the coordinator's port this many times in a row: its process has ended.
MISSED_POLLS = 3
# Silence, before the first answer or after it: of a network, or of a machine that restarts.
SILENCE_S = 300.0
TELL_S = 30.0
# From a signal until the word is heard: a launcher signals as soon as the coordinator has ended,
# and a busy machine delivers slowly. Shorter than what a launcher gives (launch/execute.py).
HEAR_S = 5.0


class CoordinatorLostError(ConnectionError):
    """The coordinator did not say that the training is over."""


def tell_over(tasks: list[ClusterTask]) -> None:
    """Tell tasks that the training is over; one that is out of reach is passed over and named."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:  # none waits for one that is silent
        list(pool.map(_tell, tasks))


def _tell(task: ClusterTask) -> None:
    try:
        with _session(task, TELL_S) as (session, queue):
            session.run(queue.enqueue(0))
    except tf.errors.OpError as error:
        print(f"{task.name} did not hear that the training is over: {error}", file=sys.stderr)


def hear_over(task: ClusterTask) -> threading.Event:
    """An event that is set when this task, which has started its server, hears so."""
    over = threading.Event()

    def hear() -> None:
        with _session(task, limit_s=None) as (session, queue):
            session.run(queue.dequeue())
            over.set()

    threading.Thread(target=hear, daemon=True, name="over").start()
    return over


@contextlib.contextmanager
def _session(task: ClusterTask, limit_s: float | None) -> Iterator[tuple[Any, Any]]:
    """A session with a task alone, and the queue on it."""
    place = f"/job:{task.type}/task:{task.index}"
    config = tf.compat.v1.ConfigProto(
        device_filters=[place],  # or the session would wait for all tasks of the cluster
        operation_timeout_in_ms=0 if limit_s is None else int(limit_s * 1000),
    )
    with tf.Graph().as_default(), tf.device(place):
        queue = tf.queue.FIFOQueue(1, [tf.int32], shapes=[()], shared_name="ringside-over")
        with tf.compat.v1.Session(f"grpc://{task.address}", config=config) as session:
            yield session, queue


def serve_until_over(coordinator: str, over: threading.Event) -> None:
    """Serve until the coordinator has said that the training is over.

    Args:
        coordinator: its address, `host:port`.
        over: set when it says so.

    Raises:
        CoordinatorLostError: it has ended without saying so, or was silent for too long.
        KeyboardInterrupt: a signal came before.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # that is for the coordinator, which saves
    heard, refused, seen = time.monotonic(), 0, False
    while not over.wait(POLL_S):
        if ended.is_set():
            # A launcher also stops servers when a worker has died. launch/outcome.py takes a
            # KeyboardInterrupt for a result of that death, not for its cause.
            if over.wait(HEAR_S):
                return
            raise KeyboardInterrupt("stopped by a signal before the training was over")
        answer = _ask(coordinator)
        if answer is None:
            heard, refused, seen = time.monotonic(), 0, True
        elif isinstance(answer, ConnectionRefusedError) and seen:
            refused += 1
        if refused == MISSED_POLLS:
            raise CoordinatorLostError(
                f"the coordinator at {coordinator} is gone without saying that the training is over"
            )
        if time.monotonic() - heard > SILENCE_S:
            raise CoordinatorLostError(
                f"no answer from the coordinator at {coordinator} within {SILENCE_S:g} s: {answer}"
            )


def _ask(coordinator: str) -> OSError | None:
    """Connect to the coordinator; returns why that failed."""
    host, _, port = coordinator.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=POLL_S):
            return None
    except OSError as error:
        return error
