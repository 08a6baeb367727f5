"""Certificates on disk: kept, found again, and not used if anything has changed since."""

import functools
import hashlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from launch.remote.host_checks import machine_of
from ringside_core.code_version import code_version as code_version_of
from ringside_core.folders import cache_dir
from ringside_core.specs import (
    THIS_MACHINE,
    Certificate,
    Host,
    Placement,
    RefusalError,
    RunSpec,
    write_whole,
)
from ringside_core.workloads.registry import is_own

TAKES_ORDERS = (
    *("TF_", "XLA_", "KERAS_", "HOROVOD_", "OMPI_", "OMP_", "MKL_", "CUDA_", "NCCL_"),
    *("LD_PRELOAD", "NVIDIA_TF32_OVERRIDE", "MALLOC_", "GLIBC_TUNABLES"),
)
ROOT = Path(__file__).resolve().parents[2]
# The code that decides what is computed and how it is judged (tests/setup/test_rooms.py checks that
# this code imports nothing else of Ringside).
COVERED = (
    "backends",
    "launch",
    "ringside/__init__.py",
    "ringside/comparison/__init__.py",
    "ringside/comparison/arms.py",
    "ringside/script.py",
    "ringside/stats",
    "ringside/certificates",
    "ringside_core",
    "train.py",
    "trainers",
)


def keep(certificate: Certificate) -> Path:
    """Write a certificate where `newest` looks."""
    path = _path(certificate.spec, certificate.steps, certificate.hosts, certificate.launcher)
    write_whole(path, certificate.to_json())
    return path


def newest(
    spec: RunSpec, *, steps: int, placement: Placement = THIS_MACHINE, launcher: str = "auto"
) -> Certificate | None:
    """The last passing certificate of this run on these hosts, which may be `stale`; else None.

    A certificate of a user's own code is never used again, because it is not known what that code
    reads, or imports later.
    """
    if is_own(spec.workload):
        return None
    path = _path(spec, steps, placement.hosts or (), launcher)
    try:
        certificate = Certificate.from_json(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError, RefusalError):
        return None
    return certificate if certificate.passed else None


def stale(certificate: Certificate, spec: RunSpec, placement: Placement = THIS_MACHINE) -> str:
    """Why a certificate says nothing about a run here and now; empty: it does."""
    certified, now = certificate.spec.content_hash, spec.content_hash
    if certified != now:
        return f"it is of the run {certified[:8]}, this is {now[:8]}"
    if certificate.code_version != code_version():
        return "Ringside's code has changed since"
    if certificate.hosts != (placement.hosts or ()):
        return "it was made on other hosts"
    if certificate.machine != machine_of(placement):
        return "it was made on another machine, or with other packages"
    return _changed(certificate.orders, orders()) or _changed_source(certificate.sources.items())


def changed_since(certificates: Iterable[Certificate], code: str) -> str:
    """What behind these certificates has changed; empty: nothing. It reads every file again.

    Args:
        certificates: of one comparison.
        code: version of Ringside's code when the comparison began; empty: unknown.
    """
    certificates = tuple(certificates)
    versions = {one.code_version for one in certificates} | ({code} if code else set())
    if versions - {code_now()}:
        return "Ringside's code has changed since"
    now = orders()
    changed = next(filter(None, (_changed(one.orders, now) for one in certificates)), "")
    return changed or _changed_source(
        {item for one in certificates for item in one.sources.items()}
    )


def _changed_source(sources: Iterable[tuple[str, str]]) -> str:
    """The first file that has changed, by path and SHA-256; empty: none."""
    for name, digest in sources:
        path = Path(name)
        if not path.is_file() or _sha(path) != digest:
            return f"{name} has changed since"
    return ""


@functools.cache
def code_version() -> str:
    """SHA-256 of the covered code at the first call: the code that this process runs."""
    return code_now()


def code_now() -> str:
    """SHA-256 of the covered code on disk now; somebody may have edited it."""
    return code_version_of(COVERED, root=ROOT)


def orders() -> dict[str, str]:
    """SHA-256 of what libraries read from outside, by name; values may be secret.

    Environment variables that change what they do, their own configuration files on this machine,
    and which packages are installed.
    """
    digests = {
        name: hashlib.sha256(os.fsencode(value)).hexdigest()
        for name, value in os.environ.items()
        if name.startswith(TAKES_ORDERS)
    }
    digests |= {str(path): _sha(path) for path in _configuration_files() if path.is_file()}
    return {"the set of installed packages": _installed(), **dict(sorted(digests.items()))}


def _configuration_files() -> list[Path]:
    """Where Open MPI (the user's file, then the system's) and tf-keras look for their own."""
    keras = os.environ.get("KERAS_HOME") or "~/.keras"
    # Not `Path.home`, which fails where a user has none.
    files = [
        Path(os.path.expanduser("~/.openmpi/mca-params.conf")),
        Path(os.path.expanduser(keras)) / "keras.json",
    ]
    program = shutil.which("mpirun")
    prefix = os.environ.get("OPAL_PREFIX") or (program and Path(program).resolve().parents[1])
    # Debian's packages have it below /etc.
    etc = [Path("/etc/openmpi"), *([Path(prefix) / "etc"] if prefix else [])]
    return files + [folder / "openmpi-mca-params.conf" for folder in etc]


@functools.cache  # hundreds of files
def _installed() -> str:
    """SHA-256 of the names and versions of all installed packages."""
    found = sorted({f"{d.name}=={d.version}" for d in metadata.distributions()})
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first of these orders that is another now, in a sentence; empty: none."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            how = "is new" if name not in before else "is gone"
            return f"{name} {'has changed' if name in before and name in now else how} since"
    return ""


def users_code() -> dict[str, str]:
    """SHA-256 of each loaded Python file that is neither installed nor Ringside's own."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in kinds]
    # Most modules. To resolve the paths of all takes as long as a small training.
    begins = tuple(os.path.join(sysconfig.get_path(kind), "") for kind in kinds)
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name or not name.endswith(".py") or name.startswith(begins):
            continue
        path = Path(name).resolve()
        if any(path.is_relative_to(folder) for folder in installed):
            continue
        if path.name.startswith("__autograph_generated_file"):
            continue  # each process writes its own
        if any(path.is_relative_to(ROOT / room) for room in COVERED):
            continue
        found[str(path)] = _sha(path)
    return found


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _path(spec: RunSpec, steps: int, hosts: tuple[Host, ...], launcher: str) -> Path:
    place = os.getcwd() if spec.data_dir else ""  # the data_dir may be relative to it
    named = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    words = f"{spec.content_hash} {steps} {place} {named} {launcher}"
    key = hashlib.sha256(words.encode()).hexdigest()
    return cache_dir() / "certificates" / f"{key}.json"
