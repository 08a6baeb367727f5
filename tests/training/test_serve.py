"""A parameter server that is stopped: an end with its coordinator, or a failure before it."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backends.tf_distribute import parameter_server
from backends.tf_distribute.parameter_server import ParameterServer


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A port that is listened to; signals are handled as before afterwards."""
    monkeypatch.setattr(parameter_server, "POLL_S", 0.5)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


def serve_until_sigterm(port: int) -> None:
    """Serve as a task of a cluster whose coordinator has this port; SIGTERM comes meanwhile."""
    cluster = SimpleNamespace(chief=[f"127.0.0.1:{port}"])
    task = cast(Any, SimpleNamespace(_task=SimpleNamespace(cluster=cluster)))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    ParameterServer.serve(task)


def test_a_server_stopped_while_it_was_needed_has_failed(coordinator: socket.socket) -> None:
    """The coordinator still listens."""
    with pytest.raises(KeyboardInterrupt, match="while the coordinator was still there"):
        serve_until_sigterm(coordinator.getsockname()[1])


def test_a_server_stopped_after_its_coordinator_has_done_its_part(
    coordinator: socket.socket,
) -> None:
    """Nobody listens any more."""
    port = coordinator.getsockname()[1]
    coordinator.close()

    serve_until_sigterm(port)
