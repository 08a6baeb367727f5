"""Commands on other machines. The environment goes inline: sshd takes none from its client."""

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import IO, TypeVar

from launch.interrupts import Interrupts
from launch.plan import RUN_ID, Process
from specs import Noun

T = TypeVar("T")
Talk = Callable[[asyncio.subprocess.Process], Awaitable[T]]

POLL_S = 0.1  # between two looks for a signal

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
    ("No such file or directory|not found", "no {program} there: all hosts need the same path"),
)


class NoAnswer(Noun):
    """Why there is no answer from a host, in words for a person."""

    why: str


def ask_all(
    commands: Mapping[str, Sequence[str]], *, limit_s: float, here: Collection[str] = ()
) -> dict[str, str | NoAnswer]:
    """Ask every host at once, and hear each to the end.

    Args:
        commands: for each host, by its name; one that does not exit with 0 has not answered.
        limit_s: for each host to connect and to answer.
        here: names of this machine, which is asked without ssh.

    Returns:
        The standard output of each command, without what a login shell said before it.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after everything was ended; see `talk_to_all`.
        SystemExit: on SIGTERM or SIGHUP, likewise.
    """
    return talk_to_all(commands, _hear_out, limit_s=limit_s, here=here)


def talk_to_all(
    commands: Mapping[str, Sequence[str]],
    talk: Talk[T],
    *,
    limit_s: float,
    here: Collection[str] = (),
) -> dict[str, T | NoAnswer]:
    """Start a command on every host and talk to all at once.

    When this returns or raises, every process that was started here has ended, also what ssh has
    started itself (ProxyCommand), and no pipe is open. Only the main thread hears signals.

    Args:
        commands: for each host, by its name.
        talk: with a command that begins now: nothing of its output was read, nothing of what else
            was said is left. EOFError: the other end is gone.
        limit_s: for each host to connect and for the talk.
        here: names of this machine, which is reached without ssh.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after everything was ended.
        SystemExit: on SIGTERM or SIGHUP, likewise.
    """

    async def all_at_once() -> dict[str, T | NoAnswer]:
        tasks = {
            host: asyncio.create_task(_talk_to(host, argv, talk, limit_s, local=host in here))
            for host, argv in commands.items()
        }
        waiting = set(tasks.values())
        while waiting:
            interrupts.raise_noted()  # asyncio.run then ends all the others
            _, waiting = await asyncio.wait(waiting, timeout=POLL_S)
        return {host: task.result() for host, task in tasks.items()}

    with Interrupts() as interrupts:
        return asyncio.run(all_at_once())


def complaint(host: str, code: int, said: str, program: str) -> str:
    """What is wrong with a host, from how a command there ended.

    Args:
        host: its name.
        code: exit code of ssh.
        said: its error output.
        program: that was to be run, such as the path of the interpreter.
    """
    for pattern, words in COMPLAINTS:
        if re.search(pattern, said):
            return words.format(host=host, program=program)
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


async def _talk_to(
    host: str, argv: Sequence[str], talk: Talk[T], limit_s: float, *, local: bool
) -> T | NoAnswer:
    # Random, so that no login script says it by chance.
    mark = f"ringside-{secrets.token_hex(8)}"
    # By sh, because login shells differ: to csh, `>&2` is a file named 2.
    command = ("sh", "-c", f'echo {mark}; echo {mark} >&2; exec "$0" "$@"', *argv)
    if not local:
        command = remote_command(host, command)
    # In memory, and no pipe: nobody reads it while we talk, and what outlives ssh may hold it open.
    with open(os.memfd_create("errors"), "w+b") as errors:
        try:
            process = await _start(command, errors)
        except OSError as error:
            return NoAnswer(why=f"{command[0]} cannot be started here: {error.strerror}")
        try:
            async with asyncio.timeout(limit_s):
                try:
                    await _pass_over(process, f"{mark}\n".encode())
                    return await talk(process)
                except EOFError:
                    code = await process.wait()
        except TimeoutError:
            return NoAnswer(why=f"no answer within {limit_s:g} s")
        finally:
            await _end(process)
        errors.seek(0)
        said = errors.read().decode(errors="replace").rpartition(f"{mark}\n")[2]
    return NoAnswer(why=complaint(host, code, said, argv[0]))


async def _start(command: Sequence[str], errors: IO[bytes]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    # With what ssh has started itself (ProxyCommand): it would hold the pipes open.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    for pipe in filter(None, map(transport.get_pipe_transport, (0, 1))):
        pipe.close()
    # Waited for first: closing the transport would ask how the process ended, beside asyncio's own
    # thread, and one of the two would be told that there is no such process.
    await process.wait()
    transport.close()


async def _pass_over(process: asyncio.subprocess.Process, mark: bytes) -> None:
    """Read to the end of the mark; a login script may talk before it, as long as it likes."""
    assert process.stdout is not None
    while True:
        try:
            await process.stdout.readuntil(mark)
        except asyncio.LimitOverrunError as error:
            await process.stdout.readexactly(error.consumed)
        else:
            return


async def _hear_out(process: asyncio.subprocess.Process) -> str:
    """All that a command says, which must exit with 0."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    said = await process.stdout.read()
    if await process.wait():
        raise EOFError
    return said.decode(errors="replace")
