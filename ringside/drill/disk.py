"""A small disk for the folder of a run, which a drill can fill."""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ringside_core.specs.fault_request import FOLDER

BALLAST = "ballast"
SMALLEST_BYTES = 16 << 20
CLONE_NEWNS = 0x20000  # linux/sched.h


@cache
def may_mount() -> bool:
    """Whether this process may have a disk of its own; tried where no other process sees it."""
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:  # a machine without them
        return False


@contextlib.contextmanager
def small_disk(folder: Path, like: Path) -> Iterator[None]:
    """Put a disk under a folder; at the end the folder holds what the disk held.

    Only this process and those that it starts see the disk, so it goes with them. What the drill
    and the run tell each other stays on the disk of before.

    Args:
        folder: of a run; empty.
        like: folder of a run that leaves as much.

    Raises:
        OSError, CalledProcessError: this process may not mount a disk.
    """
    _leave_the_mounts_of_others()
    aside, kept = folder.with_name(f"{folder.name}-aside"), folder.with_name(f"{folder.name}-kept")
    aside.mkdir()
    size = SMALLEST_BYTES + 4 * sum(one.stat().st_size for one in like.rglob("*") if one.is_file())
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        (folder / FOLDER).mkdir()
        _mount("--bind", str(aside), str(folder / FOLDER))
        yield
        shutil.copytree(folder, kept)
    finally:
        subprocess.run(["umount", "--lazy", "--recursive", folder], check=True)
        shutil.rmtree(aside)
    folder.rmdir()
    kept.rename(folder)


def fill(folder: Path) -> None:
    """Take all that its disk has left."""
    with (folder / BALLAST).open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def empty(folder: Path) -> None:
    """Give it back."""
    (folder / BALLAST).unlink(missing_ok=True)


@cache  # once for this process
def _leave_the_mounts_of_others() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _mount("--make-rprivate", "/")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
