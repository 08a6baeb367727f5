"""What tests of several folders share."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Forkery

HERE = Path(__file__).resolve().parent
# Those whose files take long come first, so that no worker is left alone with one at the end.
LONG = ("verify", "parallel", "cluster", "training", "contract", "setup", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; within a folder the order stays (`make test` tells xdist to keep it)."""

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(HERE).parts[0]
        return LONG.index(folder) if folder in LONG else 0

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder() -> Iterator[None]:
    """A TMPDIR that is gone after the tests, with what killed processes have left in it."""
    # In short, for the names of sockets.
    with (
        tempfile.TemporaryDirectory(prefix="rt-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def signals_heard() -> Iterator[None]:
    """Ctrl-C and a closed terminal as they are by default, here and in what is started.

    Under nohup, or in the background of a script, the tests and all their children ignore them.
    """
    defaults: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
    }
    with contextlib.ExitStack() as ends:
        for number, handler in defaults.items():
            if signal.getsignal(number) is signal.SIG_IGN:
                ends.callback(signal.signal, number, signal.SIG_IGN)
                signal.signal(number, handler)
        yield


@pytest.fixture(scope="module")
def quick_horovodrun() -> Iterator[None]:
    """horovodrun without its look at how it was built, several seconds at each start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE / "quick"), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def forkery() -> Iterator[Forkery]:
    """What starts processes that have TensorFlow loaded."""
    with Forkery() as made:
        yield made


@pytest.fixture(scope="module")
def warm_commands(forkery: Forkery, quick_horovodrun: None) -> Iterator[None]:
    """Tasks that `ringside` starts on this machine are such processes, when it is typed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGSIDE_TESTS_PYTHON", forkery.python)
        # Where `ringside` looks for launchers otherwise: beside its Python.
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def warm(forkery: Forkery, quick_horovodrun: None) -> Iterator[None]:
    """Plans of this file start forks of a process that has loaded TensorFlow (warm.py)."""
    import dataclasses

    from launch import Site

    here = Site.here

    def with_forks() -> Site:
        return dataclasses.replace(here(), python=forkery.python)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Site, "here", with_forks)
        yield
