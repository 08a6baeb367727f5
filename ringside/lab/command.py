"""Run commands of the system; which of them a lab needs."""

import os
import shutil
import subprocess

from ringside_core.specs import RefusalError

PACKAGES = {  # Debian's
    "ip": "iproute2",
    "tc": "iproute2",
    "setsid": "util-linux",
    "unshare": "util-linux",
    "taskset": "util-linux",
    "mount": "mount",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
# sshd and tc are in folders that the PATH of an ordinary user, or of cron, does not have.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def check_machine() -> None:
    """Refuse if no lab can be made here; the message has everything that is missing."""
    missing = [name for name in PACKAGES if shutil.which(name, path=PATH) is None]
    troubles = ["not root"] if os.geteuid() != 0 else []
    troubles += [f"no {name}" for name in missing]
    if not troubles:
        return
    packages = sorted({PACKAGES[name] for name in missing})
    advice = ["Start it as root (sudo)."] if os.geteuid() != 0 else []
    if packages:
        advice.append(f"Install: apt-get install {' '.join(packages)}")
    raise RefusalError(
        "A lab needs root, for network namespaces, and the system's tools for them.",
        received=", ".join(troubles),
        advice=" ".join(advice),
    )


def run(*argv: str, stdin: str = "") -> str:
    """Run a command and return what it printed.

    Raises:
        RefusalError: it failed. The message has what it said.
    """
    done = subprocess.run(
        argv,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": PATH},
    )
    if done.returncode != 0:
        raise RefusalError(
            f"The system refused a part of the lab: {' '.join(argv)}",
            received=" ".join((done.stderr or done.stdout).split()) or f"exit {done.returncode}",
        )
    return done.stdout
