"""Commands on other machines. Variables are part of the command: sshd takes none by itself."""

import functools
import os
import re
import resource
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Generic, Self, TypeVar

from launch.interrupts import Interrupts
from launch.plan import RUN_ID, Process
from launch.remote.marks import Stream, marked, new_mark
from ringside_core.specs import Noun, RefusalError

T = TypeVar("T")
# Yields what it says (None: nothing any more), gets the next line of the command; "" after the last
# one of a command that exits with 0. ValueError: that line is no answer.
Talk = Callable[[], Generator[bytes | None, str, T]]

POLL_S = 0.1  # between two checks for a signal
KILL_S = 10.0  # the kernel's time between SIGKILL and the end of a process
MOST_BYTES = 16 << 20  # for one output of one command; answers about 2,000 hosts are below 1 MiB
FILES_PER_HOST = 8  # three pipes of a question, or two of a keeper, and those of one task or more
OTHER_FILES = 512
LONGEST_SHOWN = 80  # characters shown of text that is no answer

# Nobody can type a password here. A machine that no longer answers ends the run within 15 s.
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

# What ssh says, and what to do about it; the first match counts.
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


def allow_files(hosts: int) -> None:
    """Let this process have as many files open as so many hosts need.

    Raises:
        RefusalError: the system does not allow it.
    """
    needed = FILES_PER_HOST * hosts + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise RefusalError(
            f"For {hosts:,} hosts a process must be allowed to open enough files.",
            received=f"it may have {hard:,} files open, {needed:,} are needed",
            advice="Raise the limit (ulimit -Hn), or use fewer hosts.",
        )
    # No more than that: some programs close every file that they may have open when they start.
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def ask_all(
    commands: Mapping[str, Sequence[str]],
    *,
    limit_s: float,
    here: Collection[str] = (),
    interrupts: Interrupts | None = None,
) -> dict[str, str | NoAnswer]:
    """Ask every host at once, and wait for each answer.

    Args:
        commands: one for each host, by its name. A command must exit with 0, or it has no answer.
        limit_s: time for each host to connect and to answer.
        here: names of this machine, which is asked without ssh.
        interrupts: held by a caller who asks from threads; None: held here.

    Returns:
        The standard output of each command, without what a login shell said before or after it.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after everything was ended; see `talk_to_all`.
        SystemExit: on SIGTERM or SIGHUP, likewise.
    """
    return talk_to_all(commands, _hear_out, limit_s=limit_s, here=here, interrupts=interrupts)


def talk_to_all(
    commands: Mapping[str, Sequence[str]],
    talk: Talk[T],
    *,
    limit_s: float,
    here: Collection[str] = (),
    interrupts: Interrupts | None = None,
) -> dict[str, T | NoAnswer]:
    """Start a command on every host and talk to all at once.

    When this returns or raises, every process that it started has ended, also what ssh itself
    started (ProxyCommand), and no pipe is open. The kernel has KILL_S for that.

    Args:
        commands: for each host, by its name.
        talk: the talk with one command; see Talk. The host has answered when it returns.
        limit_s: time for each host to connect and for the talk.
        here: names of this machine, which is reached without ssh.
        interrupts: held by a caller who asks from threads; None: held here, and only the main
            thread hears signals.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after everything was ended.
        SystemExit: on SIGTERM or SIGHUP, likewise.
        RefusalError: more hosts than this process may open files for.
    """
    allow_files(len(commands))
    with (
        Interrupts() if interrupts is None else nullcontext(interrupts) as interrupts,
        _Calls(talk, limit_s) as calls,
    ):
        for host, argv in commands.items():
            interrupts.raise_noted()
            calls.start(host, argv, local=host in here)
            calls.look(0.0)  # so the first hosts need not wait until the last is started
        while calls.going:
            interrupts.raise_noted()
            calls.look(POLL_S)
    return {host: calls.answers[host] for host in commands}


def nonsense(program: str, said: str) -> NoAnswer:
    """Text of a program that began well but gave no answer."""
    shown = said.strip()[:LONGEST_SHOWN]
    return NoAnswer(why=f"{program} there says {shown!r}, which is no answer; is it a wrapper?")


def complaint(host: str, code: int, said: str, program: str) -> str:
    """What is wrong with a host, from the way a command there ended.

    Args:
        host: its name.
        code: exit code of ssh.
        said: its error output.
        program: what should have run, such as the path of the interpreter.
    """
    for pattern, words in COMPLAINTS:
        if re.search(pattern, said):
            return words.format(host=host, program=program)
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"exit {code}"


def remote_command(host: str, argv: Sequence[str]) -> tuple[str, ...]:
    """A command on another machine, without a terminal, which would echo our input."""
    return ("ssh", "-T", *OPTIONS, host, shlex.join(argv))


def remote_process(
    name: str,
    host: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    serves: bool = False,
) -> Process:
    """A task on another machine, in the same folder as here. It ends with its connection.

    Args:
        name: of the task.
        host: where it runs.
        argv: its command.
        env: variables of the task. ssh itself gets only the run's id, because it belongs to the run
            too.
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


class _Call(Generic[T]):
    """One command and the talk with it.

    Attributes:
        answer: its result; None: it goes on.
    """

    def __init__(
        self,
        host: str,
        program: str,
        popen: subprocess.Popen[bytes],
        mark: str,
        talk: Talk[T],
        limit_s: float,
        selector: selectors.BaseSelector,
    ) -> None:
        assert popen.stdin is not None and popen.stdout is not None and popen.stderr is not None
        self.answer: T | NoAnswer | None = None
        self._host = host
        self._program = program
        self._limit_s = limit_s
        self._give_up_at = time.monotonic() + limit_s
        self._popen = popen
        self._stdin = popen.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._unsent = bytearray()
        self._out = Stream(popen.stdout, mark, 1)
        self._errors = Stream(popen.stderr, mark, 2)
        self._selector = selector
        for stream in (self._out, self._errors):
            hear = functools.partial(self._hear, stream)
            selector.register(stream.pipe, selectors.EVENT_READ, hear)
        self._talk = talk()
        self._say(next(self._talk))

    def look(self) -> None:
        """Check what no pipe tells. Call it often."""
        if self._unsent:
            self._send()
        if self.answer is not None:
            return
        if max(self._out.total, self._errors.total) > MOST_BYTES:
            self.answer = NoAnswer(why=f"it says more than {MOST_BYTES >> 20} MiB")
        elif (code := self._failed()) is not None:
            said = self._errors.text.decode(errors="replace")
            self.answer = NoAnswer(why=complaint(self._host, code, said, self._program))
        elif time.monotonic() > self._give_up_at:
            self.answer = NoAnswer(why=f"no answer within {self._limit_s:g} s")

    def end(self) -> None:
        """Kill what is left and close the pipes. The caller must wait for the process."""
        # Also what ssh started itself (ProxyCommand).
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        for stream in (self._out, self._errors):
            if not stream.over:
                self._selector.unregister(stream.pipe)
            stream.pipe.close()
        self._stdin.close()

    def _failed(self) -> int | None:
        """The exit code of a command that failed; all of its errors have been read."""
        if self._out.code is not None and self._errors.code is not None:
            return self._out.code
        if not self._out.over or (code := self._popen.poll()) is None:
            return None
        if not self._errors.over:
            self._hear(self._errors)  # not up to its end: what outlives ssh may hold it open
        return code if self._out.code is None else self._out.code

    def _hear(self, stream: Stream) -> None:
        stream.take()
        if stream.over:
            self._selector.unregister(stream.pipe)
        while self.answer is None and (line := self._out.line()) is not None:
            try:
                words = self._talk.send(line)
            except StopIteration as end:
                self.answer = end.value
            except ValueError:
                self.answer = nonsense(self._program, line)
            else:
                self._say(words)

    def _say(self, words: bytes | None) -> None:
        if words is None:
            self._stdin.close()
        else:
            self._unsent += words
            self._send()

    def _send(self) -> None:
        """Send what the pipe takes; send the rest at the next check."""
        try:
            del self._unsent[: os.write(self._stdin.fileno(), self._unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()  # the exit code will say more


class _Calls(Generic[T]):
    """Calls side by side. Leaving the `with` block ends every one.

    Attributes:
        answers: those of finished calls, by host.
        going: calls that go on.
    """

    def __init__(self, talk: Talk[T], limit_s: float) -> None:
        self.answers: dict[str, T | NoAnswer] = {}
        self.going: dict[str, _Call[T]] = {}
        self._talk = talk
        self._limit_s = limit_s
        self._started: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.PollSelector()  # it needs no file handle: we may have used all

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for call in self.going.values():
            call.end()
        give_up = time.monotonic() + KILL_S
        for popen in self._started:
            with suppress(subprocess.TimeoutExpired):
                popen.wait(max(0.0, give_up - time.monotonic()))

    def start(self, host: str, argv: Sequence[str], *, local: bool) -> None:
        """Start a command. If it cannot be started, it is over."""
        mark = new_mark()
        command = marked(argv, mark)
        if not local:
            command = remote_command(host, command)
        try:
            popen = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            why = f"{command[0]} cannot be started here: {error.strerror}"
            self.answers[host] = NoAnswer(why=why)
            return
        self._started.append(popen)
        self.going[host] = _Call(
            host, argv[0], popen, mark, self._talk, self._limit_s, self._selector
        )

    def look(self, seconds: float) -> None:
        """Go on with every talk; return when something was read, or after this time."""
        for key, _ in self._selector.select(seconds):
            key.data()
        for host, call in list(self.going.items()):
            call.look()
            if call.answer is not None:
                call.end()
                self.answers[host] = call.answer
                del self.going[host]


def _hear_out() -> Generator[bytes | None, str, str]:
    """All output of a command; it gets no input."""
    lines = []
    while line := (yield None):
        lines.append(line)
    return "".join(lines)
