"""What the links between hosts really carry: a plain TCP transfer, then and there."""

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

from launch import Placement, Site
from launch.interrupts import Interrupts
from launch.remote import ssh
from ringside_core.specs import Link, RefusalError

SCRIPT = str(Path(__file__).resolve().parent / "transfer.py")
SECONDS = 2.0
# TCP has found its rate, and the queues on the way are full.
WARM_UP_S = 1.0
# Beyond what the transfer itself takes: connecting by ssh, starting Python, a queue of seconds.
PATIENCE_S = 45.0
POLL_S = 0.1
# For an end whose output has closed: to say why, and to end.
LAST_WORDS_S = 2.0
Tool = Literal["tcp", "iperf3"]


def measure_links(
    placement: Placement,
    site: Site,
    *,
    seconds: float = SECONDS,
    tools: Sequence[Tool] = ("tcp", "iperf3"),
) -> tuple[Link, ...]:
    """From each host to the next, from the last to the first: one transfer after the other.

    Args:
        placement: its hosts; of fewer than two there are no links.
        site: this machine.
        seconds: that are counted of each transfer, after a warm-up.
        tools: `iperf3` counts where both hosts have it, and is passed over elsewhere.

    Raises:
        RefusalError: a host is not reached, or nothing comes through.
    """
    names = placement.names
    if len(names) < 2:
        return ()
    interface = placement.interface or site.interface(names)
    found = []
    # A signal in between: both ends are ended, by the end of their standard input.
    with Interrupts() as interrupts:
        for sender, receiver in zip(names, (*names[1:], names[0]), strict=True):
            for tool in tools:
                with _Ends(site, interrupts, seconds) as ends:
                    answer = ends.transfer(tool, sender, receiver, interface, seconds)
                if answer is not None:
                    found.append(Link(sender=sender, receiver=receiver, tool=tool, **answer))
    return tuple(found)


class _Ends:
    """The two processes of one transfer, here or behind ssh; on leaving both are gone."""

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
        """What came, by the receiver's clock, as in Link; None: a host is without the tool."""
        times = (str(WARM_UP_S), str(seconds))
        where = (interface,) if interface else ()
        plain = tool == "tcp"
        taking = self._start(receiver, ("receive" if plain else "iperf3-receive", *times, *where))
        listening = self._line(receiver, taking)
        if "missing" in listening:
            return None
        to = (listening["address"] or receiver, str(listening["port"]))
        sending = self._start(sender, ("send", *to) if plain else ("iperf3-send", *to, *times))
        # The client of iperf3 is told by its server what came there.
        answer = self._line(sender, sending)
        if plain:
            answer |= self._line(receiver, taking)
        return None if "missing" in answer else answer

    def _start(self, host: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = (self._site.python, "-I", "-S", SCRIPT, *arguments)
        if self._site.is_local(host):
            return self._stack.enter_context(_running(command))
        # What a login script says comes before this mark: random, so that none says it by chance,
        # and put together there, so that a shell that shows its commands does not say it either.
        token = secrets.token_hex(8)
        marked = ("sh", "-c", f'printf ringside-%s {token}; exec "$0" "$@"', *command)
        process = self._stack.enter_context(_running(ssh.remote_command(host, marked)))
        self._read_to(f"ringside-{token}", host, process)
        return process

    def _line(self, host: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The next line that an end says."""
        answer: dict[str, Any] = json.loads(self._read_to("\n", host, process))
        return answer

    def _read_to(self, last: str, host: str, process: subprocess.Popen[bytes]) -> bytes:
        """What an end says, up to these words and with them."""
        assert process.stdout is not None
        said = bytearray()
        while not said.endswith(last.encode()):
            self._interrupts.raise_noted()
            if time.monotonic() > self._deadline:
                raise _refusal(host, "nothing comes through")
            if select.select([process.stdout], [], [], POLL_S)[0]:
                byte = os.read(process.stdout.fileno(), 1)  # the next line is left for later
                if not byte:
                    raise _refusal(host, self._last_words(process))
                said += byte
        return bytes(said)

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        """Why an end has gone; one that has only closed its output is not waited for long."""
        assert process.stderr is not None
        give_up = time.monotonic() + LAST_WORDS_S
        while process.poll() is None and time.monotonic() < give_up:
            self._interrupts.raise_noted()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        process.kill()
        # Others may hold the pipe, such as the ProxyCommand of an ssh: it need not come to an end.
        os.set_blocking(process.stderr.fileno(), False)
        said = process.stderr.read() or b""
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit {process.wait()}"


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: Ctrl-C reaches us alone, and we end it when it is safe.
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
            process.kill()  # an ssh whose connection hangs would not end with its standard input


def _refusal(host: str, what: str) -> RefusalError:
    return RefusalError(
        "A plain transfer between two hosts must come through.",
        received=f"{host}: {what}",
        advice=f"Try `ssh {host} true`; is there a firewall between the hosts?",
    )
