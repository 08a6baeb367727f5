"""The first process of a host of the lab; started as a script, it needs the standard library only.

`python init.py HOST CONFIG`, in namespaces of its own. It ends with its sshd; and with it, as it is
process 1, the kernel ends every process of the host.
"""

import os
import shutil
import socket
import subprocess
import sys


def main(name: str, config: str) -> int:
    """Be the host until its sshd ends."""
    socket.sethostname(name)
    # Processes of two machines share no memory: neither do those of two hosts.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
    # Whoever makes the lab must be there until this process is known to be in its namespaces:
    # killed before, it could leave a host that no name leads to.
    print("here", flush=True)
    if not sys.stdin.readline():
        return 1
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    program = shutil.which("sshd") or "sshd"  # which starts itself anew, by its whole path only
    sshd = os.posix_spawn(program, [program, "-D", "-e", "-f", config], os.environ)
    while True:
        ended, status = os.wait()  # also of orphans, which come to process 1
        if ended == sshd:
            return os.waitstatus_to_exitcode(status) or 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
