"""What tests of several folders share."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Forkery

HERE = Path(__file__).resolve().parent
# Files of the first folders keep the cores busy, those of the second mostly wait for launchers,
# hosts and deadlines. The longest begin and the fast ones end, so that no worker is left alone.
BUSY, WAITING, FAST = ("verify", "training", "contract"), ("cluster", "parallel"), ("setup", "unit")
LONGEST = ("test_zoo.py", "test_scripts.py", "test_programs.py", "test_launch.py", "test_killed.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy file, then one that waits, in turn: side by side they fill the cores.

    Within a file the order stays (`make test` tells xdist to keep that of the files).
    """
    files: dict[str, list[Path]] = {folder: [] for folder in (*BUSY, *WAITING, *FAST)}
    paths = dict.fromkeys(item.path for item in items)
    for path in sorted(paths, key=lambda path: path.name not in LONGEST):
        files.get(path.relative_to(HERE).parts[0], files[BUSY[0]]).append(path)
    busy, waiting, fast = (
        [path for folder in folders for path in files[folder]] for folders in (BUSY, WAITING, FAST)
    )
    in_turn = [path for pair in zip_longest(busy, waiting) for path in pair if path]
    place = {path: number for number, path in enumerate([*in_turn, *fast])}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A TMPDIR that is gone after the tests, with what killed processes have left in it."""
    # In short, for the names of sockets.
    with (
        tempfile.TemporaryDirectory(prefix="rt-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        # Of two threads that ask for it first, pytest lets the second remove what the first made.
        tmp_path_factory.getbasetemp()
        yield


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    """A test that lets Keras compute in another precision leaves it as it was for the next."""
    yield
    if keras := sys.modules.get("tf_keras"):
        keras.backend.set_floatx("float32")
        keras.mixed_precision.set_global_policy(None)


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


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Parameters of this file's tests that are to run: a start that all share makes no more."""
    return [
        item.callspec.params if hasattr(item, "callspec") else {}
        for item in request.session.items
        if item.path == request.path
    ]


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
