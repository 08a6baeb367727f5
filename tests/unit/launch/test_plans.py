"""What --dry-run prints, whole, for every way in which Ringside starts a run."""

import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch import Site
from tests.unit.launch.conftest import PlanOf

TRAIN = (
    "/venv/bin/python -u /ringside/train.py --spec /runs/one/spec.json --run-dir /runs/one --log"
)
# Horovod over Gloo: each rank reads what no other user may see.
READ = (
    "/venv/bin/python -I -S "
    f"{Path(__file__).resolve().parents[3]}/launch/remote/private.py /runs/one/.environment"
)
MARK = "RINGSIDE_RUN_ID=00000000000000ab"
SHM = (
    "OMPI_MCA_orte_tmpdir_base=/shm/ringside-ab "
    "OMPI_MCA_btl_vader_backing_directory=/shm/ringside-ab"
)
TMP = "OMPI_MCA_orte_tmpdir_base=/tmp/ringside-00000000000000ab-launcher"
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"


@pytest.mark.parametrize(("backend", "replicas"), [("serial", 1), ("mirrored", 2)])
def test_one_process(backend: str, replicas: int, plan_of: PlanOf) -> None:
    """A serial run is one process; so is a mirrored one, whose replicas are logical devices."""
    plan = plan_of(backend, replicas=replicas)

    assert plan.render() == f"{MARK} {TRAIN}\n"
    assert plan.expects == ("rank-0",)


def test_multi_worker_mirrored(plan_of: PlanOf) -> None:
    """Two workers get a TF_CONFIG each, with ports from the kernel."""
    plan = plan_of("multi_worker_mirrored")

    workers = '{"worker": ["127.0.0.1:4001", "127.0.0.1:4002"]}'
    assert plan.render() == (
        f'{MARK} TF_CONFIG=\'{{"cluster": {workers}, "task": {{"type": "worker", "index": 0}}}}\''
        f" {TRAIN}\n"
        f'{MARK} TF_CONFIG=\'{{"cluster": {workers}, "task": {{"type": "worker", "index": 1}}}}\''
        f" {TRAIN}\n"
    )
    assert plan.expects == ("worker-0", "worker-1")


def test_parameter_server(plan_of: PlanOf) -> None:
    """Two workers, a server and a coordinator; only the coordinator ends by itself."""
    plan = plan_of("parameter_server")

    cluster = (
        '{"chief": ["127.0.0.1:4001"], "worker": ["127.0.0.1:4002", "127.0.0.1:4003"], '
        '"ps": ["127.0.0.1:4004"]}'
    )
    tasks = (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))
    assert plan.render() == "".join(
        f'{MARK} TF_CONFIG=\'{{"cluster": {cluster}, '
        f'"task": {{"type": "{kind}", "index": {index}}}}}\' {TRAIN}\n'
        for kind, index in tasks
    )
    assert plan.expects == ("chief-0", "worker-0", "worker-1", "ps-0")
    assert [process.serves for process in plan.processes] == [False, True, True, True]


def test_horovodrun_with_gloo(plan_of: PlanOf) -> None:
    """Horovod is started by horovodrun with Gloo by default."""
    plan = plan_of("horovod", replicas=4)

    assert plan.render() == (
        f"{MARK} horovodrun -np 4 -H localhost:4 --gloo --gloo-timeout-seconds 3600 "
        f"--disable-cache sh -c 'exec {READ} {TRAIN}'\n"
    )
    assert plan.expects == ("rank-0", "rank-1", "rank-2", "rank-3")


@pytest.mark.parametrize("how", [{"launcher": "mpirun"}, {"options": {"controller": "mpi"}}])
def test_mpirun(how: dict[str, Any], plan_of: PlanOf) -> None:
    """mpirun binds nothing, and ranks may outnumber cores.

    It is what `horovodrun --mpi` would call after ten seconds.
    """
    plan = plan_of("horovod", **how)

    assert plan.render() == (
        f"{MARK} {SHM} mpirun -np 2 -H localhost:2 --bind-to none --map-by slot --oversubscribe "
        "--mca pml ob1 --mca btl '^openib' -x RINGSIDE_RUN_ID -x RINGSIDE_LAUNCHER "
        f"{TRAIN}\n"
    )
    assert plan.expects == ("rank-0", "rank-1")


def test_horovodrun_on_two_hosts(plan_of: PlanOf) -> None:
    """Hosts are given by name, not as the hostfile, with no more slots than are used.

    Horovod's own parser fails at comments and empty lines.
    """
    hostfile = "# ours\na slots=4  # fast\n\nb slots=2\n"
    plan = plan_of("horovod", replicas=4, hosts=2, hostfile=hostfile)

    assert plan.render() == (
        f"{MARK} horovodrun -np 4 -H a:2,b:2 --gloo --gloo-timeout-seconds 3600 "
        f"--network-interfaces eth7 --disable-cache sh -c 'exec {READ} {TRAIN}'\n"
    )
    assert plan.remote_hosts == ("a", "b")


def test_mpirun_on_two_hosts(plan_of: PlanOf) -> None:
    """Ranks on other machines get no variables of a launcher that is not there."""
    plan = plan_of("horovod", hosts=2, hostfile="here\nb", launcher="mpirun")

    assert plan.render() == (
        f"{MARK} {TMP} mpirun -np 2 -H here:1,b:1 --bind-to none --map-by slot --oversubscribe "
        "--mca pml ob1 --mca btl '^openib' --prefix /venv --mca btl_tcp_if_include eth7 "
        f"--mca oob_tcp_if_include eth7 --mca plm_rsh_args '{SSH.removeprefix('ssh ')}' "
        f"--mca orte_launch_agent 'env {MARK} orted' -x PATH -x PYTHONHASHSEED=0 "
        f"-x RINGSIDE_RUN_ID {TRAIN}\n"
    )
    assert plan.remote_hosts == ("b",)


def test_a_hostfile_of_this_machine_needs_no_interface(plan_of: PlanOf) -> None:
    """Without a network, no launcher gets network options."""
    plan = plan_of("horovod", replicas=2, hostfile="here slots=2")

    assert plan.processes[0].argv[:5] == ("horovodrun", "-np", "2", "-H", "here:2")
    assert "--network-interfaces" not in plan.processes[0].argv


def test_multi_worker_mirrored_on_two_hosts(plan_of: PlanOf) -> None:
    """A remote worker is started over ssh, in our folder, and ends with its connection."""
    plan = plan_of("multi_worker_mirrored", hosts=2, hostfile="here\nb")

    # 0xab = 171: the ports follow from the run id, because no kernel was asked.
    cluster = '"cluster": {"worker": ["here:20171", "b:20172"]}'
    own = f'TF_CONFIG=\'{{{cluster}, "task": {{"type": "worker", "index": 0}}}}\''
    # Quoted once for the shell over there and once more for the shell here.
    other = f"""TF_CONFIG={{{cluster}, "task": {{"type": "worker", "index": 1}}}}"""
    assert plan.render() == (
        f"{MARK} {own} {TRAIN}\n"
        f"{MARK} {SSH} b 'cd /home/me && "
        f"exec env {MARK} '\"'\"'{other}'\"'\"' {TRAIN} --watch-stdin'\n"
    )
    assert plan.remote_hosts == ("b",)
    assert plan.processes[1].holds_stdin


def test_servers_on_chosen_hosts(plan_of: PlanOf) -> None:
    """Servers go in turn to the hosts that were named for them, with or without replicas."""
    plan = plan_of(
        "parameter_server", options={"servers": 3}, hosts=2, hostfile="a\nb\nc\nd",
        servers_on=("d", "b"),
    )  # fmt: skip

    assert plan.cluster is not None
    assert plan.cluster.chief == ("a:20171",)
    assert plan.cluster.worker == ("a:20172", "b:20173")
    assert plan.cluster.ps == ("d:20174", "b:20175", "d:20176")
    assert set(plan.remote_hosts) == {"a", "b", "d"}


def test_one_process_on_the_first_host_with_room(plan_of: PlanOf) -> None:
    """A mirrored run goes over ssh to the first host with a slot for each replica."""
    plan = plan_of("mirrored", replicas=2, hostfile="here\nb slots=2\nc slots=2")

    assert plan.render() == (
        f"{MARK} {SSH} b 'cd /home/me && exec env {MARK} {TRAIN} --watch-stdin'\n"
    )
    assert plan.remote_hosts == ("b",)


def test_a_rendered_plan_is_read_by_a_shell_as_it_was_meant(plan_of: PlanOf) -> None:
    """The output of --dry-run can be typed: the shell finds the same words and variables."""
    process = plan_of("multi_worker_mirrored").processes[0]
    line = process.render().replace("/venv/bin/python", f"{sys.executable} -c '{ECHO}'")

    printed = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout

    assert printed == f"{process.env['TF_CONFIG']}\n{list(process.argv[1:])}\n"


ECHO = 'import os, sys; print(os.environ["TF_CONFIG"]); print(sys.argv[1:])'


def test_two_launches_side_by_side_draw_different_ports() -> None:
    """Neither listens yet when the other draws."""
    program = (
        "import secrets, sys; from launch.site import free_ports; "
        "secrets.randbelow = lambda below: 0; "
        "print(*free_ports(3), flush=True); sys.stdin.readline()"
    )
    drawn: list[str] = []
    with contextlib.ExitStack() as both:
        for _ in range(2):
            launch = both.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert launch.stdout
            drawn += launch.stdout.readline().split()

    assert len(set(drawn)) == len(drawn) == 6


def test_this_machine_by_any_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its domain, and in capitals: ssh to itself would need a key, and count as another."""
    own = {"node1": "node1.example.org"}
    monkeypatch.setattr(socket, "gethostname", lambda: "Node1")
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, *_, **__: [(0, 0, 0, own[name.lower()], ("", 0))]
    )

    here = Site.here()

    assert [here.is_local(name) for name in ("NODE1", "node1.Example.org", "LocalHost")] == [
        True
    ] * 3
    assert not here.is_local("node1.example.com")
