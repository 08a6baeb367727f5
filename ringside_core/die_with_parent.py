"""Run a module that ends with the process that asked for it, even if that one is killed.

python -m ringside_core.die_with_parent <process id of the parent> <module> [argument …]
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2): the kernel sends this process a signal when its parent ends


def dying_with_parent(module: str) -> list[str]:
    """A command that runs a module and ends with this process, however this one ends."""
    # -P: a user's folder `trainers` in the working folder would be taken for ours.
    program = ("-P", "-m", "ringside_core.die_with_parent")
    return [sys.executable, *program, str(os.getpid()), module]


def main() -> None:
    """Ask the kernel for it, then be the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which ended before we had asked
        raise SystemExit(1)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
