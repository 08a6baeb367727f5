"""What is between the marks of a command, wherever the pieces begin and end in which it comes."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from launch.remote.marks import Stream, marked

MARK = "ringside-ab"


def lines_of(said: bytes, size: int) -> Iterator[str | None]:
    """What is heard when so much comes at a time; ends with None or "", and the exit code."""
    there, here = os.pipe()
    with os.fdopen(there, "rb", buffering=0) as pipe, os.fdopen(here, "wb", buffering=0) as far:
        stream = Stream(pipe, MARK, 1)
        for start in range(0, len(said), size):
            far.write(said[start : start + size])
            stream.take()
            while line := stream.line():
                yield line
        yield stream.line()
        yield str(stream.code)


@pytest.mark.parametrize("size", [1, 2, 7, 30, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"me\n\nyou\nringside-ab-1 0\nbye\n\n", ["me\n", "\n", "you\n", "", "0"]),
        (b"me\nyouringside-ab-1 0\nringside-ab-1 9\n", ["me\n", "you", "", "0"]),
        (b"caf\xe9\nyouringside-ab-1 127\nbye\n", ["caf\ufffd\n", None, "127"]),
        (b"ringside-ab-1 0\n", ["", "0"]),
        (b"me\nyou", ["me\n", None, "None"]),
    ],
)
def test_pieces(said: bytes, heard: list[str | None], end: bytes, size: int) -> None:
    """Lines are passed on as soon as they are whole; text outside of the marks is not."""
    before = b"hello\n+ sh -c 'echo ringside-ab-1; me'\nringside-ab-2\nringside-ab-1\n"

    assert list(lines_of((before + said).replace(b"\n", end), size)) == heard


def test_nothing_before_the_first_mark() -> None:
    """Lines of a login shell, and marks of another command, do not count."""
    assert list(lines_of(b"hello\nringside-cd-1\nhello\n", 5)) == [None, "None"]


def test_a_marked_command() -> None:
    """Both outputs have marks; exit code and text are those of the command."""
    command = marked(("sh", "-c", 'echo "$1"; echo "$2" >&2; exit 3', "-", "x  y", "$z"), MARK)

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout == "ringside-ab-1\nx  y\nringside-ab-1 3\n"
    assert done.stderr == "ringside-ab-2\n$z\nringside-ab-2 3\n"
    assert done.returncode == 3
