"""Note Ctrl-C, kill and a closed terminal, and act on them when it is safe."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds signals back inside its `with` block; a second Ctrl-C cannot stop the clean-up.

    A handler that raises could interrupt us between the start of a process and the line that notes
    its id. Only the main thread can have handlers; in other threads this does nothing.

    Args:
        saves: its holder can do something with a run that is ended as `preempted`.

    Attributes:
        preempting: whether a SIGTERM was taken by `preempts`.
        resizing: whether a call of `resize` was taken by `preempts`.
    """

    def __init__(self, *, saves: bool = False) -> None:
        self._saves = saves
        self._noted: int | None = None
        self.preempting = False
        self.resizing = False
        self._resize = False
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                # Leave a signal that is ignored on purpose (nohup, a background job), and a
                # handler that was not set from Python.
                if before is not None and before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if error[0] is None:
            self.raise_noted()

    def stop(self) -> None:
        """Let `raise_noted` raise from now on, in every thread that holds this."""
        if self._noted is None:
            self._noted = signal.SIGTERM

    def resize(self) -> None:
        """Ask the run to end early, to go on with more replicas. Any thread may ask."""
        self._resize = not self.preempting  # a process that is asked twice ends once

    def preempts(self) -> bool:
        """Whether the run shall end early: by SIGTERM or `resize`, each of which is then forgotten.

        The next SIGTERM raises.
        """
        if self._resize:
            self._resize, self.resizing = False, True
            return True
        if self._noted != signal.SIGTERM or self.preempting or not self._saves:
            return False
        self._noted, self.preempting = None, True
        return True

    def has_resized(self) -> bool:
        """Whether a run that has ended was asked to by `resize`; the next one is not asked yet."""
        resizing, self.resizing, self._resize = self.resizing, False, False
        return resizing

    def raise_noted(self) -> None:
        """Raise the exception for a signal that was noted, if there is one.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            SystemExit: another signal; its code is 128 + the signal's number, as in a shell.
        """
        if self._noted == signal.SIGINT:
            raise KeyboardInterrupt
        if self._noted is not None:
            raise SystemExit(128 + self._noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
