"""Fail unless Horovod loads, was built with MPI and Gloo, and uses the MPI of its own .venv."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

os.environ.pop("TF_USE_LEGACY_KERAS", None)  # of the caller
if importlib.util.find_spec("tf_keras"):  # not in estimator/.venv, whose Keras is Keras 2
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow as hvd


def loaded_libmpi() -> list[str]:
    """Paths of the MPI libraries mapped into this process."""
    maps = Path("/proc/self/maps").read_text()
    return sorted({line.split()[-1] for line in maps.splitlines() if "/libmpi.so" in line})


def check(wheel: str) -> None:
    """Exit with a message that says which rule is broken."""
    hint = f"Remove {wheel} and set up again."

    libraries = loaded_libmpi()
    own = Path(sys.prefix, "lib").resolve()
    if not libraries or any(Path(library).resolve().parent != own for library in libraries):
        raise SystemExit(
            f"Horovod must load libmpi from {own}. Received: {libraries}. "
            f"If LD_LIBRARY_PATH or a module names another MPI, unset it. Otherwise: {hint}"
        )

    if not (hvd.mpi_built() and hvd.gloo_built()):
        raise SystemExit(
            "Horovod must be built with MPI and Gloo. "
            f"Received: mpi={hvd.mpi_built()}, gloo={hvd.gloo_built()}. {hint}"
        )

    horovodrun = [str(Path(sys.prefix, "bin", "horovodrun")), "--check-build"]
    report = subprocess.run(horovodrun, check=True, capture_output=True, text=True).stdout
    print(report)
    missing = [name for name in ("TensorFlow", "MPI", "Gloo") if f"[X] {name}" not in report]
    if missing:
        raise SystemExit(f"horovodrun --check-build misses {', '.join(missing)}. {hint}")


if __name__ == "__main__":
    check(sys.argv[1])
