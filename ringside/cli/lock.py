"""One command at a time in the folder of a comparison."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from ringside_core.specs import RefusalError

LOCK = ".lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder; the kernel releases it when this process ends, also when it is killed.

    Raises:
        RefusalError: another command holds it.
    """
    # A soft lock, filelock's fallback, would outlive a process that was killed.
    lock = FileLock(folder / LOCK, blocking=False, fallback_to_soft=False)
    try:
        held = lock.acquire()
    except Timeout:
        raise RefusalError(
            "Another ringside works in this folder.",
            received=folder,
            advice="Wait until it has ended.",
        ) from None
    with held:
        yield
