"""The folder of a run belongs to one run: who claims it, and what a refused run leaves of it."""

import fcntl
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from launch.plan import Plan

FOLDERS = ("logs", "records", "progress")
SPEC = "spec.json"


def holds_run(run_dir: Path) -> bool:
    """Whether a run has claimed a folder, or processes of one have written into it."""
    return written(run_dir) or (run_dir / SPEC).exists()


def written(run_dir: Path) -> bool:
    """Whether processes of a run have written into a folder."""
    return any(any((run_dir / folder).glob("*")) for folder in ("records", "progress"))


def claimed(plan: Plan, run_dir: Path) -> TextIO | None:
    """Take a folder for this run; None: another run has it.

    The spec is what claims it: of two launches only one can create the file, on a shared disk too,
    and no task ever reads the spec of another run. While it is open, the run goes on (`goes_on`).
    """
    if holds_run(run_dir):
        return None
    run_dir.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        file = (run_dir / SPEC).open("x", encoding="utf-8")
        with suppress(OSError):  # a disk without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            file.write(plan.spec.to_json())
            file.flush()
        except OSError:
            with suppress(OSError):  # it would write the rest
                file.close()
            raise
        return file
    return None


def goes_on(run_dir: Path) -> bool:
    """Whether the launcher of the run in a folder is alive: the kernel holds its lock till then."""
    try:
        with (run_dir / SPEC).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def to_be_made(plan: Plan, run_dir: Path) -> list[Path]:
    """What this run will make, innermost first. After a refusal nothing of it may stay."""
    own = [run_dir / name for name in (*FOLDERS, *plan.files, SPEC)]
    return [path for path in (*own, run_dir) if not path.exists()]


def remove(made: list[Path]) -> None:
    """Remove what a run has made, see `to_be_made`."""
    for path in made:
        if path.name not in FOLDERS and path.is_dir():
            with suppress(OSError):
                path.rmdir()  # unless another run has come into it
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # NFS keeps a name for an open file
        else:
            path.unlink(missing_ok=True)
