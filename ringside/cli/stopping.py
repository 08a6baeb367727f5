"""Ctrl-C, kill, a closed terminal and a full disk: tell the person how to go on."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
NOTHING_YET = "nothing was measured yet: give the same command again"


class Stopped(SystemExit):
    """Ended by a signal; the person knows how to go on."""


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises, so that every `with` block ends.

    A signal that is ignored on purpose (nohup) stays ignored. A second signal cannot interrupt the
    cleaning up. While processes of a run exist, `launch.interrupts` handles signals instead.
    """

    def none(number: int, frame: FrameType | None) -> None:
        """The first signal is being answered."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in held:
            signal.signal(one, none)
        raise SystemExit(128 + number)  # the exit code that a shell gives

    held = []
    if threading.current_thread() is threading.main_thread():  # no other can have handlers
        held = [one for one in SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for one in held:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in held:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def telling(console: "Console", how_to_go_on: str) -> Iterator[None]:
    """Say how to go on if a command is stopped or cannot write."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        _say(console, f"stopped; {how_to_go_on}")
        code = error.code if isinstance(error, SystemExit) else 128 + signal.SIGINT
        raise Stopped(code) from None
    except OSError:
        _say(console, how_to_go_on)
        raise


def _say(console: "Console", text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        console.print(text, soft_wrap=True, highlight=False, markup=False)
