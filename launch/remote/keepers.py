"""One keeper on every other machine of a run. It always ends the run's processes there.

A keeper is `sweep.py --keep` behind ssh. It answers us once a second. When it no longer hears us,
or we let go, it kills every process of the run on its host. When we no longer hear it, the host is
lost. A launcher that is stopped (Ctrl-Z) for longer than `sweep.SILENCE_S` is not heard either, so
its run is lost.
"""

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from launch.logs import log_file
from launch.plan import Plan
from launch.remote import ssh, sweep

BEAT_S = 1.0
POLL_S = 0.1
SWEEPER = Path(sweep.__file__).resolve()


@dataclass
class _Keeper:
    """One keeper, through its ssh."""

    host: str
    popen: subprocess.Popen[bytes]
    greeting: bytes
    heard: float  # when its last answer came, on the monotonic clock
    prelude: bytes = b""  # before the whole greeting; a login script may talk
    greeted: bool = False
    mute: bool = False  # no more answers can come
    sent: int = 0  # bytes
    answered: int = 0  # bytes that came back
    asking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def gone(self) -> bool:
        """Whether it cannot answer any more: its ssh has ended, or the keeper behind it has."""
        return self.mute or self.popen.poll() is not None

    def ask(self, byte: bytes = b".") -> int:
        """Send a byte of `sweep.keep`, unless the pipe is full; returns how many come back."""
        assert self.popen.stdin is not None
        with self.asking:
            awaited = self.sent + 1
            if self.popen.stdin.closed:
                return awaited
            with contextlib.suppress(OSError):
                self.sent += os.write(self.popen.stdin.fileno(), byte)
        return awaited

    def hear(self) -> None:
        """Read what came back."""
        assert self.popen.stdout is not None
        with contextlib.suppress(OSError):
            said = os.read(self.popen.stdout.fileno(), 4096)
            self.mute = not said
            if not self.greeted:
                self.prelude, greeting, said = (self.prelude + said).partition(self.greeting)
                self.greeted = bool(greeting)
            if self.greeted:
                self.answered += len(said)
                self.heard = time.monotonic()


class Keepers:
    """The keepers of a plan. Leaving the `with` block lets go of them and waits until they end.

    Attributes:
        survivors: hosts on which processes of the run could not be killed.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keepers: list[_Keeper] = []
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self.survivors: list[str] = []

    def __enter__(self) -> Self:
        ssh.allow_files(len(self._plan.remote_hosts))
        try:
            for host in self._plan.remote_hosts:
                self._keepers.append(self._start(host))
            self._beats.start()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._let_go()

    def tell(self, byte: bytes) -> None:
        """Send a byte to every keeper: `sweep.FREEZE` or `sweep.THAW`."""
        for keeper in self._keepers:
            keeper.ask(byte)

    def lost(self) -> tuple[str, ...]:
        """Keep in touch; returns the hosts that are lost by now. Call it often."""
        now = time.monotonic()
        found = []
        for keeper in self._keepers:
            keeper.hear()
            if keeper.gone or now - keeper.heard > sweep.SILENCE_S:
                found.append(keeper.host)
        return tuple(found)

    def roll_call(
        self, seconds: float, between: Callable[[], None] = lambda: None
    ) -> tuple[str, ...]:
        """Ask every keeper now; returns the hosts that do not answer in these seconds."""
        give_up = time.monotonic() + seconds
        awaited = {keeper.host: keeper.ask() for keeper in self._keepers}
        poll = select.poll()  # select() knows no file above the 1,024th
        speaking = {k.popen.stdout.fileno(): k for k in self._keepers if k.popen.stdout is not None}
        for handle in speaking:
            poll.register(handle, select.POLLIN)
        while True:
            gone = [k for k in self._keepers if k.gone]
            left = [k for k in self._keepers if k not in gone and k.answered < awaited[k.host]]
            if not left or time.monotonic() > give_up:
                return tuple(k.host for k in self._keepers if k in gone or k in left)
            for handle, _ in poll.poll(POLL_S * 1000):
                speaking[handle].hear()
                if speaking[handle].mute:
                    poll.unregister(handle)
            between()

    def complaint(self, hosts: Sequence[str]) -> str:
        """What ssh said of hosts that are out of reach."""
        logs = {host: log_file(Path(self._plan.run_dir), f"ssh-{host}") for host in hosts}
        said = {
            host: " ".join(log.read_text(errors="replace").split()) for host, log in logs.items()
        }
        return " ".join(f"{host} is not ready: {said[host] or 'no answer'}." for host in hosts)

    def _start(self, host: str) -> _Keeper:
        command = (self._plan.python, "-I", "-S", str(SWEEPER), self._plan.run_id, "--keep")
        with log_file(Path(self._plan.run_dir), f"ssh-{host}").open("ab") as log:
            popen = subprocess.Popen(
                ssh.remote_command(host, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        for pipe in (popen.stdin, popen.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        greeting = sweep.greeting(self._plan.run_id).encode()
        return _Keeper(host, popen, greeting, heard=time.monotonic())

    def _beat(self) -> None:
        # A thread, because the launcher may wait for a slow host, or for a terminal that is blocked
        # (`| less`, Ctrl-S). That must not end the run.
        while not self._over.wait(BEAT_S):
            for keeper in self._keepers:
                keeper.ask()

    def _let_go(self) -> None:
        """Close every input, so that each keeper sweeps its host. Lost ones do so by themselves."""
        self._over.set()
        if self._beats.ident is not None:
            self._beats.join()
        out_of_reach = self.lost()
        for keeper in self._keepers:
            if keeper.popen.stdin is not None:
                with keeper.asking:
                    keeper.popen.stdin.close()
            if keeper.host in out_of_reach:
                keeper.popen.kill()
        give_up = time.monotonic() + sweep.REMOTE_PATIENCE_S
        for keeper in self._keepers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.popen.wait(max(0.0, give_up - time.monotonic()))
            if keeper.popen.poll() is None:
                keeper.popen.kill()
                keeper.popen.wait()
            if keeper.popen.returncode == 1:
                self.survivors.append(keeper.host)
            if keeper.popen.stdout is not None:
                keeper.popen.stdout.close()
