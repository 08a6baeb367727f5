"""Marks around the output of a command: login shells and wrappers of ssh may print text too."""

import os
import re
import secrets
from collections.abc import Sequence
from typing import IO

CHUNK = 1 << 16  # bytes that a pipe holds
LONGEST_MARK = 64  # bytes, with an exit code
# sh runs it, because login shells differ: for csh, `>&2` is a file named 2. Each of the two outputs
# has its own marks, in this order, because a terminal joins both outputs. The mark also tells the
# exit code, because a login shell may end with another one.
MARKED = (
    'echo {mark}-2 >&2; echo {mark}-1; "$0" "$@"; code=$?; '
    "echo {mark}-1 $code; echo {mark}-2 $code >&2; exit $code"
)


def new_mark() -> str:
    """A mark for one command. It is random, so that no login script prints it by chance."""
    return f"ringside-{secrets.token_hex(8)}"


def marked(argv: Sequence[str], mark: str) -> tuple[str, ...]:
    """The same command, with marks around all that it prints."""
    return ("sh", "-c", MARKED.format(mark=mark), *argv)


class Stream:
    """One output of a marked command: only the text between its two marks counts.

    Args:
        pipe: the pipe that it is read from.
        mark: the mark of the command.
        number: 1 for its output, 2 for its errors.

    Attributes:
        text: text between the marks that no call of `line` has taken yet; before the first mark,
            all text.
        total: bytes read up to the second mark.
        code: exit code of the command; None: the second mark, which tells it, is still to come.
        over: no more output can come.
    """

    def __init__(self, pipe: IO[bytes], mark: str, number: int) -> None:
        os.set_blocking(pipe.fileno(), False)
        self.pipe = pipe
        self.text = bytearray()
        self.total = 0
        self.code: int | None = None
        self.over = False
        self._begun = False
        # A terminal ends lines with \r\n. A shell that shows its commands (set -x) shows the marks,
        # too, but not at the end of a line.
        self._first = re.compile(rf"{mark}-{number}\r?\n".encode())
        self._second = re.compile(rf"{mark}-{number} (\d+)\r?\n".encode())

    def take(self) -> None:
        """Read what is there, at most what a pipe holds."""
        try:
            said = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        self.over = not said
        if self.code is not None:
            return
        self.total += len(said)
        since = max(0, len(self.text) - LONGEST_MARK)
        self.text += said
        if not self._begun and (found := self._first.search(self.text, since)):
            del self.text[: found.end()]
            self._begun, since = True, 0
        if self._begun and (found := self._second.search(self.text, since)):
            self.code = int(found[1])
            del self.text[found.start() :]

    def line(self) -> str | None:
        """The next line; "" after the last one of a command that exits with 0; None: not yet."""
        length = self.text.find(b"\n") + 1
        if not self._begun or not (length or self.code == 0):
            return None
        length = length or len(self.text)
        line = self.text[:length].decode(errors="replace")
        del self.text[:length]
        return line.replace("\r\n", "\n")
