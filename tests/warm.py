"""Processes that begin with TensorFlow loaded: forks of one that has imported it.

Importing TensorFlow takes three seconds of a core, and the suite starts some 300 processes
that need it. A `Forkery` imports it once; what stands for `python` in a plan asks it for a fork, in
which the program runs from its first line: with the arguments, environment, folder, cores and
output of the process that asked, whose exit code becomes its own. Neither outlives the other.

What is tested in forks: what processes compute. Not how they are started, found and killed.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOFS = ("backends", "launch", "ringside", "ringside_core", "trainers")

# Stands for python. Fast to start: without site-packages, and little to import.
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
if sys.argv[1:2] != ["-u"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
cores = [*os.sched_getaffinity(0)]
order = json.dumps(dict(argv=sys.argv[2:], env=dict(os.environ), cwd=os.getcwd(), cores=cores))
socket.send_fds(server, [b"%8d" % len(order.encode())], [0, 1, 2])
server.sendall(order.encode())
answers = server.makefile()
pid = int(answers.readline())
def pass_on(number, frame):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, pass_on)
code = int(answers.readline() or 1)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Forkery:
    """A process with TensorFlow that forks; `python` is what to start instead of Python."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forkery-")
        address = str(Path(self._folder.name) / "socket")
        client = Path(self._folder.name) / "python"
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        self.python = str(client)
        log = Path(self._folder.name) / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-u", __file__, address],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT}{os.pathsep}{os.getenv('PYTHONPATH', '')}",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self._log = log

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            said = self._log.read_text()
            self.__exit__(None, None, None)
            raise RuntimeError(said)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


@contextlib.contextmanager
def started_with(keras: int, **changes: Any) -> Iterator[None]:
    """Processes are started with these parts of a site; of Keras 3 by Python: forks have the other.

    Args:
        keras: 2 or 3.
        changes: fields of `launch.Site`.
    """
    from launch import Site

    if keras == 3:
        changes["python"] = sys.executable
    here = Site.here
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Site, "here", lambda: dataclasses.replace(here(), **changes))
        yield


# Inside of it


class _Fork:
    """A running fork and the connection to the process that asked for it."""

    def __init__(self, asked: socket.socket, pid: int) -> None:
        self.asked, self.pid = asked, pid
        self.handle = os.pidfd_open(pid)


def serve(address: str) -> NoReturn:
    """Import what every program needs, and fork on request until our parent has gone."""
    before = dict(os.environ)
    import_all()
    added = {name: value for name, value in os.environ.items() if name not in before}
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    poll, forks = select.poll(), dict[int, _Fork]()
    poll.register(listening, select.POLLIN)
    poll.register(1, select.POLLERR)
    os.write(1, b"ready\n")
    while True:
        number, _ = poll.poll()[0]  # one at a time: closing it frees its number for another
        if number == 1:
            for fork in forks.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(fork.pid, signal.SIGKILL)
            os._exit(0)
        elif number == listening.fileno():
            fork = _fork(listening, forks, added)
            for one in (fork.handle, fork.asked.fileno()):
                forks[one] = fork
                poll.register(one, select.POLLIN)
        else:
            fork = forks[number]
            if number == fork.asked.fileno():  # who asked for it has ended
                with contextlib.suppress(ProcessLookupError):
                    os.kill(fork.pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
            for one in (fork.handle, fork.asked.fileno()):
                del forks[one]
                poll.unregister(one)
            with contextlib.suppress(OSError):
                fork.asked.sendall(b"%d\n" % code)
            os.close(fork.handle)
            fork.asked.close()


def import_all() -> None:
    """Everything that takes long to import; nothing of it may start TensorFlow."""
    # As ringside_core.keras does, which imports TensorFlow first where a person's code runs.
    os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")
    import horovod.tensorflow
    import typer
    from tensorflow.python.eager import context

    from ringside.certificates import trial
    from ringside_core.keras import tf
    from trainers import process

    # Keras is loaded when it is first asked for.
    assert all((tf.keras.Sequential, horovod, typer, trial, process))
    assert not context.context_safe(), "threads of TensorFlow would be missing in a fork"


def _fork(listening: socket.socket, forks: Mapping[int, _Fork], added: Mapping[str, str]) -> _Fork:
    """Read what is asked for, and run it in a fork."""
    asked, _ = listening.accept()
    head, fds, _, _ = socket.recv_fds(asked, 8, 3)
    text = b""
    while len(text) < int(head):
        text += asked.recv(int(head) - len(text))
    pid = os.fork()
    if pid:
        for one in fds:
            os.close(one)
        asked.sendall(b"%d\n" % pid)
        return _Fork(asked, pid)
    for fork in forks.values():
        fork.asked.close()
    asked.close()
    listening.close()
    order = json.loads(text)
    order["env"] = {**added, **order["env"]}
    os._exit(_run(order, fds))


def _run(order: Mapping[str, Any], fds: Sequence[int]) -> int:
    """Do in this fork what Python would have done; the exit code."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with whom it was forked from
    os.setsid()
    for target, one in enumerate(fds):
        os.dup2(one, target)
        os.close(one)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    os.sched_setaffinity(0, order["cores"])
    # Else all forks would draw the same, and a script that forgets to broadcast would not be seen.
    random.seed()
    np.random.seed()
    sys.argv = order["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    folder = Path(sys.path[0]).resolve()
    if folder != ROOT and (folder / "trainers").is_dir():  # else a program of a test uses ours
        _forget_own_rooms()
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    atexit._run_exitfuncs()
    return code


def _forget_own_rooms() -> None:
    """Let the program of another checkout import its own, not those that are loaded."""
    sys.path[1:] = [folder for folder in sys.path[1:] if folder != str(ROOT)]
    for name in list(sys.modules):
        if name.partition(".")[0] in ROOFS:
            del sys.modules[name]


if __name__ == "__main__":
    serve(sys.argv[1])
