"""Commands on another machine. The environment goes inline: sshd takes none from its client."""

import re
import shlex
from collections.abc import Mapping, Sequence

from launch.plan import RUN_ID, Process

# Nobody is there to type a password; a machine that no longer answers ends the run within 15 s.
OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)

# What ssh says, and what to do about it; the first that is found.
COMPLAINTS = (
    (
        "IDENTIFICATION HAS CHANGED",
        "its host key is not the one known here; if that is right, `ssh-keygen -R {host}` and log "
        "in once by hand",
    ),
    ("Host key verification failed", "its host key is not known here; log in once by hand"),
    (
        r"Permission denied \([^)]*(password|keyboard)",
        "it asks for a password; let your key in with `ssh-copy-id {host}`",
    ),
    (
        "Permission denied",
        "it refuses the key; name the right one in ~/.ssh/config (IdentityFile), or let yours in",
    ),
    ("Could not resolve hostname", "its name is not known here"),
    (
        "Connection refused",
        "no ssh server answers there; start it, or name its port in ~/.ssh/config",
    ),
    (
        "timed out|No route to host|Network is unreachable|not responding",
        "it cannot be reached; look whether it is up, and at the network",
    ),
    ("can't open file", "no checkout of Ringside there at the same path"),
    ("No such file or directory|not found", "no {python} there: all hosts need the same path"),
)


def complaint(host: str, code: int, said: str, python: str) -> str:
    """What is wrong with a host, from how a command there ended.

    Args:
        host: its name.
        code: exit code of ssh.
        said: its error output.
        python: the interpreter that was to be run.
    """
    for pattern, words in COMPLAINTS:
        if re.search(pattern, said):
            return words.format(host=host, python=python)
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"exit {code}"


def remote_command(host: str, argv: Sequence[str]) -> tuple[str, ...]:
    """A command on another machine."""
    return ("ssh", *OPTIONS, host, shlex.join(argv))


def remote_process(
    name: str,
    host: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    serves: bool = False,
) -> Process:
    """A task on another machine, in the same folder as here; it ends with its connection.

    Args:
        name: of the task.
        host: where it runs.
        argv: its command.
        env: of the task; ssh itself gets the run's id only: it is a process of the run, too.
        cwd: where it starts.
        serves: see Process.
    """
    assignments = [f"{key}={value}" for key, value in env.items()]
    line = shlex.join(["exec", "env", *assignments, *argv, "--watch-stdin"])
    return Process(
        name=name,
        argv=("ssh", *OPTIONS, host, f"cd {shlex.quote(cwd)} && {line}"),
        env={RUN_ID: env[RUN_ID]},
        serves=serves,
        holds_stdin=True,
    )
