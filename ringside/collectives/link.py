"""What the links between hosts really carry, measured by a plain TCP transfer."""

import contextlib
import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from launch import Site
from launch.interrupts import Interrupts
from launch.remote import ssh
from ringside_core.specs import Link, Placement, RefusalError

SCRIPT = str(Path(__file__).resolve().parent / "transfer.py")
SECONDS = 2.0
# After this time TCP has found its rate, and the queues on the way are full.
WARM_UP_S = 1.0
# Added to the time of the transfer: connecting by ssh, starting Python, emptying long queues.
PATIENCE_S = 45.0
POLL_S = 0.1
# For an end that has closed its output: time to say why, and to end.
LAST_WORDS_S = 2.0
Tool = Literal["tcp", "iperf3"]


def measure_links(
    placement: Placement,
    site: Site,
    *,
    seconds: float = SECONDS,
    tools: Sequence[Tool] = ("tcp", "iperf3"),
) -> tuple[Link, ...]:
    """Measure from each host to the next, and from the last to the first, one after the other.

    Args:
        placement: its hosts; fewer than two hosts have no links.
        site: this machine.
        seconds: counted seconds of each transfer, after a warm-up.
        tools: `iperf3` is used only between hosts that both have it.

    Raises:
        RefusalError: a host is not reached, or nothing comes through.
    """
    names = placement.names
    if len(names) < 2:
        return ()
    interface = placement.interface or site.interface(names)
    found = []
    # On a signal both ends must end; they do when their standard input closes.
    with Interrupts() as interrupts:
        for sender, receiver in zip(names, (*names[1:], names[0]), strict=True):
            for tool in tools:
                with _Ends(site, interrupts, seconds) as ends:
                    answer = ends.transfer(tool, sender, receiver, interface, seconds)
                if answer is not None:
                    found.append(Link(sender=sender, receiver=receiver, tool=tool, **answer))
    return tuple(found)


class _Ends:
    """The two processes of one transfer, here or behind ssh. Leaving the block ends both."""

    def __init__(self, site: Site, interrupts: Interrupts, seconds: float) -> None:
        self._site = site
        self._interrupts = interrupts
        self._deadline = time.monotonic() + seconds + WARM_UP_S + PATIENCE_S
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "_Ends":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def transfer(
        self, tool: Tool, sender: str, receiver: str, interface: str, seconds: float
    ) -> dict[str, Any] | None:
        """What arrived, by the receiver's clock, as in Link; None: a host lacks the tool."""
        times = (str(WARM_UP_S), str(seconds))
        where = (interface,) if interface else ()
        plain = tool == "tcp"
        taking = self._start(receiver, ("receive" if plain else "iperf3-receive", *times, *where))
        listening = self._line(receiver, taking)
        if "missing" in listening:
            return None
        to = (listening["address"] or receiver, str(listening["port"]))
        sending = self._start(sender, ("send", *to) if plain else ("iperf3-send", *to, *times))
        # The server of iperf3 tells its client what arrived.
        answer = self._line(sender, sending)
        if plain:
            answer |= self._line(receiver, taking)
        return None if "missing" in answer else answer

    def _start(self, host: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = (self._site.python, "-I", "-S", SCRIPT, *arguments)
        if self._site.is_local(host):
            return self._stack.enter_context(_running(command))
        # A login script may print text before this mark. The mark is random, so that no script
        # prints it by chance. It is put together there, so that a shell that shows its commands
        # (set -x) does not print it either.
        token = secrets.token_hex(8)
        marked = ("sh", "-c", f'printf ringside-%s {token}; exec "$0" "$@"', *command)
        process = self._stack.enter_context(_running(ssh.remote_command(host, marked)))
        self._read_to(f"ringside-{token}", host, process)
        return process

    def _line(self, host: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The next line of JSON that an end prints."""
        answer: dict[str, Any] = json.loads(self._read_to("\n", host, process))
        return answer

    def _read_to(self, last: str, host: str, process: subprocess.Popen[bytes]) -> bytes:
        """The output of an end, up to and including these words."""
        assert process.stdout is not None
        said = bytearray()
        while not said.endswith(last.encode()):
            self._interrupts.raise_noted()
            if time.monotonic() > self._deadline:
                raise _refusal(host, "nothing comes through")
            if select.select([process.stdout], [], [], POLL_S)[0]:
                byte = os.read(process.stdout.fileno(), 1)  # so the next line stays in the pipe
                if not byte:
                    raise _refusal(host, self._last_words(process))
                said += byte
        return bytes(said)

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        """Why an end has gone. Wait only briefly for one that has just closed its output."""
        assert process.stderr is not None
        give_up = time.monotonic() + LAST_WORDS_S
        while process.poll() is None and time.monotonic() < give_up:
            self._interrupts.raise_noted()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        process.kill()
        # Others may hold the pipe open, such as the ProxyCommand of an ssh, so do not wait for it.
        os.set_blocking(process.stderr.fileno(), False)
        said = process.stderr.read() or b""
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {process.wait()}"


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # It has a session of its own: Ctrl-C reaches only us, and we end it when that is safe.
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # an ssh whose connection hangs does not end when its input closes


def _refusal(host: str, what: str) -> RefusalError:
    return RefusalError(
        "A plain transfer between two hosts must come through.",
        received=f"{host}: {what}",
        advice=f"Try `ssh {host} true`; is there a firewall between the hosts?",
    )
