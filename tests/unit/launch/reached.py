"""An `ssh` for tests: a shell script that stands for the way to every host."""

import os
from pathlib import Path

import pytest

# Without a network: the last word is the command, and a login shell takes it.
DIRECT = 'for last; do :; done; exec sh -c "$last"'
# A login shell that talks afterwards, too (`trap … EXIT` in .bashrc), and exits as it likes.
FAREWELL = 'for last; do :; done; sh -c "$last"; echo bye; echo; echo bye >&2; exit 7'


def reached_by(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every host reached by this script from now on."""
    (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ssh").chmod(0o755)
    if str(folder) not in os.environ["PATH"].split(os.pathsep):
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
