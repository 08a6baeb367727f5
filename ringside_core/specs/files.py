"""Files that are there whole, or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

# How the names of files end that are being written; launch/remote/sweep.py has it too.
HALF = ".half"


def is_full(error: OSError) -> bool:
    """Whether a disk is full, or what its user may have of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically: no reader ever sees half of it."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def write_all_whole(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write several files; none appears under its name before all of them are on disk.

    They then get their names one after the other, in the order given. If one cannot get its name
    (its folder became read-only), the files before it are new and the others unchanged.
    """
    with ExitStack() as files:
        # In reverse, so that they get their names in the order given.
        for path, write in reversed(list(writers.items())):
            stream = files.enter_context(whole_file(path))
            write(stream)
            stream.flush()  # a full disk is noticed here, before any file has its name


@contextmanager
def whole_file(path: Path, *, lasting: bool = False) -> Iterator[BinaryIO]:
    """A file that gets its name only when it is complete: a temporary file, then a rename.

    Args:
        path: its name. Who may read it is the umask's business.
        lasting: it outlives a machine that loses power the moment after.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}{HALF}")
    try:
        with half.open("xb") as stream:
            yield stream
            if lasting:
                stream.flush()
                os.fsync(stream.fileno())
        half.replace(path)
    except BaseException as error:
        half.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # the error of a full disk names no file
        raise
    if lasting:
        _keep_names(path.parent)


def remove_halves(path: Path) -> None:
    """Remove what writers of this file have left who were killed. No process may write it now."""
    for half in path.parent.glob(f".{path.name}.*{HALF}"):
        half.unlink(missing_ok=True)


def _keep_names(folder: Path) -> None:
    """Let the names in a folder outlive a loss of power, where its disk can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
