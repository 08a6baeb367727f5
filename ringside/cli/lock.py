"""One command at a time in the folder of a comparison."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from ringside_core.specs import RefusalError

LOCK = ".lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder; the kernel lets go of it when this process ends, however it ends.

    The file stays: whoever removed it would let two commands hold two files of one name.

    Raises:
        RefusalError: another command holds it.
    """
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusalError(
                "Another ringside works in this folder.",
                received=folder,
                advice="Wait until it has ended.",
            ) from None
        yield
