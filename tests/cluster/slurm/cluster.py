"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd, in one folder.

Everything that it writes is in that folder, its ports come from the kernel, and every daemon is a
child that ends with us. Source of the set-up: slurm.conf(5), "MULTIPLE SLURMD".
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.site import free_ports
from tests.parallel.test_as_typed import activated
from tests.waiting import wait_until

NODES = ("node1", "node2")
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "setpriv")
START_S = 30.0
STOP_S = 30.0
POLL_S = 0.1

# As many processors as a test may want; the machine need not have them (config_overrides).
CONFIG = """
ClusterName=ringside
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
KillWait=2
InactiveLimit=0
ReturnToService=2
NodeName=node1 NodeHostname={name} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=1000
NodeName=node2 NodeHostname={name} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=1000
PartitionName=debug Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def obstacle() -> str:
    """Why no Slurm can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)} (apt: slurm-wlm, munge)" if missing else ""


@dataclass
class SlurmCluster:
    """A running Slurm.

    Attributes:
        folder: all that it writes.
        config: its slurm.conf; commands find it by SLURM_CONF.
    """

    folder: Path
    config: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of a person with .venv activated, who uses this Slurm."""
        return {**activated(), "SLURM_CONF": str(self.config)}

    def run(
        self, *command: str, stdin: str | None = None, cwd: Path | None = None, limit_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            input=stdin or "",
            env=self.env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def jobs(self) -> list[str]:
        """Jobs that wait, run or end."""
        asked = self.run("squeue", "--noheader", "--format=%i")
        assert asked.returncode == 0, asked.stderr
        return asked.stdout.split()

    def state_of(self, name: str) -> str:
        """The state of the job of this name, also when it has ended."""
        asked = self.run("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%T")
        assert asked.returncode == 0, asked.stderr
        return asked.stdout.strip()

    def end_jobs(self) -> None:
        """Kill every job, and wait until none is left."""
        self.run("scancel", "--signal=KILL", "--user=root")
        self.run("scancel", "--user=root")
        wait_until(lambda: not self.jobs(), seconds=STOP_S)


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start a Slurm in an empty folder; leaving the block ends its jobs and its daemons."""
    config = folder / "slurm.conf"
    ports = free_ports(3)
    config.write_text(CONFIG.format(name=socket.gethostname(), ports=ports, folder=folder))
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    munged = (
        *("munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}"),
        *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
        *(f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log"),
    )
    cluster = SlurmCluster(folder, config)
    with contextlib.ExitStack() as daemons:
        _start(daemons, cluster, "munged", munged)
        _wait_for(cluster, ("munge", "--no-input", f"--socket={folder}/munge.socket"), "")
        _start(daemons, cluster, "slurmctld", ("slurmctld", "-D", "-i", "-f", str(config)))
        for node in NODES:
            _start(daemons, cluster, node, ("slurmd", "-D", "-N", node, "-f", str(config)))
        _wait_for(cluster, ("sinfo", "--noheader", "--format=%D %T"), "2 idle")
        daemons.callback(cluster.end_jobs)
        yield cluster


def _start(
    daemons: contextlib.ExitStack, cluster: SlurmCluster, name: str, command: Sequence[str]
) -> None:
    """Start a daemon that ends with the block, and also when we are killed."""
    with (cluster.folder / f"{name}.out").open("wb") as out:
        daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is for us, who then end it
        )
    daemons.callback(_stop, daemon)


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _wait_for(cluster: SlurmCluster, command: Sequence[str], answer: str) -> None:
    """Return when the command succeeds and says this (empty: whatever)."""
    give_up = time.monotonic() + START_S
    while True:
        asked = cluster.run(*command)
        if asked.returncode == 0 and (not answer or asked.stdout.strip() == answer):
            return
        if time.monotonic() > give_up:
            logs = "\n".join(
                f"{file.name}: {file.read_text()[-2000:]}" for file in cluster.folder.glob("*.out")
            )
            raise TimeoutError(f"{command}: {asked.stdout}{asked.stderr}\n{logs}")
        time.sleep(POLL_S)
