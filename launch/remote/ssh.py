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
from typing import Generic, TypeVar

from launch.interrupts import Interrupts
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

# No password can be typed here. A machine that no longer answers ends the run within 15 s.
OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
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
    """Ask every host at once, and wait for each answer; arguments and errors as of `talk_to_all`.

    Returns:
        The standard output of each command that exits with 0, without what a login shell said
        before or after it.
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
    answers: dict[str, T | NoAnswer] = {}
    going: dict[str, _Call[T]] = {}
    started: list[subprocess.Popen[bytes]] = []
    selector = selectors.PollSelector()  # it needs no file handle: we may have used all

    def look(seconds: float) -> None:
        for key, _ in selector.select(seconds):
            key.data()
        for host, call in list(going.items()):
            call.look()
            if call.answer is not None:
                call.end()
                answers[host] = call.answer
                del going[host]

    with Interrupts() if interrupts is None else nullcontext(interrupts) as interrupts:
        try:
            for host, argv in commands.items():
                interrupts.raise_noted()
                try:
                    going[host] = _Call(host, argv, talk, limit_s, selector, local=host in here)
                    started.append(going[host].popen)
                except ValueError as error:
                    answers[host] = NoAnswer(why=str(error))
                look(0.0)  # so the first hosts need not wait until the last is started
            while going:
                interrupts.raise_noted()
                look(POLL_S)
        finally:
            for call in going.values():
                call.end()
            give_up = time.monotonic() + KILL_S
            for popen in started:
                with suppress(subprocess.TimeoutExpired):
                    popen.wait(max(0.0, give_up - time.monotonic()))
    return {host: answers[host] for host in commands}


def nonsense(program: str, said: str) -> NoAnswer:
    """Text of a program that began well but gave no answer."""
    shown = said.strip()[:LONGEST_SHOWN]
    return NoAnswer(why=f"{program} there says {shown!r}, which is no answer; is it a wrapper?")


def complaint(host: str, code: int, said: str, program: str) -> str:
    """What is wrong with a host, where ssh should have run a program and said this instead."""
    for pattern, words in COMPLAINTS:
        if re.search(pattern, said):
            return words.format(host=host, program=program)
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"exit {code}"


def remote_command(host: str, argv: Sequence[str]) -> tuple[str, ...]:
    """A command on another machine, without a terminal, which would echo our input."""
    return ("ssh", "-T", *OPTIONS, host, shlex.join(argv))


class _Call(Generic[T]):
    """One command and the talk with it; `answer` is None while it goes on."""

    def __init__(
        self,
        host: str,
        argv: Sequence[str],
        talk: Talk[T],
        limit_s: float,
        selector: selectors.BaseSelector,
        *,
        local: bool,
    ) -> None:
        mark = new_mark()
        command = marked(argv, mark)
        if not local:
            command = remote_command(host, command)
        pipe = subprocess.PIPE
        try:
            popen = subprocess.Popen(
                command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise ValueError(f"{command[0]} cannot be started here: {error.strerror}") from None
        assert popen.stdin is not None and popen.stdout is not None and popen.stderr is not None
        self.answer: T | NoAnswer | None = None
        self.popen = popen
        self._host, self._program = host, argv[0]
        self._limit_s, self._give_up_at = limit_s, time.monotonic() + limit_s
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
            os.killpg(self.popen.pid, signal.SIGKILL)
        for stream in (self._out, self._errors):
            if not stream.over:
                self._selector.unregister(stream.pipe)
            stream.pipe.close()
        self._stdin.close()

    def _failed(self) -> int | None:
        """The exit code of a command that failed; all of its errors have been read."""
        if self._out.code is not None and self._errors.code is not None:
            return self._out.code
        if not self._out.over or (code := self.popen.poll()) is None:
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


def _hear_out() -> Generator[bytes | None, str, str]:
    """All output of a command; it gets no input."""
    lines = []
    while line := (yield None):
        lines.append(line)
    return "".join(lines)
