"""Start plain TensorFlow programs as a user would, and collect what each process answers.

`run` starts the processes of one way. Each calls the same function with the name of that way, and
answers with what the function returns, or with its error.

- `alone`: one process, no strategy
- `mirrored`, `central`: one process, that strategy on two logical CPUs
- `workers`: MultiWorkerMirroredStrategy, two workers
- `servers`: ParameterServerStrategy: a coordinator, which answers, two workers and a server
- `ranks`: Horovod, two ranks under mpirun
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 300.0  # for all; a busy machine needs a minute only to import TensorFlow four times
FOLDER = "UPSTREAM_FOLDER"  # where processes answer
ROLES = {
    "workers": [("worker", 0), ("worker", 1)],
    "servers": [("worker", 0), ("worker", 1), ("ps", 0), ("chief", 0)],
}


@dataclass(frozen=True)
class Answer:
    """What a process's function returned, or the error with its class."""

    value: Any = None
    error: str = ""

    def __str__(self) -> str:
        return self.error or str(self.value)


def run(function: Callable[[str], Any], way: str, keras: int) -> list[Answer]:
    """Call a function in the processes of a way; the answers, of two workers or ranks in order."""
    names = ["0", "1"] if way in ("workers", "ranks") else ["0"]
    answers: dict[str, Answer] = {}
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        log = Path(folder) / "log"
        processes = _started(function.__name__, way, keras, Path(folder))
        try:
            end_s = time.monotonic() + LIMIT_S
            while len(answers) < len(names) and time.monotonic() < end_s:
                time.sleep(0.2)
                have_ended = all(process.poll() is not None for process in processes)
                for name in names:
                    if (file := Path(folder) / f"answer-{name}").exists():
                        answers[name] = Answer(**json.loads(file.read_text()))
                if have_ended:
                    break
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        last = log.read_text(errors="replace").strip()[-2000:]
    return [answers.get(name, Answer(error=f"no answer. {last}")) for name in names]


def _started(function: str, way: str, keras: int, folder: Path) -> list["subprocess.Popen[bytes]"]:
    beside = Path(sys.executable).parent  # mpirun and horovodrun are those of this Python
    common = {
        **os.environ,
        "PATH": f"{beside}:{os.environ.get('PATH', '')}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TF_USE_LEGACY_KERAS": "1" if keras == 2 else "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        FOLDER: str(folder),
    }
    command = [sys.executable, str(Path(__file__).resolve().parent), "--call", function, way]
    if way == "ranks":
        command = ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", *command]
    with (folder / "log").open("ab") as log:
        return [
            subprocess.Popen(
                command,
                env={**common, **task},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            for task in _tasks(way)
        ]


def _tasks(way: str) -> list[dict[str, str]]:
    """Of each process that is started here, the variable TF_CONFIG, if it needs any."""
    roles, cluster = ROLES.get(way, []), dict[str, list[str]]()
    for (kind, _), port in zip(roles, free_ports(len(roles)), strict=True):
        cluster.setdefault(kind, []).append(f"127.0.0.1:{port}")
    tasks = [{"cluster": cluster, "task": {"type": kind, "index": i}} for kind, i in roles]
    return [{"TF_CONFIG": json.dumps(task)} for task in tasks] or [{}]


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 that are not in use."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- in a process that was started ---------------------------------------------------------------


def call(function: Callable[[str], Any], way: str) -> None:
    """Call a function, leave its answer in a file, and stay until all have answered."""
    _die_with_parent()
    folder = Path(os.environ[FOLDER])
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "", "index": 0})
    number = os.environ.get("OMPI_COMM_WORLD_RANK", task["index"])
    if way == "servers" and task["type"] != "chief":
        _serve()
    try:
        answer = {"value": function(way)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    (folder / f".answer-{number}").write_text(json.dumps(answer, default=float))
    (folder / f".answer-{number}").rename(folder / f"answer-{number}")
    while folder.exists():
        time.sleep(1)
    os._exit(0)


def _serve() -> None:
    import tensorflow as tf

    here = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        here.cluster_spec(), job_name=here.task_type, task_index=here.task_id, protocol="grpc"
    ).join()


def strategy(way: str) -> Any:
    """The strategy of tf.distribute in this process; call it before anything else."""
    import tensorflow as tf

    if way in ("mirrored", "central"):
        (cpu,) = tf.config.list_physical_devices("CPU")
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


def each_replica(place: Any, tensors: Any) -> Any:
    """One tensor of a sequence for each replica, over all workers, in order."""
    import tensorflow as tf

    return place.experimental_distribute_values_from_function(
        lambda context: tf.constant(tensors[context.replica_id_in_sync_group])
    )
