"""A parameter server ends well if its coordinator says so, and in no other way."""

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from backends.tf_distribute import serving
from backends.tf_distribute.serving import CoordinatorLostError, serve_until_over, tell_over
from ringside_core.specs.cluster import Cluster, ClusterTask

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short pauses; signals are handled as before afterwards."""
    monkeypatch.setattr(serving, "POLL_S", 0.1)
    monkeypatch.setattr(serving, "HEAR_S", 0.5)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def coordinator() -> Iterator[socket.socket]:
    """A port that is listened to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address_of(coordinator: socket.socket) -> str:
    """Where it listens."""
    host, port = coordinator.getsockname()
    return f"{host}:{port}"


def after(seconds: float, call: object, *arguments: object) -> None:
    """Call something while the server serves."""
    threading.Timer(seconds, call, arguments).start()  # type: ignore[arg-type]


def test_a_server_ends_when_its_coordinator_says_so(coordinator: socket.socket) -> None:
    """Though it still listens."""
    over = threading.Event()
    after(0.3, over.set)

    serve_until_over(address_of(coordinator), over)


def test_a_coordinator_that_is_gone_without_a_word(coordinator: socket.socket) -> None:
    """It may have been killed in the middle of the training."""
    after(0.3, coordinator.close)

    with pytest.raises(CoordinatorLostError, match="gone without saying that the training is over"):
        serve_until_over(address_of(coordinator), threading.Event())


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that answers a few times, then no more: no process takes the connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        yield address_of(listening)


def test_a_silent_network_is_waited_for(silent: str) -> None:
    """No answer is not the end: packets may get lost for seconds, and the workers go on."""
    over = threading.Event()
    after(1.5, over.set)

    serve_until_over(silent, over)

    assert over.is_set()


def test_a_network_that_stays_silent(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At last it is a failure, which says how long it waited."""
    monkeypatch.setattr(serving, "SILENCE_S", 0.5)

    with pytest.raises(CoordinatorLostError, match=r"no answer .* within 0.5 s: timed out"):
        serve_until_over(silent, threading.Event())


def test_a_server_stopped_while_it_was_needed_has_failed(coordinator: socket.socket) -> None:
    """The coordinator has not said that it is over."""
    after(0.1, os.kill, os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="before the training was over"):
        serve_until_over(address_of(coordinator), threading.Event())


def test_a_server_stopped_after_the_end(coordinator: socket.socket) -> None:
    """A launcher stops servers as soon as the coordinator has gone; the word may come just then."""
    over = threading.Event()
    after(0.1, os.kill, os.getpid(), signal.SIGTERM)
    after(0.4, over.set)

    serve_until_over(address_of(coordinator), over)


def test_who_did_not_hear_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else no one knows why a server says afterwards that it was stopped too early."""
    monkeypatch.setattr(serving, "TELL_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and no more
        cluster = Cluster(chief=("127.0.0.1:1",), worker=(address_of(silent),))
        tell_over([ClusterTask(cluster=cluster, type="worker", index=0)])

    assert "worker-0 did not hear that the training is over" in capsys.readouterr().err
