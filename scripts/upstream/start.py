"""Start plain TensorFlow programs as somebody would, and collect what each process answers.

A demonstration calls `run` with a function. Every process that is started calls that function with
the name of the way it was started (`WAYS`), and answers with what it returns, or with its error.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WAYS = {
    "alone": "one process, no strategy",
    "mirrored": "one process, MirroredStrategy on two logical CPUs",
    "central": "one process, CentralStorageStrategy on two logical CPUs",
    "workers": "MultiWorkerMirroredStrategy, two workers",
    "servers": "ParameterServerStrategy: a coordinator, which answers, two workers and a server",
    "ranks": "Horovod, two ranks under mpirun",
}
LIMIT_S = 300.0  # for all; a busy machine needs a minute only to import TensorFlow four times
QUIET_S = 20.0  # after `say`: who does not go on for so long hangs
FOLDER = "UPSTREAM_FOLDER"  # where processes answer

Finding = tuple[bool, str]
"""(whether the trap was seen, what was seen)."""

TRAPS: dict[str, Callable[[], Finding]] = {}


@dataclass(frozen=True)
class Answer:
    """What one process has said."""

    value: Any = None
    error: str = ""  # of an exception, with its class
    hung: bool = False

    def __str__(self) -> str:
        return "hangs" if self.hung else self.error or "no error"


class UnansweredError(Exception):
    """A process that should have answered failed or hung: nothing is shown."""


def trap(name: str) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Put a demonstration on the list."""

    def listed(show: Callable[[], Finding]) -> Callable[[], Finding]:
        TRAPS[name] = show
        return show

    return listed


def run(
    function: Callable[[str], Any],
    way: str = "alone",
    *,
    keras: int = 3,
    environment: Mapping[str, str] | None = None,
) -> list[Answer]:
    """Let processes call a function, and wait until all have answered, or one hangs.

    Args:
        function: of a module of this folder.
        way: of `WAYS`.
        keras: 2 or 3.
        environment: variables beside those of this process.

    Returns:
        The answers of both processes, or of the one or the coordinator. Nobody is left.
    """
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        base = {
            **own_environment(),
            "TF_USE_LEGACY_KERAS": "1" if keras == 2 else "0",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            FOLDER: folder,
            **(environment or {}),
        }
        module = function.__module__.rpartition(".")[2]
        call = [sys.executable, str(HERE), "--call", module, function.__name__, way]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for prefix, more in _commands(way):
                with (Path(folder) / f"log-{len(started)}").open("wb") as log:
                    started.append(
                        subprocess.Popen(
                            [*prefix, *call],
                            env={**base, **more},
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                            preexec_fn=die_with_parent,
                        )
                    )
            names = ["0", "1"] if way in ("workers", "ranks") else ["0"]
            return _answers(Path(folder), names, started, time.monotonic() + LIMIT_S)
        finally:
            for process in started:
                end(process)


def own_environment() -> dict[str, str]:
    """The variables of this process; mpirun and horovodrun are those beside this Python."""
    beside = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{beside}:{os.environ.get('PATH', '')}"}


def values(answers: list[Answer]) -> list[Any]:
    """What all processes have returned.

    Raises:
        UnansweredError: one of them failed or hung.
    """
    for one in answers:
        if one.error or one.hung:
            raise UnansweredError(str(one))
    return [one.value for one in answers]


def same_or_other(first: Any, second: Any) -> str:
    """A word for a finding."""
    return "the same" if first == second else "other"


def _commands(way: str) -> list[tuple[list[str], dict[str, str]]]:
    """(what stands before the command, variables) of each process that is started here."""
    if way == "ranks":
        return [(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"], AS_ROOT)]
    roles = {
        "workers": [("worker", 0), ("worker", 1)],
        "servers": [("worker", 0), ("worker", 1), ("ps", 0), ("chief", 0)],
    }
    if way not in roles:
        return [([], {})]
    ports = free_ports(len(roles[way]))
    cluster: dict[str, list[str]] = {}
    for (kind, _), port in zip(roles[way], ports, strict=True):
        cluster.setdefault(kind, []).append(f"127.0.0.1:{port}")
    tasks = [{"type": kind, "index": index} for kind, index in roles[way]]
    return [([], {"TF_CONFIG": json.dumps({"cluster": cluster, "task": one})}) for one in tasks]


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 at which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _answers(
    folder: Path, names: list[str], started: list["subprocess.Popen[bytes]"], end_s: float
) -> list[Answer]:
    found: dict[str, Answer] = {}
    while len(found) < len(names) and time.monotonic() < end_s:
        time.sleep(0.2)
        for name in names:
            if (file := folder / f"answer-{name}").exists():
                found[name] = Answer(**json.loads(file.read_text()))
        steps = [file.stat().st_mtime for file in folder.glob("step-*")]
        if len(steps) == len(names) and time.time() - max(steps) > QUIET_S:
            break
        if all(process.poll() is not None for process in started) and len(found) < len(names):
            last = (folder / "log-0").read_text(errors="replace").strip()[-2000:]
            return [found.get(name, Answer(error=f"ended: {last}")) for name in names]
    return [found.get(name, Answer(hung=True)) for name in names]


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill a process and its group; ranks die with their mpirun."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- in a process that was started ---------------------------------------------------------------


def call(module: str, function: str, way: str) -> None:
    """Call a function, and leave its answer in a file."""
    die_with_parent()
    if not Path(os.environ[FOLDER]).exists():  # its mpirun was killed before it came so far
        os._exit(1)
    answer: dict[str, Any] = {}
    try:
        if role()[0] in ("ps", "worker") and way == "servers":
            serve()
        answer["value"] = getattr(import_module(f"scripts.upstream.{module}"), function)(way)
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    _write("answer", json.dumps(answer, default=float))
    while Path(os.environ[FOLDER]).exists():  # others may still need this process
        time.sleep(1)
    os._exit(0)  # as if it had been killed with the others


def role() -> tuple[str, int]:
    """What this process is in its cluster, and its number."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return "rank", int(os.environ["OMPI_COMM_WORLD_RANK"])
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "", "index": 0})
    return task["type"], task["index"]


def say(step: int) -> None:
    """Tell that this process has come so far: from the first time on a long silence is a hang."""
    _write("step", str(step))


def _write(kind: str, text: str) -> None:
    folder, number = Path(os.environ[FOLDER]), role()[1]
    (folder / f".{kind}-{number}").write_text(text)
    (folder / f".{kind}-{number}").rename(folder / f"{kind}-{number}")


def serve() -> None:
    """Be a worker or a parameter server until somebody ends this process."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    ).join()


def strategy(way: str) -> Any:
    """The strategy of tf.distribute in this process; to be made first of all."""
    import tensorflow as tf

    if way in ("mirrored", "central"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    if way == "mirrored":
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    if way == "central":
        return tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    if way == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if way == "servers":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)
    return tf.distribute.get_strategy()


def each_replica(place: Any, values: Any) -> Any:
    """A tensor for each replica of all workers: the first of `values` for the first one."""
    import tensorflow as tf

    return place.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )
