"""Keep the environment of a run out of command lines, which every user of a machine can read.

horovodrun with Gloo writes its whole environment into the command of each rank (Horovod 0.28.1,
runner/gloo_run.py), here and on every host. So it gets only what it needs itself. The rest goes
into a file of mode 0600, and each rank reads it before it starts: `private.py FILE COMMAND…`. That
program needs only the standard library, because it is started by its path, also on other machines.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# What horovodrun, its Python and its ssh need. None of it is a secret: that of an agent, for
# example, is behind the name of its socket.
PUBLIC = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "HOME", "KRB5CCNAME", "KRB5_CONFIG", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "PATH", "PYTHONHOME", "PYTHONNOUSERSITE"),
        *("PYTHONPATH", "PYTHONUSERBASE", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "SHELL"),
        *("SSH_AUTH_SOCK", "TMPDIR", "TZ", "USER"),
    }
)
PUBLIC_BEGINNINGS = ("HOROVOD_", "LC_", "NCCL_", "RINGSIDE_")


def hide(environment: Mapping[str, str], file: Path) -> dict[str, str]:
    """Write what is not public into a file that only this user can read; returns the rest."""
    public = {
        name: value
        for name, value in environment.items()
        if name in PUBLIC or name.startswith(PUBLIC_BEGINNINGS)
    }
    hidden = [f"{name}={value}" for name, value in environment.items() if name not in public]
    # O_EXCL: a file that somebody else made, or a link, would be written with the rights it has.
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(os.fsencode("\0".join(hidden)))
    return public


def main() -> None:
    """Be the command, with the variables of the file."""
    file, *command = sys.argv[1:]
    lines = os.fsdecode(Path(file).read_bytes()).split("\0")
    hidden = dict(line.split("=", 1) for line in lines if line)
    os.execvpe(command[0], command, {**os.environ, **hidden})


if __name__ == "__main__":
    main()
