"""Plays Kubernetes for the manifests of one run: each pod is a network namespace of this machine.

    unshare --mount --net --pid --fork --kill-child python kubelet.py MANIFESTS FOLDER

What it does is what Kubernetes and the MPI operator are documented to do: numbers the pods of an
Indexed Job, expands $(NAME), mounts ConfigMap and claim, names the hosts, waits until workers are
ready, and gives an MPIJob its key pair, hostfile and variables (mpi-operator, pkg/controller).
The root file system is this machine's with the checkout at /ringside; what is written lies in
FOLDER and is gone with the namespaces. Prints the exit code of each pod; null: it still ran when
the others had ended, and was stopped.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
READY_S = 30.0
# The same as in Containerfile.
PATH = "/ringside/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Pod:
    """A pod: its host name, other names it is reached by, its only container, its environment."""

    host: str
    names: list[str]
    spec: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def container(self) -> dict[str, Any]:
        """Its only container."""
        container: dict[str, Any] = self.spec["containers"][0]
        return container


def run(line: str) -> None:
    """A command that must succeed."""
    subprocess.run(shlex.split(line), check=True)


def enter(folder: Path, user: int) -> None:
    """Go into a root file system of our own, a copy on write of the machine's."""
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for path in (root, upper, work):
        path.mkdir(parents=True)
    run("mount --make-rprivate /")
    run(f"mount -t overlay overlay -o lowerdir=/,upperdir={upper},workdir={work} {root}")
    (root / "ringside").mkdir(exist_ok=True)
    run(f"mount --bind {CHECKOUT} {root}/ringside")
    run(f"mount --rbind /dev {root}/dev")
    run(f"mount --rbind /sys {root}/sys")
    run(f"mount -t proc proc {root}/proc")
    os.chroot(root)
    os.chdir("/")
    for path in (Path(sys.base_prefix), CHECKOUT):  # a container's user may look into its image
        for above in path.parents:
            above.chmod(above.stat().st_mode | 0o055)
    others = [
        line for line in Path("/etc/passwd").read_text().splitlines() if f":{user}:" not in line
    ]
    me = f"ringside:x:{user}:{user}::/home/ringside:/bin/sh"
    Path("/etc/passwd").write_text("\n".join([*others, me, ""]))
    for name in ("/run/sshd", "/run/netns", "/home/ringside", "/mnt/ringside", "/etc/ringside"):
        Path(name).mkdir(parents=True, exist_ok=True)
    run("mount -t tmpfs tmpfs /run/netns")
    for name in ("/home/ringside", "/mnt/ringside"):
        os.chown(name, user, user)
    shutil.copy("/ringside/containers/sshd_config", "/etc/ringside/sshd_config")
    shutil.copy("/ringside/containers/ssh_config", "/etc/ssh/ssh_config.d/ringside.conf")


def pods_of(manifest: dict[str, Any]) -> Iterator[Pod]:
    """The pods of a Job or an MPIJob; none of anything else."""
    name, spec = manifest["metadata"]["name"], manifest.get("spec", {})
    if manifest["kind"] == "Job":
        template = spec["template"]["spec"]
        for number in range(spec.get("completions", 1)):
            host = f"{name}-{number}"
            env: dict[str, str] = {}
            for one in template["containers"][0].get("env", []):
                # The only field that is asked for is the number.
                value = str(number) if "valueFrom" in one else one["value"]
                env[one["name"]] = re.sub(r"\$\((\w+)\)", lambda m, e=env: e[m[1]], value)
            yield Pod(host, [f"{host}.{template.get('subdomain', 'none')}"], template, env)
    if manifest["kind"] == "MPIJob":
        slots = spec["slotsPerWorker"]
        replicas = spec["mpiReplicaSpecs"]
        hosts = [f"{name}-worker-{n}" for n in range(replicas["Worker"]["replicas"])]
        for host in hosts:
            yield Pod(host, [f"{host}.{name}.default.svc"], replicas["Worker"]["template"]["spec"])
        Path("/etc/mpi").mkdir(exist_ok=True)
        lines = [f"{host}.{name}.default.svc slots={slots}\n" for host in hosts]
        Path("/etc/mpi/hostfile").write_text("".join(lines))
        yield Pod(
            f"{name}-launcher",
            [f"{name}-launcher.{name}.default.svc"],
            replicas["Launcher"]["template"]["spec"],
            {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
                "OMPI_MCA_orte_set_default_slots": str(slots),
            },
        )


def make_key(folder: Path, group: int) -> None:
    """The Secret of an MPIJob: files of root that the pods' group may read (fsGroup)."""
    folder.mkdir(parents=True, exist_ok=True)
    run(f"ssh-keygen -q -t rsa -N '' -f {folder}/id_rsa")
    shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
    for path in folder.iterdir():
        os.chown(path, 0, group)
        path.chmod(0o644)


def connect(pods: list[Pod]) -> None:
    """One bridge, an address for each pod, and everybody's names."""
    run("ip link set lo up")
    run("ip link add bridge type bridge")
    run("ip addr add 10.77.0.1/16 dev bridge")
    run("ip link set bridge up")
    lines = ["127.0.0.1 localhost"]
    for number, pod in enumerate(pods):
        pod.address = f"10.77.1.{number + 1}"
        lines.append(" ".join([pod.address, pod.host, *pod.names]))
        run(f"ip netns add {number}")
        run(f"ip link add v{number} type veth peer name eth0 netns {number}")
        run(f"ip link set v{number} master bridge up")
        run(f"ip -n {number} addr add {pod.address}/16 dev eth0")
        run(f"ip -n {number} link set eth0 up")
        run(f"ip -n {number} link set lo up")
    Path("/etc/hosts").write_text("\n".join([*lines, ""]))


def start(number: int, pod: Pod, output: Path) -> "subprocess.Popen[bytes]":
    """The container of a pod, as its user and with nothing that it was not given."""
    context, container = pod.spec["securityContext"], pod.container
    inside = (
        f"mount -t tmpfs -o mode=1777 tmpfs /dev/shm && hostname {pod.host} && "
        f'cd {container["workingDir"]} && exec "$@"'
    )
    argv = (
        *("ip", "netns", "exec", str(number)),
        *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", "-c", inside, "sh", "setpriv"),
        *(f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}"),
        *("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        *("env", "-i", f"PATH={PATH}", "HOME=/home/ringside"),
        *(f"{name}={value}" for name, value in pod.env.items()),
        *container["command"],
    )
    with output.open("wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_until_ready(pod: Pod) -> None:
    """Its readiness probe, again and again."""
    probe = pod.container["readinessProbe"]["tcpSocket"]
    give_up = time.monotonic() + READY_S
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection((pod.address, probe["port"])):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{pod.host} is not ready")


def main(manifests_file: Path, folder: Path) -> None:
    """Play, and print what became of each pod."""
    manifests = list(yaml.safe_load_all(manifests_file.read_text()))
    (spec_map,) = (one for one in manifests if one["kind"] == "ConfigMap")
    jobs = [one for one in manifests if one["kind"] in ("Job", "MPIJob")]
    enter(folder, user=1000)
    pods = [pod for job in jobs for pod in pods_of(job)]
    for job in jobs:
        if job["kind"] == "MPIJob":
            make_key(Path(job["spec"]["sshAuthMountPath"]), group=1000)
    for mount in pods[0].container["volumeMounts"]:
        if mount["name"] == "spec":
            Path(mount["mountPath"]).mkdir(parents=True)
            for name, text in spec_map["data"].items():
                (Path(mount["mountPath"]) / name).write_text(text)
    connect(pods)
    started = {}
    for number, pod in enumerate(pods):
        if pod.host.endswith("-launcher"):
            for worker in pods[:number]:
                wait_until_ready(worker)
        started[pod.host] = start(number, pod, Path(f"/mnt/{pod.host}.log"))
    for pod in pods:
        if "readinessProbe" not in pod.container:
            started[pod.host].wait()
    print(json.dumps({host: process.poll() for host, process in started.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
