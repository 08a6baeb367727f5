"""Run a module that ends with the process that asked for it, even if that one is killed.

python -m ringside_core.die_with_parent <process id of the parent> <module> [argument …]
"""

import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringside_core.users_errors import last_error

PR_SET_PDEATHSIG = 1  # prctl(2): the kernel sends this process a signal when its parent ends


def dying_with_parent(module: str) -> list[str]:
    """A command that runs a module and ends with this process, however this one ends."""
    # -P: a user's folder `trainers` in the working folder would be taken for ours.
    program = ("-P", "-m", "ringside_core.die_with_parent")
    return [sys.executable, *program, str(os.getpid()), module]


def answer_of(
    module: str, request: str, *, limit_s: float, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Run a module that answers a question, in a process of its own that reads no input.

    Args:
        module: takes a file with the request, and a file for its answer in JSON.
        request: text.
        limit_s: seconds for it.
        environment: variables that it gets beside those of this process.

    Returns:
        The answer, None if the process failed; and its last error.

    Raises:
        TimeoutExpired: there was no answer in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "request", Path(folder) / "answer.json"
        asked.write_text(request, encoding="utf-8")
        done = subprocess.run(
            [*dying_with_parent(module), str(asked), str(answered)],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        failed = done.returncode or not answered.exists()
        answer = None if failed else json.loads(answered.read_text(encoding="utf-8"))
        return answer, last_error(done.stderr)


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
