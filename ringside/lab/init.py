"""The first process of a host of the lab: a script that needs only the standard library.

`python init.py HOST CONFIG` runs in namespaces of its own. It ends when its sshd ends. As it is
process 1, the kernel then ends every process of the host.
"""

import os
import shutil
import socket
import subprocess
import sys


def main(name: str, config: str) -> int:
    """Be the host until its sshd ends."""
    socket.sethostname(name)
    # Two machines share no memory, so two hosts of a lab must not either.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
    # The process that makes the lab waits for this line. If it were killed before, it could leave a
    # host that no name leads to.
    print("here", flush=True)
    if not sys.stdin.readline():
        return 1
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    program = shutil.which("sshd") or "sshd"  # it restarts itself, by its whole path
    sshd = os.posix_spawn(program, [program, "-D", "-e", "-f", config], os.environ)
    while True:
        ended, status = os.wait()  # orphans end here too, because this is process 1
        if ended == sshd:
            return os.waitstatus_to_exitcode(status) or 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
