"""What others can reach of a run: its command lines and ports, here of real launchers."""

import ast
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from launch import Progress, Site, execute
from launch.remote.sweep import members
from tests.parallel.launch.caller import calling
from tests.parallel.launch.conftest import PlanOf

SECRET = "hunter2 of a person who\n  'quotes' $HOME"


def read_all(name: str) -> dict[str, bytes]:
    """A file of every process on this machine, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[folder.name] = (folder / name).read_bytes()
        except OSError:  # it has ended meanwhile
            continue
    return {pid: text for pid, text in found.items() if text}  # a zombie has none


def listening_of(run_id: str) -> set[str]:
    """The addresses on which the processes of a run wait for connections."""
    found = set[str]()
    for pid, environment in read_all("environ").items():
        with contextlib.suppress(psutil.Error):
            if f"RINGSIDE_RUN_ID={run_id}".encode() in environment.split(b"\0"):
                found.update(
                    one.laddr.ip.removeprefix("::ffff:")
                    for one in psutil.Process(int(pid)).net_connections("inet")
                    if one.status == psutil.CONN_LISTEN
                )
    return found


@pytest.mark.parametrize(
    "arm",
    [
        {"backend": "horovod"},
        {"backend": "horovod", "launcher": "mpirun"},
        {"backend": "multi_worker_mirrored"},
    ],
    ids=str,
)
def test_command_lines_hold_no_secret_and_ports_are_of_this_machine(
    arm: dict[str, object],
    plan_of: PlanOf,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Every rank gets the environment all the same; no other machine can connect to any."""
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    plan = plan_of(**arm, steps=20)
    lines: dict[str, bytes] = {}
    environments: dict[str, bytes] = {}
    modes: set[int] = set()
    listening: set[str] = set()

    def look(progress: Progress) -> None:
        lines.update(read_all("cmdline"))
        if progress.phase == "training":
            environments.update(read_all("environ"))
            listening.update(listening_of(plan.run_id))
        modes.update(file.stat().st_mode & 0o777 for file in Path(plan.run_dir).glob(".e*"))

    execution = execute(plan, deadline_s=20, on_progress=look)

    assert execution.outcome.completed, execution
    assert [line for line in lines.values() if b"hunter2" in line] == []
    ranks = [
        environments[pid].split(b"\0")
        for pid, line in lines.items()
        if line.split(b"\0")[1:2] == [b"-u"] and pid in environments
    ]
    mark = f"RINGSIDE_RUN_ID={plan.run_id}".encode()
    assert [f"CLOUD_KEY={SECRET}".encode() in one for one in ranks if mark in one] == [True, True]
    assert modes == ({0o600} if plan.processes[0].private else set())
    assert listening == {"127.0.0.1"}
    assert "warning" not in capfd.readouterr().err


SERVERS = """
import os, socket, psutil, tensorflow as tf
free = socket.create_server(("127.0.0.1", 0)).getsockname()[1] + 1
tf.distribute.Server({"worker": [f"127.0.0.1:{free}"]}, job_name="worker", task_index=0)
four = socket.create_server(("", 0))
only_six = socket.create_server(("::", 0), family=socket.AF_INET6)
both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
print([one.laddr.ip for one in psutil.Process().net_connections("tcp") if one.status == "LISTEN"])
os._exit(0)
"""


def test_tensorflow_listens_where_it_is_asked_to() -> None:
    """Its server, and sockets of each family, that would listen on all interfaces."""
    env = {**os.environ, **Site.here().listen_on("lo")}

    done = subprocess.run([sys.executable, "-c", SERVERS], env=env, capture_output=True, text=True)

    assert set(ast.literal_eval(done.stdout)) == {"::1", "127.0.0.1", "::ffff:127.0.0.1"}


def test_an_interface_that_does_not_exist_is_not_listened_on() -> None:
    """Rather nowhere than everywhere."""
    env = {**os.environ, **Site.here().listen_on("none0")}
    program = "import socket; socket.create_server(('', 0))"

    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)

    assert "Cannot assign requested address" in done.stderr


def test_a_run_in_a_network_namespace_of_its_own(plan_of: PlanOf, tmp_path: Path) -> None:
    """What docs/security.md says for machines of several users: the loopback is the run's own."""
    alone = ["unshare", "-Urn", "sh", "-c", 'ip link set lo up && exec "$@"', "-"]
    if subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this user may make no network namespace (unshare -Urn)")
    plan = plan_of("multi_worker_mirrored", steps=20)
    seen: set[str] = set()

    with calling(plan, tmp_path, *alone) as caller:
        assert caller.stdout is not None
        lines = []
        for line in caller.stdout:
            lines.append(line)
            for pid in members(plan.run_id):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    seen.add(Path(f"/proc/{pid}/ns/net").readlink().name)

    assert lines[-1] == "completed\n"
    assert len(seen) == 1 and Path("/proc/self/ns/net").readlink().name not in seen
