"""A disk that a test can fill."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A new folder on a disk of this size (`2m`); skips the test where no one may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(
            ["umount", "--lazy", folder], check=True
        )  # somebody may still have a file open


def fill(file: Path) -> None:
    """Let this file take all that a disk has."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while stream.write(b"x" * size):
                    pass
