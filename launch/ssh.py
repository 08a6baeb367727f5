"""Commands on another machine. The environment goes inline: sshd takes none from its client."""

import shlex
from collections.abc import Mapping, Sequence

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


def remote_command(host: str, argv: Sequence[str]) -> tuple[str, ...]:
    """A command on another machine."""
    return ("ssh", *OPTIONS, host, shlex.join(argv))


def remote_task(
    host: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str
) -> tuple[str, ...]:
    """A task on another machine, in the same folder as here."""
    assignments = [f"{name}={value}" for name, value in env.items()]
    line = shlex.join(["exec", "env", *assignments, *argv])
    return ("ssh", *OPTIONS, host, f"cd {shlex.quote(cwd)} && {line}")
