"""Files that are whole or not there: who may read them, and what outlives a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringside_core.specs import remove_halves, whole_file, write_whole

KILLED = """
import os, signal, sys
from pathlib import Path
from ringside_core.specs import whole_file
with whole_file(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_may_read(mask: int, mode: int, tmp_path: Path) -> None:
    """As for any file that a program writes."""
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "x.json", "new")
    finally:
        os.umask(before)

    assert (tmp_path / "x.json").stat().st_mode & 0o777 == mode


def test_what_a_killed_writer_leaves_is_removed(tmp_path: Path) -> None:
    """The file of before is still there; only halves of this file are removed."""
    file, other = tmp_path / "checkpoint.npz", tmp_path / ".other.npz.x.half"
    file.write_text("old")
    other.touch()
    subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    left = len(list(tmp_path.iterdir()))

    remove_halves(file)

    assert left == 3
    assert sorted(tmp_path.iterdir()) == [other, file]
    assert file.read_text() == "old"


def test_a_lasting_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its name is on disk when the function returns."""
    synced: list[tuple[str, bool]] = []
    file = tmp_path / "checkpoint.npz"

    def fsync(handle: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), file.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with whole_file(file, lasting=True) as stream:
        stream.write(b"new")

    (half, before), (folder, after) = synced
    assert half.startswith(f"{tmp_path}/.checkpoint.npz.") and not before
    assert folder == str(tmp_path) and after
