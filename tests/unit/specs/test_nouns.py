"""Nouns: JSON both ways, nonsense refused with rule, received and advice; files written whole."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from ringside_core.specs import (
    Outcome,
    RefusalError,
    RunSpec,
    Topology,
    remove_halves,
    whole_file,
    write_all_whole,
    write_whole,
)
from tests.unit.stats.factory import spec_of


def test_a_spec_survives_json() -> None:
    """It is read as it was written, and options keep their type."""
    original = spec_of("horovod", 2, options={"controller": "gloo"})

    assert RunSpec.from_json(original.to_json()) == original


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"compression": "fp8"}}, ["compression", "'none' or 'fp16'"]),
        ({"epochs": 0}, ["epochs", "greater than 0"]),
        ({"backend": "mirrored", "options": {}}, ["runs in one process", "--replicas 2"]),
        ({"topology": Topology(replicas_per_process=2)}, ["one replica in each process"]),
        ({"colour": "red"}, ["colour"]),
        ({"checkpoint_steps": 0}, ["checkpoint_steps", "greater than 0"]),
        ({"checkpoint_steps": 5, "save": "record"}, ["save='record'", "--save all"]),
        (
            {"backend": "parameter_server", "options": {}, "checkpoint_steps": 5},
            ["saved at the end of an epoch", "Leave out --checkpoint-steps"],
        ),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(
    changes: dict[str, object], words: list[str]
) -> None:
    """One message with the rule and what to do."""
    with pytest.raises(RefusalError) as refused:
        spec_of("horovod", 2).replace(**changes)

    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be whole JSON"),
        ("[]", "schema version 5"),
        ('{"schema_version": 5}', "There is no backend of that name. Received: x.json"),
        ('{"schema_version": 5, "backend": "serial"}', "RunSpec in x.json: epochs: Field required"),
    ],
)
def test_a_damaged_document_is_refused(text: str, words: str) -> None:
    """Truncated, of another schema, or incomplete; the message names the file."""
    with pytest.raises(RefusalError, match=words):
        RunSpec.from_json(text, origin="x.json")


def test_nothing_ends_without_a_reason() -> None:
    """Only a completed run needs none; exit codes are 0, 1 and 2."""
    with pytest.raises(RefusalError, match="must have a reason"):
        Outcome(kind="failed")
    kinds = ("completed", "failed", "hung", "refused")
    assert [Outcome(kind=k, reason="r", after_s=1).exit_code for k in kinds] == [0, 1, 1, 2]


def test_files_that_belong_together_appear_together(tmp_path: Path) -> None:
    """Until the last one is written, the set before it is there, whole; then they get their names.

    The last one cannot be written, as on a full disk.
    """
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_text("old")

    def full(_: BinaryIO) -> None:
        raise OSError("no space left on device")

    def new(stream: BinaryIO) -> None:
        assert [path.read_text() for path in paths] == ["old"] * 3
        stream.write(b"new")

    for at in range(3):
        writers = {path: full if number == at else new for number, path in enumerate(paths)}
        with pytest.raises(OSError, match="no space left"):
            write_all_whole(writers)
        assert [path.read_text() for path in paths] == ["old"] * 3
    write_all_whole(dict.fromkeys(paths, new))

    assert [path.read_text() for path in paths] == ["new"] * 3
    assert sorted(tmp_path.iterdir()) == paths


def test_what_is_still_in_memory_may_be_what_does_not_fit(tmp_path: Path) -> None:
    """A small file reaches the disk when it is closed; no file is renamed before that."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def writing(size: int) -> Callable[[BinaryIO], object]:
        return lambda stream: stream.write(b"x" * size)

    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_all_whole(dict(zip(paths, map(writing, (5, 5, 20)), strict=True)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


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
